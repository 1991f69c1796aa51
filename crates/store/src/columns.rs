//! How events and the small tables look as Parquet columns.
//!
//! Times are UTC timestamps in nanoseconds, enumerations are dictionary-encoded words, "none" is
//! null, so that DuckDB, pandas, Polars and Spark show what we mean without knowing us.

use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, TimestampNanosecondType, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, DictionaryArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use floodmark_event::{
    Action, Column, EventBatch, Kind, NO_DEVICE, ProcessId, StackId, StringId, Tables, UNKNOWN_BYTES,
};
use rustc_hash::FxHashMap;

/// Columns of the event table, in order.
pub const EVENT_COLUMNS: [&str; 13] = [
    "time", "process", "thread", "action", "address", "bytes", "device", "stream", "kind", "resource",
    "scope", "stack", "name",
];

/// The type of a dictionary-encoded word.
pub(crate) fn word_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

pub(crate) fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

/// Schema of the event table.
pub(crate) fn event_schema() -> SchemaRef {
    let field = |name: &str, kind: DataType, nullable: bool| Field::new(name, kind, nullable);
    Arc::new(Schema::new(vec![
        field("time", time_type(), false),
        field("process", DataType::UInt32, false),
        field("thread", DataType::UInt64, false),
        field("action", word_type(), false),
        field("address", DataType::UInt64, false),
        field("bytes", DataType::UInt64, true),
        field("device", DataType::Int32, true),
        field("stream", DataType::UInt64, false),
        field("kind", word_type(), false),
        field("resource", word_type(), true),
        field("scope", DataType::UInt64, true),
        field("stack", DataType::UInt64, true),
        field("name", word_type(), true),
    ]))
}

fn values<T: Copy + PartialEq, U>(column: &Column<T>, rows: usize, convert: impl Fn(T) -> U) -> Vec<U> {
    (0..rows).map(|row| convert(column.at(row))).collect()
}

/// Builds an array in which `none` is null.
fn nullable<P, T>(
    column: &Column<T>,
    rows: usize,
    none: T,
    convert: impl Fn(T) -> P::Native,
) -> PrimitiveArray<P>
where
    P: arrow_array::ArrowPrimitiveType,
    T: Copy + PartialEq,
{
    let natives =
        values(column, rows, |value| if value == none { P::Native::default() } else { convert(value) });
    let nulls = (0..rows).map(|row| column.at(row) != none).collect::<NullBuffer>();
    PrimitiveArray::new(ScalarBuffer::from(natives), Some(nulls).filter(|nulls| nulls.null_count() > 0))
}

/// Builds an array of words from numbers into a fixed list.
pub(crate) fn fixed_words(keys: Vec<i32>, words: &[&str]) -> ArrayRef {
    let words = StringArray::from(words.to_vec());
    Arc::new(DictionaryArray::<Int32Type>::new(PrimitiveArray::from(keys), Arc::new(words)))
}

/// Builds an array of any words; `None` is null.
pub(crate) fn words<'a>(words: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    let mut builder = StringDictionaryBuilder::<Int32Type>::new();
    for word in words {
        builder.append_option(word);
    }
    Arc::new(builder.finish())
}

/// Builds an array of interned strings; id 0 is null.
fn interned_words(column: &Column<StringId>, rows: usize, tables: &Tables) -> ArrayRef {
    if column.same() == Some(StringId(0)) {
        let none = vec![None::<i32>; rows];
        let words = StringArray::from(Vec::<&str>::new());
        return Arc::new(DictionaryArray::<Int32Type>::new(PrimitiveArray::from(none), Arc::new(words)));
    }
    words((0..rows).map(|row| match column.at(row) {
        StringId(0) => None,
        id => Some(tables.string(id)),
    }))
}

