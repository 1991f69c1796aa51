"""Statistics: RMM's cases, and those in which RMM counts wrongly."""

import contextlib
import sys
import threading

import pytest

import floodmark as rmm
from floodmark.statistics import (
    ProfilerContext,
    ProfilerRecords,
    Statistics,
    enable_statistics,
    get_statistics,
    pop_statistics,
    push_statistics,
    statistics,
)


def counts(bytes_, counts):
    """Triples are current, peak and total."""
    return Statistics(bytes_[0], counts[0], bytes_[1], counts[1], bytes_[2], counts[2])


def test_context():
    before = rmm.mr.get_current_device_resource()
    assert get_statistics() is None
    with statistics():
        current = rmm.mr.get_current_device_resource()
        b1 = rmm.DeviceBuffer(size=20)
        assert get_statistics() == counts((20, 20, 20), (1, 1, 1))
        with statistics():
            assert rmm.mr.get_current_device_resource() is current
            b2 = rmm.DeviceBuffer(size=10)
            assert get_statistics() == counts((10, 10, 10), (1, 1, 1))
        assert get_statistics() == counts((30, 30, 30), (2, 2, 2))
    assert rmm.mr.get_current_device_resource() is before
    del b1, b2


def test_the_context_decorates_functions():
    counted = []

    @statistics()
    def work(depth):
        buffer = rmm.DeviceBuffer(size=10)
        if depth:
            work(depth - 1)
        counted.append(get_statistics().total_bytes)
        return buffer

    before = rmm.mr.get_current_device_resource()
    work(2)
    assert counted == [10, 20, 30]
    assert rmm.mr.get_current_device_resource() is before
    with pytest.raises(RuntimeError, match="was not entered"):
        statistics().__exit__(None, None, None)
    with pytest.raises(TypeError):
        statistics(1)


