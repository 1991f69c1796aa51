"""Answers of the command as objects, with rows as tables."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields

from floodmark import _html
from floodmark._html import format_blocks, format_bytes, format_ns
from floodmark._native import TraceError
from floodmark.tables import Rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, ClassVar, Self

__all__ = [
    "Answer",
    "Block",
    "Group",
    "LeakGroup",
    "LeakedBlock",
    "Leaks",
    "Point",
    "ProcessMemory",
    "RecordedProcess",
    "Run",
    "SizeRange",
    "Stats",
    "Summary",
    "TableSize",
    "Timeline",
    "Watermark",
]


class _Row:
    """A row of an answer, made of the command's JSON."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Self:
        return cls(**{field.name: data.get(field.name) for field in fields(cls)})  # type: ignore[arg-type]

    @classmethod
    def _rows(cls, data: Sequence[dict[str, Any]]) -> Rows[Self]:
        return Rows(cls, [cls._of(row) for row in data])


@dataclass(frozen=True)
class Block(_Row):
    """Memory between its allocation and its free."""

    address: str
    bytes: int
    time_ns: int
    thread: int
    stream: str
    device: int | None
    kind: str
    process: int
    name: str | None
    resource: str | None
    scope: int
    site: str
    stack: list[str]


@dataclass(frozen=True)
class LeakedBlock(Block):
    """A block that was live at the end."""

    age_ns: int


@dataclass(frozen=True)
class Group(_Row):
    """Blocks with the same site, thread, stream, size ..."""

    key: str
    blocks: int
    bytes: int
    share: float
    stack: list[str]


@dataclass(frozen=True)
class LeakGroup(_Row):
    """Blocks of one site that were live at the end."""

    site: str
    verdict: str
    reason: str
    blocks: int
    bytes: int
    share: float
    allocated_blocks: int
    freed_blocks: int
    oldest_age_ns: int
    youngest_age_ns: int


@dataclass(frozen=True)
class SizeRange(_Row):
    """Allocations whose size is in a range."""

    from_bytes: int
    to_bytes: int
    count: int
    bytes: int


@dataclass(frozen=True)
class Point(_Row):
    """Live bytes from a time on."""

    time_ns: int
    live_bytes: int


@dataclass(frozen=True)
class TableSize(_Row):
    """A table of a trace."""

    table: str
    parts: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class RecordedProcess(_Row):
    """A process that recorded."""

    process: int
    pid: int | None
    host: str | None
    command: str | None


@dataclass(frozen=True)
class ProcessMemory(_Row):
    """A process that ``floodmark run`` sampled."""

    pid: int
    parent_pid: int | None
    name: str
    command: str | None
    peak_rss_bytes: int | None
    rss_at_peak_bytes: int | None
    peak_pss_bytes: int | None


@dataclass(frozen=True)
class Run(_Row):
    """The run that was recorded, as far as it is known."""

    command: str | None
    host: str | None
    user: str | None
    start_time_ns: int | None
    end_time_ns: int | None
    exit_status: int | None


class Answer:
    """An answer of the command: attributes, and all of it by ``to_dict()``."""

    _schema: ClassVar[str]
    #: The input as it was opened.
    source: str
    #: What is known to be missing: each has a count and a reason.
    losses: list[dict[str, Any]]

    def __init__(self, data: dict[str, Any]) -> None:
        if data.get("schema") != self._schema:
            raise TraceError(
                f"the floodmark command answers in the form {data.get('schema')}, this package reads {self._schema}; "
                "install both in the same version"
            )
        self._data = data
        for kind in type(self).__mro__:
            for name in kind.__dict__.get("__annotations__", {}):
                if name in data and not hasattr(self, name):
                    setattr(self, name, data[name])

    def to_dict(self) -> dict[str, Any]:
        """Return the whole answer, as the command's ``--json`` has it."""
        return self._data

    def __eq__(self, other: object) -> bool:
        return self._data == other._data if isinstance(other, Answer) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def _losses_html(self) -> str:
        lines = (f"{loss.get('count', '')} {loss.get('reason', '')}" for loss in self.losses)
        return "".join(_html.figures_table([("lost", line)]) for line in lines)


