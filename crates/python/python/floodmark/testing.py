"""Checks for tests and notebooks.

They measure with an adaptor of their own on top of the current resource: every thread counts, memory from before a
block does not, and the statistics of the program stay as they are.
"""

from __future__ import annotations

import contextlib
import gc

from floodmark import mr
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


class _MeasuringResourceAdaptor(mr.UpstreamResourceAdaptor):
    """Counts what goes through it, apart from the statistics of the program."""

    is_finished: bool

    def __new__(cls, upstream_mr: mr.DeviceMemoryResource) -> _MeasuringResourceAdaptor:
        self = super().__new__(cls, "measuring", upstream_mr)
        self.is_finished = False
        return self

    @property
    def live_bytes(self) -> int:
        return self.measured()[0]

    @property
    def peak_bytes(self) -> int:
        return self.measured()[1]

    @property
    def live_blocks(self) -> int:
        return self.measured()[3]


@contextlib.contextmanager
def _measuring() -> Iterator[_MeasuringResourceAdaptor]:
    """Measure what the process allocates on the current device in a block."""
    adaptor = _MeasuringResourceAdaptor(mr.get_current_device_resource())
    mr.set_current_device_resource(adaptor)
    try:
        yield adaptor
    finally:
        adaptor.is_finished = True
        # Blocks of several threads may end in any order; the last one takes all out.
        resource = mr.get_current_device_resource()
        while isinstance(resource, _MeasuringResourceAdaptor) and resource.is_finished:
            resource = resource.get_upstream()
        mr.set_current_device_resource(resource)


@contextlib.contextmanager
def assert_no_leaks(*, tolerance: int | str = 0) -> Iterator[None]:
    """Fail if memory that a block allocated is live after it, once garbage is collected.

    All threads count. ``tolerance`` bytes may stay.

    >>> import floodmark
    >>> kept = []
    >>> with floodmark.assert_no_leaks():
    ...     kept.append(floodmark.DeviceBuffer(size=100))
    Traceback (most recent call last):
        ...
    AssertionError: 100 B in 1 block are still live after the block
    """
    allowed = parse_bytes(tolerance)
    with _measuring() as measured:
        yield
        gc.collect()
    _check_leaks(measured, allowed, "block")


@contextlib.contextmanager
def limit_peak(size: int | str) -> Iterator[None]:
    """Fail if a block allocates more than ``size`` at once: the peak, not the sum, over all threads.

    >>> import floodmark
    >>> with floodmark.limit_peak("1KiB"):
    ...     buffer = floodmark.DeviceBuffer(size=2000)
    Traceback (most recent call last):
        ...
    AssertionError: the peak is 1.95 KiB (2000 bytes), above the limit of 1.00 KiB (1024 bytes)
    """
    limit = parse_bytes(size)
    with _measuring() as measured:
        yield
    _check_peak(measured, limit)


def _check_leaks(measured: _MeasuringResourceAdaptor, allowed: int, what: str) -> None:
    if measured.live_bytes > allowed:
        blocks = measured.live_blocks
        plural = "" if blocks == 1 else "s"
        raise AssertionError(f"{_show(measured.live_bytes)} in {blocks} block{plural} are still live after the {what}")


def _check_peak(measured: _MeasuringResourceAdaptor, limit: int) -> None:
    if measured.peak_bytes > limit:
        raise AssertionError(f"the peak is {_show(measured.peak_bytes)}, above the limit of {_show(limit)}")
