"""Checks for tests and notebooks."""

from __future__ import annotations

import contextlib
import gc

from floodmark import mr, statistics
from floodmark._sizes import parse_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["assert_no_leaks", "limit_peak"]


def _show(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.2f} {unit} ({count} bytes)"
        size /= 1024
    return f"{size:.2f} TiB ({count} bytes)"


@contextlib.contextmanager
def _counting() -> Iterator[mr.DeviceMemoryResource]:
    """The resource that counts, enabled for the block where it is not."""
    before = mr.get_current_device_resource()
    if before.has_statistics:
        yield before
        return
    counting = mr.StatisticsResourceAdaptor(before)
    mr.set_current_device_resource(counting)
    try:
        yield counting
    finally:
        if mr.get_current_device_resource() is counting:
            mr.set_current_device_resource(before)


@contextlib.contextmanager
def assert_no_leaks(*, tolerance: int | str = 0) -> Iterator[None]:
    """Fail if more memory is live after a block than before it, once garbage is collected.

    >>> import floodmark
    >>> kept = []
    >>> with floodmark.assert_no_leaks():
    ...     kept.append(floodmark.DeviceBuffer(size=100))
    Traceback (most recent call last):
        ...
    AssertionError: 100 B in 1 block are still live after the block
    """
    allowed = parse_bytes(tolerance)
    with _counting() as resource:
        gc.collect()
        before = _process(resource)
        yield
        gc.collect()
        after = _process(resource)
    count, blocks = after[0] - before[0], after[3] - before[3]
    if count > allowed:
        plural = "" if blocks == 1 else "s"
        raise AssertionError(f"{_show(count)} in {blocks} block{plural} are still live after the block")


@contextlib.contextmanager
def limit_peak(size: int | str) -> Iterator[None]:
    """Fail if a block allocates more than ``size`` at once in the calling thread.

    >>> import floodmark
    >>> with floodmark.limit_peak("1KiB"):
    ...     buffer = floodmark.DeviceBuffer(size=2000)
    Traceback (most recent call last):
        ...
    AssertionError: the peak is 1.95 KiB (2000 bytes), above the limit of 1.00 KiB (1024 bytes)
    """
    limit = parse_bytes(size)
    with _counting() as resource:
        resource.push()
        try:
            yield
        finally:
            popped = resource.pop()
    assert popped is not None, "the resource counts"
    peak = statistics.Statistics._of(popped).peak_bytes
    if peak > limit:
        raise AssertionError(f"the peak is {_show(peak)}, above the limit of {_show(limit)}")


def _process(resource: mr.DeviceMemoryResource) -> tuple[int, ...]:
    figures = resource.process_counters()
    assert figures is not None, "the resource counts"
    return figures
