//! Whatever is written is what a general reader of Parquet finds.

use std::fs::File;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Int32Type, TimestampMicrosecondType, TimestampNanosecondType, UInt32Type, UInt64Type,
};
use arrow_array::{Array as _, ArrayRef, PrimitiveArray, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use floodmark_event::{Action, Event, EventBatch, Kind, ProcessId, StackId, StringId, Tables, UNKNOWN_BYTES};
use floodmark_testkit::TempDir;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::statistics::Statistics;

use crate::codec::AtRest;
use crate::columns::{BlockColumns, EndedBlocks, to_record_batch};
use crate::event_part::EventWriter;

/// Rows of a row group: several pages and a bit.
const GROUP_ROWS: usize = 150_000;

/// How much the values of rows vary.
#[derive(Clone, Copy)]
enum Variety {
    /// Nothing does but time and action.
    None,
    /// Some values of each column, and nulls.
    Few,
    /// Every row has other values.
    All,
    /// The first rows have the same values, the others do not.
    Late,
}

fn mix(number: u64) -> u64 {
    (number ^ number >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ number >> 17
}

fn event(row: u64, variety: Variety) -> Event {
    let spread = match variety {
        Variety::None => 0,
        Variety::Few => mix(row) % 300,
        Variety::All => mix(row),
        Variety::Late => mix(row).wrapping_mul(u64::from(row > 70_000)),
    };
    let one_of = |count: u64| spread % count;
    Event {
        time_ns: (row * 70 + mix(row) % 50) as i64 - 5_000,
        process: ProcessId(1 + one_of(3) as u32),
        thread: 100 + one_of(9),
        action: Action::ALL[(mix(row) % 3) as usize],
        address: spread,
        bytes: if spread.is_multiple_of(5) { UNKNOWN_BYTES } else { spread >> 3 },
        device: one_of(4) as i32 - 1,
        stream: spread >> 40,
        kind: Kind::ALL[one_of(8) as usize],
        resource: StringId(one_of(6) as u32),
        scope: one_of(2_000),
        stack: StackId(if spread.is_multiple_of(2) { 0 } else { spread as u32 }),
        // Enough of them to give the dictionary up.
        name: StringId(one_of(40_000) as u32),
    }
}

fn ended(row: u64, variety: Variety) -> (i64, u64) {
    match variety {
        Variety::None => (EndedBlocks::NO_TIME, UNKNOWN_BYTES),
        _ if mix(row).is_multiple_of(3) => (EndedBlocks::NO_TIME, UNKNOWN_BYTES),
        _ => (-7 - (mix(row) >> 30) as i64, mix(row) % 1_000),
    }
}

/// Value of a row as text, without the form in which it is stored.
fn cell(array: &ArrayRef, row: usize) -> Option<String> {
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).to_string(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            array.as_primitive::<TimestampNanosecondType>().value(row).to_string()
        }
        DataType::Timestamp(..) => array.as_primitive::<TimestampMicrosecondType>().value(row).to_string(),
        _ => {
            let words = array.as_dictionary::<Int32Type>();
            let key = words.keys().value(row) as usize;
            words.values().as_string::<i32>().value(key).to_owned()
        }
    })
}

/// The same columns as a general writer would get them.
fn expected(batch: &EventBatch, at_rest: &AtRest<'_>, ended: &EndedBlocks) -> RecordBatch {
    let times = ended.times_us.iter().map(|time| Some(*time).filter(|time| *time != EndedBlocks::NO_TIME));
    let time = times.collect::<PrimitiveArray<TimestampMicrosecondType>>().with_timezone("UTC");
    let bytes = ended.bytes.iter().map(|bytes| Some(*bytes).filter(|bytes| *bytes != UNKNOWN_BYTES));
    let bytes = bytes.collect::<PrimitiveArray<UInt64Type>>();
    to_record_batch(batch, at_rest, BlockColumns { time: Arc::new(time), bytes: Arc::new(bytes) })
}

