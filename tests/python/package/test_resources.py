"""Resources and adaptors: RMM's cases."""

import gc
import threading

import pytest

import floodmark as rmm

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(
    params=[
        rmm.mr.CudaMemoryResource,
        rmm.mr.ManagedMemoryResource,
        rmm.mr.PinnedHostMemoryResource,
        rmm.mr.SystemMemoryResource,
        rmm.mr.CudaAsyncMemoryResource,
        lambda: rmm.mr.SamHeadroomMemoryResource(headroom=MIB),
        lambda: rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 0, 64 * MIB),
        lambda: rmm.mr.ArenaMemoryResource(rmm.mr.CudaMemoryResource(), "64MiB"),
        lambda: rmm.mr.FixedSizeMemoryResource(rmm.mr.CudaMemoryResource(), 16 * MIB, 2),
        lambda: rmm.mr.BinningMemoryResource(rmm.mr.CudaMemoryResource(), 18, 22),
        lambda: rmm.mr.TrackingResourceAdaptor(rmm.mr.CudaMemoryResource(), capture_stacks=True),
        lambda: rmm.mr.PrefetchResourceAdaptor(rmm.mr.ManagedMemoryResource()),
        lambda: rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource()),
    ],
    ids=lambda make: getattr(make, "__name__", "make"),
)
def resource(request):
    return request.param()


def test_every_resource_can_be_current(resource):
    rmm.mr.set_current_device_resource(resource)
    assert rmm.mr.get_current_device_resource() is resource
    assert rmm.mr.get_current_device_resource_type() is type(resource)
    assert rmm.mr.get_per_device_resource(0) is resource
    for size in (1, 1000, 4 * KIB, 3 * MIB):
        buffer = rmm.DeviceBuffer.to_device(bytes(range(256)) * (size // 256) + bytes(size % 256))
        assert buffer.mr is resource
        assert buffer.tobytes()[:2] == (b"\0\1" if size > 256 else b"\0")[: buffer.size]
    pointer = resource.allocate(1024)
    assert pointer % 256 == 0
    resource.deallocate(pointer, 1024)


def test_a_buffer_keeps_its_resource_alive(resource):
    rmm.mr.set_current_device_resource(resource)
    buffer = rmm.DeviceBuffer.to_device(b"kept")
    rmm.reinitialize()
    del resource
    gc.collect()
    assert buffer.tobytes() == b"kept"


def test_reinitialize_max_pool_size():
    rmm.reinitialize(pool_allocator=True, initial_pool_size=0, maximum_pool_size=1 << 23)
    rmm.DeviceBuffer().resize((1 << 23) - 1)
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer().resize(1 << 24)


def test_reinitialize_initial_pool_size_gt_max():
    with pytest.raises(RuntimeError, match="Initial pool size exceeds the maximum pool size"):
        rmm.reinitialize(pool_allocator=True, initial_pool_size=1 << 11, maximum_pool_size=1 << 10)


def test_reinitialize_with_valid_str_arg_pool_size():
    rmm.reinitialize(pool_allocator=True, initial_pool_size="2kib", maximum_pool_size="8kib")
    assert rmm.mr.get_current_device_resource().pool_size() == 2048


def test_reinitialize_with_invalid_str_arg_pool_size():
    with pytest.raises(ValueError, match="Could not parse"):
        rmm.reinitialize(pool_allocator=True, initial_pool_size="2k", maximum_pool_size="8k")


def test_reinitialize_keeps_resources_when_it_fails():
    before = rmm.mr.get_current_device_resource()
    with pytest.raises(RuntimeError):
        rmm.reinitialize(pool_allocator=True, initial_pool_size=100)
    assert rmm.mr.get_current_device_resource() is before


def test_reinitialize_hooks():
    order = []
    functions = [rmm.register_reinitialize_hook(lambda n=n: order.append(n)) for n in (1, 2, 3)]
    rmm.reinitialize()
    assert order == [3, 2, 1]
    rmm.register_reinitialize_hook(functions[1])
    rmm.unregister_reinitialize_hook(functions[1])
    rmm.reinitialize(devices=[0])
    assert order == [3, 2, 1, 3, 1]
    for function in functions:
        rmm.unregister_reinitialize_hook(function)
    rmm.reinitialize(devices=None, managed_memory=True)
    assert len(order) == 5
    assert isinstance(rmm.mr.get_current_device_resource(), rmm.mr.ManagedMemoryResource)


def test_devices(run):
    assert rmm.is_initialized()
    (device, *_) = rmm.devices()
    free, total = rmm.mr.available_device_memory()
    assert 0 < free <= total
    assert total <= device.total_bytes * 1.1
    assert run("import floodmark; print(floodmark.devices()[0].kind)", FLOODMARK_DEVICE="host").stdout == "host\n"
    failed = run("import floodmark; floodmark.devices()", status=1, FLOODMARK_DEVICE="abacus")
    assert "FLOODMARK_DEVICE=abacus: use host or cuda" in failed.stderr


def test_a_device_that_is_not_there_is_an_error():
    with pytest.raises((ValueError, RuntimeError), match="device 97"):
        rmm.reinitialize(devices=97)


def test_limiting():
    limiting = rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), MIB)
    rmm.mr.set_current_device_resource(limiting)
    assert (limiting.get_allocated_bytes(), limiting.get_allocation_limit()) == (0, MIB)
    first, second = rmm.DeviceBuffer(size=MIB // 2), rmm.DeviceBuffer(size=MIB // 2)
    with pytest.raises(MemoryError, match="limit is 1.00 MiB"):
        rmm.DeviceBuffer(size=1)
    assert limiting.get_allocated_bytes() == MIB
    del first, second
    assert limiting.get_allocated_bytes() == 0


@pytest.mark.parametrize("stacks", [False, True])
def test_tracking(stacks):
    tracking = rmm.mr.TrackingResourceAdaptor(rmm.mr.CudaMemoryResource(), capture_stacks=stacks)
    rmm.mr.set_current_device_resource(tracking)
    buffers = [rmm.DeviceBuffer(size=1000) for _ in range(10)]
    del buffers[::2]
    assert tracking.get_allocated_bytes() == 5000
    upper = rmm.mr.TrackingResourceAdaptor(tracking)
    rmm.mr.set_current_device_resource(upper)
    buffers += [rmm.DeviceBuffer(size=1000) for _ in range(2)]
    assert (upper.get_allocated_bytes(), tracking.get_allocated_bytes()) == (2000, 7000)
    assert tracking.get_outstanding_allocations_str().startswith("0x")
    assert [size for _, size, _ in upper.get_outstanding_allocations()] == [1000, 1000]
    upper.log_outstanding_allocations()
    buffers.clear()
    assert tracking.get_outstanding_allocations_str() == ""


def test_failure_callback():
    retried = []

    def callback(size):
        retried.append(size)
        return len(retried) < 2

    limited = rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), MIB)
    rmm.mr.set_current_device_resource(rmm.mr.FailureCallbackResourceAdaptor(limited, callback))
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=2 * MIB)
    assert retried == [2 * MIB, 2 * MIB]