/// Turns a batch into the columns of the event table.
///
/// `stack_key` gives stacks their ids at rest.
pub(crate) fn to_record_batch(
    batch: &EventBatch,
    tables: &Tables,
    stack_key: &dyn Fn(StackId) -> u64,
) -> RecordBatch {
    let rows = batch.len();
    let times = PrimitiveArray::<TimestampNanosecondType>::from(values(&batch.time_ns, rows, |time| time));
    let stack_ids: Column<u64> = match batch.stack.same() {
        Some(StackId(0)) => Column::Same(0),
        _ => {
            Column::Each(values(&batch.stack, rows, |stack| if stack.0 == 0 { 0 } else { stack_key(stack) }))
        }
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(times.with_timezone("UTC")),
        Arc::new(PrimitiveArray::<UInt32Type>::from(values(&batch.process, rows, |process| process.0))),
        Arc::new(PrimitiveArray::<UInt64Type>::from(values(&batch.thread, rows, |thread| thread))),
        fixed_words(values(&batch.action, rows, |action| action as i32), &Action::ALL.map(Action::name)),
        Arc::new(PrimitiveArray::<UInt64Type>::from(values(&batch.address, rows, |address| address))),
        Arc::new(nullable::<UInt64Type, _>(&batch.bytes, rows, UNKNOWN_BYTES, |bytes| bytes)),
        Arc::new(nullable::<Int32Type, _>(&batch.device, rows, NO_DEVICE, |device| device)),
        Arc::new(PrimitiveArray::<UInt64Type>::from(values(&batch.stream, rows, |stream| stream))),
        fixed_words(values(&batch.kind, rows, |kind| kind as i32), &Kind::ALL.map(Kind::name)),
        interned_words(&batch.resource, rows, tables),
        Arc::new(nullable::<UInt64Type, _>(&batch.scope, rows, 0, |scope| scope)),
        Arc::new(nullable::<UInt64Type, _>(&stack_ids, rows, 0, |stack| stack)),
        interned_words(&batch.name, rows, tables),
    ];
    RecordBatch::try_new(event_schema(), columns).expect("columns are built to the schema")
}

/// Turns record batches back into event batches.
pub(crate) struct FromRecords<'a> {
    /// Where strings go.
    pub(crate) tables: &'a mut Tables,
    /// Ids in `tables` of stacks at rest.
    pub(crate) stacks: &'a FxHashMap<u64, StackId>,
}

/// An array of nothing.
fn new_null_array() -> ArrayRef {
    Arc::new(arrow_array::NullArray::new(0))
}

/// One value of a column as it is stored.
pub(crate) enum Value<'a> {
    Number(i64),
    Word(&'a str),
}

/// Fills a column from a primitive array, as one value where all agree.
fn fill<P, T>(
    column: &mut Column<T>,
    array: &ArrayRef,
    none: T,
    convert: impl Fn(P::Native) -> T,
) -> Option<()>
where
    P: arrow_array::ArrowPrimitiveType,
    P::Native: PartialEq,
    T: Copy + PartialEq,
{
    let array = array.as_primitive_opt::<P>()?;
    let natives = array.values();
    if array.null_count() == array.len() {
        *column = Column::Same(none);
    } else if array.null_count() > 0 {
        let values = column.each_cleared();
        values.extend(
            (0..array.len()).map(|row| if array.is_null(row) { none } else { convert(natives[row]) }),
        );
    } else if natives.first().is_some_and(|first| natives.iter().all(|native| native == first)) {
        *column = Column::Same(convert(natives[0]));
    } else {
        column.each_cleared().extend(natives.iter().map(|native| convert(*native)));
    }
    Some(())
}

/// Fills a column of plain numbers, taking over the array's memory where nobody else uses it.
fn fill_numbers<P, T>(column: &mut Column<T>, array: ArrayRef, none: T) -> Option<()>
where
    P: arrow_array::ArrowPrimitiveType<Native = T>,
    T: Copy + PartialEq + arrow_buffer::ArrowNativeType,
{
    let numbers = array.as_primitive_opt::<P>()?;
    let differ = |first: &T| numbers.values().iter().any(|number| number != first);
    if numbers.null_count() > 0 || !numbers.values().first().is_some_and(differ) {
        return fill::<P, T>(column, &array, none, |number| number);
    }
    let values = numbers.values().clone();
    drop(array);
    *column = Column::Each(
        values.into_inner().into_vec().unwrap_or_else(|shared| shared.typed_data::<T>().to_vec()),
    );
    Some(())
}

/// Fills a column from dictionary-encoded words.
fn fill_words<T: Copy + PartialEq>(
    column: &mut Column<T>,
    array: &ArrayRef,
    none: T,
    mut convert: impl FnMut(&str) -> T,
) -> Option<()> {
    let array = array.as_dictionary_opt::<Int32Type>()?;
    let words = array.values().as_string_opt::<i32>()?;
    let meanings: Vec<T> = (0..words.len()).map(|at| convert(words.value(at))).collect();
    let keys = array.keys();
    let meaning = |row: usize| {
        if keys.is_null(row) {
            return none;
        }
        meanings.get(keys.value(row) as usize).copied().unwrap_or(none)
    };
    let raw = keys.values();
    let same = keys.null_count() == keys.len()
        || (keys.null_count() == 0 && raw.first().is_some_and(|first| raw.iter().all(|key| key == first)));
    if same && !keys.is_empty() {
        *column = Column::Same(meaning(0));
    } else if keys.null_count() == 0 {
        let meaning = |key: &i32| meanings.get(*key as usize).copied().unwrap_or(none);
        column.each_cleared().extend(raw.iter().map(meaning));
    } else {
        column.each_cleared().extend((0..keys.len()).map(meaning));
    }
    Some(())
}

