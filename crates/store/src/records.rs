//! The tables of a trace as Arrow record batches, the unsealed tail included.
//!
//! Columns, ids and order are those of the parts (FORMAT.md, section 3), so SQL engines, Python and exports
//! see the same rows whether they read parts or a trace that is being recorded. Nothing is translated on
//! the way: batches of one part that no other part overlaps in time come as Parquet decodes them.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampMicrosecondType, TimestampNanosecondType, UInt32Type, UInt64Type};
use arrow_array::{
    Array as _, ArrayRef, BooleanArray, DictionaryArray, Int32Array, RecordBatch, RecordBatchOptions,
    StringArray, UInt32Array, UInt64Array, new_null_array,
};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{DataType, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use arrow_select::interleave::interleave_record_batch;
use floodmark_event::{ProcessId, RowPick};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use crate::codec::AtRest;
use crate::columns::{BlockColumns, Constant, to_record_batch};
use crate::error::{Error, Result};
use crate::manifest::Part;
use crate::merge::{TailRows, TailWanted};
use crate::part::{PartFiles, WRONG_TYPE};
use crate::registry::{Needs, Registry, process_of};
use crate::rows::to_records;
use crate::scan::batch::Batch;
use crate::scan::{Scan, ScanProps};
use crate::small_tables::{devices, processes};
use crate::source::Losses;
use crate::table::{ROW_TABLES, Table};
use crate::trace::Trace;

/// Rows that follow one another in a batch on average from which slices are copied instead of single rows.
const SLICE_ROWS: usize = 32;

/// Columns of record batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Projection {
    /// All columns of the table, in its order.
    #[default]
    All,
    /// The columns with these names, in this order.
    Columns(Vec<String>),
}

impl Projection {
    /// Selects columns by name.
    pub fn columns<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self::Columns(names.into_iter().map(Into::into).collect())
    }

    fn schema(&self, table: Table) -> Result<SchemaRef> {
        let all = table.schema();
        let Self::Columns(names) = self else { return Ok(all) };
        let field = |name: &String| {
            let found = all.field_with_name(name).ok().cloned();
            found.ok_or_else(|| Error::NoColumn { table: table.name(), column: name.clone() })
        };
        Ok(Arc::new(Schema::new(names.iter().map(field).collect::<Result<Vec<_>>>()?)))
    }
}

impl Trace {
    /// Reads a table as record batches: parts and tail as they are now, in the order of
    /// [`scan`](Self::scan).
    ///
    /// `props` selects rows by process, subject and time; its `columns` are not used. Tables without a time,
    /// which ids point to, come as a whole: rows of any process may refer to them.
    ///
    /// ```
    /// use floodmark_event::{Event, EventBatch, ProcessId, Tables};
    /// use floodmark_store::{
    ///     Losses, Overwrite, Projection, Run, ScanProps, Table, Trace, TraceWriter,
    /// };
    ///
    /// # fn main() -> floodmark_store::Result<()> {
    /// let path = std::env::temp_dir().join(format!("records-{}.flood", std::process::id()));
    /// let mut batch = EventBatch::new();
    /// for process in [1, 2, 1] {
    ///     batch.push(&Event { process: ProcessId(process), bytes: 4096, ..Event::default() });
    /// }
    /// let mut writer = TraceWriter::create(&path, Run::default(), Overwrite::Yes)?;
    /// writer.write(&batch, &Tables::default())?;
    /// writer.finish(&Tables::default(), &Losses::default())?;
    ///
    /// let trace = Trace::open(&path)?;
    /// let columns = Projection::columns(["time", "bytes"]);
    /// let props = ScanProps { processes: Some(vec![ProcessId(1)]), ..ScanProps::default() };
    /// let mut rows = 0;
    /// for records in trace.record_batches(Table::Event, &columns, &props)? {
    ///     let records = records?;
    ///     assert_eq!(records.schema().field(1).name(), "bytes");
    ///     rows += records.num_rows();
    /// }
    /// assert_eq!(rows, 2);
    /// # std::fs::remove_dir_all(&path).expect("is there");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoColumn`], or what is wrong with the trace's files.
    pub fn record_batches(
        &self,
        table: Table,
        projection: &Projection,
        props: &ScanProps,
    ) -> Result<RecordBatches> {
        let schema = projection.schema(table)?;
        let rows = if table.has_time() {
            let layout = RecordLayout::new(table, &schema, props, self.has_tail());
            RecordsOf::Scan(Box::new(self.batches(layout, props)?), RecordRows::default())
        } else {
            RecordsOf::Small(Box::new(self.small_table(table, &schema)?))
        };
        Ok(RecordBatches { schema, rows })
    }

