"""Tables of a trace and rows of answers, for pandas, Polars, PyArrow and whatever else reads Arrow.

Every table has ``__arrow_c_stream__``, the Arrow PyCapsule interface: libraries that know it take the memory over
without a copy and without PyArrow being there.

>>> import polars, pyarrow                                             # doctest: +SKIP
>>> polars.DataFrame(trace.events)                                     # doctest: +SKIP
>>> pyarrow.table(trace.watermark().blocks)                            # doctest: +SKIP
"""

from __future__ import annotations

import dataclasses
from typing import Generic, TypeVar, overload

from floodmark import _html, _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

__all__ = ["Rows", "Table", "TraceTable"]

T = TypeVar("T")

#: Type of an Arrow column by the annotation of a field.
_COLUMN_TYPES = {"int": "int", "float": "float", "bool": "bool", "str": "str", "list[str]": "list[str]"}
#: Integers that need all 64 bits.
_UNSIGNED = ("thread", "scope")
_SHOWN_ROWS = 20


class Table:
    """What other libraries read as a table."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule with an Arrow C stream; the columns have their own types, whatever is requested."""
        raise NotImplementedError

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table``, without a copy."""
        import pyarrow  # type: ignore[import-untyped, import-not-found, unused-ignore]

        return pyarrow.RecordBatchReader.from_stream(self).read_all()

    def to_polars(self) -> Any:
        """Return a ``polars.DataFrame``."""
        import polars

        return polars.DataFrame(self)

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``; needs PyArrow too. Integers stay integers where values are missing."""
        import pandas  # type: ignore[import-untyped, import-not-found, unused-ignore]
        import pyarrow  # type: ignore[import-untyped, import-not-found, unused-ignore]

        reader = pyarrow.RecordBatchReader.from_stream(self)
        # Ids would lose digits as floating point numbers, which is what pandas makes of integers with gaps.
        integers = {
            pyarrow.int32(): pandas.Int32Dtype(),
            pyarrow.int64(): pandas.Int64Dtype(),
            pyarrow.uint32(): pandas.UInt32Dtype(),
            pyarrow.uint64(): pandas.UInt64Dtype(),
        }
        return reader.read_all().to_pandas(types_mapper=integers.get, split_blocks=True)


class TraceTable(Table):
    """A table of a trace: columns, ids and order are those of its files (FORMAT.md).

    Nothing is read before it is asked for, and each time the trace is read as it is then. Columns such as ``stack`` or
    ``scope`` are ids of rows in other tables.
    """

    def __init__(self, command: str, path: str, name: str, options: Sequence[str] = (), owner: object = None) -> None:
        self.name = name
        self._arguments = [command, "export", path, "-o", "-", "--format", "arrow", "--table", name, "-q", *options]
        # An imported file is deleted with the trace that it belongs to.
        self._owner = owner

    def __repr__(self) -> str:
        return f"<floodmark table {self.name!r} of {self._arguments[2]!r}>"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return _native.arrow_stream_of_command(self._arguments)


class Rows(Table, Generic[T]):
    """Rows of an answer: objects that can be counted, indexed and iterated over, and a table.

    It is no ``collections.abc.Sequence``, because libraries would read that row by row.
    """

    def __init__(self, kind: type[T], rows: Sequence[T]) -> None:
        self._kind = kind
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Rows[T]: ...
    def __getitem__(self, index: int | slice) -> T | Rows[T]:
        return Rows(self._kind, self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[T]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return self._rows == other._rows if isinstance(other, Rows) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._rows)

    def __repr__(self) -> str:
        return f"<{len(self)} rows of {self._kind.__name__}>"

    def _fields(self) -> list[tuple[str, str]]:
        fields = dataclasses.fields(self._kind)  # type: ignore[arg-type]
        return [(field.name, str(field.type).removesuffix(" | None")) for field in fields]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        columns = []
        for name, kind in self._fields():
            if name.endswith("time_ns"):
                # A column of times has no unit in its name, as in the tables of a trace.
                name, column = name.removesuffix("_ns"), "time"
                values = [getattr(row, name + "_ns") for row in self._rows]
            else:
                column = "unsigned" if name in _UNSIGNED else _COLUMN_TYPES[kind]
                values = [getattr(row, name) for row in self._rows]
            columns.append((name, column, values))
        return _native.arrow_stream_of_columns(columns)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return each row as a dictionary."""
        return [dataclasses.asdict(row) for row in self._rows]  # type: ignore[call-overload]

    def _repr_html_(self) -> str:
        return _html.rows_table([name for name, _ in self._fields()], self.to_dicts(), _SHOWN_ROWS)