@pytest.mark.parametrize("make", [statistics, lambda: rmm.scope("block"), lambda: rmm.statistics.profiler(name="block")])
def test_blocks_are_ordinary_context_managers(make):
    block = make()
    before = sys.getrefcount(block)
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(block)
    for _ in range(1000):
        with block:
            pass
    enter, leave = block.__enter__, block.__exit__
    enter()
    assert leave(None, None, None) is None
    type(block).__enter__(block)
    type(block).__exit__(block, None, None, None)
    del enter, leave
    assert sys.getrefcount(block) == before
    for wrong in (
        lambda: block.__enter__(1),
        lambda: block.__exit__(),
        lambda: block.__exit__(kind=None, value=None, traceback=None),
        lambda: type(block).__enter__(),
        lambda: type(block).__enter__(5),
        lambda: type(block).__enter__.__get__(5),
        lambda: type(type(block).__enter__)(),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_a_class_of_ones_own_can_extend_a_block():
    class Own(ProfilerContext):
        def __enter__(self):
            entered.append(self)
            return super().__enter__()

    entered = []
    enable_statistics()
    records = ProfilerRecords()
    block = Own(records, "own")
    with block as given:
        rmm.DeviceBuffer(size=100)
    assert entered == [block] and given is block
    assert records.records["own"].memory_total == 100


def test_multiple_mr():
    base = rmm.mr.CudaMemoryResource()
    lower = rmm.mr.StatisticsResourceAdaptor(base)
    rmm.mr.set_current_device_resource(lower)
    buffers = [rmm.DeviceBuffer(size=1000) for _ in range(10)]
    for i in range(9, 0, -2):
        del buffers[i]
    assert lower.allocation_counts == counts((5000, 10000, 10000), (5, 10, 10))
    upper = rmm.mr.StatisticsResourceAdaptor(lower)
    rmm.mr.set_current_device_resource(upper)
    buffers += [rmm.DeviceBuffer(size=1000) for _ in range(2)]
    assert upper.allocation_counts == counts((2000, 2000, 2000), (2, 2, 2))
    assert lower.allocation_counts == counts((7000, 10000, 12000), (7, 10, 12))
    buffers.clear()
    assert upper.allocation_counts == counts((0, 2000, 2000), (0, 2, 2))
    assert lower.allocation_counts == counts((0, 10000, 12000), (0, 10, 12))
    assert upper.get_upstream() is lower
    assert lower.upstream_mr is base


def test_counter_stack(stats_mr):
    mr = rmm.mr.get_current_device_resource()
    buffers = [rmm.DeviceBuffer(size=10) for _ in range(10)]
    assert mr.push_counters() == counts((100, 100, 100), (10, 10, 10))
    b1 = rmm.DeviceBuffer(size=10)
    assert mr.push_counters() == counts((10, 10, 10), (1, 1, 1))
    del b1
    assert mr.pop_counters() == counts((-10, 0, 0), (-1, 0, 0))
    b1 = rmm.DeviceBuffer(size=10)
    assert mr.push_counters() == counts((10, 10, 20), (1, 1, 2))
    b2 = rmm.DeviceBuffer(size=10)
    assert mr.pop_counters() == counts((10, 10, 10), (1, 1, 1))
    assert mr.pop_counters() == counts((20, 20, 30), (2, 2, 3))
    del b1, b2
    assert mr.allocation_counts == counts((100, 120, 130), (10, 12, 13))
    del buffers
    with pytest.raises(IndexError, match="cannot pop the last counter pair"):
        mr.pop_counters()


def test_current_statistics(stats_mr):
    b1 = rmm.DeviceBuffer(size=10)
    assert get_statistics() == counts((10, 10, 10), (1, 1, 1))
    b2 = rmm.DeviceBuffer(size=20)
    assert push_statistics() == counts((30, 30, 30), (2, 2, 2))
    del b1
    assert pop_statistics() == counts((-10, 0, 0), (-1, 0, 0))
    del b2
    assert get_statistics() == counts((0, 30, 30), (0, 2, 2))


def test_statistics_disabled():
    assert get_statistics() is None
    assert push_statistics() is None
    assert pop_statistics() is None


def test_enabling_twice_enables_once():
    enable_statistics()
    current = rmm.mr.get_current_device_resource()
    enable_statistics()
    assert rmm.mr.get_current_device_resource() is current


def test_statistics_are_found_below_other_adaptors(tmp_path):
    enable_statistics()
    rmm.enable_logging(str(tmp_path / "log.csv"))
    current = rmm.mr.get_current_device_resource()
    rmm.mr.set_current_device_resource(rmm.mr.LimitingResourceAdaptor(current, "1MiB"))
    buffer = rmm.DeviceBuffer(size=100)
    assert get_statistics() == counts((100, 100, 100), (1, 1, 1))
    enable_statistics()
    assert isinstance(rmm.mr.get_current_device_resource(), rmm.mr.LimitingResourceAdaptor)
    with statistics():
        other = rmm.DeviceBuffer(size=7)
        assert get_statistics() == counts((7, 7, 7), (1, 1, 1))
    del buffer, other


def test_a_changed_stack_is_noticed():
    with pytest.raises(ValueError, match="stack was changed"):
        with statistics():
            rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())


def test_threads_have_scopes_of_their_own(stats_mr):
    entered, allocated = threading.Barrier(2), threading.Barrier(2)
    popped = {}

    def work(size):
        push_statistics()
        entered.wait(30)
        buffer = rmm.DeviceBuffer(size=size)
        allocated.wait(30)
        popped[size] = pop_statistics()
        del buffer

    threads = [threading.Thread(target=work, args=(size,)) for size in (1000, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert popped == {1000: counts((1000, 1000, 1000), (1, 1, 1)), 7: counts((7, 7, 7), (1, 1, 1))}
    assert get_statistics().total_bytes == 1007


def test_eight_threads_lose_nothing(stats_mr):
    def work():
        kept = [rmm.DeviceBuffer(size=size) for size in range(1, 501)]
        del kept[::2]
        return kept

    results = []
    threads = [threading.Thread(target=lambda: results.append(work())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    figures = get_statistics()
    assert (figures.total_count, figures.total_bytes) == (8 * 500, 8 * 500 * 501 // 2)
    assert (figures.current_count, figures.current_bytes) == (8 * 250, 8 * sum(range(2, 501, 2)))
    results.clear()
    assert get_statistics().current_bytes == 0


def test_statistics_reads_as_a_dataclass():
    expected = "Statistics(current_bytes=1, current_count=2, peak_bytes=3, peak_count=4, total_bytes=5, total_count=6)"
    assert repr(Statistics(1, 2, 3, 4, 5, 6)) == expected
