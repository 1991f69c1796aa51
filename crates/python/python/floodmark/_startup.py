"""Does what the environment asks for, before a program starts.

``FLOODMARK_MEMORY_PROFILING=pandas,mypkg`` profiles packages and prints the report to stderr when the program ends;
``FLOODMARK_NUMPY=1`` takes NumPy's memory from the current resource.
"""

from __future__ import annotations

import atexit
import os
import sys


def begin() -> None:
    packages = [name.strip() for name in os.environ.get("FLOODMARK_MEMORY_PROFILING", "").split(",") if name.strip()]
    from floodmark import profiling, statistics

    if os.environ.get("FLOODMARK_NUMPY", "") not in ("", "0"):
        statistics.enable_statistics()
        profiling._install_numpy()
    for name in packages:
        profiling.profile_package(name)
    if packages:
        atexit.register(lambda: profiling.print_memory_report(file=sys.stderr))


begin()
