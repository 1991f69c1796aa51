"""Questions to a trace, or to anything else that the command reads.

>>> import floodmark, tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     with floodmark.record(f"{folder}/run.flood"):
...         buffer = floodmark.DeviceBuffer(size=3_000_000)
...     trace = floodmark.open(f"{folder}/run.flood")
...     trace.watermark().peak_bytes
3000000
"""

from __future__ import annotations

import os
from typing import TypedDict, Unpack

from floodmark._command import find_command
from floodmark._native import TraceError
from floodmark.answers import Leaks, Stats, Summary, Timeline, Watermark
from floodmark.recording import is_trace
from floodmark.tables import TraceTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["Filters", "Picture", "Trace", "TraceError", "open"]


class Filters(TypedDict, total=False):
    """What questions are about: the filters of the command. Several values are a list."""

    device: str | int | Sequence[str | int]
    process: int | Sequence[int]
    thread: int | Sequence[int]
    stream: str | Sequence[str]
    kind: str | Sequence[str]
    from_: str
    to: str


def _options(given: dict[str, Any]) -> list[str]:
    """Turn keyword arguments into options: ``warm_up=2`` becomes ``--warm-up=2``."""
    options = []
    for name, value in given.items():
        option = "--" + name.strip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            options.append(option)
        elif isinstance(value, list | tuple):
            options.append(f"{option}={','.join(map(str, value))}")
        else:
            options.append(f"{option}={value}")
    return options


class Picture:
    """A picture that a notebook shows."""

    def __init__(self, svg: str, title: str) -> None:
        self.svg = svg
        self._title = title

    def __repr__(self) -> str:
        return f"<floodmark {self._title}, {len(self.svg):,} characters of SVG>"

    def _repr_svg_(self) -> str:
        return self.svg


