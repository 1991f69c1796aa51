"""Memory resources, adaptors around them, and the resource that each device allocates from.

Without a GPU the resources of GPU memory hand out memory of the host.
"""

from __future__ import annotations

import contextlib
import os

from floodmark import _native
from floodmark._sizes import parse_bytes
from floodmark.stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from floodmark.statistics import Statistics

__all__ = [
    "ArenaMemoryResource",
    "BinningMemoryResource",
    "CallbackMemoryResource",
    "CudaAsyncMemoryResource",
    "CudaMemoryResource",
    "DeviceMemoryResource",
    "FailureCallbackResourceAdaptor",
    "FixedSizeMemoryResource",
    "LimitingResourceAdaptor",
    "LoggingResourceAdaptor",
    "ManagedMemoryResource",
    "PinnedHostMemoryResource",
    "PoolMemoryResource",
    "PrefetchResourceAdaptor",
    "SamHeadroomMemoryResource",
    "StatisticsResourceAdaptor",
    "SystemMemoryResource",
    "TrackingResourceAdaptor",
    "UpstreamResourceAdaptor",
    "available_device_memory",
    "disable_logging",
    "enable_logging",
    "get_current_device_resource",
    "get_current_device_resource_type",
    "get_log_filenames",
    "get_per_device_resource",
    "get_per_device_resource_type",
    "is_initialized",
    "set_current_device_resource",
    "set_per_device_resource",
]

_ALIGNMENT = 256


class DeviceMemoryResource(_native.Resource):
    """A memory resource: ``allocate(nbytes, stream)`` and ``deallocate(ptr, nbytes, stream)``."""


class UpstreamResourceAdaptor(DeviceMemoryResource):
    """A resource over another one."""

    @property
    def upstream_mr(self) -> DeviceMemoryResource:
        """The resource below."""
        return self.upstream  # type: ignore[return-value]

    def get_upstream(self) -> DeviceMemoryResource:
        """Return the resource below."""
        return self.upstream_mr


class CudaMemoryResource(DeviceMemoryResource):
    """Memory that the driver allocates and frees one block at a time."""

    def __new__(cls) -> CudaMemoryResource:
        return super().__new__(cls, "cuda")


class ManagedMemoryResource(DeviceMemoryResource):
    """Memory that migrates between host and GPU."""

    def __new__(cls) -> ManagedMemoryResource:
        return super().__new__(cls, "managed")


class PinnedHostMemoryResource(DeviceMemoryResource):
    """Page-locked memory of the host."""

    def __new__(cls) -> PinnedHostMemoryResource:
        return super().__new__(cls, "pinned")


class SystemMemoryResource(DeviceMemoryResource):
    """Ordinary memory of the host."""

    def __new__(cls) -> SystemMemoryResource:
        return super().__new__(cls, "system")


class SamHeadroomMemoryResource(DeviceMemoryResource):
    """Ordinary memory of the host that leaves headroom on the GPU."""

    headroom: int

    def __new__(cls, headroom: int) -> SamHeadroomMemoryResource:
        self = super().__new__(cls, "system")
        self.headroom = headroom
        return self


class CudaAsyncMemoryResource(DeviceMemoryResource):
    """Memory of a pool that the driver keeps, ordered by streams."""

    def __new__(
        cls,
        initial_pool_size: int | str | None = None,
        release_threshold: int | str | None = None,
        enable_ipc: bool = False,
        enable_fabric: bool = False,
    ) -> CudaAsyncMemoryResource:
        if enable_ipc or enable_fabric:
            raise NotImplementedError("pools that other processes open are not supported")
        return super().__new__(
            cls,
            "async",
            initial_bytes=_optional(initial_pool_size),
            release_threshold_bytes=_optional(release_threshold),
        )


