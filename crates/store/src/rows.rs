//! How scopes, samples, output, stack samples and messages look as Parquet columns, and back.
//!
//! These tables are read row by row; see `columns` for the event table, which is read by columns.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, TimestampNanosecondType, UInt32Type, UInt64Type};
use arrow_array::{
    Array as _, ArrayRef, PrimitiveArray, RecordBatch, TimestampNanosecondArray, UInt32Array, UInt64Array,
};
use arrow_schema::{DataType, SchemaRef};
use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{
    LogLevel, LogRow, Metric, OutputRow, OutputStream, ProcessId, SampleRow, ScopeAction, ScopeRow, StackId,
    StackReason, StackSampleRow, StringId, Tables,
};

use crate::columns::{fixed_words, time_type, word_type, words};
use crate::merge::TailRows;
use crate::registry::{Needs, Registry, column, schema, text_column};
use crate::table::Table;

/// A row of a table that is read and written row by row: [`ScopeRow`], [`SampleRow`], [`OutputRow`],
/// [`StackSampleRow`], [`LogRow`].
pub trait TableRow: Columns {}

impl<T: Columns> TableRow for T {}

/// Gives stacks in memory their ids at rest.
pub(crate) type StackKey<'a> = &'a dyn Fn(StackId) -> u64;

/// What the store has to know of a row.
pub trait Columns: Clone + Send + 'static {
    /// Table it belongs to.
    const TABLE: Table;
    /// Rows of a batch.
    const ROWS: usize = BATCH_ROWS;
    /// Which small tables must be there to read it.
    const NEEDS: Needs = Needs::Names;

    /// When it happened.
    fn time_ns(&self) -> i64;
    /// Process that recorded it.
    fn process(&self) -> ProcessId;
    /// What it is about, in tables that say so.
    fn subject(&self) -> Option<u64> {
        None
    }
    /// Its table's rows of the tail.
    fn of_tail(rows: &mut TailRows) -> &mut Vec<Self>;
    /// Name, type and whether there may be nulls, of all columns.
    fn schema() -> SchemaRef;
    /// Turns rows into the columns of the schema.
    fn to_columns(rows: &[Self], tables: &Tables, stack_key: StackKey<'_>) -> Vec<ArrayRef>;
    /// Appends the rows of `records` to `out`. Returns how many had words that this version does not
    /// know and were left out; `None` if a column is not what the format says.
    fn from_records(records: &RecordBatch, registry: &mut Registry, out: &mut Vec<Self>) -> Option<u64>;
}

/// Turns rows into a record batch.
pub(crate) fn to_records<T: Columns>(rows: &[T], tables: &Tables, stack_key: StackKey<'_>) -> RecordBatch {
    RecordBatch::try_new(T::schema(), T::to_columns(rows, tables, stack_key))
        .expect("columns are built to the schema")
}

fn times<T: Columns>(rows: &[T]) -> ArrayRef {
    let times = TimestampNanosecondArray::from_iter_values(rows.iter().map(T::time_ns));
    Arc::new(times.with_timezone("UTC"))
}

fn numbers<T>(rows: &[T], of: impl Fn(&T) -> u64) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(rows.iter().map(of)))
}

/// Numbers of which 0 is none.
fn some_numbers<T>(rows: &[T], of: impl Fn(&T) -> u64) -> ArrayRef {
    let some = |value: u64| (value != 0).then_some(value);
    Arc::new(rows.iter().map(|row| some(of(row))).collect::<UInt64Array>())
}

/// Words of a fixed list, by their place in it.
fn listed<T>(rows: &[T], names: &[&str], of: impl Fn(&T) -> i32) -> ArrayRef {
    fixed_words(rows.iter().map(of).collect(), names)
}

/// A column of words on its way back.
pub(crate) struct Words<'a, M> {
    keys: &'a PrimitiveArray<Int32Type>,
    meanings: Vec<M>,
}