    fn small_table(&self, table: Table, schema: &SchemaRef) -> Result<SmallTable> {
        let mut manifest = Arc::clone(&self.manifest);
        let mut tail = None;
        if self.has_tail() {
            // Frames of the tail name strings, and its subjects may be those of a part that have ended since.
            // The parts of processes and subjects may be replaced at any time, so they are not read later.
            let snapshot = self.snapshot(Needs::Names, &TailWanted::definitions())?;
            let definitions = snapshot.tail.map(|tail| tail.definitions).unwrap_or_default();
            let tables = &snapshot.registry.tables;
            let at_rest = AtRest::of_tables(tables);
            tail = match table {
                Table::Process => Some(to_records(&processes(&snapshot.manifest), &at_rest)),
                Table::Subject => {
                    Some(to_records(&tables.subjects.values().cloned().collect::<Vec<_>>(), &at_rest))
                }
                Table::Device => Some(to_records(&devices(tables), &at_rest)),
                Table::String => Some(to_records(&definitions.strings, &at_rest)),
                Table::Frame => Some(to_records(&definitions.frames, &at_rest)),
                Table::Stack => Some(to_records(&definitions.stacks, &at_rest)),
                _ => None,
            };
            manifest = snapshot.manifest;
        }
        // These are written as a whole, so the rows of the tail replace those of the parts.
        let is_whole = tail.is_some() && matches!(table, Table::Process | Table::Subject | Table::Device);
        let parts = manifest.parts_of(table.name()).filter(|_| !is_whole).cloned().collect();
        let tail = tail.filter(|tail| tail.num_rows() > 0);
        Ok(SmallTable { files: self.files.clone(), schema: schema.clone(), parts, reader: None, tail })
    }
}

/// Record batches of a table, in order.
pub struct RecordBatches {
    schema: SchemaRef,
    rows: RecordsOf,
}

enum RecordsOf {
    Scan(Box<Scan<RecordRows>>, RecordRows),
    Small(Box<SmallTable>),
}

impl RecordBatches {
    /// Columns of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// What is known to be missing from the rows so far.
    pub fn losses(&self) -> Losses {
        match &self.rows {
            RecordsOf::Scan(scan, _) => scan.all_losses(),
            RecordsOf::Small(_) => Losses::default(),
        }
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match &mut self.rows {
            RecordsOf::Scan(scan, rows) => {
                if !scan.next_batch(rows)? {
                    return Ok(None);
                }
                let records = rows.joined().and_then(|records| conform(&records, &self.schema));
                let wrong = || Error::Internal("merged rows do not have the columns of their table".into());
                records.map(Some).ok_or_else(wrong)
            }
            RecordsOf::Small(table) => table.next_batch(),
        }
    }
}

impl Iterator for RecordBatches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

