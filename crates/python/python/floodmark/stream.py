"""Streams: queues of work in whose order memory is used."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any



class Stream:
    """A stream of a GPU, by its handle or by an object of another library; the default stream without one."""

    __slots__ = ("_owner", "handle")

    def __init__(self, obj: Any = None) -> None:
        self._owner = obj
        if obj is None:
            self.handle = 0
        elif isinstance(obj, int):
            self.handle = obj
        elif hasattr(obj, "__cuda_stream__"):
            self.handle = int(obj.__cuda_stream__()[1])
        else:
            for name in ("handle", "ptr", "cuda_stream"):
                if hasattr(obj, name):
                    self.handle = int(getattr(obj, name))
                    break
            else:
                raise TypeError(f"{type(obj).__name__} is no stream")

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)

    def is_default(self) -> bool:
        """Return whether this is the default stream."""
        return self.handle in (0, 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.handle == other.handle

    def __hash__(self) -> int:
        return hash(self.handle)

    def __repr__(self) -> str:
        return f"Stream({self.handle:#x})"


DEFAULT_STREAM = Stream()
LEGACY_DEFAULT_STREAM = Stream(1)
PER_THREAD_DEFAULT_STREAM = Stream(2)
