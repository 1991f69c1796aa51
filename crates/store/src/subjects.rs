//! The table of subjects, written as a whole whenever one is new or ended: a subject is one row, and
//! whoever reads the table sees how it ended.

use std::sync::Arc;

use arrow_array::types::{Int32Type, TimestampNanosecondType, UInt64Type};
use arrow_array::{
    Array as _, ArrayRef, Int32Array, PrimitiveArray, RecordBatch, StringArray, TimestampNanosecondArray,
    UInt64Array,
};
use arrow_schema::DataType;
use floodmark_event::{SubjectKind, SubjectRow, Tables};

use crate::columns::{time_type, word_type, words};
use crate::registry::{column, schema, text_column};
use crate::rows::Words;

/// Turns the subjects of `tables` into the columns of their table.
pub(crate) fn to_records(tables: &Tables) -> RecordBatch {
    let schema = schema(&[
        ("subject", DataType::UInt64, false),
        ("kind", word_type(), false),
        ("number", DataType::UInt64, false),
        ("start_time", time_type(), true),
        ("parent", DataType::UInt64, true),
        ("name", DataType::Utf8, false),
        ("detail", DataType::Utf8, false),
        ("end_time", time_type(), true),
        ("wait_status", DataType::Int32, true),
        ("peak_rss_bytes", DataType::UInt64, true),
    ]);
    let rows = || tables.subjects.values();
    let times = |of: fn(&SubjectRow) -> Option<i64>| {
        let times = rows().map(of).collect::<TimestampNanosecondArray>();
        Arc::new(times.with_timezone("UTC")) as ArrayRef
    };
    let numbers = |of: fn(&SubjectRow) -> Option<u64>| Arc::new(rows().map(of).collect::<UInt64Array>());
    let text = |of: fn(&SubjectRow) -> &str| Arc::new(StringArray::from_iter_values(rows().map(of)));
    let columns: Vec<ArrayRef> = vec![
        numbers(|row| Some(row.subject)),
        words(rows().map(|row| Some(row.kind.name()))),
        numbers(|row| Some(row.number)),
        times(|row| row.start_ns),
        numbers(|row| (row.parent != 0).then_some(row.parent)),
        text(|row| &row.name),
        text(|row| &row.detail),
        times(|row| row.end_ns),
        Arc::new(rows().map(|row| row.wait_status).collect::<Int32Array>()),
        numbers(|row| row.peak_rss_bytes),
    ];
    RecordBatch::try_new(schema, columns).expect("columns are built to the schema")
}

/// Adds the subjects of `records` to `tables`; `None` if a column is not what the format says.
pub(crate) fn read(records: &RecordBatch, tables: &mut Tables) -> Option<()> {
    fn some<P: arrow_array::ArrowPrimitiveType>(column: &PrimitiveArray<P>, row: usize) -> Option<P::Native> {
        (!column.is_null(row)).then(|| column.value(row))
    }
    let subjects = column::<UInt64Type>(records, "subject")?;
    let kinds = Words::of(records, "kind", SubjectKind::from_name)?;
    let numbers = column::<UInt64Type>(records, "number")?;
    let starts = column::<TimestampNanosecondType>(records, "start_time")?;
    let parents = column::<UInt64Type>(records, "parent")?;
    let (names, details) = (text_column(records, "name")?, text_column(records, "detail")?);
    let ends = column::<TimestampNanosecondType>(records, "end_time")?;
    let statuses = column::<Int32Type>(records, "wait_status")?;
    let peaks = column::<UInt64Type>(records, "peak_rss_bytes")?;
    for row in 0..records.num_rows() {
        // Kinds are part of the format's version, so there are no others in a trace we know.
        let Some(kind) = kinds.at(row).flatten() else { continue };
        let subject = SubjectRow {
            subject: subjects.value(row),
            kind,
            number: numbers.value(row),
            start_ns: some(starts, row),
            parent: some(parents, row).unwrap_or(0),
            name: names.value(row).to_owned(),
            detail: details.value(row).to_owned(),
            end_ns: some(ends, row),
            wait_status: some(statuses, row),
            peak_rss_bytes: some(peaks, row),
        };
        tables.subjects.insert(subject.subject, subject);
    }
    Some(())
}
