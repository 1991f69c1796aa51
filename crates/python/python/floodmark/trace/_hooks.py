"""Having the interpreter call the tracer."""

from __future__ import annotations

import os
import sys
import threading

from floodmark import _native

_tool: int | None = None
_is_of_lines = False
_fault_trigger: int | None = None
_has_fork_hook = False


def _describe_profiler(function: object) -> str:
    module = getattr(function, "__module__", None) or type(function).__module__
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{module}.{name}"


def check(lines: bool) -> None:
    """Raise ``RuntimeError`` if another profiler has the hook that the tracer needs."""
    if sys.version_info >= (3, 12):
        _free_tool()
        return
    kind = "trace" if lines else "profile"
    for module in (sys, threading):
        profiler = getattr(module, f"get{kind}")()
        if profiler is not None:
            raise RuntimeError(
                f"{_describe_profiler(profiler)} is the {kind} function of this thread or of new ones "
                f"({module.__name__}.set{kind}); end it before calls are traced, Python 3.11 has only one"
            )


def install(lines: bool) -> None:
    """Begin to call the tracer at every event of all threads."""
    global _tool, _is_of_lines
    _is_of_lines = lines
    if sys.version_info < (3, 12):
        (threading.settrace if lines else threading.setprofile)(_native.profile_thread)
        _native.install_profile(lines)
        return
    monitoring = sys.monitoring
    tool = _free_tool()
    monitoring.use_tool_id(tool, "floodmark")
    _tool = tool
    selected = 0
    for name, callback in _native.monitoring_callbacks(monitoring.DISABLE, lines):
        event = getattr(monitoring.events, name)
        monitoring.register_callback(tool, event, callback)
        # The ends of native functions come with their calls.
        if name not in ("C_RETURN", "C_RAISE"):
            selected |= event
    # Locations that an earlier trace left out.
    monitoring.restart_events()
    monitoring.set_events(tool, selected)


def remove() -> bool:
    """End calling the tracer; return whether it was called until now."""
    global _tool
    if sys.version_info < (3, 12):
        is_whole = _native.remove_profile()
        if threading.getprofile() is _native.profile_thread:
            threading.setprofile(None)
        if threading.gettrace() is _native.profile_thread:
            threading.settrace(None)
        return is_whole
    monitoring = sys.monitoring
    tool, _tool = _tool, None
    if tool is None or monitoring.get_tool(tool) != "floodmark":
        return False
    monitoring.set_events(tool, 0)
    for name, _ in _native.monitoring_callbacks(monitoring.DISABLE, _is_of_lines):
        monitoring.register_callback(tool, getattr(monitoring.events, name), None)
    monitoring.free_tool_id(tool)
    return True


def _free_tool() -> int:
    if sys.version_info < (3, 12):
        raise RuntimeError("this version of Python has no sys.monitoring")
    monitoring = sys.monitoring
    # The number for profilers first, then those that are for nothing in particular.
    for tool in (monitoring.PROFILER_ID, 3, 4):
        if monitoring.get_tool(tool) is None:
            return int(tool)
    names = ", ".join(str(monitoring.get_tool(tool)) for tool in (monitoring.PROFILER_ID, 3, 4))
    raise RuntimeError(f"all tools of sys.monitoring that a profiler may use are taken: {names}; end one of them")


def prepare_threads(trigger: int | None) -> None:
    """Have other threads and forked children record page faults, too, from now on, or no more.

    Each thread has to prepare itself once, which a profile function for one event does.
    """
    global _fault_trigger, _has_fork_hook
    _fault_trigger = trigger
    if not _has_fork_hook:
        _has_fork_hook = True
        os.register_at_fork(after_in_child=_begin_in_child)
    if trigger is None:
        if threading.getprofile() is _prepare_thread:
            threading.setprofile(None)
    elif threading.getprofile() is None and sys.getprofile() is None:
        if sys.version_info >= (3, 12):
            threading.setprofile_all_threads(_prepare_thread)
            sys.setprofile(None)
        else:
            threading.setprofile(_prepare_thread)


def _prepare_thread(frame: object, event: str, argument: object) -> None:
    sys.setprofile(None)
    _native.prepare_thread()


def _begin_in_child() -> None:
    if _fault_trigger is not None:
        _native.end_fault_trace()
        try:
            _native.begin_fault_trace(_fault_trigger)
        except (OSError, RuntimeError) as error:
            print(f"floodmark: the forked process {os.getpid()} is not traced: {error}", file=sys.stderr)
