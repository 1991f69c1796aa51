//! The event table, which is read and written by columns.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, UInt64Type};
use arrow_array::{
    Array as _, ArrayRef, DictionaryArray, NullArray, PrimitiveArray, RecordBatch, StringArray,
    new_null_array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use floodmark_event::{Action, Column, EventBatch, Kind, ProcessId, StackId, StringId, UNKNOWN_BYTES};

use crate::codec::{
    AtRest, Codec, ColumnEncoding, DefaultWord, Device, EventBytes, Name, NonZero, Number, NumberCodec,
    ProcessNumber, Stack, Time, WordOr, WordReader, listed_words, microseconds_type, name_words,
    number_array,
};
use crate::pages::ColumnWriter;
use crate::registry::Registry;
use crate::rows::field;

/// The value of a column that has only one in a whole part.
pub enum Constant {
    /// None.
    Null,
    /// A number, or its bits.
    Number(i64),
    /// A word.
    Word(String),
}

/// Stores a column of a batch and reads it back.
trait ColumnCodec: Codec<Value: Copy + PartialEq> {
    /// Value of rows whose column is null or was not read.
    const NO_VALUE: Self::Value;

    /// Appends the column to the one that is being stored.
    fn push_column(
        column: &Column<Self::Value>,
        batch: &EventBatch,
        at_rest: &AtRest<'_>,
        out: &mut ColumnWriter,
    );
    /// Builds the stored column.
    fn encode_column(column: &Column<Self::Value>, batch: &EventBatch, at_rest: &AtRest<'_>) -> ArrayRef;
    /// Fills `column` from a stored one, as one value where all agree; `None` if it has another type than
    /// the format says.
    fn decode_column(
        column: &mut Column<Self::Value>,
        array: ArrayRef,
        registry: &mut Registry,
    ) -> Option<()>;
    /// Returns the value that a number or a word stands for.
    fn of_constant(value: &Constant, registry: &mut Registry) -> Self::Value;
}

fn values<'a, T: Copy + PartialEq>(
    column: &'a Column<T>,
    batch: &EventBatch,
) -> impl Iterator<Item = T> + Clone + 'a {
    (0..batch.len()).map(|row| column.at(row))
}

/// The word of a column that has numbers.
fn no_word(_: u64) -> &'static str {
    ""
}

impl<N: NumberCodec> ColumnCodec for N {
    const NO_VALUE: N::Value = N::NONE;

    fn push_column(column: &Column<N::Value>, batch: &EventBatch, _: &AtRest<'_>, out: &mut ColumnWriter) {
        let is_none = |value: &N::Value| N::HAS_NULLS && *value == N::NONE;
        match column {
            Column::Same(value) => {
                let bits = (!is_none(value)).then(|| N::to_bits(*value));
                out.push_same(bits, batch.len(), no_word);
            }
            Column::Each(values) => out.push(values, |value| N::to_bits(*value), is_none, no_word),
        }
    }

    fn encode_column(column: &Column<N::Value>, batch: &EventBatch, _: &AtRest<'_>) -> ArrayRef {
        number_array::<N>(values(column, batch))
    }

    fn decode_column(column: &mut Column<N::Value>, array: ArrayRef, _: &mut Registry) -> Option<()> {
        let numbers = array.as_primitive_opt::<N::Arrow>()?;
        let natives = numbers.values();
        if numbers.null_count() == numbers.len() {
            *column = Column::Same(N::NONE);
        } else if numbers.null_count() > 0 {
            let value = |row| if numbers.is_null(row) { N::NONE } else { N::from_native(numbers.value(row)) };
            column.each_cleared().extend((0..numbers.len()).map(value));
        } else if natives.iter().all(|native| *native == natives[0]) {
            *column = Column::Same(N::from_native(natives[0]));
        } else {
            let natives = natives.clone();
            // The buffer alone is left, so that its memory can be taken over.
            drop(array);
            *column = Column::Each(N::take_all(natives));
        }
        Some(())
    }

