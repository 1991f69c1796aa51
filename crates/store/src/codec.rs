//! How the fields of rows are stored in columns and read back, one type per kind of column.
//!
//! Times are UTC timestamps, nearly all of them in nanoseconds, enumerations are dictionary-encoded words, "none" is null, so
//! that DuckDB, pandas, Polars and Spark show what we mean without knowing us. A column that may have
//! nulls and is missing reads as null everywhere: that is how a later version adds one.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder, StringDictionaryBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Int32Type, TimestampMicrosecondType, TimestampNanosecondType, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array as _, ArrayRef, ArrowPrimitiveType, BinaryArray, DictionaryArray, PrimitiveArray, StringArray,
};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, TimeUnit};
use floodmark_event::{
    Action, CallAction, Kind, LogLevel, Metric, NO_DEVICE, OutputStream, ProcessId, ScopeAction, StackId,
    StackReason, StringId, SubjectKind, Tables, UNKNOWN_BYTES,
};

use crate::registry::{Registry, key};
use crate::row_source::IdMap;
use crate::rows::Columns;

/// How Parquet stores a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnEncoding {
    /// Differences, never a dictionary: for times, which grow and hardly repeat.
    Ascending,
    /// A dictionary while that stays small, then differences.
    DictionaryOrDelta,
    /// Values as they are: zstd finds sequences that repeat, which a dictionary would hide from it.
    Plain,
    /// Values as they are, without statistics: nothing is looked for by them.
    Opaque,
}

/// Turns ids in memory into ids at rest.
#[derive(Clone, Copy)]
pub struct AtRest<'a> {
    /// Tables that ids in memory point to.
    pub(crate) tables: &'a Tables,
    /// Where ids of stacks come from; without a registry they are the same at rest.
    pub(crate) registry: Option<&'a Registry>,
    /// Whether stacks have the numbers of the process that recorded them.
    pub(crate) has_own_stacks: bool,
}

impl<'a> AtRest<'a> {
    /// Writes rows whose ids are those of `tables`, at rest as well.
    pub(crate) fn of_tables(tables: &'a Tables) -> Self {
        Self { tables, registry: None, has_own_stacks: false }
    }

    /// Returns the id at rest of a stack that `process` recorded.
    pub(crate) fn stack(&self, process: ProcessId, stack: StackId) -> u64 {
        match self.registry {
            Some(_) if stack.0 != 0 && self.has_own_stacks => key(process, stack.0),
            Some(registry) if stack.0 != 0 => registry.stack_key(process, stack),
            _ => stack.0.into(),
        }
    }

    /// Returns the id at rest of a frame that `process` recorded.
    pub(crate) fn frame(&self, process: ProcessId, frame: u32) -> u64 {
        match self.registry {
            Some(registry) if frame != 0 => registry.frame_key(process, frame),
            _ => frame.into(),
        }
    }
}

/// Stores a field in a column and reads it back.
pub(crate) trait Codec {
    /// Type of the field.
    type Value;
    /// What reading a column keeps between rows.
    type Reader<'a>;
    /// Whether the column may have nulls.
    const NULLABLE: bool;

    /// Type of the column.
    fn data_type() -> DataType;
    /// Builds the column from one field of all rows.
    fn encode<R: Columns>(rows: &[R], field: fn(&R) -> &Self::Value, at_rest: &AtRest<'_>) -> ArrayRef;
    /// Starts to read a column; `None` if it has another type than the format says.
    fn reader<'a>(array: &'a ArrayRef, registry: &mut Registry) -> Option<Self::Reader<'a>>;
    /// Returns the value of a row; `None` if it is a word that this version does not know.
    fn decode(reader: &Self::Reader<'_>, row: usize) -> Option<Self::Value>;
    /// Translates an id from one set of tables to another.
    fn remap(_value: &mut Self::Value, _ids: &mut IdMap, _from: &Tables, _to: &mut Tables) {}
}

/// Type of dictionary-encoded words.
pub(crate) fn word_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

/// Type of times in whole microseconds.
pub(crate) fn microseconds_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Stores a field that is one number.
pub(crate) trait NumberCodec {
    /// Type of the field.
    type Value: Copy + PartialEq;
    /// Type of the column's values.
    type Arrow: ArrowPrimitiveType;
    /// Value that is stored as null, and that a missing column has.
    const NONE: Self::Value;
    /// Whether "none" is stored as null.
    const HAS_NULLS: bool;