impl<'a, M: Copy> Words<'a, M> {
    pub(crate) fn of(
        records: &'a RecordBatch,
        name: &str,
        mut meaning: impl FnMut(&str) -> M,
    ) -> Option<Self> {
        let array = records.column_by_name(name)?.as_dictionary_opt::<Int32Type>()?;
        let words = array.values().as_string_opt::<i32>()?;
        let meanings = (0..words.len()).map(|at| meaning(words.value(at))).collect();
        Some(Self { keys: array.keys(), meanings })
    }

    /// Meaning of the word in `row`; `None` if it is null.
    pub(crate) fn at(&self, row: usize) -> Option<M> {
        (!self.keys.is_null(row)).then(|| self.meanings.get(self.keys.value(row) as usize).copied()).flatten()
    }
}

/// A number of which null is 0.
fn number_or_none(column: &PrimitiveArray<UInt64Type>, row: usize) -> u64 {
    if column.is_null(row) { 0 } else { column.value(row) }
}

/// Process in the upper half of a number.
fn process_of(number: u64) -> ProcessId {
    ProcessId((number >> 32) as u32)
}

impl Columns for SampleRow {
    const TABLE: Table = Table::Sample;

    fn time_ns(&self) -> i64 {
        self.time_ns
    }

    fn process(&self) -> ProcessId {
        process_of(self.subject)
    }

    fn subject(&self) -> Option<u64> {
        Some(self.subject)
    }

    fn of_tail(rows: &mut TailRows) -> &mut Vec<Self> {
        &mut rows.samples
    }

    fn schema() -> SchemaRef {
        schema(&[
            ("time", time_type(), false),
            ("subject", DataType::UInt64, true),
            ("metric", word_type(), false),
            ("value", DataType::UInt64, false),
        ])
    }

    fn to_columns(rows: &[Self], _: &Tables, _: StackKey<'_>) -> Vec<ArrayRef> {
        // Numbers start at 1.
        let metric = |row: &Self| row.metric as i32 - 1;
        vec![
            times(rows),
            some_numbers(rows, |row| row.subject),
            listed(rows, &Metric::ALL.map(Metric::name), metric),
            numbers(rows, |row| row.value),
        ]
    }

    fn from_records(records: &RecordBatch, _: &mut Registry, out: &mut Vec<Self>) -> Option<u64> {
        let times = column::<TimestampNanosecondType>(records, "time")?;
        let subjects = column::<UInt64Type>(records, "subject")?;
        let metrics = Words::of(records, "metric", Metric::from_name)?;
        let values = column::<UInt64Type>(records, "value")?;
        let mut unknown = 0;
        for row in 0..records.num_rows() {
            let Some(metric) = metrics.at(row).flatten() else {
                unknown += 1;
                continue;
            };
            let subject = number_or_none(subjects, row);
            out.push(Self { time_ns: times.value(row), subject, metric, value: values.value(row) });
        }
        Some(unknown)
    }
}

impl Columns for OutputRow {
    const TABLE: Table = Table::Output;
    // A row can be as long as a chunk.
    const ROWS: usize = 64;

    fn time_ns(&self) -> i64 {
        self.time_ns
    }

    fn process(&self) -> ProcessId {
        self.process
    }

    fn of_tail(rows: &mut TailRows) -> &mut Vec<Self> {
        &mut rows.output
    }

    fn schema() -> SchemaRef {
        schema(&[
            ("time", time_type(), false),
            ("process", DataType::UInt32, false),
            ("stream", word_type(), false),
            ("bytes", DataType::Binary, false),
        ])
    }

