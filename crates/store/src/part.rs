//! Parts: writing and opening immutable Parquet files.
//!
//! Invariant: a part appears under its name only when it is complete and durable; until then it has
//! another name, which no reader opens.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use floodmark_event::{EventBatch, ProcessId};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use crate::codec::{AtRest, ColumnEncoding};
use crate::columns::EndedBlocks;
use crate::dir;
use crate::error::{Error, Result};
use crate::event_part::EventWriter;
use crate::manifest::Part;
use crate::pages::ZSTD_LEVEL;
use crate::process_ranges::ProcessRanges;
use crate::stages::{SealStage, stage};
use crate::steps;
use crate::table::Table;

/// What is wrong with a part whose columns do not have the types of FORMAT.md.
pub(crate) const WRONG_TYPE: &str = "a column has another type than the format says";

/// Rows of a row group: what a scan can skip at once, and what a writer keeps in memory encoded.
const GROUP_ROWS: usize = 1 << 20;
/// Bytes after which a row group ends, however few its rows: output comes in long ones.
const GROUP_BYTES: usize = 64 << 20;
/// Rows after which a part is followed by another.
pub(crate) const PART_ROWS: u64 = 16 << 20;

/// Most rows of a part that are read: more than is ever written.
const MAX_PART_ROWS: u64 = 4 * PART_ROWS;
/// The same of a row group.
const MAX_GROUP_ROWS: u64 = 4 * GROUP_ROWS as u64;
/// Most unpacked bytes of a column in a row group. A column that is written has at most [`GROUP_BYTES`], but
/// for the rows that come at once.
const MAX_COLUMN_BYTES: u64 = 8 * GROUP_BYTES as u64;

/// Wraps an error of the Parquet library.
fn parquet_error(act: &'static str, path: &Path) -> impl FnOnce(parquet::errors::ParquetError) -> Error {
    let path = path.to_owned();
    move |error| match error {
        parquet::errors::ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(source) => Error::Io { act, path, source: *source },
            Err(source) => Error::Corrupt { path, what: source.to_string() },
        },
        error => Error::Corrupt { path, what: error.to_string() },
    }
}

fn properties(table: Table) -> WriterProperties {
    let builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).expect("the level exists")))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // Addresses and sizes repeat; a dictionary beats differences as long as it stays small.
        .set_dictionary_page_size_limit(1 << 20)
        .set_created_by(format!("floodmark {}", env!("CARGO_PKG_VERSION")));
    let encode = |builder: WriterPropertiesBuilder, (column, encoding): &(&str, ColumnEncoding)| {
        let column = || ColumnPath::from(*column);
        let delta = Encoding::DELTA_BINARY_PACKED;
        match encoding {
            ColumnEncoding::Ascending => {
                builder.set_column_dictionary_enabled(column(), false).set_column_encoding(column(), delta)
            }
            ColumnEncoding::DictionaryOrDelta => builder.set_column_encoding(column(), delta),
            ColumnEncoding::Plain => builder.set_column_dictionary_enabled(column(), false),
            ColumnEncoding::Opaque => builder
                .set_column_dictionary_enabled(column(), false)
                .set_column_statistics_enabled(column(), EnabledStatistics::None),
        }
    };
    table.definition().encodings.iter().fold(builder, encode).build()
}

/// Encodes the rows of a part.
enum TableWriter {
    /// Of events.
    Events(Box<EventWriter>),
    /// Of any other table.
    Records(Box<ArrowWriter<File>>),
}

impl TableWriter {
    fn create(out: File, table: Table) -> parquet::errors::Result<Self> {
        Ok(match table {
            Table::Event => Self::Events(Box::new(EventWriter::new(out, properties(table), GROUP_ROWS)?)),
            _ => Self::Records(Box::new(ArrowWriter::try_new(out, table.schema(), Some(properties(table)))?)),
        })
    }

    fn end_long_group(&mut self) -> parquet::errors::Result<()> {
        match self {
            Self::Events(writer) if writer.bytes() > GROUP_BYTES => writer.end_group(),
            Self::Records(writer) if writer.in_progress_size() > GROUP_BYTES => writer.flush(),
            _ => Ok(()),
        }
    }

