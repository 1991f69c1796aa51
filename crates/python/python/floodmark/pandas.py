"""pandas with cuDF's option ``memory_profiling``.

>>> import floodmark.pandas as pd
>>> pd.set_option("memory_profiling", True)
>>> frame = pd.DataFrame({"a": [1, 2, 3]})
>>> any("DataFrame.__init__" in name for name in floodmark.get_memory_records())
True
>>> pd.set_option("memory_profiling", False)
"""

from __future__ import annotations

import pandas as _pandas

import floodmark
from floodmark import profiling

TYPE_CHECKING = False
if TYPE_CHECKING:
    import contextlib
    from typing import Any

_OURS = "memory_profiling"


def set_option(name: str, value: Any) -> None:
    """Set an option of pandas, or ``memory_profiling``."""
    if name != _OURS:
        _pandas.set_option(name, value)
    elif value and "pandas" not in profiling._packages:
        profiling.profile_package("pandas")
    else:
        profiling.set_option(name, value)


def get_option(name: str) -> Any:
    """Return an option of pandas, or ``memory_profiling``."""
    return profiling.get_option(name) if name == _OURS else _pandas.get_option(name)


def option_context(name: str, value: Any) -> contextlib.AbstractContextManager[None]:
    """Set an option for a block."""
    return profiling._set_for_a_block(get_option, set_option, name, value)


def __getattr__(name: str) -> Any:
    return getattr(_pandas, name)
