"""Recording into a trace, which the ``floodmark`` command and ``floodmark.open`` read."""

from __future__ import annotations

import contextlib
import os

from floodmark import _native, mr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

__all__ = ["Recording", "mark", "record", "scope"]

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


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


class Recording:
    """A recording: ``start()`` and ``stop()``, or a ``with`` block.

    A recording inside another one is part of that.
    """

    def __init__(self, path: str | os.PathLike[str], *, stacks: bool = True, force: bool = False) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self.stacks = stacks
        self.force = force
        self._is_outermost = False
        self._added: dict[int, RecordingResourceAdaptor] = {}

    def start(self) -> Self:
        """Begin to record; ``FileExistsError`` if the trace exists and is not to be replaced."""
        global _active
        if _native.is_recording():
            if _active is not None:
                self.path = _active.path
            return self
        if os.path.lexists(self.path):
            if not self.force:
                raise FileExistsError(f"{self.path} exists; replace it with force=True")
            if not os.path.isdir(self.path) or not self.path.endswith(".flood"):
                raise FileExistsError(f"{self.path} is no trace and is not replaced")
            import shutil

            shutil.rmtree(self.path)
        _native.start_recording(self.path, _PACKAGE)
        self._is_outermost = True
        _active = self
        for device in mr._devices_in_use():
            resource = mr.get_per_device_resource(device)
            if not _is_recorded(resource):
                self._added[device] = RecordingResourceAdaptor(resource, self.stacks)
                mr.set_per_device_resource(device, self._added[device])
        return self

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


def record(path: str | os.PathLike[str], *, stacks: bool = True, force: bool = False) -> Recording:
    """Record allocations with Python stacks, scopes and marks into a trace.

    What is recorded survives a crash of the process. ``floodmark watermark PATH`` and the other commands read it.

    >>> import floodmark, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with floodmark.record(f"{folder}/run.flood"):
    ...         with floodmark.scope("load"):
    ...             buffer = floodmark.DeviceBuffer(size=1000)
    ...         floodmark.mark("loaded")
    """
    return Recording(path, stacks=stacks, force=force)


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """Name what the calling thread does in a block; no effect while nothing is recorded."""
    entered = _native.enter_scope(name)
    try:
        yield
    finally:
        if entered is not None:
            _native.exit_scope(*entered)


def mark(name: str) -> None:
    """Record that the program came to a point worth remembering; no effect while nothing is recorded."""
    _native.mark(name)
