"""DeviceBuffer."""

import copy
import pickle
import sys
import weakref

import numpy as np
import pytest

import floodmark as rmm


@pytest.mark.parametrize("size", [0, 5])
def test_size_and_pointer(size):
    buffer = rmm.DeviceBuffer(size=size)
    assert buffer.size == buffer.nbytes == len(buffer) == size
    assert (buffer.ptr != 0) == (size > 0)
    assert buffer.ptr % 256 == 0
    assert buffer.capacity() == size
    assert sys.getsizeof(buffer) < 200
    assert repr(buffer) == f"DeviceBuffer(size={size}, ptr={buffer.ptr:#x})"


def test_arguments():
    assert rmm.DeviceBuffer(7).size == 7
    assert rmm.DeviceBuffer(stream=0, size=3, mr=None).size == 3
    assert rmm.DeviceBuffer(**{"".join(["si", "ze"]): 9}).size == 9
    for arguments, named in [((1, 2), {}), ((1,), {"size": 2}), ((), {"bytes": 1})]:
        with pytest.raises(TypeError):
            rmm.DeviceBuffer(*arguments, **named)
    with pytest.raises(TypeError, match="stream cannot be None"):
        rmm.DeviceBuffer(size=1, stream=None)
    with pytest.raises(TypeError):
        rmm.DeviceBuffer(size="10")
    with pytest.raises(TypeError):
        rmm.DeviceBuffer(size=1, mr="pool")
    with pytest.raises(OverflowError):
        rmm.DeviceBuffer(size=-1)


def test_subclasses_take_their_own_arguments():
    class Named(rmm.DeviceBuffer):
        def __new__(cls, name, size):
            self = super().__new__(cls, size=size)
            self.name = name
            return self

    buffer = Named("mine", 12)
    assert (buffer.name, buffer.size) == ("mine", 12)


@pytest.mark.parametrize("data", [b"", b"abc", bytes(range(256)) * 40])
def test_bytes_come_back(data):
    buffer = rmm.DeviceBuffer.to_device(data)
    assert buffer.tobytes() == bytes(buffer) == data
    array = buffer.copy_to_host()
    assert array.dtype == np.uint8
    assert array.tobytes() == data
    target = np.zeros(len(data) + 3, "u1")
    assert buffer.copy_to_host(target) is target
    assert target.tobytes() == data + b"\0\0\0"
    assert buffer.copy().tobytes() == data
    assert copy.deepcopy(buffer).tobytes() == data
    assert pickle.loads(pickle.dumps(buffer)).tobytes() == data
    assert rmm.DeviceBuffer(ptr=buffer.ptr, size=len(data)).tobytes() == data


def test_arrays_are_copied_in():
    numbers = np.arange(10, dtype="i8").reshape(2, 5)
    buffer = rmm.DeviceBuffer.to_device(numbers)
    assert (buffer.copy_to_host().view("i8") == np.arange(10)).all()
    buffer.copy_from_host(np.full(4, 7, "i8"))
    assert buffer.copy_to_host().view("i8").tolist() == [7, 7, 7, 7, 4, 5, 6, 7, 8, 9]
    other = rmm.DeviceBuffer(size=80)
    other.copy_from_device(buffer)
    assert other.tobytes() == buffer.tobytes()
    with pytest.raises(ValueError, match="too large"):
        buffer.copy_from_host(bytes(81))
    with pytest.raises(ValueError, match="too small"):
        buffer.copy_to_host(bytearray(79))
    with pytest.raises(TypeError, match="cannot be written"):
        buffer.copy_to_host(bytes(80))
    with pytest.raises(ValueError, match="contiguous"):
        buffer.copy_from_host(memoryview(bytes(20))[::2])


def test_resizing_keeps_contents_and_capacity():
    rmm.statistics.enable_statistics()
    buffer = rmm.DeviceBuffer.to_device(b"0123456789")
    buffer.resize(4)
    assert (buffer.tobytes(), buffer.capacity()) == (b"0123", 10)
    buffer.resize(1000)
    assert (buffer.tobytes()[:4], buffer.capacity()) == (b"0123", 1000)
    buffer.reserve(2000)
    assert (buffer.size, buffer.capacity()) == (1000, 2000)
    buffer.prefetch()
    statistics = rmm.statistics.get_statistics()
    # Both blocks are live while the contents move.
    assert (statistics.current_bytes, statistics.peak_bytes) == (2000, 3000)


def test_memory_of_the_host_can_be_viewed(host_memory):
    buffer = rmm.DeviceBuffer.to_device(b"\1\2\3")
    view = np.asarray(buffer)
    view[1] = 9
    assert buffer.tobytes() == b"\1\x09\3"
    assert buffer.__array_interface__["data"] == (buffer.ptr, False)
    # A GPU can read memory of the host too.
    assert hasattr(buffer, "__cuda_array_interface__") == (rmm.devices()[0].kind == "cuda")
    with pytest.raises(BufferError, match="1 views? of its memory|views of its memory"):
        buffer.resize(1000)
    del view
    buffer.resize(1000)
    array = np.frombuffer(rmm.DeviceBuffer.to_device(b"kept alive"), "u1")
    assert array.tobytes() == b"kept alive"


def test_memory_of_a_gpu_cannot_be_viewed(monkeypatch):
    if rmm.devices()[0].kind == "host":
        assert rmm.DeviceBuffer(size=1).mr.memory_kind == "pageable"
        return
    with pytest.raises(BufferError, match="copy_to_host"):
        memoryview(rmm.DeviceBuffer(size=1))


def test_a_request_beyond_all_memory_is_a_memory_error():
    with pytest.raises(MemoryError, match="out of memory"):
        rmm.DeviceBuffer(size=1 << 50)
    with pytest.raises(MemoryError, match="out of memory"):
        rmm.DeviceBuffer(size=(1 << 64) - 1)


def test_a_buffer_that_moves_does_not_stop_other_threads(run):
    """The thread that resizes needs the interpreter for its callback while the other one waits for the buffer."""
    result = run(
        """
        import threading
        import floodmark as rmm

        base = rmm.mr.CudaMemoryResource()
        started = threading.Event()

        def allocate(size, stream):
            if size == 2000:
                started.set()
                reader.join(0.2)  # runs other threads; the reader waits for the buffer
            return base.allocate(size, stream)

        mr = rmm.mr.CallbackMemoryResource(allocate, base.deallocate)
        buffer = rmm.DeviceBuffer(size=1000, mr=mr)
        sizes = []

        def read():
            started.wait(20)
            sizes.append(buffer.size)

        reader = threading.Thread(target=read)
        reader.start()
        buffer.resize(2000)
        reader.join(20)
        print(sizes)
        """,
        timeout=60,
    )
    assert result.stdout == "[2000]\n"


def test_a_buffer_keeps_its_stream_until_it_is_freed():
    class Stream:
        handle = 0

    stream = Stream()
    alive = weakref.ref(stream)
    buffer = rmm.DeviceBuffer(size=10, stream=stream)
    del stream
    assert alive() is not None
    del buffer
    assert alive() is None
