"""Does what the environment asks for, before a program starts.

``FLOODMARK_MEMORY_PROFILING=pandas,mypkg`` profiles packages and prints the report to stderr when the program ends;
``FLOODMARK_NUMPY=1`` takes NumPy's memory from the current resource; ``FLOODMARK_RECORD=1`` records into the trace of
the enclosing ``floodmark run`` or of a parent process, or into one of its own. ``FLOODMARK_TRACE_FOLLOW`` is set by a
traced program for those that it starts.
"""

from __future__ import annotations

import atexit
import os
import sys


def begin() -> None:
    if os.environ.get("FLOODMARK_TRACE_FOLLOW"):
        _follow_trace()
    packages = [name.strip() for name in os.environ.get("FLOODMARK_MEMORY_PROFILING", "").split(",") if name.strip()]
    from floodmark import profiling, statistics

    if os.environ.get("FLOODMARK_NUMPY", "") not in ("", "0"):
        statistics.enable_statistics()
        profiling._install_numpy()
    wanted = os.environ.get("FLOODMARK_RECORD", "")
    if wanted not in ("", "0"):
        from floodmark import recording

        recording.record(stacks=wanted != "no-stacks").start()
    for name in packages:
        profiling.profile_package(name)
    if packages:
        atexit.register(lambda: profiling.print_memory_report(file=sys.stderr))


def _follow_trace() -> None:
    from floodmark import trace

    try:
        trace._follow()
    except (OSError, RuntimeError, ValueError) as error:
        print(f"floodmark: process {os.getpid()} is not traced: {error}", file=sys.stderr)


begin()