    fn finish(self) -> parquet::errors::Result<File> {
        match self {
            Self::Events(writer) => writer.into_inner(),
            Self::Records(writer) => writer.into_inner(),
        }
    }
}

/// A part that is being written.
pub(crate) struct PartWriter {
    table: Table,
    file: String,
    path: PathBuf,
    temporary: PathBuf,
    writer: Option<TableWriter>,
    pub(crate) rows: u64,
    times: Option<(i64, i64)>,
    processes: BTreeSet<u32>,
}

impl PartWriter {
    /// Starts part `number` of `table` in the trace at `trace`.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be made.
    pub(crate) fn create(trace: &Path, table: Table, number: u32) -> Result<Self> {
        let folder = trace.join(table.name());
        dir::make_directory(&folder).map_err(Error::io("creating", &folder))?;
        let file = format!("part-{number:06}.parquet");
        let path = folder.join(&file);
        let temporary = folder.join(format!("{file}.tmp"));
        let out = dir::create_anew(&temporary).map_err(Error::io("creating", &temporary))?;
        let writer = TableWriter::create(out, table).map_err(parquet_error("writing", &temporary))?;
        Ok(Self {
            table,
            file,
            path,
            temporary,
            writer: Some(writer),
            rows: 0,
            times: None,
            processes: BTreeSet::new(),
        })
    }

    /// Appends rows of another table than events, whose times lie between `times`.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    pub(crate) fn write(&mut self, records: &RecordBatch, times: Option<(i64, i64)>) -> Result<()> {
        self.encode(records.num_rows(), times, |writer| match writer {
            TableWriter::Records(writer) => writer.write(records),
            TableWriter::Events(_) => unreachable!("events come by batches"),
        })
    }

    /// Appends events, whose times lie between `times`, and the blocks that their frees end.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    pub(crate) fn write_events(
        &mut self,
        batch: &EventBatch,
        at_rest: &AtRest<'_>,
        ended: &EndedBlocks,
        times: (i64, i64),
    ) -> Result<()> {
        self.encode(batch.len(), Some(times), |writer| match writer {
            TableWriter::Events(writer) => writer.write(batch, at_rest, ended),
            TableWriter::Records(_) => unreachable!("other tables come by rows"),
        })
    }

    fn encode(
        &mut self,
        rows: usize,
        times: Option<(i64, i64)>,
        write: impl FnOnce(&mut TableWriter) -> parquet::errors::Result<()>,
    ) -> Result<()> {
        let writer = self.writer.as_mut().expect("present until finished");
        let written = write(writer).and_then(|()| writer.end_long_group());
        written.map_err(parquet_error("writing", &self.temporary))?;
        self.rows += rows as u64;
        self.times = match (self.times, times) {
            (Some((from, to)), Some((more_from, more_to))) => Some((from.min(more_from), to.max(more_to))),
            (some, other) => some.or(other),
        };
        Ok(())
    }

    /// Notes that rows of `process` are in the part.
    pub(crate) fn add_process(&mut self, process: ProcessId) {
        // A part mostly has one process.
        if self.processes.last() != Some(&process.0) {
            self.processes.insert(process.0);
        }
    }

    /// Completes the part and makes it durable. It still has to be listed in the manifest.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    pub(crate) fn finish(mut self, order: u32) -> Result<Part> {
        let writer = self.writer.take().expect("present until finished");
        let file = writer.finish().map_err(parquet_error("writing", &self.temporary))?;
        stage(SealStage::Write, || file.sync_all()).map_err(Error::io("writing", &self.temporary))?;
        steps::reach()?;
        let bytes = file.metadata().map_err(Error::io("reading", &self.temporary))?.len();
        fs::rename(&self.temporary, &self.path).map_err(Error::io("renaming", &self.temporary))?;
        dir::sync_parent(&self.path);
        steps::reach()?;
        let (min_time_ns, max_time_ns) = self.times.unwrap_or_default();
        let (table, file) = (self.table.name().to_owned(), std::mem::take(&mut self.file));
        let processes = (!self.processes.is_empty()).then(|| ProcessRanges::of(&self.processes));
        Ok(Part { table, file, rows: self.rows, bytes, min_time_ns, max_time_ns, order, processes })
    }
}