class Stats(Answer):
    """Counts, bytes, peak and sizes of allocations."""

    _schema = "floodmark.stats/1"
    kinds: list[str]
    events: int
    allocations: int
    frees: int
    failures: int
    failed_bytes: int
    total_bytes: int
    peak_bytes: int
    peak_blocks: int
    peak_time_ns: int | None
    live_bytes: int
    live_blocks: int
    first_time_ns: int | None
    last_time_ns: int | None
    histogram: Rows[SizeRange]

    def __init__(self, data: dict[str, Any]) -> None:
        self.histogram = SizeRange._rows(data.get("histogram", []))
        super().__init__(data)

    def __repr__(self) -> str:
        return (
            f"<floodmark stats: {self.allocations:,} allocations of {format_bytes(self.total_bytes)}, "
            f"peak {format_bytes(self.peak_bytes)}, live {format_bytes(self.live_bytes)}>"
        )

    def _repr_html_(self) -> str:
        figures = [
            ("allocations", f"{self.allocations:,}"),
            ("allocated", format_bytes(self.total_bytes)),
            ("frees", f"{self.frees:,}"),
            ("failures", f"{self.failures:,}"),
            ("peak", f"{format_bytes(self.peak_bytes)} in {format_blocks(self.peak_blocks)}"),
            ("live at the end", f"{format_bytes(self.live_bytes)} in {format_blocks(self.live_blocks)}"),
        ]
        return _html.section(
            f"Allocations of {self.source}",
            _html.figures_table(figures),
            self.histogram._repr_html_() if self.histogram else "",
            self._losses_html(),
        )


class Watermark(Answer):
    """What held memory at the peak, or at the time that was asked for."""

    _schema = "floodmark.watermark/1"
    kinds: list[str]
    origin_time_ns: int | None
    peak_bytes: int
    peak_blocks: int
    peak_time_ns: int | None
    reported_bytes: int
    reported_blocks: int
    #: The blocks, largest first.
    blocks: Rows[Block]
    #: Groups of blocks, by what they are grouped by: ``groups["site"]``.
    groups: dict[str, Rows[Group]]

    def __init__(self, data: dict[str, Any], timeline: Callable[[], Timeline] | None = None) -> None:
        self.blocks = Block._rows(data.get("blocks", []))
        self.groups = {group["by"]: Group._rows(group["groups"]) for group in data.get("groups", [])}
        self._timeline = timeline
        super().__init__(data)

    def _after(self) -> str:
        if self.peak_time_ns is None or self.origin_time_ns is None:
            return ""
        return f" after {format_ns(self.peak_time_ns - self.origin_time_ns)}"

    def __repr__(self) -> str:
        held = f"{format_bytes(self.peak_bytes)} in {format_blocks(self.peak_blocks)}"
        return f"<floodmark watermark: peak {held}{self._after()}>"

    def _repr_html_(self) -> str:
        by, groups = next(iter(self.groups.items()), ("site", Rows(Group, [])))
        rows = [{**dataclasses.asdict(group), by: group.key} for group in groups]
        if by == "size":
            rows = [{**row, by: format_bytes(int(row[by]))} if str(row[by]).isdigit() else row for row in rows]
        title = f"Peak {format_bytes(self.peak_bytes)} ({self.peak_bytes:,} bytes){self._after()}"
        return _html.section(
            title,
            self._timeline()._repr_svg_() if self._timeline else "",
            _html.rows_table([by, "blocks", "bytes", "share"], rows) if rows else "<p>Nothing was live.</p>",
            self._losses_html(),
        )


