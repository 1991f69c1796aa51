"""Recording the memory and processor time of the own process in the background."""

from __future__ import annotations

import atexit
import os

from floodmark import _native
from floodmark.recording import Recording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Monitor", "monitor"]

#: Names the trace of ``floodmark run``, which samples all processes of its command.
_SAMPLED_VARIABLE = "FLOODMARK_SAMPLED"
_SHORTEST_SECONDS = 0.0001
_LONGEST_SECONDS = 3600.0

_active: Monitor | None = None
_has_fork_hooks = False


class Monitor:
    """Records resident size (RSS) and processor time of the process: a ``with`` block, or ``start()`` and ``stop()``.

    A monitor inside another one is part of that.
    """

    def __init__(self, interval: float = 0.1, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> None:
        if not _SHORTEST_SECONDS <= interval <= _LONGEST_SECONDS:
            raise ValueError(f"an interval of {interval} s: it must be between 0.1 ms and an hour")
        self.interval = interval
        self._recording = Recording(path, stacks=False, force=force)
        #: The trace.
        self.path = self._recording.path
        #: Samples that were recorded, and the processor time that took; known when the monitor has ended.
        self.samples = 0
        self.cpu_seconds = 0.0
        #: Whether ``floodmark run`` samples the process, so that this monitor adds marks only.
        self.is_sampled_by_run = False
        self._is_outermost = False

    def start(self) -> Self:
        """Begin to record; ``FileExistsError`` if the trace exists and is not to be replaced."""
        global _active, _has_fork_hooks
        self._recording.start()
        self.path = self._recording.path
        if _active is not None:
            return self
        self.is_sampled_by_run = os.environ.get(_SAMPLED_VARIABLE, "") == self.path
        if not self.is_sampled_by_run:
            try:
                if not self._start_thread():
                    raise RuntimeError("this process is monitored already")
            except BaseException:
                self._recording.stop()
                raise
        self.samples, self.cpu_seconds = 0, 0.0
        self._is_outermost = True
        _active = self
        if not _has_fork_hooks:
            _has_fork_hooks = True
            os.register_at_fork(before=_pause, after_in_parent=_resume, after_in_child=_resume)
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Record a last sample and end; calling it again has no effect."""
        global _active
        if self._is_outermost:
            self._is_outermost = False
            _active = None
            atexit.unregister(self.stop)
            self._stop_thread()
        self._recording.stop()

    def mark(self, text: str) -> None:
        """Record a message, which plots show at its time."""
        _native.mark(text)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _start_thread(self) -> bool:
        """Start the thread; return whether it was not running already."""
        return _native.start_monitor(round(self.interval * 1e9))

    def _stop_thread(self) -> None:
        samples, nanoseconds = _native.stop_monitor()
        self.samples += samples
        self.cpu_seconds += nanoseconds / 1e9


def _pause() -> None:
    if _active is not None:
        _active._stop_thread()


def _resume() -> None:
    # Where threads fork at the same time, one of them may have started it already.
    if _active is not None and not _active.is_sampled_by_run:
        _active._start_thread()


def monitor(interval: float = 0.1, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> Monitor:
    """Record the resident size (RSS) and the processor time of this process every ``interval`` seconds.

    They go into the recording that goes on (``floodmark.record``, ``floodmark.trace``), or into a trace of their own at
    ``path``, by default named after the program. A thread without Python reads them, so that the program does not wait
    for it. Under ``floodmark run``, which samples all processes, only the marks are added. Forked processes are monitored
    like their parent.

    >>> import floodmark, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with floodmark.monitor(interval=0.01, path=f"{folder}/run.flood") as monitor:
    ...         data = bytearray(1_000_000)
    ...         monitor.mark("data is there")
    ...     monitor.samples >= 2
    True

    ``floodmark plot run.flood`` draws the curve with the marks.
    """
    return Monitor(interval, path, force=force)