    fn of_constant(value: &Constant, _: &mut Registry) -> N::Value {
        match value {
            Constant::Number(number) => N::from_statistics(*number),
            Constant::Null | Constant::Word(_) => N::NONE,
        }
    }
}

/// Fills a column from dictionary-encoded words.
fn fill_words<T: Copy + PartialEq>(column: &mut Column<T>, words: WordReader<'_, T>, none: T) {
    let (keys, meanings) = words.into_parts();
    let raw = keys.values();
    let meaning = |key: &i32| meanings.get(*key as usize).copied().unwrap_or(none);
    if keys.null_count() == keys.len() {
        *column = Column::Same(none);
    } else if keys.null_count() > 0 {
        let value = |row| if keys.is_null(row) { none } else { meaning(&raw[row]) };
        column.each_cleared().extend((0..keys.len()).map(value));
    } else if raw.iter().all(|key| *key == raw[0]) {
        *column = Column::Same(meaning(&raw[0]));
    } else {
        column.each_cleared().extend(raw.iter().map(meaning));
    }
}

impl<E: DefaultWord> ColumnCodec for WordOr<E> {
    const NO_VALUE: E = E::UNKNOWN;

    fn push_column(column: &Column<E>, batch: &EventBatch, _: &AtRest<'_>, out: &mut ColumnWriter) {
        let bits = |value: &E| value.index() as u64;
        let word = |index: u64| E::VALUES[index as usize].word();
        match column {
            Column::Same(value) => out.push_same(Some(bits(value)), batch.len(), word),
            Column::Each(values) => out.push(values, bits, |_| false, word),
        }
    }

    fn encode_column(column: &Column<E>, batch: &EventBatch, _: &AtRest<'_>) -> ArrayRef {
        listed_words(values(column, batch))
    }

    fn decode_column(column: &mut Column<E>, array: ArrayRef, registry: &mut Registry) -> Option<()> {
        fill_words(column, Self::reader(&array, registry)?, E::UNKNOWN);
        Some(())
    }

    fn of_constant(value: &Constant, _: &mut Registry) -> E {
        match value {
            Constant::Word(word) => E::of_word(word).unwrap_or(E::UNKNOWN),
            Constant::Null | Constant::Number(_) => E::UNKNOWN,
        }
    }
}

impl ColumnCodec for Name {
    const NO_VALUE: StringId = StringId(0);

    fn push_column(
        column: &Column<StringId>,
        batch: &EventBatch,
        at_rest: &AtRest<'_>,
        out: &mut ColumnWriter,
    ) {
        let word = |id: u64| at_rest.tables.string(StringId(id as u32));
        let is_none = |id: &StringId| id.0 == 0 || at_rest.tables.string(*id).is_empty();
        match column {
            Column::Same(id) => out.push_same((!is_none(id)).then_some(id.0.into()), batch.len(), word),
            Column::Each(ids) => out.push(ids, |id| id.0.into(), is_none, word),
        }
    }

    fn encode_column(column: &Column<StringId>, batch: &EventBatch, at_rest: &AtRest<'_>) -> ArrayRef {
        if column.same() == Some(StringId(0)) {
            let none = PrimitiveArray::<Int32Type>::new_null(batch.len());
            let words = StringArray::from(Vec::<&str>::new());
            return Arc::new(DictionaryArray::new(none, Arc::new(words)));
        }
        name_words(values(column, batch), at_rest.tables)
    }

    fn decode_column(column: &mut Column<StringId>, array: ArrayRef, registry: &mut Registry) -> Option<()> {
        fill_words(column, Self::reader(&array, registry)?, StringId(0));
        Some(())
    }

    fn of_constant(value: &Constant, registry: &mut Registry) -> StringId {
        match value {
            Constant::Word(word) => registry.tables.intern(word),
            Constant::Null | Constant::Number(_) => StringId(0),
        }
    }
}

impl ColumnCodec for Stack {
    const NO_VALUE: StackId = StackId(0);

