"""NumPy's memory from our resources."""

import gc
import threading

import numpy as np
import pytest

import floodmark
import floodmark.numpy
from floodmark.statistics import get_statistics, statistics

HEADER = 64


@pytest.fixture
def installed(host_memory):
    floodmark.numpy.install()
    yield
    floodmark.numpy.uninstall()


def test_arrays_are_counted(installed):
    with statistics():
        array = np.empty(1000)
        assert get_statistics().current_bytes == 8000 + HEADER
        zeros = np.zeros((10, 10), "u1")
        assert not zeros.any()
        assert get_statistics().current_count == 2
        view = array[10:20]
        assert get_statistics().current_count == 2
        del array, zeros
        gc.collect()
        assert get_statistics().current_count == 1
        del view
        assert get_statistics().current_bytes == 0
    assert np._core.multiarray.get_handler_name() == "floodmark"


def test_contents_survive_resizing(installed):
    array = np.arange(1000)
    array.resize(100_000, refcheck=False)
    assert (array[:1000] == np.arange(1000)).all()
    assert not array[1000:].any()
    array.resize(10, refcheck=False)
    assert array.tolist() == list(range(10))


def test_arrays_outlive_install_and_uninstall(host_memory):
    before = np.arange(1000)
    with floodmark.numpy.installed():
        assert floodmark.numpy.is_installed()
        during = np.arange(1000)
        before.resize(2000, refcheck=False)
        with statistics():
            inside = np.arange(500)
        # The resource of `inside` is not current any more.
        del inside
    assert not floodmark.numpy.is_installed()
    during.resize(3000, refcheck=False)
    after = np.arange(1000)
    assert before[:1000].sum() == during[:1000].sum() == after.sum()
    del before, during
    gc.collect()


def test_threads_count_too(installed):
    with statistics():
        kept = []
        threads = [threading.Thread(target=lambda: kept.append(np.ones(1000))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert get_statistics().current_bytes == 8 * (8000 + HEADER)
        kept.clear()
        assert get_statistics().current_bytes == 0


def test_a_limit_is_a_memory_error(installed):
    limited = floodmark.mr.LimitingResourceAdaptor(floodmark.mr.SystemMemoryResource(), "1MiB")
    floodmark.mr.set_current_device_resource(limited)
    with pytest.raises(MemoryError):
        np.empty(2**20)
    floodmark.reinitialize()


def test_the_profiler_sees_arrays(installed):
    records = floodmark.statistics.ProfilerRecords()
    floodmark.statistics.enable_statistics()

    @floodmark.statistics.profiler(records=records, name="sum")
    def work():
        left = np.ones(10_000)
        return (left + left).sum()

    work()
    record = records.records["sum"]
    assert record.num_calls == 1
    assert 2 * 80_000 <= record.memory_peak <= 2 * 80_000 + 4 * (HEADER + 64)


def test_fork(run):
    run(
        """
        import os, numpy as np, floodmark, floodmark.numpy
        floodmark.numpy.install()
        floodmark.statistics.enable_statistics()
        kept = np.ones(1000)
        if (child := os.fork()) == 0:
            more = kept + 1
            os._exit(0 if more.sum() == 2000 else 1)
        assert os.waitpid(child, 0)[1] == 0
        """,
        FLOODMARK_DEVICE="host",
    )


def test_memory_of_a_gpu_is_never_an_array(installed):
    """Arrays come from the host while the current resource is memory of a GPU, as after reinitialize() beside one."""
    floodmark.reinitialize()
    array = np.arange(1000)
    assert array.sum() == 499500