    fn to_columns(rows: &[Self], _: &Tables, _: StackKey<'_>) -> Vec<ArrayRef> {
        let mut bytes =
            BinaryBuilder::with_capacity(rows.len(), rows.iter().map(|row| row.bytes.len()).sum());
        for row in rows {
            bytes.append_value(&row.bytes);
        }
        vec![
            times(rows),
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.process.0))),
            listed(rows, &OutputStream::ALL.map(OutputStream::name), |row| row.stream as i32 - 1),
            Arc::new(bytes.finish()),
        ]
    }

    fn from_records(records: &RecordBatch, _: &mut Registry, out: &mut Vec<Self>) -> Option<u64> {
        let times = column::<TimestampNanosecondType>(records, "time")?;
        let processes = column::<UInt32Type>(records, "process")?;
        let streams = Words::of(records, "stream", OutputStream::from_name)?;
        let bytes = records.column_by_name("bytes")?.as_binary_opt::<i32>()?;
        let mut unknown = 0;
        for row in 0..records.num_rows() {
            let Some(stream) = streams.at(row).flatten() else {
                unknown += 1;
                continue;
            };
            let (process, bytes) = (ProcessId(processes.value(row)), bytes.value(row).to_vec());
            out.push(Self { time_ns: times.value(row), process, stream, bytes });
        }
        Some(unknown)
    }
}

impl Columns for StackSampleRow {
    const TABLE: Table = Table::StackSample;
    const NEEDS: Needs = Needs::Everything;

    fn time_ns(&self) -> i64 {
        self.time_ns
    }

    fn process(&self) -> ProcessId {
        process_of(self.subject)
    }

    fn subject(&self) -> Option<u64> {
        Some(self.subject)
    }

    fn of_tail(rows: &mut TailRows) -> &mut Vec<Self> {
        &mut rows.stack_samples
    }

    fn schema() -> SchemaRef {
        schema(&[
            ("time", time_type(), false),
            ("subject", DataType::UInt64, true),
            ("thread", DataType::UInt64, false),
            ("stack", DataType::UInt64, true),
            ("reason", word_type(), false),
            ("pause_ns", DataType::UInt64, false),
        ])
    }

    fn to_columns(rows: &[Self], _: &Tables, stack_key: StackKey<'_>) -> Vec<ArrayRef> {
        let stack = |row: &Self| if row.stack.0 == 0 { 0 } else { stack_key(row.stack) };
        vec![
            times(rows),
            some_numbers(rows, |row| row.subject),
            numbers(rows, |row| row.thread),
            some_numbers(rows, stack),
            listed(rows, &StackReason::ALL.map(StackReason::name), |row| row.reason as i32 - 1),
            numbers(rows, |row| row.pause_ns),
        ]
    }

    fn from_records(records: &RecordBatch, registry: &mut Registry, out: &mut Vec<Self>) -> Option<u64> {
        let times = column::<TimestampNanosecondType>(records, "time")?;
        let subjects = column::<UInt64Type>(records, "subject")?;
        let threads = column::<UInt64Type>(records, "thread")?;
        let stacks = column::<UInt64Type>(records, "stack")?;
        let reasons = Words::of(records, "reason", StackReason::from_name)?;
        let pauses = column::<UInt64Type>(records, "pause_ns")?;
        let mut unknown = 0;
        for row in 0..records.num_rows() {
            let Some(reason) = reasons.at(row).flatten() else {
                unknown += 1;
                continue;
            };
            let stack = registry.stacks.get(&number_or_none(stacks, row)).copied().unwrap_or_default();
            let (subject, thread) = (number_or_none(subjects, row), threads.value(row));
            let (time_ns, pause_ns) = (times.value(row), pauses.value(row));
            out.push(Self { time_ns, subject, thread, stack, reason, pause_ns });
        }
        Some(unknown)
    }
}

impl Columns for ScopeRow {
    const TABLE: Table = Table::Scope;

    fn time_ns(&self) -> i64 {
        self.time_ns
    }

    fn process(&self) -> ProcessId {
        self.process
    }

    fn of_tail(rows: &mut TailRows) -> &mut Vec<Self> {
        &mut rows.scopes
    }

    fn schema() -> SchemaRef {
        schema(&[
            ("time", time_type(), false),
            ("process", DataType::UInt32, false),
            ("thread", DataType::UInt64, false),
            ("action", word_type(), false),
            ("scope", DataType::UInt64, true),
            ("parent", DataType::UInt64, true),
            ("name", word_type(), true),
        ])
    }

