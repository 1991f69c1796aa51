//! Parts: writing and opening immutable Parquet files.
//!
//! Invariant: a part appears under its name only when it is complete and durable; until then it has
//! another name, which nobody reads.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use crate::dir;
use crate::error::{Error, Result};
use crate::manifest::Part;

/// Rows of a row group: what a scan can skip at once, and what a writer keeps in memory encoded.
const GROUP_ROWS: usize = 1 << 20;
/// Bytes after which a row group ends, however few its rows: output comes in long ones.
const GROUP_BYTES: usize = 64 << 20;
/// Rows after which a part is followed by another.
pub(crate) const PART_ROWS: u64 = 16 << 20;

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

fn properties(table: &str) -> WriterProperties {
    let builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("level 1 exists")))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // Addresses and sizes repeat; a dictionary beats differences as long as it stays small.
        .set_dictionary_page_size_limit(1 << 20)
        .set_created_by(format!("floodmark {}", env!("CARGO_PKG_VERSION")));
    // Times hardly ever repeat and always grow.
    let builder = builder
        .set_column_dictionary_enabled(ColumnPath::from("time"), false)
        .set_column_encoding(ColumnPath::from("time"), Encoding::DELTA_BINARY_PACKED);
    let differences = |builder: WriterPropertiesBuilder, column: &str| {
        builder.set_column_encoding(ColumnPath::from(column), Encoding::DELTA_BINARY_PACKED)
    };
    match table {
        "event" => ["address", "bytes"].into_iter().fold(builder, differences).build(),
        // Output is long and its pieces differ; nobody asks for the least of them.
        "output" => builder
            .set_column_dictionary_enabled(ColumnPath::from("bytes"), false)
            .set_column_statistics_enabled(ColumnPath::from("bytes"), EnabledStatistics::None)
            .build(),
        // A sweep reads the same values again, changed or not: whole numbers repeat at the same distance,
        // which is what zstd looks for and what dictionaries and differences hide from it (0.4 bytes a
        // sample against 0.6 and 2.9).
        "sample" => builder.set_column_dictionary_enabled(ColumnPath::from("value"), false).build(),
        _ => builder.build(),
    }
}

/// A part that is being written.
pub(crate) struct PartWriter {
    table: String,
    file: String,
    path: PathBuf,
    temporary: PathBuf,
    writer: Option<ArrowWriter<File>>,
    pub(crate) rows: u64,
    times: Option<(i64, i64)>,
}

impl PartWriter {
    /// Starts part `number` of `table` in the trace at `trace`.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be made.
    pub(crate) fn create(trace: &Path, table: &str, number: u32, schema: SchemaRef) -> Result<Self> {
        let folder = trace.join(table);
        fs::create_dir_all(&folder).map_err(Error::io("creating", &folder))?;
        let file = format!("part-{number:06}.parquet");
        let path = folder.join(&file);
        let temporary = folder.join(format!("{file}.tmp"));
        let out = File::create(&temporary).map_err(Error::io("creating", &temporary))?;
        let writer = ArrowWriter::try_new(out, schema, Some(properties(table)))
            .map_err(parquet_error("writing", &temporary))?;
        Ok(Self {
            table: table.to_owned(),
            file,
            path,
            temporary,
            writer: Some(writer),
            rows: 0,
            times: None,
        })
    }

    /// Appends rows, whose times lie between `times`.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    pub(crate) fn write(&mut self, records: &RecordBatch, times: Option<(i64, i64)>) -> Result<()> {
        let writer = self.writer.as_mut().expect("present until finished");
        writer.write(records).map_err(parquet_error("writing", &self.temporary))?;
        if writer.in_progress_size() > GROUP_BYTES {
            writer.flush().map_err(parquet_error("writing", &self.temporary))?;
        }
        self.rows += records.num_rows() as u64;
        self.times = match (self.times, times) {
            (Some((from, to)), Some((more_from, more_to))) => Some((from.min(more_from), to.max(more_to))),
            (some, other) => some.or(other),
        };
        Ok(())
    }

    /// Completes the part and makes it durable. It still has to be listed in the manifest.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    pub(crate) fn finish(mut self, order: u32) -> Result<Part> {
        let writer = self.writer.take().expect("present until finished");
        let file = writer.into_inner().map_err(parquet_error("writing", &self.temporary))?;
        file.sync_all().map_err(Error::io("writing", &self.temporary))?;
        let bytes = file.metadata().map_err(Error::io("reading", &self.temporary))?.len();
        fs::rename(&self.temporary, &self.path).map_err(Error::io("renaming", &self.temporary))?;
        dir::sync_parent(&self.path);
        let (min_time_ns, max_time_ns) = self.times.unwrap_or_default();
        let (table, file) = (std::mem::take(&mut self.table), std::mem::take(&mut self.file));
        Ok(Part { table, file, rows: self.rows, bytes, min_time_ns, max_time_ns, order })
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

/// Number for the next part of `table` among `parts`.
pub(crate) fn next_number<'a>(parts: impl Iterator<Item = &'a Part>, table: &str) -> u32 {
    let number = |part: &Part| part.file.strip_prefix("part-")?.strip_suffix(".parquet")?.parse::<u32>().ok();
    parts.filter(|part| part.table == table).filter_map(number).max().map_or(1, |last| last.saturating_add(1))
}

/// Opens a part for reading.
///
/// # Errors
/// [`Error::Io`] or [`Error::Corrupt`].
pub(crate) fn open(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    let file = File::open(path).map_err(Error::io("opening", path))?;
    ParquetRecordBatchReaderBuilder::try_new(file).map_err(parquet_error("reading", path))
}

/// Reads a whole part, batch by batch.
///
/// # Errors
/// [`Error::Io`] or [`Error::Corrupt`].
pub(crate) fn read_all(path: &Path, mut each: impl FnMut(&RecordBatch) -> Option<()>) -> Result<()> {
    let reader = open(path)?.build().map_err(parquet_error("reading", path))?;
    for records in reader {
        let corrupt = |what: String| Error::Corrupt { path: path.to_owned(), what };
        let records = records.map_err(|error| corrupt(error.to_string()))?;
        each(&records).ok_or_else(|| corrupt("a column has another type than the format says".into()))?;
    }
    Ok(())
}
