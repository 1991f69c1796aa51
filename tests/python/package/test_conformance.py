"""The remaining cases of RMM's own tests, whose tables are in order: logging, statistics, tracking, limiting."""

import csv
import threading

import pytest

import floodmark as rmm

MIB = 1 << 20


def base():
    return rmm.mr.CudaMemoryResource()


def rows(path):
    with open(path, newline="") as file:
        return [(row["Action"], int(row["Size"])) for row in csv.DictReader(file)]


# Logging: LOGGER_TEST of RMM, and the matrix of its Python tests.


@pytest.mark.parametrize("name", ["log", None], ids=["FilenameConstructor", "EnvironmentPath"])
def test_rows_in_order(tmp_path, monkeypatch, name):
    monkeypatch.setenv("RMM_LOG_FILE", str(tmp_path / "log"))
    log = rmm.mr.LoggingResourceAdaptor(base(), name and str(tmp_path / name))
    first, second = log.allocate(100), log.allocate(42)
    log.deallocate(first, 100)
    log.deallocate(second, 42)
    assert rows(tmp_path / "log.dev0") == [("allocate", 100), ("allocate", 42), ("free", 100), ("free", 42)]


def test_two_logs_have_the_same_rows(tmp_path):
    inner = rmm.mr.LoggingResourceAdaptor(base(), str(tmp_path / "inner.csv"))
    outer = rmm.mr.LoggingResourceAdaptor(inner, str(tmp_path / "outer.csv"))
    outer.deallocate(outer.allocate(99), 99)
    outer.deallocate(outer.allocate(42), 42)
    expected = [("allocate", 99), ("free", 99), ("allocate", 42), ("free", 42)]
    assert rows(tmp_path / "inner.csv") == rows(tmp_path / "outer.csv") == expected


def test_allocate_failure(tmp_path):
    log = rmm.mr.LoggingResourceAdaptor(rmm.mr.LimitingResourceAdaptor(base(), MIB), str(tmp_path / "log.csv"))
    log.deallocate(log.allocate(99), 99)
    with pytest.raises(MemoryError):
        log.allocate(1 << 40)
    assert rows(tmp_path / "log.csv") == [("allocate", 99), ("free", 99), ("allocate failure", 1 << 40)]


@pytest.mark.parametrize("item", [1, 2, 4, 8])
def test_rmm_csv_log_of_all_lengths(tmp_path, item):
    rmm.reinitialize(logging=True, log_file_name=str(tmp_path / "rmm_log.csv"))
    lengths = [0, 1, 2, 3, 100, 1000, 12345]
    for length in lengths:
        rmm.DeviceBuffer(size=length * item)
    text = (tmp_path / "rmm_log.dev0.csv").read_text()
    assert "Time,Action,Pointer,Size,Stream" in text
    sizes = [size for action, size in rows(tmp_path / "rmm_log.dev0.csv") if action == "allocate"]
    assert sizes == [length * item for length in lengths if length]


# Statistics: Empty, AllFreed, PeakAllocations, MultiTracking, NegativeInnerTracking, Nested, MultiThreaded.


def triple(counts):
    return (counts.current_bytes, counts.peak_bytes, counts.total_bytes), (
        counts.current_count,
        counts.peak_count,
        counts.total_count,
    )


def mebibytes(*values):
    return tuple(value * MIB for value in values)


def test_peak_allocations():
    mr = rmm.mr.StatisticsResourceAdaptor(base())
    assert triple(mr.allocation_counts) == ((0, 0, 0), (0, 0, 0))
    blocks = [mr.allocate(10 * MIB) for _ in range(10)]
    for _ in range(5):
        mr.deallocate(blocks.pop(0), 10 * MIB)
    assert triple(mr.allocation_counts) == (mebibytes(50, 100, 100), (5, 10, 10))
    blocks += [mr.allocate(10 * MIB) for _ in range(10)]
    while blocks:
        mr.deallocate(blocks.pop(), 10 * MIB)
    assert triple(mr.allocation_counts) == (mebibytes(0, 150, 200), (0, 15, 20))


