"""Sizes as numbers or text."""

from __future__ import annotations

_PATTERN = r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(b|[kmgtp]i?b)?\s*"
_UNITS = {"b": 1}
for _power, _letter in enumerate("kmgtp", start=1):
    _UNITS[f"{_letter}b"] = 1000**_power
    _UNITS[f"{_letter}ib"] = 1024**_power


def parse_bytes(size: int | str) -> int:
    """Turn a size such as ``1024``, ``"8MiB"`` or ``"1.5 GB"`` into a number of bytes.

    >>> parse_bytes("2kib"), parse_bytes("1.5 MB"), parse_bytes(7)
    (2048, 1500000, 7)
    >>> parse_bytes("2k")
    Traceback (most recent call last):
        ...
    ValueError: Could not parse '2k' as a number of bytes; write it as in '2KiB' or '1.5 GB'
    """
    if isinstance(size, str):
        import re

        match = re.fullmatch(_PATTERN, size, re.IGNORECASE)
        if match is None:
            raise ValueError(f"Could not parse {size!r} as a number of bytes; write it as in '2KiB' or '1.5 GB'")
        number, unit = match.groups()
        factor = _UNITS[(unit or "b").lower()]
        return int(number) * factor if number.isdigit() else int(float(number) * factor)
    return int(size)
