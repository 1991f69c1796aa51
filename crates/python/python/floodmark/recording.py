"""Recording into a trace, which the ``floodmark`` command and ``floodmark.open`` read."""

from __future__ import annotations

import os

from floodmark import _native, mr
from floodmark._native import scope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Recording", "is_trace", "mark", "record", "scope"]

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: Names the trace of the recording that this process runs under: that of ``floodmark run``, or of a parent process.
_TRACE_VARIABLE = "FLOODMARK_TRACE"
#: Id of the job that is recorded, host of its recorder, and directory in which agents on other nodes keep what they
#: sample, if it is not the usual one.
_JOB_VARIABLE = "FLOODMARK_JOB"
_HOST_VARIABLE = "FLOODMARK_HOST"
_SPOOL_VARIABLE = "FLOODMARK_SPOOL"
#: Asks Python processes to record from their start; "no-stacks" leaves stacks out.
_RECORD_VARIABLE = "FLOODMARK_RECORD"
#: Names that are tried for a trace, as the command does.
_MOST_NAMES = 10_000


class RecordingResourceAdaptor(mr.UpstreamResourceAdaptor):
    """Records what goes through it while the process records."""

    def __new__(cls, upstream_mr: mr.DeviceMemoryResource, stacks: bool = True) -> RecordingResourceAdaptor:
        return super().__new__(cls, "recording", upstream_mr, stacks=stacks)


def _is_recorded(resource: mr.DeviceMemoryResource | None) -> bool:
    while resource is not None:
        if isinstance(resource, RecordingResourceAdaptor):
            return True
        resource = resource.upstream  # type: ignore[assignment]
    return False


def is_trace(path: str) -> bool:
    """Whether a folder is a trace; others have files named manifest.json too, and an empty folder is none."""
    try:
        with open(os.path.join(path, "manifest.json"), "rb") as manifest:
            return b'"floodmark-trace"' in manifest.read(200)
    except OSError:
        # Before it is sealed it has none.
        segments = os.path.join(path, "segments")
    return os.path.isdir(segments) and any(name.endswith((".ring", ".seg", "lock")) for name in os.listdir(segments))


def _node_trace() -> str | None:
    """The trace of the agent on this node, where the recording of the job runs on another one."""
    job, host = os.environ.get(_JOB_VARIABLE, ""), os.uname().nodename
    if not job or os.environ.get(_HOST_VARIABLE, host) == host:
        return None
    folder = os.path.join(os.environ.get(_SPOOL_VARIABLE) or "/tmp", f"floodmark-{os.geteuid()}")
    try:
        for name in sorted(os.listdir(folder)):
            # A host can have several nodes, and nodes can share the directory.
            spool = os.path.join(folder, name)
            if name.startswith(job + "-"):
                with open(os.path.join(spool, "host"), encoding="utf-8") as file:
                    if file.read() == host:
                        return os.path.join(spool, "node.flood")
    except OSError:
        # No agent runs here.
        pass
    return None


def _enclosing_trace() -> str | None:
    path = _node_trace() or os.environ.get(_TRACE_VARIABLE, "")
    return path if path and is_trace(path) else None


def _is_free(path: str) -> bool:
    """Whether nothing is at a path, or an empty folder."""
    if not os.path.lexists(path):
        return True
    return os.path.isdir(path) and not os.path.islink(path) and not os.listdir(path)


def _is_live(path: str) -> bool:
    from floodmark import reading

    try:
        return reading.Trace(path).summary().live
    except reading.TraceError:
        # One that cannot be read may be replaced.
        return False


def _set_aside(path: str) -> str:
    """Move a trace away that is to be replaced; return where it is."""
    if os.path.islink(path):
        raise FileExistsError(f"{path} is a symbolic link and is not replaced")
    if not is_trace(path):
        raise FileExistsError(f"{path} is no trace and is not replaced")
    if _is_live(path):
        raise FileExistsError(f"{path} is being recorded and is not replaced")
    folder, name = os.path.split(path)
    aside = os.path.join(folder, f".{name}.{os.getpid()}.replaced")
    os.rename(path, aside)
    return aside


def _default_path() -> str:
    """Make a folder ``NAME.flood``, or ``NAME-2.flood`` ..., named after the program."""
    import sys

    program = os.path.basename(getattr(sys, "argv", [""])[0])
    program = "python" if program in ("", "-c", "-m") else program
    kept = "".join(c if c.isalnum() or c in "._-+" else "_" for c in program if c.isprintable())
    name = kept.encode()[:60].decode(errors="ignore").lstrip(".-") or "run"
    for number in range(1, _MOST_NAMES + 1):
        path = os.path.abspath(f"{name}.flood" if number == 1 else f"{name}-{number}.flood")
        try:
            os.mkdir(path)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(f"there are {_MOST_NAMES} traces named {name} here; choose another name")


