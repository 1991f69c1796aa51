"""CuPy's GPU memory from the current resource, or CuPy's own pool in the recording."""

from __future__ import annotations

import cupy

from floodmark import _native
from floodmark._native import DeviceBuffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["RecordingHook", "allocator", "install", "rmm_cupy_allocator", "uninstall"]


def allocator(nbytes: int) -> Any:
    """Allocate for CuPy from the current resource: ``cupy.cuda.set_allocator(floodmark.allocators.cupy.allocator)``."""
    device = cupy.cuda.device.get_device_id()
    if device != _native.current_device():
        _native.set_current_device(device)
    buffer = DeviceBuffer(size=nbytes, stream=cupy.cuda.get_current_stream())
    memory = cupy.cuda.UnownedMemory(buffer.ptr, buffer.size, buffer, device)
    return cupy.cuda.MemoryPointer(memory, 0)


# The name that RMM has for it.
rmm_cupy_allocator = allocator


def install() -> None:
    """Allocate all GPU memory of CuPy from the current resource."""
    cupy.cuda.set_allocator(allocator)


def uninstall() -> None:
    """Allocate from CuPy's own pool again; arrays that exist stay valid."""
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)


class RecordingHook(cupy.cuda.MemoryHook):  # type: ignore[misc]
    """Records what CuPy's own pool hands out and takes back, in a ``with`` block of the calling thread.

        with floodmark.record("run.flood"), floodmark.allocators.cupy.RecordingHook():
            work()

    A free that happens after the block is not seen, so its array counts as never freed.
    """

    name = "FloodmarkRecordingHook"

    def malloc_postprocess(self, *, device_id: int, mem_size: int, mem_ptr: int, **_: Any) -> None:
        """Record a block; a failed allocation has no address."""
        if mem_ptr:
            _native.record_allocation(mem_ptr, mem_size, device_id, _stream(), "cupy")

    def free_preprocess(self, *, device_id: int, mem_size: int, mem_ptr: int, **_: Any) -> None:
        """Record a free before the pool can hand the block out again."""
        if mem_ptr:
            _native.record_free(mem_ptr, mem_size, device_id, _stream(), "cupy")


def _stream() -> int:
    return int(cupy.cuda.get_current_stream().ptr)