impl FromRecords<'_> {
    /// Replaces the rows of `out` by those of `records`; columns that are missing stay "none".
    ///
    /// `None` if a column has another type than the format says.
    pub(crate) fn convert(&mut self, records: RecordBatch, out: &mut EventBatch) -> Option<()> {
        out.clear();
        let (schema, mut columns, rows) = records.into_parts();
        for name in EVENT_COLUMNS {
            let found = schema.index_of(name).ok();
            // Taken out, so that the last owner of its memory is whoever fills the column.
            let array = found.map(|index| std::mem::replace(&mut columns[index], new_null_array()));
            self.column(name, array, out)?;
        }
        out.set_len(rows);
        Some(())
    }

    fn column(&mut self, name: &str, array: Option<ArrayRef>, out: &mut EventBatch) -> Option<()> {
        macro_rules! fill_from {
            ($column:ident, $none:expr, $with:expr) => {
                match array {
                    None => {
                        out.$column = Column::Same($none);
                        Some(())
                    }
                    Some(array) => $with(&mut out.$column, array, $none),
                }
            };
        }
        match name {
            "time" => fill_from!(time_ns, 0, fill_numbers::<TimestampNanosecondType, _>),
            "process" => {
                fill_from!(process, ProcessId(0), |c, a: ArrayRef, n| fill::<UInt32Type, _>(
                    c, &a, n, ProcessId
                ))
            }
            "thread" => fill_from!(thread, 0, fill_numbers::<UInt64Type, _>),
            "action" => fill_from!(action, Action::Alloc, |c, a: ArrayRef, n| fill_words(c, &a, n, |word| {
                Action::from_name(word).unwrap_or_default()
            })),
            "address" => fill_from!(address, 0, fill_numbers::<UInt64Type, _>),
            "bytes" => fill_from!(bytes, UNKNOWN_BYTES, fill_numbers::<UInt64Type, _>),
            "device" => {
                fill_from!(device, NO_DEVICE, |c, a: ArrayRef, n| fill::<Int32Type, _>(c, &a, n, |v| v))
            }
            "stream" => fill_from!(stream, 0, fill_numbers::<UInt64Type, _>),
            "kind" => fill_from!(kind, Kind::Unknown, |c, a: ArrayRef, n| fill_words(c, &a, n, |word| {
                Kind::from_name(word).unwrap_or_default()
            })),
            "resource" => {
                fill_from!(resource, StringId(0), |c, a: ArrayRef, n| fill_words(c, &a, n, |word| {
                    self.tables.intern(word)
                }))
            }
            "scope" => fill_from!(scope, 0, fill_numbers::<UInt64Type, _>),
            "stack" => {
                fill_from!(stack, StackId(0), |c, a: ArrayRef, n| fill::<UInt64Type, _>(c, &a, n, |v| {
                    self.stacks.get(&v).copied().unwrap_or_default()
                }))
            }
            _ => {
                fill_from!(name, StringId(0), |c, a: ArrayRef, n| fill_words(c, &a, n, |word| self
                    .tables
                    .intern(word)))
            }
        }
    }

    /// Gives all rows of a column the same value; `None` is null.
    pub(crate) fn set(&mut self, name: &str, value: Option<&Value<'_>>, out: &mut EventBatch) {
        let number = match value {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        };
        let word = match value {
            Some(Value::Word(word)) => Some(*word),
            _ => None,
        };
        let unsigned = number.map(|number| number as u64);
        match name {
            "process" => out.process = Column::Same(ProcessId(number.unwrap_or(0) as u32)),
            "thread" => out.thread = Column::Same(unsigned.unwrap_or(0)),
            "action" => out.action = Column::Same(word.and_then(Action::from_name).unwrap_or_default()),
            "address" => out.address = Column::Same(unsigned.unwrap_or(0)),
            "bytes" => out.bytes = Column::Same(unsigned.unwrap_or(UNKNOWN_BYTES)),
            "device" => out.device = Column::Same(number.map_or(NO_DEVICE, |number| number as i32)),
            "stream" => out.stream = Column::Same(unsigned.unwrap_or(0)),
            "kind" => out.kind = Column::Same(word.and_then(Kind::from_name).unwrap_or_default()),
            "resource" => {
                out.resource = Column::Same(word.map_or(StringId(0), |word| self.tables.intern(word)));
            }
            "scope" => out.scope = Column::Same(unsigned.unwrap_or(0)),
            "stack" => {
                let stack = unsigned.and_then(|key| self.stacks.get(&key).copied());
                out.stack = Column::Same(stack.unwrap_or_default());
            }
            _ => out.name = Column::Same(word.map_or(StringId(0), |word| self.tables.intern(word))),
        }
    }
}
