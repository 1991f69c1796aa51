"""A flight recorder for memory.

The names that RMM documents work with ``import floodmark as rmm``: buffers, memory resources and adaptors, statistics,
the profiler, and logs of allocations. Devices are GPUs where there are some, else the host's memory:

>>> import floodmark
>>> floodmark.statistics.enable_statistics()
>>> buffer = floodmark.DeviceBuffer(size=1000)
>>> floodmark.statistics.get_statistics().current_bytes
1000
"""

from floodmark import _native, mr, statistics
from floodmark._devices import Device, devices
from floodmark._native import DeviceBuffer, __version__
from floodmark._reinitialize import (
    RMMError,
    register_reinitialize_hook,
    reinitialize,
    unregister_reinitialize_hook,
)
from floodmark.logger import (
    flush_logger,
    get_flush_level,
    get_logging_level,
    level_enum,
    set_flush_level,
    set_logging_level,
    should_log,
)
from floodmark.mr import disable_logging, enable_logging, get_log_filenames, is_initialized

__all__ = [
    "Device",
    "DeviceBuffer",
    "RMMError",
    "__version__",
    "devices",
    "disable_logging",
    "enable_logging",
    "flush_logger",
    "get_flush_level",
    "get_log_filenames",
    "get_logging_level",
    "is_initialized",
    "level_enum",
    "mr",
    "register_reinitialize_hook",
    "reinitialize",
    "set_flush_level",
    "set_logging_level",
    "should_log",
    "statistics",
    "unregister_reinitialize_hook",
]
