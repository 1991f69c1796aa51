//! Tables that are read and written row by row: the columns of each, and how rows become columns and back.
//!
//! See `columns` for the event table, which is read by columns, and `small_tables` for what ids point to.

use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{Field, SchemaRef};
use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{
    CallAction, CallRow, LogLevel, LogRow, Metric, OutputRow, OutputStream, ProcessId, Row, SampleRow,
    ScopeAction, ScopeRow, StackReason, StackSampleRow, Tables,
};

use crate::codec::{
    AtRest, Bytes, Codec, ColumnEncoding, FrameNumber, Microseconds, Name, NonZero, NonZero32, Number,
    OptionalNumber, ProcessNumber, Stack, Text, Time, Word, WordOr,
};
use crate::merge::TailRows;
use crate::registry::{Needs, Registry, process_of};
use crate::row_source::IdMap;
use crate::table::Table;

/// A row that is stored as one value per column.
pub trait Columns: Clone + Send + 'static {
    /// Table it belongs to.
    const TABLE: Table;
    /// Columns that are not stored in the default encoding.
    const ENCODINGS: &'static [(&'static str, ColumnEncoding)];
    /// Rows to read at once.
    const ROWS: usize;

    /// Columns of the table.
    fn schema() -> SchemaRef;
    /// Turns rows into the columns of the schema.
    fn to_columns(rows: &[Self], at_rest: &AtRest<'_>) -> Vec<ArrayRef>;
    /// Appends the rows of `records` to `out`. Returns how many had words that this version does not know
    /// and were left out; `None` if a column is not what the format says.
    fn from_records(records: &RecordBatch, registry: &mut Registry, out: &mut Vec<Self>) -> Option<u64>;
    /// Translates ids from one set of tables to another.
    fn remap(&mut self, ids: &mut IdMap, from: &Tables, to: &mut Tables);

    /// Process that recorded it; none in tables that do not say.
    fn process(&self) -> ProcessId {
        ProcessId(0)
    }
}

/// A row with a time: [`ScopeRow`], [`SampleRow`], [`OutputRow`], [`StackSampleRow`], [`LogRow`],
/// [`CallRow`].
pub trait TableRow: Columns {
    /// Which small tables must be loaded to read it.
    const NEEDS: Needs = Needs::Names;

    /// Nanoseconds since the Unix epoch.
    fn time_ns(&self) -> i64;
    /// Subject it is about, in tables that say so.
    fn subject(&self) -> Option<u64> {
        None
    }
    /// The table's rows of the tail.
    fn of_tail(rows: &mut TailRows) -> &mut Vec<Self>;
}

/// A row of a table that is read together with others as [`Row`]s. Calls are not: there are thousands of
/// them for each other row.
pub(crate) trait MergedRow: TableRow {
    /// Turns it into a row of any table.
    fn into_row(self) -> Row;
}

/// Turns rows into a record batch.
pub(crate) fn to_records<T: Columns>(rows: &[T], at_rest: &AtRest<'_>) -> RecordBatch {
    RecordBatch::try_new(T::schema(), T::to_columns(rows, at_rest)).expect("columns are built to the schema")
}

/// Returns a column; one that may have nulls and is missing has nothing else.
pub(crate) fn column<C: Codec>(records: &RecordBatch, name: &str) -> Option<ArrayRef> {
    let none = || C::NULLABLE.then(|| new_null_array(&C::data_type(), records.num_rows()));
    records.column_by_name(name).cloned().or_else(none)
}

/// Describes a column.
pub(crate) fn field<C: Codec>(name: &str) -> Field {
    Field::new(name, C::data_type(), C::NULLABLE)
}

/// Implements [`Columns`] for a row: one line per column with its name, the field, how it is stored, and the
/// encoding if that is not the default one.
macro_rules! table_columns {
    ($row:ident in $table:expr, rows $rows:expr;
        $($name:literal: $field:ident as $codec:ty $(=> $encoding:ident)?,)*
        $(process |$of:ident| $process:expr)?
    ) => {
        impl $crate::rows::Columns for $row {
            const TABLE: $crate::table::Table = $table;
            const ENCODINGS: &'static [(&'static str, $crate::codec::ColumnEncoding)] =
                &[$($(($name, $crate::codec::ColumnEncoding::$encoding),)?)*];
            const ROWS: usize = $rows;

            fn schema() -> ::arrow_schema::SchemaRef {
                let fields = vec![$($crate::rows::field::<$codec>($name)),*];
                ::std::sync::Arc::new(::arrow_schema::Schema::new(fields))
            }

            fn to_columns(
                rows: &[Self],
                at_rest: &$crate::codec::AtRest<'_>,
            ) -> Vec<::arrow_array::ArrayRef> {
                vec![$(<$codec as $crate::codec::Codec>::encode(rows, |row: &Self| &row.$field, at_rest)),*]
            }

            fn from_records(
                records: &::arrow_array::RecordBatch,
                registry: &mut $crate::registry::Registry,
                out: &mut Vec<Self>,
            ) -> Option<u64> {
                $(
                    let array = $crate::rows::column::<$codec>(records, $name)?;
                    let $field = <$codec as $crate::codec::Codec>::reader(&array, registry)?;
                )*
                let read = |row| {
                    Some(Self { $($field: <$codec as $crate::codec::Codec>::decode(&$field, row)?),* })
                };
                let before = out.len();
                out.extend((0..records.num_rows()).filter_map(read));
                Some((records.num_rows() - (out.len() - before)) as u64)
            }

            fn remap(
                &mut self,
                ids: &mut $crate::row_source::IdMap,
                from: &::floodmark_event::Tables,
                to: &mut ::floodmark_event::Tables,
            ) {
                $(<$codec as $crate::codec::Codec>::remap(&mut self.$field, ids, from, to);)*
            }

            $(fn process(&self) -> ::floodmark_event::ProcessId {
                let $of = self;
                $process
            })?
        }
    };
}
pub(crate) use table_columns;