/// Returns the columns of `schema`; one that may have nulls and is missing has nothing else. `None` if
/// another is missing or has another type.
fn conform(records: &RecordBatch, schema: &SchemaRef) -> Option<RecordBatch> {
    let rows = records.num_rows();
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        columns.push(match records.column_by_name(field.name()) {
            Some(column) if column.data_type() == field.data_type() => column.clone(),
            None if field.is_nullable() => new_null_array(field.data_type(), rows),
            _ => return None,
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).ok()
}

/// Builds a column with one value in all rows; `None` if it is not of a type for which that is done.
fn constant_array(data_type: &DataType, value: &Constant, rows: usize) -> Option<ArrayRef> {
    let array: ArrayRef = match (data_type, value) {
        (
            DataType::UInt64 | DataType::UInt32 | DataType::Int32 | DataType::Dictionary(..),
            Constant::Null,
        ) => new_null_array(data_type, rows),
        (DataType::UInt64, Constant::Number(number)) => {
            Arc::new(UInt64Array::from_value(*number as u64, rows))
        }
        (DataType::UInt32, Constant::Number(number)) => {
            Arc::new(UInt32Array::from_value(*number as u32, rows))
        }
        (DataType::Int32, Constant::Number(number)) => Arc::new(Int32Array::from_value(*number as i32, rows)),
        (DataType::Dictionary(..), Constant::Word(word)) => {
            let words = StringArray::from_iter_values([word]);
            Arc::new(DictionaryArray::new(Int32Array::from_value(0, rows), Arc::new(words)))
        }
        _ => return None,
    };
    Some(array)
}

/// A table without time: parts one after the other, then the tail.
struct SmallTable {
    files: PartFiles,
    schema: SchemaRef,
    parts: VecDeque<Part>,
    reader: Option<ParquetRecordBatchReader>,
    tail: Option<RecordBatch>,
}

impl SmallTable {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some(part) = self.parts.front() else {
                return Ok(self.tail.take().and_then(|records| conform(&records, &self.schema)));
            };
            let path = part.path(self.files.trace());
            let corrupt = |what: String| Error::corrupt(&path, what);
            let reader = match &mut self.reader {
                Some(reader) => reader,
                reader => {
                    let (file, metadata) = self.files.open(part)?;
                    let names = self.schema.fields().iter().map(|field| field.name().as_str());
                    let mask = ProjectionMask::columns(metadata.parquet_schema(), names);
                    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
                    let built = builder.with_projection(mask).build();
                    reader.insert(built.map_err(|error| corrupt(error.to_string()))?)
                }
            };
            match reader.next() {
                Some(Ok(records)) => {
                    let records = conform(&records, &self.schema);
                    return records.map(Some).ok_or_else(|| corrupt(WRONG_TYPE.to_owned()));
                }
                Some(Err(error)) => return Err(corrupt(error.to_string())),
                None => {
                    self.reader = None;
                    self.parts.pop_front();
                }
            }
        }
    }
}

/// Which record batches a scan reads.
#[derive(Clone, Debug)]
pub struct RecordLayout {
    table: Table,
    /// Columns that are read: those of the projection, and those that rows are merged and filtered by.
    schema: SchemaRef,
    needs: Needs,
}

impl RecordLayout {
    fn new(table: Table, projection: &SchemaRef, props: &ScanProps, is_live: bool) -> Self {
        let filters_processes = props.processes.is_some();
        let has = |name: &str| projection.field_with_name(name).is_ok();
        let is_read = |name: &str| match name {
            "time" => true,
            "process" => has(name) || filters_processes,
            "subject" => has(name) || filters_processes || props.subjects.is_some(),
            _ => has(name),
        };
        let all = table.schema();
        let fields = all.fields().iter().filter(|field| is_read(field.name()));
        // Ids of the tail are translated twice: to those in memory, and back to those at rest.
        let needs = if is_live { Needs::Everything } else { Needs::Nothing };
        Self { table, schema: Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>())), needs }
    }
}

/// Rows as record batches.
#[derive(Default)]
pub struct RecordRows {
    pieces: Vec<RecordBatch>,
    /// Times of the only piece; empty if there are several.
    times_ns: ScalarBuffer<i64>,
    rows: usize,
}

impl RecordRows {
    /// Replaces the rows by those of one record batch; `None` if it has no times.
    fn set(&mut self, records: RecordBatch) -> Option<()> {
        let times = records.column_by_name("time")?;
        self.times_ns = match times.as_primitive_opt::<TimestampMicrosecondType>() {
            Some(times) => times.values().iter().map(|time| time.saturating_mul(1000)).collect(),
            None => times.as_primitive_opt::<TimestampNanosecondType>()?.values().clone(),
        };
        self.rows = records.num_rows();
        self.pieces.clear();
        self.pieces.push(records);
        Some(())
    }

    /// Returns all rows as one record batch.
    fn joined(&mut self) -> Option<RecordBatch> {
        let pieces = std::mem::take(&mut self.pieces);
        match pieces.as_slice() {
            [] => None,
            [records] => Some(records.clone()),
            [first, ..] => concat_batches(&first.schema(), &pieces).ok(),
        }
    }
}

impl Batch for RecordRows {
    type Layout = RecordLayout;