    /// Type of the column.
    fn number_type() -> DataType;
    /// Returns the number to store.
    fn to_native(value: Self::Value) -> <Self::Arrow as ArrowPrimitiveType>::Native;
    /// Returns the value of a stored number.
    fn from_native(native: <Self::Arrow as ArrowPrimitiveType>::Native) -> Self::Value;
    /// Returns the value of a number as statistics have it: the bits of the stored number, sign-extended.
    fn from_statistics(number: i64) -> Self::Value;
    /// Returns the bits of the number to store, sign-extended.
    fn to_bits(value: Self::Value) -> u64;

    /// Returns the values of a column without nulls, in its own memory where that is possible.
    fn take_all(natives: ScalarBuffer<<Self::Arrow as ArrowPrimitiveType>::Native>) -> Vec<Self::Value> {
        natives.iter().map(|native| Self::from_native(*native)).collect()
    }
}

/// Takes over the memory of a buffer, or copies it if it is shared.
fn into_vec<T: arrow_buffer::ArrowNativeType>(buffer: ScalarBuffer<T>) -> Vec<T> {
    buffer.into_inner().into_vec().unwrap_or_else(|shared| shared.typed_data::<T>().to_vec())
}

/// Builds an array of numbers in which "none" is null, if the column has nulls.
pub(crate) fn number_array<N: NumberCodec>(values: impl Iterator<Item = N::Value> + Clone) -> ArrayRef {
    let native = |value: N::Value| {
        if N::HAS_NULLS && value == N::NONE { Default::default() } else { N::to_native(value) }
    };
    let natives: Vec<_> = values.clone().map(native).collect();
    let nulls = N::HAS_NULLS.then(|| values.map(|value| value != N::NONE).collect::<NullBuffer>());
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    let array = PrimitiveArray::<N::Arrow>::new(ScalarBuffer::from(natives), nulls);
    Arc::new(array.with_data_type(N::number_type()))
}

impl<N: NumberCodec> Codec for N {
    type Value = N::Value;
    type Reader<'a> = &'a PrimitiveArray<N::Arrow>;
    const NULLABLE: bool = N::HAS_NULLS;

    fn data_type() -> DataType {
        N::number_type()
    }

    fn encode<R: Columns>(rows: &[R], field: fn(&R) -> &N::Value, _: &AtRest<'_>) -> ArrayRef {
        number_array::<N>(rows.iter().map(|row| *field(row)))
    }

    fn reader<'a>(array: &'a ArrayRef, _: &mut Registry) -> Option<Self::Reader<'a>> {
        array.as_primitive_opt::<N::Arrow>()
    }

    fn decode(reader: &Self::Reader<'_>, row: usize) -> Option<N::Value> {
        Some(if reader.is_null(row) { N::NONE } else { N::from_native(reader.value(row)) })
    }
}

macro_rules! number_codecs {
    ($($(#[$doc:meta])* $name:ident: $value:ty = $none:expr, $nulls:literal, $arrow:ty, $data_type:expr,
        |$to:ident| $to_native:expr, |$from:ident| $from_native:expr $(, $take_all:path)?;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name;

        impl NumberCodec for $name {
            type Value = $value;
            type Arrow = $arrow;
            const NONE: $value = $none;
            const HAS_NULLS: bool = $nulls;

            fn number_type() -> DataType {
                $data_type
            }

            fn to_native($to: $value) -> <$arrow as ArrowPrimitiveType>::Native {
                $to_native
            }

            fn from_native($from: <$arrow as ArrowPrimitiveType>::Native) -> $value {
                $from_native
            }

            fn from_statistics(number: i64) -> $value {
                Self::from_native(number as <$arrow as ArrowPrimitiveType>::Native)
            }

            #[allow(
                clippy::cast_lossless,
                clippy::allow_attributes,
                reason = "one definition for numbers of all widths, signed or not"
            )]
            fn to_bits(value: $value) -> u64 {
                Self::to_native(value) as u64
            }

            $(fn take_all(natives: ScalarBuffer<<$arrow as ArrowPrimitiveType>::Native>) -> Vec<$value> {
                $take_all(natives)
            })?
        }
    )*};
}