    fn to_columns(rows: &[Self], tables: &Tables, _: StackKey<'_>) -> Vec<ArrayRef> {
        vec![
            times(rows),
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.process.0))),
            numbers(rows, |row| row.thread),
            listed(rows, &ScopeAction::ALL.map(ScopeAction::name), |row| row.action as i32),
            some_numbers(rows, |row| row.scope),
            some_numbers(rows, |row| row.parent),
            words(rows.iter().map(|row| Some(tables.string(row.name)).filter(|name| !name.is_empty()))),
        ]
    }

    fn from_records(records: &RecordBatch, registry: &mut Registry, out: &mut Vec<Self>) -> Option<u64> {
        let times = column::<TimestampNanosecondType>(records, "time")?;
        let processes = column::<UInt32Type>(records, "process")?;
        let threads = column::<UInt64Type>(records, "thread")?;
        let actions = Words::of(records, "action", ScopeAction::from_name)?;
        let scopes = column::<UInt64Type>(records, "scope")?;
        let parents = column::<UInt64Type>(records, "parent")?;
        let names = Words::of(records, "name", |word| registry.tables.intern(word))?;
        let mut unknown = 0;
        for row in 0..records.num_rows() {
            let Some(action) = actions.at(row).flatten() else {
                unknown += 1;
                continue;
            };
            out.push(Self {
                time_ns: times.value(row),
                process: ProcessId(processes.value(row)),
                thread: threads.value(row),
                action,
                scope: number_or_none(scopes, row),
                parent: number_or_none(parents, row),
                name: names.at(row).unwrap_or(StringId(0)),
            });
        }
        Some(unknown)
    }
}

impl Columns for LogRow {
    const TABLE: Table = Table::Log;
    // A text can be long.
    const ROWS: usize = 1024;

    fn time_ns(&self) -> i64 {
        self.time_ns
    }

    fn process(&self) -> ProcessId {
        self.process
    }

    fn of_tail(rows: &mut TailRows) -> &mut Vec<Self> {
        &mut rows.logs
    }

    fn schema() -> SchemaRef {
        schema(&[
            ("time", time_type(), false),
            ("process", DataType::UInt32, false),
            ("level", word_type(), false),
            ("source", word_type(), true),
            ("text", DataType::Utf8, false),
        ])
    }

    fn to_columns(rows: &[Self], tables: &Tables, _: StackKey<'_>) -> Vec<ArrayRef> {
        let mut texts = StringBuilder::with_capacity(rows.len(), rows.iter().map(|row| row.text.len()).sum());
        for row in rows {
            texts.append_value(&row.text);
        }
        vec![
            times(rows),
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.process.0))),
            listed(rows, &LogLevel::ALL.map(LogLevel::name), |row| row.level as i32 - 1),
            words(rows.iter().map(|row| Some(tables.string(row.source)).filter(|source| !source.is_empty()))),
            Arc::new(texts.finish()),
        ]
    }

    fn from_records(records: &RecordBatch, registry: &mut Registry, out: &mut Vec<Self>) -> Option<u64> {
        let times = column::<TimestampNanosecondType>(records, "time")?;
        let processes = column::<UInt32Type>(records, "process")?;
        let levels =
            Words::of(records, "level", |word| LogLevel::from_name(word).unwrap_or(LogLevel::Unknown))?;
        let sources = Words::of(records, "source", |word| registry.tables.intern(word))?;
        let texts = text_column(records, "text")?;
        for row in 0..records.num_rows() {
            out.push(Self {
                time_ns: times.value(row),
                process: ProcessId(processes.value(row)),
                level: levels.at(row).unwrap_or(LogLevel::Unknown),
                source: sources.at(row).unwrap_or(StringId(0)),
                text: texts.value(row).to_owned(),
            });
        }
        Some(0)
    }
}
