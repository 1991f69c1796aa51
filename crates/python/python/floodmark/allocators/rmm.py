"""Beside the real RMM: its resources under Floodmark's adaptors, and Floodmark's resources for its users.

    import floodmark, floodmark.allocators.rmm

    floodmark.allocators.rmm.install()       # in a program that uses RMM, cuDF or cuML
    with floodmark.record("run.flood"):
        work()
"""

from __future__ import annotations

import rmm.mr
from rmm.pylibrmm.stream import Stream as RmmStream

from floodmark import _native, mr
from floodmark.recording import RecordingResourceAdaptor
from floodmark.stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["RmmMemoryResource", "install", "recorded", "to_rmm", "uninstall"]

# By device: the resource before, and the one that records.
_installed: dict[int, tuple[Any, Any]] = {}
# Buffers of C++ refer to their resource without keeping it alive.
_kept: list[Any] = []


class RmmMemoryResource(mr.DeviceMemoryResource):
    """Memory of a resource of RMM, for Floodmark's adaptors and buffers."""

    rmm_mr: Any

    def __new__(cls, upstream: Any) -> RmmMemoryResource:
        streams: dict[int, Any] = {}

        def stream(handle: int) -> Any:
            known = streams.get(handle)
            if known is None:
                known = streams[handle] = RmmStream(Stream(handle))
            return known

        self = super().__new__(
            cls,
            "callback",
            allocate=lambda size, handle: upstream.allocate(size, stream(handle)),
            deallocate=lambda ptr, size, handle: upstream.deallocate(ptr, size, stream(handle)),
        )
        self.rmm_mr = upstream
        return self


def to_rmm(resource: mr.DeviceMemoryResource) -> Any:
    """Return a resource of RMM whose memory comes from one of Floodmark.

    RMM's users then count, limit, log and record through Floodmark's adaptors.
    """
    return rmm.mr.CallbackMemoryResource(resource.allocate, resource.deallocate)


def recorded(upstream: Any, stacks: bool = True) -> Any:
    """Return a resource of RMM that records what goes to ``upstream``, while the process records."""
    return to_rmm(RecordingResourceAdaptor(RmmMemoryResource(upstream), stacks))


def install(stacks: bool = True) -> None:
    """Have RMM's current resources record; buffers that exist go back to where they came from."""
    for device, kind, *_ in _native.devices():
        if kind == "cuda" and device not in _installed:
            before = rmm.mr.get_per_device_resource(device)
            with mr._on_device(device):
                ours = recorded(before, stacks)
            rmm.mr.set_per_device_resource(device, ours)
            _installed[device] = (before, ours)
            _kept.append(ours)


def uninstall() -> None:
    """Put RMM's resources back, unless the program has set others meanwhile."""
    for device, (before, ours) in _installed.items():
        if rmm.mr.get_per_device_resource(device) is ours:
            rmm.mr.set_per_device_resource(device, before)
    _installed.clear()