def test_negative_inner_tracking():
    outer = rmm.mr.StatisticsResourceAdaptor(base())
    blocks = [outer.allocate(10 * MIB) for _ in range(10)]
    inner = rmm.mr.StatisticsResourceAdaptor(outer)
    blocks += [inner.allocate(10 * MIB) for _ in range(5)]
    assert triple(outer.allocation_counts) == (mebibytes(150, 150, 150), (15, 15, 15))
    assert triple(inner.allocation_counts) == (mebibytes(50, 50, 50), (5, 5, 5))
    for block in blocks:
        inner.deallocate(block, 10 * MIB)
    assert triple(outer.allocation_counts) == (mebibytes(0, 150, 150), (0, 15, 15))
    assert triple(inner.allocation_counts) == (mebibytes(-100, 50, 50), (-10, 5, 5))


def test_nested():
    mr = rmm.mr.StatisticsResourceAdaptor(base())
    first = mr.allocate(10 * MIB)
    mr.push_counters()
    second = mr.allocate(10 * MIB)
    mr.push_counters()
    mr.deallocate(mr.allocate(10 * MIB), 10 * MIB)
    assert triple(mr.pop_counters())[0][:2] == mebibytes(0, 10)
    mr.deallocate(first, 10 * MIB)
    popped = triple(mr.pop_counters())
    assert (popped[0][:2], popped[1][:2]) == (mebibytes(0, 20), (0, 2))
    with pytest.raises(IndexError, match="cannot pop the last counter pair"):
        mr.pop_counters()
    mr.deallocate(second, 10 * MIB)


@pytest.mark.parametrize("size", [0, 256])
def test_multi_threaded(size):
    mr = rmm.mr.StatisticsResourceAdaptor(base())
    both = threading.Barrier(2)

    def work():
        block = mr.allocate(size)
        both.wait(30)
        mr.deallocate(block, size)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert triple(mr.allocation_counts) == ((0, 2 * size, 2 * size), (0, 2, 2))


# Tracking: AllFreed, AllocationsLeft, NegativeInnerTracking, UntrackedDeallocation, DeallocWrongBytes.


@pytest.mark.parametrize("stacks", [False, True])
def test_allocations_left(stacks):
    mr = rmm.mr.TrackingResourceAdaptor(base(), capture_stacks=stacks)
    assert (mr.get_allocated_bytes(), mr.get_outstanding_allocations_str()) == (0, "")
    blocks = [mr.allocate(10 * MIB) for _ in range(10)]
    for _ in range(5):
        mr.deallocate(blocks.pop(), 10 * MIB)
    assert mr.get_allocated_bytes() == 50 * MIB
    assert [pointer for pointer, _, _ in mr.get_outstanding_allocations()] == blocks
    while blocks:
        mr.deallocate(blocks.pop(), 10 * MIB)
    assert mr.get_allocated_bytes() == 0


def test_frees_of_blocks_that_are_not_tracked():
    lower = base()
    mr = rmm.mr.TrackingResourceAdaptor(lower)
    older = lower.allocate(MIB)
    mr.deallocate(older, MIB)
    assert (mr.get_allocated_bytes(), mr.get_outstanding_allocations()) == (0, [])
    inner = rmm.mr.TrackingResourceAdaptor(mr)
    block = mr.allocate(MIB)
    inner.deallocate(block, MIB)
    assert (inner.get_allocated_bytes(), mr.get_allocated_bytes()) == (0, 0)


# Limiting: TooBig, UpstreamFailure, UnderLimitDueToFrees, OverLimit.


def limited(limit, upstream=None):
    return rmm.mr.LimitingResourceAdaptor(upstream or base(), limit)


def test_too_big():
    with pytest.raises(MemoryError):
        limited(5 * MIB).allocate(5 * MIB + 1)


def test_upstream_failure():
    outer = limited(5 * MIB, limited(2 * MIB))
    with pytest.raises(MemoryError):
        outer.allocate(4 * MIB)
    assert outer.get_allocated_bytes() == 0


def test_under_the_limit_due_to_frees():
    mr = limited(10 * MIB)
    first, second = mr.allocate(4 * MIB), mr.allocate(4 * MIB)
    mr.deallocate(first, 4 * MIB)
    third = mr.allocate(6 * MIB)
    assert mr.get_allocation_limit() - mr.get_allocated_bytes() == 0
    mr.deallocate(second, 4 * MIB)
    mr.deallocate(third, 6 * MIB)


def test_over_the_limit():
    mr = limited(10 * MIB)
    blocks = [mr.allocate(4 * MIB), mr.allocate(4 * MIB)]
    with pytest.raises(MemoryError):
        mr.allocate(3 * MIB)
    assert mr.get_allocated_bytes() == 8 * MIB
    for block in blocks:
        mr.deallocate(block, 4 * MIB)