class Trace:
    """A trace, log or export of another tool; each method asks the ``floodmark`` command.

    A trace that is being recorded is read as it is at each question.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        if not os.path.exists(self.path):
            raise FileNotFoundError(f"{self.path} does not exist")
        self._imported: Any = None

    def __repr__(self) -> str:
        return f"floodmark.open({self.path!r})"

    def ask(self, command: str, *options: str) -> dict[str, Any]:
        """Return the answer of a command that has ``--json``, such as ``ask("watermark", "--by", "scope")``."""
        import json

        answer: dict[str, Any] = json.loads(self._run(command, self.path, *options, "--json"))
        return answer

    def text(self, command: str, *options: str) -> str:
        """Return the answer of a command as text."""
        return self._run(command, self.path, *options)

    def summary(self) -> Summary:
        """Return what the input is and what it contains."""
        return Summary(self.ask("info"))

    def stats(self, *, limit: int | None = None, **filters: Unpack[Filters]) -> Stats:
        """Return counts, bytes, peak and sizes of allocations."""
        return Stats(self.ask("stats", *_options({"limit": limit, **filters})))

    def watermark(
        self,
        *,
        by: str | Sequence[str] | None = None,
        at: str | None = None,
        limit: int | None = None,
        **filters: Unpack[Filters],
    ) -> Watermark:
        """Return what held memory at the peak, or at the time ``at``, such as ``"+1.5s"``."""
        options = _options({"by": by, "at": at, "limit": limit, **filters})
        return Watermark(self.ask("watermark", *options), lambda: self.timeline(**filters))

    def leaks(
        self,
        *,
        per: str | None = None,
        warm_up: int | None = None,
        limit: int | None = None,
        **filters: Unpack[Filters],
    ) -> Leaks:
        """Return blocks that were never freed."""
        return Leaks(self.ask("leaks", *_options({"per": per, "warm_up": warm_up, "limit": limit, **filters})))

    def timeline(self, *, points: int | None = None, exact: bool = False, **filters: Unpack[Filters]) -> Timeline:
        """Return live bytes over time, reduced to points that keep every extreme, or exactly."""
        return Timeline(self.ask("usage", *_options({"points": points, "exact": exact, **filters})))

    def plot(self, path: str | os.PathLike[str] | None = None, *, force: bool = False, **options: Any) -> Picture | str:
        """Plot memory over time: into a file (SVG, PNG, PDF or HTML by its name), or for a notebook.

        Options are those of ``floodmark plot``, such as ``per="process"`` or ``title="Training"``.
        """
        return self._picture("plot", path, force, options)

    def flame(
        self, path: str | os.PathLike[str] | None = None, *, force: bool = False, **options: Any
    ) -> Picture | str:
        """Draw a flame graph of what holds memory: into a file (SVG, PNG, PDF or HTML), or for a notebook.

        Options are those of ``floodmark flame``, such as ``of="allocated"`` or ``at="+1.5s"``.
        """
        return self._picture("flame", path, force, options)

    def report(self, path: str | os.PathLike[str], *, force: bool = False, **options: Any) -> str:
        """Write a report as one HTML file; return its path."""
        self._run("report", self.path, "-o", os.fspath(path), *_options({"force": force, **options}))
        return os.fspath(path)

    def _picture(
        self, command: str, path: str | os.PathLike[str] | None, force: bool, options: dict[str, Any]
    ) -> Picture | str:
        if path is None:
            svg = self._run(command, self.path, "-o", "-", "--format", "svg", *_options(options))
            return Picture(svg, f"{command} of {self.path}")
        self._run(command, self.path, "-o", os.fspath(path), *_options({"force": force, **options}))
        return os.fspath(path)

    def table(
        self, name: str, *, process: int | Sequence[int] | None = None, from_: str | None = None, to: str | None = None
    ) -> TraceTable:
        """Return a table of the trace by its name in FORMAT.md: ``event``, ``sample``, ``scope``, ``stack`` ...

        A file that is no trace is imported first, into a temporary one.
        """
        options = _options({"process": process, "from": from_, "to": to})
        return TraceTable(find_command(), self._trace_path(), name, options, owner=self)

    def sql(self, query: str, *, engine: str | None = None) -> Any:
        """Return the rows of a query; docs/sql.md has the tables.

        With DuckDB installed (or ``engine="duckdb"``) this is a relation of DuckDB, which reads the parts itself; ``peaks``
        and the sites of blocks are not known there. Otherwise, or with ``engine="floodmark"``, the command answers, and
        rows are dictionaries. A file that is no trace is imported first, into a temporary one.
        """
        import json

        if engine not in (None, "duckdb", "floodmark"):
            raise ValueError(f"engine must be 'duckdb' or 'floodmark', not {engine!r}")
        path = self._trace_path()
        if engine != "floodmark":
            try:
                import duckdb
            except ImportError:
                if engine == "duckdb":
                    raise
            else:
                connection = duckdb.connect()
                connection.execute(self._run("sql", path, "--views"))
                return connection.sql(query)
        return json.loads(self._run("sql", path, query, "--format", "json"))

    def _trace_path(self) -> str:
        if is_trace(self.path):
            return self.path
        if self._imported is None:
            import tempfile

            folder = tempfile.TemporaryDirectory(prefix="floodmark-")
            self._run("import", self.path, "-o", os.path.join(folder.name, "imported.flood"))
            self._imported = folder
        return os.path.join(self._imported.name, "imported.flood")

    @property
    def events(self) -> TraceTable:
        """Allocations, frees and failed allocations."""
        return self.table("event")

    @property
    def samples(self) -> TraceTable:
        """Values of metrics over time."""
        return self.table("sample")

    @property
    def scopes(self) -> TraceTable:
        """Scopes, ranges and marks."""
        return self.table("scope")

    @property
    def stacks(self) -> TraceTable:
        """Call stacks: each a frame and the stack of its caller."""
        return self.table("stack")

    @property
    def frames(self) -> TraceTable:
        """Frames that stacks consist of."""
        return self.table("frame")

    @property
    def strings(self) -> TraceTable:
        """Text that ids point to."""
        return self.table("string")

    def _repr_html_(self) -> str:
        summary = self.summary()
        parts = [summary._repr_html_()]
        if summary.peak_rss_bytes is not None:
            picture = self.plot(size="640x240")
            parts.append(picture.svg[picture.svg.index("<svg") :] if isinstance(picture, Picture) else "")
        if summary.events or (summary.events is None and summary.peak_rss_bytes is None):
            parts.append(self.watermark(limit=10)._repr_html_())
        return "".join(parts)

    @staticmethod
    def _run(*arguments: str) -> str:
        import subprocess

        result = subprocess.run(
            [find_command(), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if result.returncode != 0:
            raise TraceError(result.stderr.strip() or f"floodmark {arguments[0]} exited with {result.returncode}")
        return result.stdout


def open(path: str | os.PathLike[str]) -> Trace:
    """Open a trace, or a log or export of another tool that the command recognizes."""
    return Trace(path)