class PoolMemoryResource(UpstreamResourceAdaptor):
    """A pool that keeps what it got from its upstream, and grows up to its maximum.

    The pool begins with half of what is free, unless ``initial_pool_size`` says how much.

    >>> import floodmark
    >>> pool = floodmark.mr.PoolMemoryResource(
    ...     floodmark.mr.CudaMemoryResource(), initial_pool_size="1MiB", maximum_pool_size="4MiB")
    >>> buffer = floodmark.DeviceBuffer(size=1000, mr=pool)
    >>> pool.pool_size()
    1048576
    """

    def __new__(
        cls,
        upstream_mr: DeviceMemoryResource,
        initial_pool_size: int | str | None = None,
        maximum_pool_size: int | str | None = None,
    ) -> PoolMemoryResource:
        maximum = _optional(maximum_pool_size)
        if initial_pool_size is None:
            initial = _half_of_free()
            if maximum is not None:
                initial = min(initial, maximum)
        else:
            initial = parse_bytes(initial_pool_size)
        return super().__new__(cls, "pool", upstream_mr, initial_bytes=initial, maximum_bytes=maximum)

    def pool_size(self) -> int:
        """Return the bytes that the pool holds of its upstream."""
        return self.pool_bytes()


class ArenaMemoryResource(UpstreamResourceAdaptor):
    """A fixed amount of memory, divided among threads and streams."""

    def __new__(
        cls,
        upstream_mr: DeviceMemoryResource,
        arena_size: int | str | None = None,
        dump_log_on_failure: bool = False,
    ) -> ArenaMemoryResource:
        size = _half_of_free() if arena_size is None else parse_bytes(arena_size)
        dump = "rmm_arena_memory_dump.log" if dump_log_on_failure else None
        return super().__new__(cls, "arena", upstream_mr, bytes=size, dump=dump)


class FixedSizeMemoryResource(UpstreamResourceAdaptor):
    """Blocks of one size."""

    def __new__(
        cls,
        upstream_mr: DeviceMemoryResource,
        block_size: int | str = 0x100000,
        blocks_to_preallocate: int = 128,
    ) -> FixedSizeMemoryResource:
        return super().__new__(
            cls, "fixed_size", upstream_mr, block_bytes=parse_bytes(block_size), blocks=blocks_to_preallocate
        )


class BinningMemoryResource(UpstreamResourceAdaptor):
    """Sends each request to the bin with the smallest blocks that are large enough, or to the upstream."""

    _bins: list[DeviceMemoryResource]

    def __new__(
        cls,
        upstream_mr: DeviceMemoryResource,
        min_size_exponent: int = -1,
        max_size_exponent: int = -1,
    ) -> BinningMemoryResource:
        sizes: list[int] = []
        if min_size_exponent != -1 and max_size_exponent != -1:
            sizes = [1 << power for power in range(min_size_exponent, max_size_exponent + 1)]
        self = super().__new__(cls, "binning", upstream_mr, sizes=sizes)
        self._bins = []
        return self

    def add_bin(self, allocation_size: int | str, bin_resource: DeviceMemoryResource | None = None) -> None:
        """Add a bin for requests of up to ``allocation_size`` bytes, before the first allocation."""
        self.add_bin_of(parse_bytes(allocation_size), bin_resource)
        if bin_resource is not None:
            self._bins.append(bin_resource)

    @property
    def bin_mrs(self) -> list[DeviceMemoryResource]:
        """The resources that ``add_bin`` was called with."""
        return list(self._bins)


class CallbackMemoryResource(DeviceMemoryResource):
    """Memory that functions of the program hand out.

    ``allocate_func(size, stream)`` returns an address that is a multiple of 256; ``deallocate_func(ptr, size,
    stream)`` gets it back. ``MemoryError`` and ``RuntimeError`` of the first reach the caller as they are, other
    exceptions as ``RuntimeError``.
    """

    def __new__(
        cls,
        allocate_func: Callable[[int, Stream], int],
        deallocate_func: Callable[[int, int, Stream], Any],
    ) -> CallbackMemoryResource:
        return super().__new__(
            cls,
            "callback",
            allocate=lambda size, stream: allocate_func(size, Stream(stream)),
            deallocate=lambda ptr, size, stream: deallocate_func(ptr, size, Stream(stream)),
        )


class LimitingResourceAdaptor(UpstreamResourceAdaptor):
    """Lets no more than a number of bytes be live."""

    def __new__(
        cls, upstream_mr: DeviceMemoryResource, allocation_limit: int | str, alignment: int = _ALIGNMENT
    ) -> LimitingResourceAdaptor:
        return super().__new__(
            cls, "limiting", upstream_mr, limit_bytes=parse_bytes(allocation_limit), alignment=alignment
        )

    def get_allocated_bytes(self) -> int:
        """Return the bytes that are live, rounding included."""
        return self.limit()[1]

    def get_allocation_limit(self) -> int:
        """Return the limit."""
        return self.limit()[0]


