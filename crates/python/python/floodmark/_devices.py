"""The devices that memory is allocated on."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal


@dataclass(frozen=True)
class Device:
    """A GPU, or the host's memory in its place."""

    index: int
    kind: Literal["cuda", "host"]
    name: str
    total_bytes: int
    uuid: str


def devices() -> list[Device]:
    """List the devices: the GPUs, or the host's memory as device 0 on a machine without one.

    The environment variable ``FLOODMARK_DEVICE`` decides instead: ``host`` never looks for GPUs, ``cuda`` fails
    without them.

    >>> import floodmark
    >>> floodmark.devices()[0].kind in ("cuda", "host")
    True
    """
    return [Device(*device) for device in _native.devices()]
