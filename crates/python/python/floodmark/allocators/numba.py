"""Numba's GPU memory from the current resource.

    numba.cuda.set_memory_manager(floodmark.allocators.numba.FloodmarkNumbaManager)

before the first use of a GPU, or the environment variable ``NUMBA_CUDA_MEMORY_MANAGER=floodmark.allocators.numba``.
"""

from __future__ import annotations

import functools

from numba import cuda
from numba.cuda import GetIpcHandleMixin, HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer
from numba.cuda.cudadrv import driver

from floodmark import mr
from floodmark._native import DeviceBuffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["FloodmarkNumbaManager", "RMMNumbaManager", "install"]


def _pointer(address: int) -> Any:
    """Return an address as Numba's driver takes it: by NVIDIA's bindings, or by ctypes in Numba without numba-cuda."""
    binding = getattr(driver, "binding", None)
    return driver.drvapi.cu_device_ptr(address) if binding is None else binding.CUdeviceptr(address)


class FloodmarkNumbaManager(GetIpcHandleMixin, HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """Allocates on GPUs from the current resource; pinned memory of the host stays Numba's."""

    def initialize(self) -> None:
        """Do nothing: resources need no context of Numba."""

    def memalloc(self, size: int) -> Any:
        """Return a pointer to memory that is freed with it."""
        # An empty block would have no address to keep it under.
        with mr._on_device(self.context.device.id):
            buffer = DeviceBuffer(size=max(size, 1))
        self.allocations[buffer.ptr] = buffer
        # Numba forgets all allocations when a context is reset, before it finalizes the pointers to them.
        finalizer = functools.partial(self.allocations.pop, buffer.ptr, None)
        return MemoryPointer(self.context, _pointer(buffer.ptr), size, finalizer=finalizer)

    def get_ipc_handle(self, memory: Any) -> Any:
        """Return a handle by which another process opens the memory; the resource must be the driver's own memory."""
        try:
            return super().get_ipc_handle(memory)
        except driver.CudaAPIError as error:
            raise RuntimeError(f"the current resource cannot share memory with other processes: {error}") from error

    def get_memory_info(self) -> Any:
        """Return free and total bytes of the current device."""
        with mr._on_device(self.context.device.id):
            free, total = mr.available_device_memory()
        return MemoryInfo(free=free, total=total)

    @property
    def interface_version(self) -> int:
        """The version of Numba's interface that this is written for."""
        return 1


# The name that RMM has for it, and the one that Numba's environment variable asks for.
RMMNumbaManager = FloodmarkNumbaManager
_numba_memory_manager = FloodmarkNumbaManager


def install() -> None:
    """Allocate all GPU memory of Numba from the current resource; before its first use of a GPU."""
    cuda.set_memory_manager(FloodmarkNumbaManager)
