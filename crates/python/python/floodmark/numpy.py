"""NumPy's memory from the current resource, so that statistics, profiler, logs and recordings see arrays.

Arrays that exist stay valid, and arrays that were made through a resource stay so after ``uninstall``. Each has 64 bytes
more than its data, for the resource that it goes back to. With a GPU, set a resource of host memory first.
"""

from __future__ import annotations

import contextlib
import threading

from floodmark import _native, mr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["install", "installed", "is_installed", "uninstall"]

_before: Any = None
_bootstrap: Any = None


def _table() -> Any:
    try:
        from numpy._core import _multiarray_umath as core  # type: ignore[attr-defined]
    except ImportError:  # before NumPy 2
        from numpy.core import _multiarray_umath as core
    return core._ARRAY_API


def is_installed() -> bool:
    """Return whether new arrays get their memory from the current resource."""
    return _bootstrap is not None


def install() -> None:
    """Allocate the memory of new arrays from the current resource, in this thread and in those that start later.

    >>> import floodmark, floodmark.numpy, numpy
    >>> floodmark.numpy.install()
    >>> with floodmark.statistics.statistics():
    ...     array = numpy.ones(1000)
    ...     floodmark.statistics.get_statistics().current_bytes
    8064
    >>> floodmark.numpy.uninstall()
    """
    global _before, _bootstrap
    if _bootstrap is not None:
        return
    resource = mr.get_current_device_resource()
    if resource.memory_kind == "device":
        raise RuntimeError("the current resource is memory of a GPU, which NumPy cannot use; set one of the host's")
    # The handler looks it up below Python.
    mr.set_current_device_resource(resource)
    table = _table()
    _before = _native.set_numpy_handler(table)
    _bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def bootstrap(thread: threading.Thread) -> None:
        # A handler belongs to a context, and every thread begins with an empty one.
        if _bootstrap is not None:
            _native.set_numpy_handler(table)
        original(thread)

    original = _bootstrap
    threading.Thread._bootstrap_inner = bootstrap  # type: ignore[attr-defined]


def uninstall() -> None:
    """Allocate the memory of new arrays as before, in this thread and in those that start later."""
    global _before, _bootstrap
    if _bootstrap is None:
        return
    threading.Thread._bootstrap_inner = _bootstrap  # type: ignore[attr-defined]
    _native.set_numpy_handler(_table(), _before)
    _before = _bootstrap = None


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Install for a block."""
    was = is_installed()
    install()
    try:
        yield
    finally:
        if not was:
            uninstall()
