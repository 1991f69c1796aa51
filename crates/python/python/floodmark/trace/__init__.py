"""Trace every call and return of Python and native functions, with the resident size (RSS) of the process.

>>> import floodmark.trace, json, tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     with floodmark.trace.Profile(0, filepath=f"{folder}/calls.flood", quiet=True) as profile:
...         text = json.dumps([1, 2, 3])
...     profile.events > 4
True

``python -m floodmark.trace script.py`` traces a program. ``floodmark calls TRACE`` reads what was traced.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import time

from floodmark import _native
from floodmark.recording import Recording
from floodmark.trace import _hooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Literal, ParamSpec, Self, TypeVar

    from floodmark.trace._snapshots import PeakSnapshots

    P = ParamSpec("P")
    R = TypeVar("R")
    Mode = Literal["every", "changes", "pairs", "lines", "faults"]

__all__ = ["Profile", "profile", "start", "stop"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PAGE = 4096
#: Names the trace that Python programs which a traced program starts are part of.
_FOLLOW = "FLOODMARK_TRACE_FOLLOW"

_active: Profile | None = None


class Profile:
    """A trace of calls: a ``with`` block, a decorator, or ``start()`` and ``stop()``.

    The first three arguments are those of ``pymemtrace.cPyMemTrace.Profile``. A trace within another one is part of
    that.

    Parameters
    ----------
    d_rss_trigger
        Record an event if the RSS has changed by this many bytes since the last recorded one; negative for one page,
        0 for every event.
    message
        Recorded as a mark when the trace begins.
    filepath
        The trace to write, which must not exist; by default named after time and process, in the current folder. A
        recording that goes on takes the calls instead.
    mode
        ``"every"``, ``"changes"``, or ``"pairs"`` for changes and the event before each, on the same thread. By default
        what ``d_rss_trigger`` says. ``"lines"`` charges changes to lines: where the RSS has changed by ``d_rss_trigger``
        while a line ran, the Python stack is recorded. ``"faults"`` traces no calls: the kernel interrupts code that touches new memory,
        and the Python stack is recorded with the RSS; all other code runs at full speed.
    include, exclude
        Trace the functions of these modules or files only, or of all others: names such as ``mypkg`` or ``mypkg.io``, or
        patterns of paths such as ``*/site-packages/*``.
    force
        Replace the trace if it exists.
    quiet
        Do not print how exact the RSS is.
    tracemalloc
        Take a snapshot of ``tracemalloc`` at every new peak of the RSS that is 10 % above the last one, or this many
        bytes; the ten highest are kept in the folder ``tracemalloc`` of the trace, for ``tracemalloc.Snapshot.load``.
    follow
        Trace Python programs that this one starts, into the same trace. Forked processes are traced in any case.
    """

    def __init__(
        self,
        d_rss_trigger: int = -1,
        message: str | None = None,
        filepath: str | os.PathLike[str] | None = None,
        *,
        mode: Mode | None = None,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        force: bool = False,
        quiet: bool = False,
        follow: bool = False,
        tracemalloc: bool | int = False,
        gate: str | None = None,
    ) -> None:
        self.mode: Mode = mode or ("every" if d_rss_trigger == 0 else "changes")
        self.d_rss_trigger = _PAGE if d_rss_trigger <= 0 else d_rss_trigger
        self.message = message
        self.path = os.path.abspath(os.fspath(filepath)) if filepath is not None else _default_path()
        self._given = self.path
        self.include = _patterns(include)
        self.exclude = _patterns(exclude)
        self.quiet = quiet
        self.follow = follow
        self.tracemalloc = tracemalloc
        #: Paths of the snapshots of ``tracemalloc``, the lowest peak first; known when the trace has ended.
        self.snapshots: list[str] = []
        #: How the RSS is known, how exact it is, and what would make it more exact.
        self.gate = self.exactness = self.remedy = ""
        #: Events seen, and how many of them were recorded.
        self.events = self.recorded = 0
        if self.mode not in ("every", "changes", "pairs", "lines", "faults"):
            raise ValueError(f"there is no mode {self.mode!r}: use every, changes, pairs, lines or faults")
        if self.mode == "faults" and (self.include or self.exclude):
            raise ValueError("mode='faults' records stacks of all code; leave include and exclude out")
        self._wanted_gate = gate
        self._recording = Recording(self.path, stacks=False, force=force)
        self._is_outermost = False
        self._peaks: PeakSnapshots | None = None
        self._has_warned = False

    def start(self) -> Self:
        """Begin to trace all threads of the process."""
        global _active
        if _active is not None:
            self.path = _active.path
            if self.message:
                _native.mark(self.message)
            return self
        if self.mode != "faults":
            _hooks.check(self.mode == "lines")
        self._recording.start()
        self.path = self._recording.path
        try:
            if self.mode == "faults":
                self.gate = "sigtrap"
                self.exactness, self.remedy = _native.begin_fault_trace(self.d_rss_trigger)
                _hooks.prepare_threads(self.d_rss_trigger)
            else:
                self.gate, self.exactness, self.remedy = _native.begin_trace(
                    self.mode, self.d_rss_trigger, _PACKAGE, self.include, self.exclude, self._wanted_gate
                )
            if self.message:
                _native.mark(self.message)
            _native.mark(
                # Lines are recorded like faults, as stacks.
                f"call trace begins: mode={'faults events=lines' if self.mode == 'lines' else self.mode} "
                f"d_rss_trigger={self.d_rss_trigger} gate={self.gate}; {self.exactness}"
            )
            if not self.quiet:
                hint = f"; {self.remedy}" if self.remedy else ""
                print(f"floodmark: tracing calls into {self.path}: {self.exactness}{hint}", file=sys.stderr)
            self._warn_of_greenlets()
            if self.tracemalloc is not False:
                self._start_snapshots(0 if self.tracemalloc is True else int(self.tracemalloc))
            if self.mode != "faults":
                _hooks.install(self.mode == "lines")
        except BaseException:
            if self.mode == "faults":
                _hooks.prepare_threads(None)
            else:
                _hooks.remove()
            _native.end_trace()
            _native.end_fault_trace()
            try:
                self._stop_snapshots()
            finally:
                self._recording.stop()
            raise
        self._is_outermost = True
        _active = self
        if self.follow:
            options = {"path": self.path, "mode": self.mode, "trigger": self.d_rss_trigger, "tracemalloc": self.tracemalloc}
            os.environ[_FOLLOW] = json.dumps({**options, "include": self.include, "exclude": self.exclude})
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """End the trace; calling it again has no effect."""
        global _active
        if not self._is_outermost:
            return
        self._is_outermost = False
        _active = None
        if self.follow:
            os.environ.pop(_FOLLOW, None)
        if self.mode == "faults":
            is_whole = True
            _hooks.prepare_threads(None)
            self.recorded, missed = _native.end_fault_trace()
            self.events = self.recorded + missed
        else:
            is_whole = _hooks.remove()
            self.events, self.recorded, unnamed = _native.end_trace()
            if unnamed:
                self._report(f"{unnamed} events are of functions that there was no memory to name")
        try:
            self._stop_snapshots()
        finally:
            # Whatever a snapshot comes to, the trace is whole.
            atexit.unregister(self.stop)
            _native.mark(f"call trace ends: {self.events} events, {self.recorded} recorded")
            if not is_whole:
                self._report("another profiler replaced the trace's hook: calls after that are missing")
            if not self._has_warned:
                self._warn_of_greenlets()
            self._recording.stop()

    def _report(self, text: str) -> None:
        """Say what is missing or not exact, in the trace and on stderr."""
        _native.mark(f"call trace: {text}")
        print(f"floodmark: {text}", file=sys.stderr)

    def _warn_of_greenlets(self) -> None:
        self._has_warned = "greenlet" in sys.modules
        if self._has_warned:
            self._report("greenlets take turns on a thread without events: callers of their functions may be wrong")

    def _start_snapshots(self, step: int) -> None:
        from floodmark.trace._snapshots import PeakSnapshots

        self._peaks = PeakSnapshots(step)
        self._peaks.start(self.path)

    def _stop_snapshots(self) -> None:
        peaks, self._peaks = self._peaks, None
        if peaks is None:
            return
        peaks.stop()
        self.snapshots = peaks.paths
        if not self.quiet:
            count, folder = len(peaks.paths), os.path.join(self.path, "tracemalloc")
            noun = "snapshot" if count == 1 else "snapshots"
            print(f"floodmark: {count} {noun} of tracemalloc at peaks of the RSS in {folder}", file=sys.stderr)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        first = [self]

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            # Calls that go on at the same time are one trace; the next call has a trace of its own.
            with first.pop() if first else self._another():
                return function(*args, **kwargs)

        return wrapper

    def _another(self) -> Profile:
        """Make the trace of another call; its name has a number."""
        root, extension = os.path.splitext(self._given)
        path, number = self._given, 1
        while os.path.lexists(path) and _active is None:
            number += 1
            path = f"{root}-{number}{extension}"
        trigger = 0 if self.mode == "every" else self.d_rss_trigger
        another = Profile(trigger, self.message, path, mode=self.mode, include=self.include, exclude=self.exclude)
        another.tracemalloc = self.tracemalloc
        another.quiet, another.follow, another._wanted_gate = self.quiet, self.follow, self._wanted_gate
        return another

    def log_file_path(self) -> str | None:
        """Return the path of the trace while it goes on, else ``None``."""
        return self.path if self._is_outermost else None

    def write_message_to_log(self, message: str) -> None:
        """Record a mark."""
        _native.mark(message)


#: The same as a decorator: ``@floodmark.trace.profile()``.
profile = Profile


def start(
    d_rss_trigger: int = -1,
    message: str | None = None,
    filepath: str | os.PathLike[str] | None = None,
    *,
    mode: Mode | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    force: bool = False,
    quiet: bool = False,
    tracemalloc: bool | int = False,
) -> Profile:
    """Begin to trace until :func:`stop` or the end of the process; the arguments are those of :class:`Profile`."""
    profile = Profile(
        d_rss_trigger,
        message,
        filepath,
        mode=mode,
        include=include,
        exclude=exclude,
        force=force,
        quiet=quiet,
        tracemalloc=tracemalloc,
    )
    return profile.start()


def stop() -> None:
    """End the trace that goes on, if there is one."""
    if _active is not None:
        _active.stop()


def _follow() -> None:
    """Trace this program into the trace of the one that started it, as the environment says."""
    options = json.loads(os.environ[_FOLLOW])
    profile = Profile(
        options["trigger"],
        filepath=options["path"],
        mode=options["mode"],
        include=options["include"],
        exclude=options["exclude"],
        quiet=True,
        follow=True,
        tracemalloc=options["tracemalloc"],
    )
    # The trace exists and is added to.
    _native.start_recording(profile.path, _PACKAGE)
    atexit.register(_native.stop_recording)
    profile.start()


def _default_path() -> str:
    return os.path.abspath(time.strftime(f"%Y%m%d_%H%M%S_{os.getpid()}.flood", time.gmtime()))


def _patterns(names: Iterable[str]) -> list[str]:
    """Return patterns of paths for names of modules and patterns."""
    patterns = []
    for name in [names] if isinstance(names, str) else names:
        if "/" in name or "*" in name or "<" in name or name.endswith(".py"):
            patterns.append(name if name.startswith(("/", "*", "<")) else f"*/{name}")
        else:
            path = name.replace(".", "/")
            patterns += [f"*/{path}.py", f"*/{path}/*"]
    return patterns