def test_a_failure_callback_can_free_memory():
    limited = rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), MIB)
    kept = []

    def free_all(size):
        freed = bool(kept)
        kept.clear()
        return freed

    rmm.mr.set_current_device_resource(rmm.mr.FailureCallbackResourceAdaptor(limited, free_all))
    kept.append(rmm.DeviceBuffer(size=MIB))
    assert rmm.DeviceBuffer(size=MIB).size == MIB


def test_an_exception_of_a_failure_callback_surfaces():
    def callback(size):
        raise RuntimeError("MyError")

    limited = rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), MIB)
    rmm.mr.set_current_device_resource(rmm.mr.FailureCallbackResourceAdaptor(limited, callback))
    with pytest.raises(RuntimeError, match="MyError"):
        rmm.DeviceBuffer(size=2 * MIB)


def test_callback_resource(capsys):
    base = rmm.mr.CudaMemoryResource()

    def allocate(size, stream):
        print(f"Allocating {size} bytes")
        return base.allocate(size, stream)

    def deallocate(pointer, size, stream):
        print(f"Deallocating {size} bytes")
        base.deallocate(pointer, size, stream)

    rmm.mr.set_current_device_resource(rmm.mr.CallbackMemoryResource(allocate, deallocate))
    rmm.DeviceBuffer(size=256)
    assert capsys.readouterr().out == "Allocating 256 bytes\nDeallocating 256 bytes\n"


@pytest.mark.parametrize(
    ("raised", "seen"),
    [(MemoryError, MemoryError), (RuntimeError, RuntimeError), (Exception, RuntimeError), (BaseException, RuntimeError)],
)
@pytest.mark.parametrize("over", [lambda mr: mr, lambda mr: rmm.mr.PoolMemoryResource(mr, 0)])
def test_exceptions_of_callbacks(raised, seen, over):
    def allocate(size, stream):
        raise raised("My alloc error")

    def deallocate(pointer, size, stream):
        return None

    rmm.mr.set_current_device_resource(over(rmm.mr.CallbackMemoryResource(allocate, deallocate)))
    with pytest.raises(seen, match="My alloc error"):
        rmm.DeviceBuffer(size=256)


def test_a_pool_over_a_callback_in_many_threads():
    """A thread that grows the pool needs the interpreter while others wait for the pool."""
    base = rmm.mr.CudaMemoryResource()

    def allocate(size, stream):
        sum(range(20000))  # long enough for another thread to run
        return base.allocate(size, stream)

    callback = rmm.mr.CallbackMemoryResource(allocate, base.deallocate)
    pool = rmm.mr.PoolMemoryResource(callback, 0)
    done = []

    def work():
        for size in range(1, 200):
            [rmm.DeviceBuffer(size=size * 1000, mr=pool) for _ in range(3)]
        done.append(True)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(done) == 8


def test_binning():
    base = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    own = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    binning = rmm.mr.BinningMemoryResource(base)
    binning.add_bin(4 * KIB, own)
    binning.add_bin("1MiB")
    assert binning.bin_mrs == [own]
    rmm.mr.set_current_device_resource(binning)
    small = rmm.DeviceBuffer(size=100)
    assert own.allocation_counts.current_bytes == 100
    large = rmm.DeviceBuffer(size=3 * MIB)
    assert base.allocation_counts.current_bytes == 128 * MIB + 3 * MIB
    with pytest.raises(RuntimeError, match="before the first allocation"):
        binning.add_bin(8 * KIB)
    del small, large


def test_the_arena_describes_itself_on_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arena = rmm.mr.ArenaMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 20, dump_log_on_failure=True)
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=8 * MIB, mr=arena)
    assert (tmp_path / "rmm_arena_memory_dump.log").exists()


def test_repr_shows_the_stack():
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 0)
    stack = rmm.mr.StatisticsResourceAdaptor(pool)
    assert repr(stack) == "StatisticsResourceAdaptor(PoolMemoryResource(CudaMemoryResource()))"
    with pytest.raises(TypeError):
        rmm.mr.set_current_device_resource("pool")
    with pytest.raises(TypeError):
        rmm.mr.PoolMemoryResource(None, 0)