    fn push_column(
        column: &Column<StackId>,
        batch: &EventBatch,
        at_rest: &AtRest<'_>,
        out: &mut ColumnWriter,
    ) {
        let is_none = |stack: &StackId| stack.0 == 0;
        match (column, &batch.process) {
            (Column::Same(stack), _) if is_none(stack) => out.push_same(None, batch.len(), no_word),
            (Column::Same(stack), Column::Same(process)) => {
                out.push_same(Some(at_rest.stack(*process, *stack)), batch.len(), no_word);
            }
            (Column::Each(stacks), Column::Same(process)) => {
                out.push(stacks, |stack| at_rest.stack(*process, *stack), is_none, no_word);
            }
            (_, Column::Each(processes)) => {
                let rows: Vec<_> =
                    (0..).zip(processes).map(|(row, process)| (*process, column.at(row))).collect();
                let key = |(process, stack): &(ProcessId, StackId)| at_rest.stack(*process, *stack);
                out.push(&rows, key, |(_, stack)| is_none(stack), no_word);
            }
        }
    }

    fn encode_column(column: &Column<StackId>, batch: &EventBatch, at_rest: &AtRest<'_>) -> ArrayRef {
        if column.same() == Some(StackId(0)) {
            return Arc::new(PrimitiveArray::<UInt64Type>::new_null(batch.len()));
        }
        let key = |row| at_rest.stack(batch.process.at(row), column.at(row));
        number_array::<NonZero>((0..batch.len()).map(key))
    }

    fn decode_column(column: &mut Column<StackId>, array: ArrayRef, registry: &mut Registry) -> Option<()> {
        let keys = array.as_primitive_opt::<UInt64Type>()?;
        let stack = |row| if keys.is_null(row) { StackId(0) } else { registry.stack(keys.value(row)) };
        if keys.null_count() == keys.len() {
            *column = Column::Same(StackId(0));
        } else if keys.null_count() == 0 && keys.values().iter().all(|key| *key == keys.value(0)) {
            *column = Column::Same(stack(0));
        } else {
            column.each_cleared().extend((0..keys.len()).map(stack));
        }
        Some(())
    }

    fn of_constant(value: &Constant, registry: &mut Registry) -> StackId {
        match value {
            Constant::Number(number) => registry.stack(*number as u64),
            Constant::Null | Constant::Word(_) => StackId(0),
        }
    }
}

const BLOCK_TIME: (&str, ColumnEncoding) = ("block_time", ColumnEncoding::Ascending);
const BLOCK_BYTES: (&str, ColumnEncoding) = ("block_bytes", ColumnEncoding::DictionaryOrDelta);

/// The blocks that the frees of a batch end, row by row.
#[derive(Debug, Default)]
pub(crate) struct EndedBlocks {
    /// When each was allocated, in microseconds; [`Self::NO_TIME`] for rows that end no known block.
    pub(crate) times_us: Vec<i64>,
    /// Size of each where that is another than the free's own, else [`UNKNOWN_BYTES`].
    pub(crate) bytes: Vec<u64>,
}

impl EndedBlocks {
    /// Stands for no time.
    pub(crate) const NO_TIME: i64 = i64::MIN;
}

/// Columns about the block that a free ended: when it was allocated, and its size where that is another
/// than the free's own.
pub(crate) struct BlockColumns {
    pub(crate) time: ArrayRef,
    pub(crate) bytes: ArrayRef,
}

impl BlockColumns {
    /// Columns of rows whose blocks are not known.
    pub(crate) fn unknown(rows: usize) -> Self {
        let [time, bytes] = Self::fields().map(|field| new_null_array(field.data_type(), rows));
        Self { time, bytes }
    }

    fn fields() -> [Field; 2] {
        [
            Field::new(BLOCK_TIME.0, microseconds_type(), true),
            Field::new(BLOCK_BYTES.0, DataType::UInt64, true),
        ]
    }
}