number_codecs! {
    /// A time, which every row has.
    Time: i64 = 0, false, TimestampNanosecondType, time_type(), |time| time, |time| time, into_vec;
    /// A time in nanoseconds of which whole microseconds are stored.
    Microseconds: i64 = 0, false, TimestampMicrosecondType, microseconds_type(),
        |time| time.div_euclid(1000), |time| time.saturating_mul(1000);
    /// A time that may not be known.
    OptionalTime: Option<i64> = None, true, TimestampNanosecondType, time_type(),
        |time| time.unwrap_or_default(), |time| Some(time);
    /// A number.
    Number: u64 = 0, false, UInt64Type, DataType::UInt64, |number| number, |number| number, into_vec;
    /// A number of which 0 is none.
    NonZero: u64 = 0, true, UInt64Type, DataType::UInt64, |number| number, |number| number, into_vec;
    /// A number that may not be known.
    OptionalNumber: Option<u64> = None, true, UInt64Type, DataType::UInt64,
        |number| number.unwrap_or_default(), |number| Some(number);
    /// A small number.
    Number32: u32 = 0, false, UInt32Type, DataType::UInt32, |number| number, |number| number, into_vec;
    /// A small number of which 0 is none.
    NonZero32: u32 = 0, true, UInt32Type, DataType::UInt32, |number| number, |number| number, into_vec;
    /// A signed number that may not be known.
    OptionalStatus: Option<i32> = None, true, Int32Type, DataType::Int32,
        |status| status.unwrap_or_default(), |status| Some(status);
    /// A process.
    ProcessNumber: ProcessId = ProcessId(0), false, UInt32Type, DataType::UInt32,
        |process| process.0, |number| ProcessId(number);
    /// Bytes of an event, which its recorder may not know.
    EventBytes: u64 = UNKNOWN_BYTES, true, UInt64Type, DataType::UInt64,
        |bytes| bytes, |bytes| bytes, into_vec;
    /// A device, or host memory.
    Device: i32 = NO_DEVICE, true, Int32Type, DataType::Int32, |device| device, |device| device, into_vec;
}

/// An enumeration whose values are stored as words.
pub(crate) trait Words: Copy + PartialEq + 'static {
    /// All values, in the order of their numbers, which follow one another.
    const VALUES: &'static [Self];

    /// The word of a value.
    fn word(self) -> &'static str;
    /// Index of a value in [`Self::VALUES`].
    fn index(self) -> i32;

    /// Returns the value that a word stands for.
    fn of_word(word: &str) -> Option<Self> {
        Self::VALUES.iter().copied().find(|value| value.word() == word)
    }
}

/// An enumeration in which a word that is not known has a meaning.
pub(crate) trait DefaultWord: Words {
    /// What such a word reads as.
    const UNKNOWN: Self;
}

macro_rules! word_lists {
    ($($name:ident $(unknown $unknown:expr)?;)*) => {$(
        impl Words for $name {
            const VALUES: &'static [Self] = &$name::ALL;

            fn word(self) -> &'static str {
                self.name()
            }

            fn index(self) -> i32 {
                self as i32 - $name::ALL[0] as i32
            }
        }

        $(impl DefaultWord for $name {
            const UNKNOWN: Self = $unknown;
        })?
    )*};
}

word_lists! {
    Action unknown Action::Alloc;
    Kind unknown Kind::Unknown;
    LogLevel unknown LogLevel::Unknown;
    ScopeAction;
    CallAction;
    Metric;
    OutputStream;
    StackReason;
    SubjectKind;
}

/// Builds an array of words from their indexes in a list.
pub(crate) fn listed_words<E: Words>(values: impl Iterator<Item = E>) -> ArrayRef {
    let keys: Vec<i32> = values.map(E::index).collect();
    let words = StringArray::from_iter_values(E::VALUES.iter().map(|value| value.word()));
    Arc::new(DictionaryArray::<Int32Type>::new(PrimitiveArray::from(keys), Arc::new(words)))
}

/// Builds an array of interned strings as words; id 0 is null.
pub(crate) fn name_words(names: impl Iterator<Item = StringId>, tables: &Tables) -> ArrayRef {
    let mut builder = StringDictionaryBuilder::<Int32Type>::new();
    for name in names {
        builder.append_option(Some(tables.string(name)).filter(|text| !text.is_empty()));
    }
    Arc::new(builder.finish())
}

/// A column of words that is being read.
pub(crate) struct WordReader<'a, M> {
    keys: &'a PrimitiveArray<Int32Type>,
    meanings: Vec<M>,
}

