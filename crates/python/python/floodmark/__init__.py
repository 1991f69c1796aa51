"""A flight recorder for memory.

The names that RMM documents work with ``import floodmark as rmm``: buffers, memory resources and adaptors, statistics,
the profiler, and logs of allocations. Devices are GPUs where there are some, else the host's memory:

>>> import floodmark
>>> floodmark.statistics.enable_statistics()
>>> buffer = floodmark.DeviceBuffer(size=1000)
>>> floodmark.statistics.get_statistics().current_bytes
1000
"""

import sys as _sys

if "t" in getattr(_sys, "abiflags", ""):
    raise ImportError("floodmark needs the global interpreter lock: free-threaded builds of Python are not supported")

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
from floodmark.monitoring import Monitor, monitor
from floodmark.profiling import (
    describe_option,
    get_memory_records,
    get_option,
    option_context,
    print_memory_report,
    profile_package,
    set_option,
    unprofile_package,
)
from floodmark.recording import Recording, mark, record, scope
from floodmark.testing import assert_no_leaks, limit_peak
from floodmark._native import TraceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from floodmark.reading import Trace, open
    from floodmark.magics import load_ipython_extension


def __getattr__(name: str) -> "Any":
    # What reads traces is imported when it is needed, so that importing the package stays fast.
    if name in ("Trace", "open"):
        from floodmark import reading

        return getattr(reading, name)
    if name == "load_ipython_extension":
        from floodmark import magics

        return magics.load_ipython_extension
    raise AttributeError(f"module 'floodmark' has no attribute {name!r}")


__all__ = [
    "Device",
    "DeviceBuffer",
    "Monitor",
    "RMMError",
    "Recording",
    "Trace",
    "TraceError",
    "__version__",
    "assert_no_leaks",
    "describe_option",
    "devices",
    "disable_logging",
    "enable_logging",
    "flush_logger",
    "get_flush_level",
    "get_log_filenames",
    "get_logging_level",
    "get_memory_records",
    "get_option",
    "is_initialized",
    "level_enum",
    "limit_peak",
    "load_ipython_extension",
    "mark",
    "monitor",
    "mr",
    "open",
    "option_context",
    "print_memory_report",
    "profile_package",
    "record",
    "register_reinitialize_hook",
    "reinitialize",
    "scope",
    "set_flush_level",
    "set_logging_level",
    "set_option",
    "should_log",
    "statistics",
    "unprofile_package",
    "unregister_reinitialize_hook",
]