/// Defines the event table: one line per column with its name, the column of a batch, how it is stored, and
/// the encoding if that is not the default one.
macro_rules! event_columns {
    ($($name:literal: $column:ident as $codec:ty $(=> $encoding:ident)?,)*) => {
        /// Columns of the event table that scans read, in order. Parts also have those of the block that a
        /// free ended.
        pub const EVENT_COLUMNS: [&str; [$($name),*].len()] = [$($name),*];

        /// Columns that are not stored in the default encoding.
        pub(crate) const EVENT_ENCODINGS: &[(&str, ColumnEncoding)] =
            &[$($(($name, ColumnEncoding::$encoding),)?)* BLOCK_TIME, BLOCK_BYTES];

        /// Columns of the event table.
        pub(crate) fn event_schema() -> SchemaRef {
            let fields = vec![$(field::<$codec>($name),)*];
            Arc::new(Schema::new(fields.into_iter().chain(BlockColumns::fields()).collect::<Vec<_>>()))
        }

        /// Appends a batch, and the blocks that its frees end, to the columns of the event table.
        pub(crate) fn push_columns(
            batch: &EventBatch,
            at_rest: &AtRest<'_>,
            ended: &EndedBlocks,
            columns: &mut [ColumnWriter],
        ) {
            let mut columns = columns.iter_mut();
            $(
                let column = columns.next().expect("as many as the schema has");
                <$codec as ColumnCodec>::push_column(&batch.$column, batch, at_rest, column);
            )*
            let (times, bytes) = columns.next().zip(columns.next()).expect("as many as the schema has");
            let is_none = |time: &i64| *time == EndedBlocks::NO_TIME;
            times.push(&ended.times_us, |time| *time as u64, is_none, no_word);
            bytes.push(&ended.bytes, |bytes| *bytes, |bytes| *bytes == UNKNOWN_BYTES, no_word);
        }

        /// Turns a batch, and the blocks that its frees end, into the columns of the event table.
        pub(crate) fn to_record_batch(
            batch: &EventBatch,
            at_rest: &AtRest<'_>,
            blocks: BlockColumns,
        ) -> RecordBatch {
            let mut columns: Vec<ArrayRef> =
                vec![$(<$codec as ColumnCodec>::encode_column(&batch.$column, batch, at_rest)),*];
            columns.extend([blocks.time, blocks.bytes]);
            RecordBatch::try_new(event_schema(), columns).expect("columns are built to the schema")
        }

        /// Replaces the rows of `batch` by those of `records`; columns that are missing read as "none".
        ///
        /// `None` if a column has another type than the format says.
        pub(crate) fn read_record_batch(
            records: RecordBatch,
            batch: &mut EventBatch,
            registry: &mut Registry,
        ) -> Option<()> {
            batch.clear();
            let (schema, mut arrays, rows) = records.into_parts();
            $(
                match schema.index_of($name) {
                    Ok(index) => {
                        // Taken out, so that the memory of an array can be taken over.
                        let array = std::mem::replace(&mut arrays[index], Arc::new(NullArray::new(0)));
                        <$codec as ColumnCodec>::decode_column(&mut batch.$column, array, registry)?;
                    }
                    Err(_) => batch.$column = Column::Same(<$codec as ColumnCodec>::NO_VALUE),
                }
            )*
            batch.set_len(rows);
            Some(())
        }

        /// Gives all rows of a column the same value.
        pub(crate) fn set_constant(
            name: &str,
            value: &Constant,
            batch: &mut EventBatch,
            registry: &mut Registry,
        ) {
            match name {
                $($name => {
                    batch.$column = Column::Same(<$codec as ColumnCodec>::of_constant(value, registry));
                })*
                _ => {}
            }
        }
    };
}

event_columns! {
    "time": time_ns as Time => Ascending,
    "process": process as ProcessNumber,
    "thread": thread as Number,
    "action": action as WordOr<Action>,
    "address": address as Number => DictionaryOrDelta,
    "bytes": bytes as EventBytes => DictionaryOrDelta,
    "device": device as Device,
    "stream": stream as Number,
    "kind": kind as WordOr<Kind>,
    "resource": resource as Name,
    "scope": scope as NonZero,
    "stack": stack as Stack,
    "name": name as Name,
}