impl<'a, M: Copy> WordReader<'a, M> {
    /// Looks every word of the dictionary up once; `None` if the column has no words.
    pub(crate) fn new(array: &'a ArrayRef, mut meaning: impl FnMut(&str) -> M) -> Option<Self> {
        let array = array.as_dictionary_opt::<Int32Type>()?;
        let words = array.values().as_string_opt::<i32>()?;
        let meanings = (0..words.len()).map(|at| meaning(words.value(at))).collect();
        Some(Self { keys: array.keys(), meanings })
    }

    /// Meaning of the word in `row`; `None` if it is null.
    pub(crate) fn at(&self, row: usize) -> Option<M> {
        (!self.keys.is_null(row)).then(|| self.meanings.get(self.keys.value(row) as usize).copied()).flatten()
    }

    /// Index of every row's word, and what the words mean.
    pub(crate) fn into_parts(self) -> (&'a PrimitiveArray<Int32Type>, Vec<M>) {
        (self.keys, self.meanings)
    }
}

/// A word of a list; a row with a word that this version does not know is left out.
#[derive(Debug)]
pub(crate) struct Word<E>(PhantomData<E>);

impl<E: Words> Codec for Word<E> {
    type Value = E;
    type Reader<'a> = WordReader<'a, Option<E>>;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        word_type()
    }

    fn encode<R: Columns>(rows: &[R], field: fn(&R) -> &E, _: &AtRest<'_>) -> ArrayRef {
        listed_words(rows.iter().map(|row| *field(row)))
    }

    fn reader<'a>(array: &'a ArrayRef, _: &mut Registry) -> Option<Self::Reader<'a>> {
        WordReader::new(array, E::of_word)
    }

    fn decode(reader: &Self::Reader<'_>, row: usize) -> Option<E> {
        reader.at(row).flatten()
    }
}

/// A word of a list in which unknown words have a meaning.
#[derive(Debug)]
pub(crate) struct WordOr<E>(PhantomData<E>);

impl<E: DefaultWord> Codec for WordOr<E> {
    type Value = E;
    type Reader<'a> = WordReader<'a, E>;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        word_type()
    }

    fn encode<R: Columns>(rows: &[R], field: fn(&R) -> &E, _: &AtRest<'_>) -> ArrayRef {
        listed_words(rows.iter().map(|row| *field(row)))
    }

    fn reader<'a>(array: &'a ArrayRef, _: &mut Registry) -> Option<Self::Reader<'a>> {
        WordReader::new(array, |word| E::of_word(word).unwrap_or(E::UNKNOWN))
    }

    fn decode(reader: &Self::Reader<'_>, row: usize) -> Option<E> {
        Some(reader.at(row).unwrap_or(E::UNKNOWN))
    }
}

/// An interned string, stored as a word; none is null.
#[derive(Debug)]
pub(crate) struct Name;

impl Codec for Name {
    type Value = StringId;
    type Reader<'a> = WordReader<'a, StringId>;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        word_type()
    }

    fn encode<R: Columns>(rows: &[R], field: fn(&R) -> &StringId, at_rest: &AtRest<'_>) -> ArrayRef {
        name_words(rows.iter().map(|row| *field(row)), at_rest.tables)
    }

    fn reader<'a>(array: &'a ArrayRef, registry: &mut Registry) -> Option<Self::Reader<'a>> {
        WordReader::new(array, |word| registry.tables.intern(word))
    }

    fn decode(reader: &Self::Reader<'_>, row: usize) -> Option<StringId> {
        Some(reader.at(row).unwrap_or_default())
    }

    fn remap(name: &mut StringId, ids: &mut IdMap, from: &Tables, to: &mut Tables) {
        *name = ids.text(*name, from, to);
    }
}

/// An interned string, stored as text in every row.
#[derive(Debug)]
pub(crate) struct InternedText;

impl Codec for InternedText {
    type Value = StringId;
    type Reader<'a> = Vec<StringId>;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn encode<R: Columns>(rows: &[R], field: fn(&R) -> &StringId, at_rest: &AtRest<'_>) -> ArrayRef {
        let texts = rows.iter().map(|row| at_rest.tables.string(*field(row)));
        Arc::new(StringArray::from_iter_values(texts))
    }

    fn reader<'a>(array: &'a ArrayRef, registry: &mut Registry) -> Option<Self::Reader<'a>> {
        let texts = array.as_string_opt::<i32>()?;
        Some((0..texts.len()).map(|row| registry.tables.intern(texts.value(row))).collect())
    }

    fn decode(reader: &Self::Reader<'_>, row: usize) -> Option<StringId> {
        reader.get(row).copied()
    }
}