impl Drop for PartWriter {
    fn drop(&mut self) {
        // Reached with a writer only when something went wrong before `finish`.
        if self.writer.take().is_some() {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Checks that a part is no larger than one that was written to the format: a few bytes can be made to stand
/// for any number of rows.
fn check_size(metadata: &ParquetMetaData) -> std::result::Result<(), String> {
    let too_large = |what: &str, found: i64, most: u64| {
        let found = u64::try_from(found).unwrap_or(u64::MAX);
        if found > most { Err(format!("{what} {found}, and at most {most} are allowed")) } else { Ok(()) }
    };
    too_large("its number of rows is", metadata.file_metadata().num_rows(), MAX_PART_ROWS)?;
    let mut rows = 0i64;
    for group in metadata.row_groups() {
        rows = rows.saturating_add(group.num_rows());
        too_large("the number of rows of a group is", group.num_rows(), MAX_GROUP_ROWS)?;
        for column in group.columns() {
            too_large("the unpacked bytes of a column are", column.uncompressed_size(), MAX_COLUMN_BYTES)?;
        }
    }
    too_large("the number of rows of all its groups is", rows, MAX_PART_ROWS)
}

/// Number for the next part of `table` among `parts`.
pub(crate) fn next_number<'a>(parts: impl Iterator<Item = &'a Part>, table: &str) -> u32 {
    let number = |part: &Part| part.file.strip_prefix("part-")?.strip_suffix(".parquet")?.parse::<u32>().ok();
    parts.filter(|part| part.table == table).filter_map(number).max().map_or(1, |last| last.saturating_add(1))
}

/// Opens the parts of a trace, and counts how often those of each table are opened.
#[derive(Clone, Debug)]
pub(crate) struct PartFiles {
    trace: PathBuf,
    opens: Arc<[AtomicU64; Table::ALL.len()]>,
}

impl PartFiles {
    /// Opens parts of the trace at `trace`.
    pub(crate) fn new(trace: &Path) -> Self {
        Self { trace: trace.to_owned(), opens: Arc::new(Table::ALL.map(|_| AtomicU64::new(0))) }
    }

    /// Directory of the trace.
    pub(crate) fn trace(&self) -> &Path {
        &self.trace
    }

    /// How often parts of a table were opened.
    pub(crate) fn opens(&self, table: Table) -> u64 {
        self.opens[table as usize].load(Ordering::Relaxed)
    }

    /// Opens a part for reading and reads what it says about itself.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Corrupt`].
    pub(crate) fn open(&self, part: &Part) -> Result<(File, ArrowReaderMetadata)> {
        let path = part.path(&self.trace);
        if let Some(table) = Table::from_name(&part.table) {
            self.opens[table as usize].fetch_add(1, Ordering::Relaxed);
        }
        // A table's directory must not be a link either.
        let folder = path.parent().expect("within the trace");
        if !fs::symlink_metadata(folder).map_err(Error::io("opening", folder))?.is_dir() {
            return Err(Error::corrupt(folder, "it is not a plain directory"));
        }
        let file = dir::open_to_read(&path).map_err(Error::io("opening", &path))?;
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::default());
        let metadata = metadata.map_err(parquet_error("reading", &path))?;
        check_size(metadata.metadata()).map_err(|what| Error::corrupt(&path, what))?;
        Ok((file, metadata))
    }

    /// Reads a whole part, batch by batch. `each` returns `None` if a column is not what the format says.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Corrupt`].
    pub(crate) fn read_all(
        &self,
        part: &Part,
        mut each: impl FnMut(&RecordBatch) -> Option<()>,
    ) -> Result<()> {
        let path = part.path(&self.trace);
        let (file, metadata) = self.open(part)?;
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
        let reader = reader.build().map_err(parquet_error("reading", &path))?;
        for records in reader {
            let records = records.map_err(|error| Error::corrupt(&path, error.to_string()))?;
            each(&records).ok_or_else(|| Error::corrupt(&path, WRONG_TYPE))?;
        }
        Ok(())
    }
}