class TrackingResourceAdaptor(UpstreamResourceAdaptor):
    """Knows every live block."""

    def __new__(cls, upstream_mr: DeviceMemoryResource, capture_stacks: bool = False) -> TrackingResourceAdaptor:
        return super().__new__(cls, "tracking", upstream_mr, stacks=capture_stacks)

    def get_allocated_bytes(self) -> int:
        """Return the bytes of live blocks."""
        return self.tracked_bytes()

    def get_outstanding_allocations(self) -> list[tuple[int, int, int]]:
        """Return the live blocks as (address, bytes, stream), oldest first."""
        return self.tracked_blocks()

    def get_outstanding_allocations_str(self) -> str:
        """Return the live blocks as text."""
        return self.tracked_report()

    def log_outstanding_allocations(self) -> None:
        """Write the live blocks to the debug log."""
        self.log_tracked()


class StatisticsResourceAdaptor(UpstreamResourceAdaptor):
    """Counts what goes through it."""

    def __new__(cls, upstream_mr: DeviceMemoryResource) -> StatisticsResourceAdaptor:
        return super().__new__(cls, "statistics", upstream_mr)

    @property
    def allocation_counts(self) -> Statistics:
        """What the innermost scope of the calling thread counted, or the process where it has none open."""
        return _statistics(self.counters())

    def get_statistics(self) -> Statistics:
        """Return ``allocation_counts``."""
        return self.allocation_counts

    def push_counters(self) -> Statistics:
        """Open a scope on the calling thread; return the counts before."""
        return _statistics(self.push())

    def pop_counters(self) -> Statistics:
        """Close the calling thread's innermost scope; return what it counted."""
        return _statistics(self.pop())


class LoggingResourceAdaptor(UpstreamResourceAdaptor):
    """Writes a row of text per allocation, free and failure, before the call returns.

    The file has the number of the device in its name: ``log.csv`` becomes ``log.dev0.csv``. ``log.csv`` itself is made
    a link to it, unless there is such a file.
    """

    def __new__(cls, upstream: DeviceMemoryResource, log_file_name: str | None = None) -> LoggingResourceAdaptor:
        name = _log_file(log_file_name)
        root, extension = os.path.splitext(name)
        path = os.path.abspath(f"{root}.dev{_native.current_device()}{extension}")
        self = super().__new__(cls, "logging", upstream, file=path)
        _link(os.path.abspath(name), path)
        return self

    def flush(self) -> None:
        """Write what is buffered; nothing is, unless the disk was full."""
        self.flush_log()

    def get_file_name(self) -> str:
        """Return the path of the log."""
        return str(self.log_file())


class FailureCallbackResourceAdaptor(UpstreamResourceAdaptor):
    """Calls ``callback(nbytes)`` when there is no memory, and tries again while it returns true."""

    def __new__(
        cls, upstream_mr: DeviceMemoryResource, callback: Callable[[int], bool]
    ) -> FailureCallbackResourceAdaptor:
        return super().__new__(cls, "failure_callback", upstream_mr, callback=callback)


class PrefetchResourceAdaptor(UpstreamResourceAdaptor):
    """Brings every new block to the GPU, where memory migrates."""

    def __new__(cls, upstream_mr: DeviceMemoryResource) -> PrefetchResourceAdaptor:
        return super().__new__(cls, "prefetch", upstream_mr)


def _optional(size: int | str | None) -> int | None:
    return None if size is None else parse_bytes(size)


def _half_of_free() -> int:
    free, _ = available_device_memory()
    return free // 2 // _ALIGNMENT * _ALIGNMENT


def _statistics(figures: tuple[int, ...] | None) -> Statistics:
    from floodmark.statistics import Statistics

    assert figures is not None, "a statistics adaptor counts"
    return Statistics._of(figures)


def _log_file(name: str | None) -> str:
    if name is not None:
        return os.fspath(name)
    name = os.environ.get("RMM_LOG_FILE")
    if not name:
        raise ValueError(
            "RMM log file name must be provided by log_file_name or by the environment variable RMM_LOG_FILE"
        )
    return name