/// Text.
#[derive(Debug)]
pub(crate) struct Text;

impl Codec for Text {
    type Value = String;
    type Reader<'a> = &'a StringArray;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn encode<R: Columns>(rows: &[R], field: fn(&R) -> &String, _: &AtRest<'_>) -> ArrayRef {
        let bytes = rows.iter().map(|row| field(row).len()).sum();
        let mut builder = StringBuilder::with_capacity(rows.len(), bytes);
        for row in rows {
            builder.append_value(field(row));
        }
        Arc::new(builder.finish())
    }

    fn reader<'a>(array: &'a ArrayRef, _: &mut Registry) -> Option<Self::Reader<'a>> {
        array.as_string_opt::<i32>()
    }

    fn decode(reader: &Self::Reader<'_>, row: usize) -> Option<String> {
        Some(reader.value(row).to_owned())
    }
}

/// Bytes, which need not be text.
#[derive(Debug)]
pub(crate) struct Bytes;

impl Codec for Bytes {
    type Value = Vec<u8>;
    type Reader<'a> = &'a BinaryArray;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Binary
    }

    fn encode<R: Columns>(rows: &[R], field: fn(&R) -> &Vec<u8>, _: &AtRest<'_>) -> ArrayRef {
        let bytes = rows.iter().map(|row| field(row).len()).sum();
        let mut builder = BinaryBuilder::with_capacity(rows.len(), bytes);
        for row in rows {
            builder.append_value(field(row));
        }
        Arc::new(builder.finish())
    }

    fn reader<'a>(array: &'a ArrayRef, _: &mut Registry) -> Option<Self::Reader<'a>> {
        array.as_binary_opt::<i32>()
    }

    fn decode(reader: &Self::Reader<'_>, row: usize) -> Option<Vec<u8>> {
        Some(reader.value(row).to_vec())
    }
}

/// A stack of the process that recorded the row; none is null.
#[derive(Debug)]
pub(crate) struct Stack;

impl Codec for Stack {
    type Value = StackId;
    type Reader<'a> = Vec<StackId>;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::UInt64
    }

    fn encode<R: Columns>(rows: &[R], field: fn(&R) -> &StackId, at_rest: &AtRest<'_>) -> ArrayRef {
        number_array::<NonZero>(rows.iter().map(|row| at_rest.stack(row.process(), *field(row))))
    }

    fn reader<'a>(array: &'a ArrayRef, registry: &mut Registry) -> Option<Self::Reader<'a>> {
        let keys = array.as_primitive_opt::<UInt64Type>()?;
        let stack = |row| if keys.is_null(row) { StackId(0) } else { registry.stack(keys.value(row)) };
        Some((0..keys.len()).map(stack).collect())
    }

    fn decode(reader: &Self::Reader<'_>, row: usize) -> Option<StackId> {
        reader.get(row).copied()
    }

    fn remap(stack: &mut StackId, ids: &mut IdMap, from: &Tables, to: &mut Tables) {
        *stack = ids.stack(*stack, from, to);
    }
}

/// A frame of the process that recorded the row; none is null.
#[derive(Debug)]
pub(crate) struct FrameNumber;

impl Codec for FrameNumber {
    type Value = u32;
    type Reader<'a> = Vec<u32>;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::UInt64
    }

    fn encode<R: Columns>(rows: &[R], field: fn(&R) -> &u32, at_rest: &AtRest<'_>) -> ArrayRef {
        number_array::<NonZero>(rows.iter().map(|row| at_rest.frame(row.process(), *field(row))))
    }

    fn reader<'a>(array: &'a ArrayRef, registry: &mut Registry) -> Option<Self::Reader<'a>> {
        let keys = array.as_primitive_opt::<UInt64Type>()?;
        let frame = |row| if keys.is_null(row) { 0 } else { registry.frame(keys.value(row)) };
        Some((0..keys.len()).map(frame).collect())
    }

    fn decode(reader: &Self::Reader<'_>, row: usize) -> Option<u32> {
        reader.get(row).copied()
    }

    fn remap(frame: &mut u32, _: &mut IdMap, from: &Tables, to: &mut Tables) {
        if *frame != 0 {
            *frame = IdMap::frame(*frame, from, to);
        }
    }
}
