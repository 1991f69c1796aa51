"""Setting up the resources of devices anew."""

from __future__ import annotations


from floodmark import mr
from floodmark._sizes import parse_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


class RMMError(Exception):
    """An error of a memory resource, with its status."""

    def __init__(self, status: str, msg: str) -> None:
        self.status = status
        super().__init__(f"{status}: {msg}")


_hooks: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []


def reinitialize(
    pool_allocator: bool = False,
    managed_memory: bool = False,
    initial_pool_size: int | str | None = None,
    maximum_pool_size: int | str | None = None,
    devices: int | Iterable[int] | None = 0,
    logging: bool = False,
    log_file_name: str | None = None,
) -> None:
    """Give devices new resources; buffers that are alive keep theirs.

    Parameters
    ----------
    pool_allocator
        Allocate from a pool.
    managed_memory
        Use memory that migrates between host and GPU.
    initial_pool_size
        Bytes of the pool at first, such as ``2**30`` or ``"1GiB"``; half of what is free by default.
    maximum_pool_size
        The most that the pool grows to.
    devices
        The device or devices.
    logging
        Log every allocation and free.
    log_file_name
        Path of the log; each device adds its number: ``log.csv`` becomes ``log.dev0.csv``. By default the environment
        variable ``RMM_LOG_FILE`` names it.

    >>> import floodmark
    >>> floodmark.reinitialize(pool_allocator=True, initial_pool_size="1MiB", maximum_pool_size="8MiB")
    >>> floodmark.mr.get_current_device_resource().pool_size()
    1048576
    >>> floodmark.reinitialize()
    """
    initial = None if initial_pool_size is None else parse_bytes(initial_pool_size)
    maximum = None if maximum_pool_size is None else parse_bytes(maximum_pool_size)
    if devices is None:
        devices = [0]
    numbers = [devices] if isinstance(devices, int) else list(devices)
    if logging:
        # Before anything is changed.
        log_file_name = mr._log_file(log_file_name)
    for function, arguments, named in reversed(_hooks):
        function(*arguments, **named)

    def make() -> mr.DeviceMemoryResource:
        resource: mr.DeviceMemoryResource = (
            mr.ManagedMemoryResource() if managed_memory else mr.CudaMemoryResource()
        )
        if pool_allocator:
            resource = mr.PoolMemoryResource(resource, initial, maximum)
        if logging:
            resource = mr.LoggingResourceAdaptor(resource, log_file_name)
        return resource

    mr._replace_all(numbers, make)


def register_reinitialize_hook(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Call a function before resources are replaced, those registered last first."""
    _hooks.append((func, args, kwargs))
    return func


def unregister_reinitialize_hook(func: Callable[..., Any]) -> None:
    """Do not call a function any more, however often it was registered."""
    _hooks[:] = [hook for hook in _hooks if hook[0] != func]