def _link(name: str, path: str) -> None:
    """Make the name without the device a link to the log, as RMM's guide reads it under that name."""
    with contextlib.suppress(OSError):
        if os.path.islink(name) and os.path.dirname(os.readlink(name)) == "":
            os.unlink(name)
        os.symlink(os.path.basename(path), name)


@contextlib.contextmanager
def _on_device(device: int) -> Any:
    before = _native.current_device()
    _native.set_current_device(device)
    try:
        yield
    finally:
        _native.set_current_device(before)


# What resources that replace others are wrapped in.
_wrap_new: list[Callable[[DeviceMemoryResource], DeviceMemoryResource]] = []


def _replace_all(devices: Iterable[int], make: Callable[[], DeviceMemoryResource]) -> None:
    made = {}
    for device in devices:
        with _on_device(device):
            made[device] = make()
            for wrap in _wrap_new:
                made[device] = wrap(made[device])
    _native.reset_resources()
    for device, resource in made.items():
        _native.set_resource(device, resource)


def get_per_device_resource(device: int) -> DeviceMemoryResource:
    """Return the resource that a device allocates from."""
    return _native.get_resource(device)


def set_per_device_resource(device: int, mr: DeviceMemoryResource) -> None:
    """Allocate a device's memory from a resource from now on; blocks belong to the resource they came from."""
    _native.set_resource(device, mr)


def get_current_device_resource() -> DeviceMemoryResource:
    """Return the resource that the current device allocates from."""
    return _native.get_resource(_native.current_device())


def set_current_device_resource(mr: DeviceMemoryResource) -> None:
    """Allocate the current device's memory from a resource from now on.

    >>> import floodmark
    >>> limited = floodmark.mr.LimitingResourceAdaptor(floodmark.mr.CudaMemoryResource(), "1MiB")
    >>> floodmark.mr.set_current_device_resource(limited)
    >>> floodmark.DeviceBuffer(size=2**20 + 1)
    Traceback (most recent call last):
        ...
    MemoryError: out of memory: limiting cannot allocate 1.00 MiB (1048577 bytes): its limit is 1.00 MiB; live 0 B, reserved 0 B
    >>> floodmark.reinitialize()
    """
    _native.set_resource(_native.current_device(), mr)


def get_per_device_resource_type(device: int) -> type:
    """Return the class of the resource that a device allocates from."""
    return type(get_per_device_resource(device))


def get_current_device_resource_type() -> type:
    """Return the class of the resource that the current device allocates from."""
    return type(get_current_device_resource())


def is_initialized() -> bool:
    """Return whether the current device has a resource."""
    return get_current_device_resource() is not None


def available_device_memory() -> tuple[int, int]:
    """Return free and total bytes of the current device."""
    return _native.available_memory(_native.current_device())


def _devices_in_use() -> list[int]:
    return _native.registered_devices() or [0]


def enable_logging(log_file_name: str | None = None) -> None:
    """Log every allocation and free of every device in use; see ``LoggingResourceAdaptor``."""
    name = _log_file(log_file_name)
    for device in _devices_in_use():
        with _on_device(device):
            logged = LoggingResourceAdaptor(get_per_device_resource(device), name)
            set_per_device_resource(device, logged)


def disable_logging() -> None:
    """Stop the logs of all devices, wherever in the stack of resources they are."""
    for device in _devices_in_use():
        resource = get_per_device_resource(device)
        if resource.stop_log() and isinstance(resource, LoggingResourceAdaptor):
            set_per_device_resource(device, resource.get_upstream())


def get_log_filenames() -> dict[int, str | None]:
    """Return the path of each device's log; None for a device without one."""
    paths = {device: get_per_device_resource(device).log_file() for device in _devices_in_use()}
    return {device: None if path is None else str(path) for device, path in paths.items()}


def _flush_logs() -> None:
    for device in _devices_in_use():
        get_per_device_resource(device).flush_log()


def _default(device: int) -> DeviceMemoryResource:
    with _on_device(device):
        made: DeviceMemoryResource = CudaMemoryResource()
        for wrap in _wrap_new:
            made = wrap(made)
        return made


_native.set_default_factory(_default)