class Recording:
    """A recording: ``start()`` and ``stop()``, or a ``with`` block.

    A recording inside another one is part of that; so is one in a program that ``floodmark run`` started, and one in a
    child of a process that records.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        stacks: bool = True,
        force: bool = False,
        join: bool = True,
    ) -> None:
        self._given = "" if path is None else os.path.abspath(os.fspath(path))
        #: The trace; empty until the recording starts if it is found then.
        self.path = self._given
        self.stacks = stacks
        self.force = force
        self.join = join
        #: Whether the recording writes into the trace of ``floodmark run`` or of a parent process.
        self.joined = False
        self._is_outermost = False
        self._added: dict[int, RecordingResourceAdaptor] = {}
        self._environment: dict[str, str | None] = {}

    def __repr__(self) -> str:
        return f"<floodmark recording into {self.path or 'a trace of its own'!r}>"

    def start(self) -> Self:
        """Begin to record; ``FileExistsError`` if the trace exists and is not to be replaced."""
        global _active
        if _native.is_recording():
            if _active is not None:
                self.path = _active.path
            return self
        self.path, self.joined = self._given, False
        enclosing = _enclosing_trace() if self.join else None
        if enclosing is not None:
            self.path, self.joined = enclosing, True
            _native.start_recording(self.path, _PACKAGE)
        else:
            self._start_own()
        self._is_outermost = True
        _active = self
        self._tell_children()
        # Others are wrapped when they are made: a recording does not initialize GPUs that the program may never use.
        for device in _native.registered_devices():
            resource = mr.get_per_device_resource(device)
            if not _is_recorded(resource):
                self._added[device] = RecordingResourceAdaptor(resource, self.stacks)
                mr.set_per_device_resource(device, self._added[device])
        return self

    def _start_own(self) -> None:
        aside = None
        if not self.path:
            self.path = _default_path()
        elif not _is_free(self.path):
            if not self.force:
                raise FileExistsError(f"{self.path} exists; replace it with force=True")
            aside = _set_aside(self.path)
        try:
            _native.start_recording(self.path, _PACKAGE)
        except BaseException:
            if aside is not None and not os.path.lexists(self.path):
                os.rename(aside, self.path)
            raise
        if aside is not None:
            import shutil

            shutil.rmtree(aside, ignore_errors=True)

    def _tell_children(self) -> None:
        """Have Python processes that this one starts record into the same trace."""
        values = {_TRACE_VARIABLE: self.path, _RECORD_VARIABLE: "1" if self.stacks else "no-stacks"}
        for name, value in values.items():
            self._environment[name] = os.environ.get(name)
            os.environ[name] = value

    def stop(self) -> None:
        """End the recording; calling it again has no effect."""
        global _active
        if not self._is_outermost:
            return
        self._is_outermost = False
        _active = None
        for device, adaptor in self._added.items():
            if mr.get_per_device_resource(device) is adaptor:
                mr.set_per_device_resource(device, adaptor.get_upstream())
        self._added.clear()
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._environment.clear()
        _native.stop_recording()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


_active: Recording | None = None


def _recorded(resource: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
    """Put a resource that replaces another one under the recording that goes on."""
    if _active is None or not _native.is_recording():
        return resource
    return RecordingResourceAdaptor(resource, _active.stacks)


mr._wrap_new.append(_recorded)


def record(
    path: str | os.PathLike[str] | None = None, *, stacks: bool = True, force: bool = False, join: bool = True
) -> Recording:
    """Record allocations with Python stacks, scopes and marks into a trace.

    What is recorded survives a crash of the process. ``floodmark watermark PATH`` and the other commands read it.

    In a program that ``floodmark run`` started, the recording goes into the trace of that, unless ``join=False``, and
    ``path`` is not used. Without a path, the trace is named after the program: ``train.py.flood``, then
    ``train.py-2.flood``.
    Python processes that this one starts meanwhile record into the same trace. ``force=True`` replaces a trace.

    >>> import floodmark, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with floodmark.record(f"{folder}/run.flood"):
    ...         with floodmark.scope("load"):
    ...             buffer = floodmark.DeviceBuffer(size=1000)
    ...         floodmark.mark("loaded")
    """
    return Recording(path, stacks=stacks, force=force, join=join)


def mark(name: str) -> None:
    """Record that the program came to a point worth remembering; no effect while nothing is recorded."""
    _native.mark(name)