table_columns! {
    ScopeRow in Table::Scope, rows BATCH_ROWS;
    "time": time_ns as Time => Ascending,
    "process": process as ProcessNumber,
    "thread": thread as Number,
    "action": action as Word<ScopeAction>,
    "scope": scope as NonZero,
    "parent": parent as NonZero,
    "name": name as Name,
    process |row| row.process
}

impl TableRow for ScopeRow {
    fn time_ns(&self) -> i64 {
        self.time_ns
    }

    fn of_tail(rows: &mut TailRows) -> &mut Vec<Self> {
        &mut rows.scopes
    }
}

impl MergedRow for ScopeRow {
    fn into_row(self) -> Row {
        Row::Scope(self)
    }
}

table_columns! {
    SampleRow in Table::Sample, rows BATCH_ROWS;
    "time": time_ns as Time => Ascending,
    "subject": subject as NonZero,
    "metric": metric as Word<Metric>,
    // A sweep reads the same values again, changed or not: whole numbers repeat at the same distance, which
    // zstd finds and which dictionaries and differences hide from it (0.4 bytes a sample, not 0.6 or 2.9).
    "value": value as Number => Plain,
    process |row| process_of(row.subject)
}

impl TableRow for SampleRow {
    fn time_ns(&self) -> i64 {
        self.time_ns
    }

    fn subject(&self) -> Option<u64> {
        Some(self.subject)
    }

    fn of_tail(rows: &mut TailRows) -> &mut Vec<Self> {
        &mut rows.samples
    }
}

impl MergedRow for SampleRow {
    fn into_row(self) -> Row {
        Row::Sample(self)
    }
}

table_columns! {
    // A row can be as long as a chunk.
    OutputRow in Table::Output, rows 64;
    "time": time_ns as Time => Ascending,
    "process": process as ProcessNumber,
    "stream": stream as Word<OutputStream>,
    "bytes": bytes as Bytes => Opaque,
    process |row| row.process
}

impl TableRow for OutputRow {
    fn time_ns(&self) -> i64 {
        self.time_ns
    }

    fn of_tail(rows: &mut TailRows) -> &mut Vec<Self> {
        &mut rows.output
    }
}

impl MergedRow for OutputRow {
    fn into_row(self) -> Row {
        Row::Output(self)
    }
}

table_columns! {
    StackSampleRow in Table::StackSample, rows BATCH_ROWS;
    "time": time_ns as Time => Ascending,
    "subject": subject as NonZero,
    "thread": thread as Number,
    "stack": stack as Stack,
    "reason": reason as Word<StackReason>,
    "pause_ns": pause_ns as Number,
    process |row| process_of(row.subject)
}

impl TableRow for StackSampleRow {
    const NEEDS: Needs = Needs::Everything;

    fn time_ns(&self) -> i64 {
        self.time_ns
    }

    fn subject(&self) -> Option<u64> {
        Some(self.subject)
    }

    fn of_tail(rows: &mut TailRows) -> &mut Vec<Self> {
        &mut rows.stack_samples
    }
}

impl MergedRow for StackSampleRow {
    fn into_row(self) -> Row {
        Row::Stack(self)
    }
}

table_columns! {
    // A text can be long.
    LogRow in Table::Log, rows 1024;
    "time": time_ns as Time => Ascending,
    "process": process as ProcessNumber,
    "level": level as WordOr<LogLevel>,
    "source": source as Name,
    "text": text as Text,
    process |row| row.process
}

impl TableRow for LogRow {
    fn time_ns(&self) -> i64 {
        self.time_ns
    }

    fn of_tail(rows: &mut TailRows) -> &mut Vec<Self> {
        &mut rows.logs
    }
}

impl MergedRow for LogRow {
    fn into_row(self) -> Row {
        Row::Log(self)
    }
}

table_columns! {
    CallRow in Table::Call, rows BATCH_ROWS;
    // The clock is nearly all of what a call takes: 0.17 bytes in microseconds, over a byte in nanoseconds.
    "time": time_ns as Microseconds => Ascending,
    "process": process as ProcessNumber,
    "thread": thread as Number,
    "action": action as Word<CallAction>,
    "frame": code as FrameNumber,
    "line": line as NonZero32,
    "rss": rss_bytes as OptionalNumber,
    process |row| row.process
}

impl TableRow for CallRow {
    const NEEDS: Needs = Needs::Everything;

    fn time_ns(&self) -> i64 {
        self.time_ns
    }

    fn of_tail(rows: &mut TailRows) -> &mut Vec<Self> {
        &mut rows.calls
    }
}
