"""The debug log: what resources do, as lines of text.

Lines go to stderr, or to the file that the environment variable ``FLOODMARK_DEBUG_LOG_FILE`` or ``RMM_DEBUG_LOG_FILE``
names. Nothing is written until a level is set, here or by ``FLOODMARK_DEBUG_LOG``.
"""

from __future__ import annotations

import enum
import os
import warnings

from floodmark import _native


class level_enum(enum.IntEnum):
    """Levels of the debug log, most verbose first."""

    trace = 0
    debug = 1
    info = 2
    warn = 3
    error = 4
    critical = 5
    off = 6
    n_levels = 7


_ALIASES = {"warning": "warn", "err": "error", "fatal": "critical", "none": "off"}
_flush_level = level_enum.off


def _level(level: level_enum | str) -> level_enum:
    if isinstance(level, level_enum) and level is not level_enum.n_levels:
        return level
    if isinstance(level, str):
        name = _ALIASES.get(level.lower(), level.lower())
        if name in level_enum.__members__ and name != "n_levels":
            return level_enum[name]
    names = ", ".join(repr(known.name) for known in level_enum if known is not level_enum.n_levels)
    raise TypeError(f"level must be an instance of the level_enum enum or one of {names}")


def set_logging_level(level: level_enum | str) -> None:
    """Write messages of this level and of those above it.

    >>> import floodmark
    >>> floodmark.set_logging_level("warn")
    >>> floodmark.get_logging_level()
    <level_enum.warn: 3>
    >>> floodmark.set_logging_level(floodmark.level_enum.off)
    """
    level = _level(level)
    if level is not level_enum.off:
        _native.install_debug_log()
    _native.set_level(int(level))


def get_logging_level() -> level_enum:
    """Return the level that is written."""
    return level_enum(_native.level())


def set_flush_level(level: level_enum | str) -> None:
    """Accepted for RMM's sake: every line is written at once."""
    global _flush_level
    level = _level(level)
    if level < get_logging_level():
        warnings.warn(f"RMM will not log {level!r}: the logging level is {get_logging_level()!r}", stacklevel=2)
    _flush_level = level


def get_flush_level() -> level_enum:
    """Return what ``set_flush_level`` was called with last."""
    return _flush_level


def should_log(level: level_enum | str) -> bool:
    """Return whether messages of a level are written."""
    return _native.should_log(int(_level(level)))


def flush_logger() -> None:
    """Accepted for RMM's sake: every line is written at once."""


if any(os.environ.get(name) for name in ("FLOODMARK_DEBUG_LOG", "FLOODMARK_DEBUG_LOG_FILE", "RMM_DEBUG_LOG_FILE")):
    _native.install_debug_log()