    fn takes_constant(layout: &RecordLayout, column: &str) -> bool {
        let field = layout.schema.field_with_name(column);
        field.is_ok_and(|field| constant_array(field.data_type(), &Constant::Null, 0).is_some())
    }

    fn table(layout: &RecordLayout) -> Table {
        layout.table
    }

    fn needs(layout: &RecordLayout) -> Needs {
        layout.needs
    }

    fn full_rows(layout: &RecordLayout) -> usize {
        layout.table.definition().rows
    }

    fn columns<'a>(layout: &'a RecordLayout, _: &ScanProps) -> Option<Vec<&'a str>> {
        Some(layout.schema.fields().iter().map(|field| field.name().as_str()).collect())
    }

    fn len(&self) -> usize {
        self.rows
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn time_ns(&self, row: usize) -> i64 {
        self.times_ns[row]
    }

    fn latest_ns(&self) -> i64 {
        self.times_ns.iter().copied().max().unwrap_or(i64::MIN)
    }

    fn gather(&mut self, sources: &[&Self], picks: &[RowPick]) {
        let batch = |source: usize| &sources[source].pieces[0];
        self.rows += picks.len();
        self.times_ns = ScalarBuffer::default();
        let follows = |one: &RowPick, next: &RowPick| one.source == next.source && one.row + 1 == next.row;
        let ranges = || picks.chunk_by(follows);
        if picks.len() >= SLICE_ROWS * ranges().count() {
            let slice =
                |range: &[RowPick]| batch(range[0].source as usize).slice(range[0].row as usize, range.len());
            self.pieces.extend(ranges().map(slice));
            return;
        }
        let batches: Vec<&RecordBatch> = (0..sources.len()).map(batch).collect();
        let rows: Vec<(usize, usize)> =
            picks.iter().map(|pick| (pick.source as usize, pick.row as usize)).collect();
        let merged = interleave_record_batch(&batches, &rows);
        self.pieces.push(merged.expect("all batches of a scan have the same columns"));
    }

    fn read(
        &mut self,
        records: RecordBatch,
        constants: &[(String, Constant)],
        layout: &RecordLayout,
        _: &mut Registry,
    ) -> Option<u64> {
        let (schema, mut columns, rows) = records.into_parts();
        let mut fields = schema.fields().to_vec();
        for (name, value) in constants {
            let (_, field) = layout.schema.fields().find(name)?;
            columns.push(constant_array(field.data_type(), value, rows)?);
            fields.push(field.clone());
        }
        let records = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).ok()?;
        self.set(conform(&records, &layout.schema)?)?;
        Some(0)
    }

    fn take(&mut self, rows: &mut TailRows, layout: &RecordLayout, registry: &Registry) {
        let table = ROW_TABLES.iter().find(|rows| rows.table == layout.table);
        let records = match table {
            Some(table) => (table.tail_records)(rows, registry),
            None => {
                let blocks = BlockColumns::unknown(rows.events.len());
                to_record_batch(&rows.events, &registry.at_rest(), blocks)
            }
        };
        let records = conform(&records, &layout.schema).expect("rows are turned into their table's columns");
        self.set(records).expect("the table has a time");
    }

    fn wanted(&self, props: &ScanProps) -> Option<Vec<bool>> {
        let records = self.pieces.first()?;
        if props.wants_all_rows() && props.subjects.is_none() {
            return None;
        }
        let subjects = records.column_by_name("subject").map(AsArray::as_primitive::<UInt64Type>);
        let processes = records.column_by_name("process").map(AsArray::as_primitive::<UInt32Type>);
        let wanted = |row: usize| {
            let subject =
                subjects.map(|subjects| if subjects.is_null(row) { 0 } else { subjects.value(row) });
            let process = match (processes, subject) {
                (Some(processes), _) => ProcessId(processes.value(row)),
                (None, subject) => process_of(subject.unwrap_or(0)),
            };
            props.wants_row(self.times_ns[row], process, subject)
        };
        Some((0..self.rows).map(wanted).collect())
    }

    fn retain(&mut self, keep: &[bool]) {
        if let Some(records) = self.pieces.pop() {
            let kept = filter_record_batch(&records, &BooleanArray::from(keep.to_vec()));
            let kept = kept.expect("there is one flag per row");
            self.set(kept).expect("the batch has times");
        }
    }
}
