"""PyTorch's GPU memory from the current resource of each device.

Statistics, logs, limits and recordings then see every tensor on a GPU. PyTorch's own cache is out of use, so have a pool
as the current resource: ``floodmark.reinitialize(pool_allocator=True)``. ``torch.cuda.memory_allocated()`` and what
else asks PyTorch's cache does not work while another allocator is installed.
"""

from __future__ import annotations

from floodmark import _native, mr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["install", "is_installed", "make_allocator", "rmm_torch_allocator"]

_installed = False


def make_allocator() -> Any:
    """Return a ``torch.cuda.memory.CUDAPluggableAllocator`` over the current resources.

    PyTorch can use it for a part of a program: ``torch.cuda.MemPool(make_allocator().allocator())``.
    """
    from torch.cuda.memory import CUDAPluggableAllocator

    for index, kind, *_ in _native.devices():
        if kind == "cuda":
            # The functions that PyTorch calls look it up below Python.
            mr.set_per_device_resource(index, mr.get_per_device_resource(index))
    return CUDAPluggableAllocator(_native.__file__, "floodmark_allocate", "floodmark_deallocate")


def install() -> None:
    """Allocate all GPU memory of PyTorch from the current resources; before the first tensor on a GPU.

    Out of memory is a ``RuntimeError`` that begins with "CUDA out of memory".
    """
    global _installed
    if _installed:
        return
    import torch

    try:
        torch.cuda.memory.change_current_allocator(make_allocator())
    except RuntimeError as error:
        raise RuntimeError("PyTorch has allocated on a GPU already; install before the first tensor there") from error
    _installed = True


def is_installed() -> bool:
    """Return whether ``install`` was called."""
    return _installed


def __getattr__(name: str) -> Any:
    # Made when it is asked for: PyTorch takes seconds to import.
    if name == "rmm_torch_allocator":
        globals()[name] = make_allocator()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
