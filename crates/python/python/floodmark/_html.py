"""Answers as HTML for notebooks: tables and a small timeline, without scripts and without the network."""

from __future__ import annotations

from html import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT = 640, 120
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
_CELL = "text-align:left;padding:2px 8px"
_NUMBER = "text-align:right;padding:2px 8px"
#: Numbers that are names, and are not added up.
_IDS = ("device", "parent_pid", "pid", "process", "scope", "thread")
_SHOWN_FRAMES = 3


def format_bytes(number: float) -> str:
    """Return bytes in the unit that people read, as the command prints them.

    >>> format_bytes(3_000_000), format_bytes(512), format_bytes(-1536)
    ('2.86 MiB', '512 B', '-1.50 KiB')
    """
    value = float(number)
    if abs(value) < 1024:
        return f"{number:.0f} B"
    unit = ""
    for unit in _UNITS:
        value /= 1024
        if abs(value) < 1023.995:
            break
    digits = 2 if abs(value) < 10 else 1
    return f"{value:.{digits}f} {unit}"


def format_ns(elapsed_ns: int) -> str:
    """Return a span of time in the unit that people read.

    >>> format_ns(1_500_000), format_ns(2_000_000_000), format_ns(17)
    ('1.50 ms', '2.00 s', '17 ns')
    """
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if abs(elapsed_ns) >= size:
            return f"{elapsed_ns / size:.2f} {unit}"
    return f"{elapsed_ns} ns"


def format_time(time_ns: int) -> str:
    """Return an instant in UTC.

    >>> format_time(1_794_837_788_701_831_159)
    '2026-11-16 14:03:08.701831'
    """
    from datetime import datetime, timedelta

    return str(datetime(1970, 1, 1) + timedelta(microseconds=time_ns // 1000))


def format_blocks(count: int) -> str:
    """Return a number of blocks.

    >>> format_blocks(1), format_blocks(2000)
    ('1 block', '2,000 blocks')
    """
    return "1 block" if count == 1 else f"{count:,} blocks"


def _cell(name: str, value: object) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, list):
        more = " …" if len(value) > _SHOWN_FRAMES else ""
        value = " ← ".join(map(str, value[:_SHOWN_FRAMES])) + more
    elif name in _IDS:
        value = str(value)
    elif name.endswith("time_ns") and isinstance(value, int):
        value = format_time(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        # Names come from programs that were recorded, and say anything.
        return f'<td style="{_CELL}">{escape(str(value))}</td>'
    if name == "bytes" or name.endswith("_bytes"):
        return f'<td style="{_NUMBER}" title="{value:,} bytes">{format_bytes(value)}</td>'
    if name == "share":
        return f'<td style="{_NUMBER}">{value:.1%}</td>'
    if name.endswith("age_ns"):
        return f'<td style="{_NUMBER}">{format_ns(int(value))}</td>'
    return f'<td style="{_NUMBER}">{value:,}</td>' if isinstance(value, int) else f"<td>{value:g}</td>"


def rows_table(names: Sequence[str], rows: Sequence[Mapping[str, object]], limit: int = 10) -> str:
    """Return rows as a table; those beyond the limit are counted."""
    titles = [name.removesuffix("_ns").replace("_", " ") for name in names]
    head = "".join(f'<th style="{_CELL}">{escape(title)}</th>' for title in titles)
    body = "".join("<tr>" + "".join(_cell(name, row.get(name)) for name in names) + "</tr>" for row in rows[:limit])
    more = f"<p>… and {len(rows) - limit:,} more</p>" if len(rows) > limit else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def figures_table(figures: Sequence[tuple[str, str]]) -> str:
    """Return names and values as a table."""
    lines = (
        f'<tr><th style="{_CELL}">{escape(name)}</th><td style="{_CELL}">{escape(value)}</td></tr>'
        for name, value in figures
    )
    return f"<table><tbody>{''.join(lines)}</tbody></table>"


def section(title: str, *parts: str) -> str:
    """Return parts under a title."""
    return f"<div><p><strong>{escape(title)}</strong></p>{''.join(parts)}</div>"


def timeline_svg(points: Sequence[tuple[int, int]], origin_ns: int, label: str) -> str:
    """Return live bytes over time as a small SVG; values change in steps."""
    if not points:
        return ""
    first, last = points[0][0], points[-1][0]
    top = max(value for _, value in points) or 1
    left, right, upper, lower = 4, _WIDTH - 4, 18, _HEIGHT - 18

    def x(time_ns: int) -> float:
        return left + (right - left) * (time_ns - first) / max(last - first, 1)

    def y(value: int) -> float:
        return lower - (lower - upper) * value / top

    path = [f"M{x(first):.1f},{lower}V{y(points[0][1]):.1f}"]
    path += [f"H{x(time_ns):.1f}V{y(value):.1f}" for time_ns, value in points[1:]]
    if len(points) == 1:
        path.append(f"H{right}")
    line = "".join(path)
    peak_ns = next(time_ns for time_ns, value in points if value == top or top == 1)
    texts = (
        f'<text x="{left}" y="12">{escape(label)}: at most {format_bytes(top if any(v for _, v in points) else 0)}'
        f" after {format_ns(peak_ns - origin_ns)}</text>"
        f'<text x="{left}" y="{_HEIGHT - 4}">{format_ns(first - origin_ns)}</text>'
        f'<text x="{right}" y="{_HEIGHT - 4}" text-anchor="end">{format_ns(last - origin_ns)}</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
        f' style="max-width:100%" role="img" aria-label="{escape(label)} over time" font-family="sans-serif"'
        f' font-size="11" fill="currentColor">'
        f'<path d="{line}V{lower}Z" fill="#4c78a8" fill-opacity="0.35"/>'
        f'<path d="{line}" fill="none" stroke="#4c78a8" stroke-width="1.5"/>'
        f'<path d="M{left},{lower}H{right}" stroke="currentColor" stroke-opacity="0.4"/>{texts}</svg>'
    )