/// Whether the statistics of a group are those of its rows, where they are numbers.
fn check_statistics(group: &RowGroupMetaData, column: usize, cells: &[Option<String>]) {
    let statistics = group.column(column).statistics().expect("every column has some");
    let name = group.column(column).column_descr().name();
    let nulls = cells.iter().filter(|cell| cell.is_none()).count() as u64;
    assert_eq!(statistics.null_count_opt(), Some(nulls), "{name}");
    let numbers: Vec<i128> = cells.iter().flatten().filter_map(|cell| cell.parse().ok()).collect();
    // As Parquet has unsigned numbers: by their bits.
    let bits = |number: &i128| *number as i64;
    let span = (numbers.iter().min().map(bits), numbers.iter().max().map(bits));
    match statistics {
        Statistics::Int64(found) => {
            assert_eq!((found.min_opt().copied(), found.max_opt().copied()), span, "{name}");
        }
        Statistics::Int32(found) => {
            let found = (found.min_opt().copied().map(i64::from), found.max_opt().copied().map(i64::from));
            assert_eq!(found, span, "{name}");
        }
        _ => {
            let words = cells.iter().flatten().map(String::as_str);
            let span = (words.clone().min().map(str::as_bytes), words.max().map(str::as_bytes));
            assert_eq!((statistics.min_bytes_opt(), statistics.max_bytes_opt()), span, "{name}");
        }
    }
}

fn write_and_read(variety: Variety) {
    let folder = TempDir::new("pages");
    let path = folder.path().join("part.parquet");
    let mut tables = Tables::default();
    (1..40_000).for_each(|number| {
        tables.intern(&format!("the name of number {number}"));
    });
    let at_rest = AtRest::of_tables(&tables);
    let file = File::create(&path).expect("is created");
    let mut writer = EventWriter::new(file, WriterProperties::default(), GROUP_ROWS).expect("starts");
    let mut written: Vec<Vec<Option<String>>> = vec![Vec::new(); 15];
    let mut row = 0;
    // Batches of odd lengths, so that pages and words of bits begin anywhere.
    for rows in [1, 63, 8_192, 70_001, 8_192, 100_000, 5, 30_000] {
        let mut batch = EventBatch::new();
        let mut blocks = EndedBlocks::default();
        for _ in 0..rows {
            batch.push(&event(row, variety));
            let (time, bytes) = ended(row, variety);
            blocks.times_us.push(time);
            blocks.bytes.push(bytes);
            row += 1;
        }
        writer.write(&batch, &at_rest, &blocks).expect("writes");
        let records = expected(&batch, &at_rest, &blocks);
        for (cells, column) in written.iter_mut().zip(records.columns()) {
            cells.extend((0..column.len()).map(|row| cell(column, row)));
        }
    }
    writer.into_inner().expect("ends");
    let reader =
        ParquetRecordBatchReaderBuilder::try_new(File::open(&path).expect("opens")).expect("is read");
    let metadata = Arc::clone(reader.metadata());
    let mut read: Vec<Vec<Option<String>>> = vec![Vec::new(); 15];
    for records in reader.with_batch_size(7_000).build().expect("is read") {
        let records = records.expect("is read");
        for (cells, column) in read.iter_mut().zip(records.columns()) {
            cells.extend((0..column.len()).map(|row| cell(column, row)));
        }
    }
    assert!(metadata.num_row_groups() > 1);
    for (column, (read, written)) in read.iter().zip(&written).enumerate() {
        let differs = read.iter().zip(written).position(|(read, written)| read != written);
        assert_eq!((read.len(), differs), (written.len(), None), "column {column}");
        let mut rest = &written[..];
        for group in metadata.row_groups() {
            let (own, others) = rest.split_at(group.num_rows() as usize);
            check_statistics(group, column, own);
            rest = others;
        }
    }
}

#[test]
fn columns_with_one_value_are_read_back() {
    write_and_read(Variety::None);
}

#[test]
fn columns_with_few_values_and_nulls_are_read_back() {
    write_and_read(Variety::Few);
}

#[test]
fn columns_without_repetition_are_read_back() {
    write_and_read(Variety::All);
}

#[test]
fn columns_that_begin_to_vary_late_are_read_back() {
    write_and_read(Variety::Late);
}
