"""Counts of what is allocated, and a profiler of functions and code blocks.

Each thread has scopes of its own, so threads never see each other's numbers. The statistics adaptor is found wherever
in the stack of resources it is.
"""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import dataclass
from types import CodeType

from floodmark import _native, mr
from floodmark._native import ProfilerContext, statistics

__all__ = [
    "ProfilerContext",
    "ProfilerRecords",
    "Statistics",
    "default_profiler_records",
    "enable_statistics",
    "get_statistics",
    "pop_statistics",
    "profiler",
    "profiler_records",
    "push_statistics",
    "statistics",
]



@dataclass
class Statistics:
    """What was allocated.

    Attributes
    ----------
    current_bytes, current_count
        Bytes and blocks that are live.
    peak_bytes, peak_count
        The most that were live at once.
    total_bytes, total_count
        All that were ever allocated.
    """

    current_bytes: int
    current_count: int
    peak_bytes: int
    peak_count: int
    total_bytes: int
    total_count: int

    @classmethod
    def _of(cls, figures: tuple[int, ...]) -> Statistics:
        current_bytes, peak_bytes, total_bytes, current_count, peak_count, total_count = figures
        return cls(current_bytes, current_count, peak_bytes, peak_count, total_bytes, total_count)


def _optional(figures: tuple[int, ...] | None) -> Statistics | None:
    return None if figures is None else Statistics._of(figures)


def enable_statistics() -> None:
    """Count what the current device allocates from now on, unless that is counted already."""
    current = mr.get_current_device_resource()
    if not current.has_statistics:
        mr.set_current_device_resource(mr.StatisticsResourceAdaptor(current))


def get_statistics() -> Statistics | None:
    """Return what the innermost scope of the calling thread counted, or the process where it has none open.

    None if statistics are not enabled.

    >>> import floodmark
    >>> floodmark.reinitialize()
    >>> floodmark.statistics.get_statistics() is None
    True
    >>> with floodmark.statistics.statistics():
    ...     buffer = floodmark.DeviceBuffer(size=20)
    ...     floodmark.statistics.get_statistics()
    Statistics(current_bytes=20, current_count=1, peak_bytes=20, peak_count=1, total_bytes=20, total_count=1)
    """
    return _optional(mr.get_current_device_resource().counters())


def push_statistics() -> Statistics | None:
    """Open a scope on the calling thread and return the counts before; None if statistics are not enabled."""
    return _optional(mr.get_current_device_resource().push())


def pop_statistics() -> Statistics | None:
    """Close the calling thread's innermost scope and return its counts; None if statistics are not enabled.

    The scope around it has counted the same from then on. ``IndexError`` if no scope is open.
    """
    return _optional(mr.get_current_device_resource().pop())


class ProfilerRecords(_native.ProfilerRecords):
    """Calls, peak and total bytes of functions and code blocks, by name."""

    @dataclass
    class MemoryRecord:
        """What is known of one function or code block."""

        num_calls: int = 0
        memory_total: int = 0
        memory_peak: int = 0

        def add(self, memory_total: int, memory_peak: int) -> None:
            """Add a call."""
            self.num_calls += 1
            self.memory_total += memory_total
            self.memory_peak = max(self.memory_peak, memory_peak)

    def add(self, name: str, data: Statistics) -> None:
        """Add a call of ``name`` that counted ``data``."""
        self.add_call(name, data.total_bytes, data.peak_bytes)

    @property
    def records(self) -> dict[str, MemoryRecord]:
        """The records by name, first recorded first."""
        return {name: self.MemoryRecord(*record) for name, *record in self.rows()}

    def __str__(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        return f"ProfilerRecords({self.records!r})"


profiler_records = ProfilerRecords
default_profiler_records = ProfilerRecords(shared=True)


def profiler(*, records: ProfilerRecords = default_profiler_records, name: str = "") -> ProfilerContext:
    """Profile a code block (with a name) or a function (by default under its file, line and name).

    Memory that a recursion allocates counts once; a generator or coroutine counts as one call, and only what it
    allocates itself. Nothing is recorded while statistics are not enabled.

    >>> import floodmark as rmm
    >>> rmm.statistics.enable_statistics()
    >>> records = rmm.statistics.ProfilerRecords()
    >>> with rmm.statistics.profiler(name="outer", records=records):
    ...     buffer1 = rmm.DeviceBuffer(size=1000)
    ...     with rmm.statistics.profiler(name="inner", records=records):
    ...         buffer2 = rmm.DeviceBuffer(size=2000)
    ...     buffer3 = rmm.DeviceBuffer(size=500)
    >>> print(records.report())
    Memory Profiling
    ================
    <BLANKLINE>
    Legends:
      ncalls       - number of times the function or code block was called
      memory_peak  - peak memory allocated in function or code block (in bytes)
      memory_total - total memory allocated in function or code block (in bytes)
    <BLANKLINE>
    Ordered by: memory_peak
    <BLANKLINE>
    ncalls     memory_peak    memory_total  filename:lineno(function)
         1           3,500           3,500  outer
         1           2,000           2,000  inner
    """
    return ProfilerContext(records, name)


def _get_descriptive_name_of_object(obj: object) -> str:
    """Return file, line and name of a function or class; what is known of others."""
    obj = inspect.unwrap(obj) if callable(obj) else obj
    code = getattr(obj, "__code__", None)
    qualname = getattr(obj, "__qualname__", None) or type(obj).__qualname__
    if isinstance(code, CodeType):
        return f"{code.co_filename}:{code.co_firstlineno}({qualname})"
    with contextlib.suppress(OSError, TypeError):
        _, line = inspect.getsourcelines(obj)  # type: ignore[arg-type]
        return f"{inspect.getfile(obj)}:{line}({qualname})"  # type: ignore[arg-type]
    module = getattr(obj, "__module__", None) or type(obj).__module__
    return f"{module}({qualname})"