class Leaks(Answer):
    """Blocks that were never freed."""

    _schema = "floodmark.leaks/1"
    leaked_bytes: int
    leaked_blocks: int
    end_time_ns: int | None
    blocks: Rows[LeakedBlock]
    groups: Rows[LeakGroup]

    def __init__(self, data: dict[str, Any]) -> None:
        self.blocks = LeakedBlock._rows(data.get("blocks", []))
        self.groups = LeakGroup._rows(data.get("groups", []))
        super().__init__(data)

    def __bool__(self) -> bool:
        return self.leaked_blocks > 0

    def __repr__(self) -> str:
        return f"<floodmark leaks: {format_bytes(self.leaked_bytes)} in {format_blocks(self.leaked_blocks)}>"

    def _repr_html_(self) -> str:
        title = f"{format_bytes(self.leaked_bytes)} in {format_blocks(self.leaked_blocks)} never freed"
        names = ["site", "verdict", "reason", "blocks", "bytes", "oldest_age_ns"]
        rows = _html.rows_table(names, self.groups.to_dicts()) if self.groups else ""
        return _html.section(title, rows, self._losses_html())


class Timeline(Answer):
    """Live bytes over time."""

    _schema = "floodmark.usage/1"
    exact: bool
    origin_time_ns: int | None
    peak_bytes: int
    peak_time_ns: int | None
    live_bytes: int
    first_time_ns: int | None
    end_time_ns: int | None
    points: Rows[Point]

    def __init__(self, data: dict[str, Any]) -> None:
        self.points = Point._rows(data.get("points", []))
        super().__init__(data)

    def __len__(self) -> int:
        return len(self.points)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.points.__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """Return the points as a ``pandas.DataFrame``."""
        return self.points.to_pandas()

    def to_polars(self) -> Any:
        """Return the points as a ``polars.DataFrame``."""
        return self.points.to_polars()

    def to_arrow(self) -> Any:
        """Return the points as a ``pyarrow.Table``."""
        return self.points.to_arrow()

    def __repr__(self) -> str:
        return f"<floodmark timeline: {len(self):,} points, peak {format_bytes(self.peak_bytes)}>"

    def _repr_svg_(self) -> str:
        points = [(point.time_ns, point.live_bytes) for point in self.points]
        return _html.timeline_svg(points, self.origin_time_ns or (points[0][0] if points else 0), "live bytes")

    def _repr_html_(self) -> str:
        return _html.section(f"Live bytes of {self.source}", self._repr_svg_() or "<p>There are no events.</p>")


class Summary(Answer):
    """What an input is: the run, its processes, tables and the memory that was sampled."""

    _schema = "floodmark.info/1"
    format: str
    live: bool
    events: int | None
    bytes: int | None
    first_time_ns: int | None
    last_time_ns: int | None
    run: Run
    #: Processes that recorded events.
    processes: Rows[RecordedProcess]
    #: Processes that ``floodmark run`` sampled, highest peak first.
    sampled: Rows[ProcessMemory]
    #: Highest sum of resident memory that was sampled.
    peak_rss_bytes: int | None
    tables: Rows[TableSize]

    def __init__(self, data: dict[str, Any]) -> None:
        memory = data.get("memory") or {}
        self.run = Run._of(data.get("run") or {})
        self.processes = RecordedProcess._rows(data.get("processes", []))
        self.sampled = ProcessMemory._rows(memory.get("process_list", []))
        self.peak_rss_bytes = memory.get("peak_rss_bytes")
        self.tables = TableSize._rows(data.get("tables", []))
        super().__init__(data)

    def __repr__(self) -> str:
        parts = [self.format]
        if self.events is not None:
            parts.append(f"{self.events:,} events")
        if self.peak_rss_bytes is not None:
            parts.append(f"peak RSS {format_bytes(self.peak_rss_bytes)} of {len(self.sampled):,} processes")
        return f"<floodmark summary: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        figures = [("format", self.format)]
        if self.run.command:
            figures.append(("command", self.run.command))
        if self.run.exit_status is not None:
            figures.append(("exit status", str(self.run.exit_status)))
        if self.events is not None:
            figures.append(("events", f"{self.events:,}"))
        if self.peak_rss_bytes is not None:
            figures.append(("peak RSS", format_bytes(self.peak_rss_bytes)))
        names = ["pid", "name", "peak_rss_bytes", "rss_at_peak_bytes", "peak_pss_bytes"]
        sampled = _html.rows_table(names, self.sampled.to_dicts(), 5) if self.sampled else ""
        return _html.section(self.source, _html.figures_table(figures), sampled, self._losses_html())
