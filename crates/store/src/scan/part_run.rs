//! Reading parts that follow one another, and of each only what varies and is asked for.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;

use super::ScanProps;
use super::batch::Batch;
use crate::error::{Error, Result};
use crate::part;
use crate::registry::Registry;

/// Parts that follow one another.
pub(super) struct PartRun {
    parts: VecDeque<PathBuf>,
    reader: Option<PartReader>,
    /// What has been read.
    read: PartRow,
}

/// A row of parts that follow one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PartRow {
    /// Index of the part.
    pub(super) part: usize,
    /// Rows of that part that are before it.
    pub(super) row: u64,
}

/// An open part.
struct PartReader {
    path: PathBuf,
    rows: ParquetRecordBatchReader,
    /// Columns that have one value in the whole part, which are not decoded.
    constants: Vec<(&'static str, Constant)>,
}

/// The value of a column that has only one.
pub enum Constant {
    /// None.
    Null,
    /// A number.
    Number(i64),
    /// A word.
    Word(String),
}

/// Returns the value of a column if all `groups` agree on one.
fn constant(groups: &[&RowGroupMetaData], column: usize) -> Option<Constant> {
    let mut found: Option<Constant> = None;
    for group in groups {
        let statistics = group.column(column).statistics()?;
        let nulls = statistics.null_count_opt()?;
        let value = if nulls == group.num_rows() as u64 {
            Constant::Null
        } else if nulls > 0 {
            return None;
        } else {
            match statistics {
                Statistics::Int32(of) if of.min_opt() == of.max_opt() => {
                    Constant::Number((*of.min_opt()?).into())
                }
                Statistics::Int64(of) if of.min_opt() == of.max_opt() => Constant::Number(*of.min_opt()?),
                // Long words may be cut in statistics; ours are short, and anything else is decoded.
                Statistics::ByteArray(of) if of.min_opt() == of.max_opt() && of.max_is_exact() => {
                    Constant::Word(of.min_opt()?.as_utf8().ok()?.to_owned())
                }
                _ => return None,
            }
        };
        match (&found, &value) {
            (None, _) => found = Some(value),
            (Some(Constant::Null), Constant::Null) => {}
            (Some(Constant::Number(one)), Constant::Number(other)) if one == other => {}
            (Some(Constant::Word(one)), Constant::Word(other)) if one == other => {}
            _ => return None,
        }
    }
    found
}

impl PartReader {
    /// Opens a part behind its first `rows` rows, which there can be only if all rows are wanted.
    fn open<B: Batch>(path: &Path, props: &ScanProps, rows: u64) -> Result<Self> {
        let mut skip = rows;
        let builder: ParquetRecordBatchReaderBuilder<File> = part::open(path)?;
        let metadata = builder.metadata().clone();
        let mut groups: Vec<(usize, &RowGroupMetaData)> =
            metadata.row_groups().iter().enumerate().filter(|(_, group)| props.wants_group(group)).collect();
        let is_before = |(_, group): &&(usize, &RowGroupMetaData)| {
            let rows = u64::try_from(group.num_rows()).unwrap_or(0);
            let is_before = skip >= rows;
            skip -= if is_before { rows } else { 0 };
            is_before
        };
        let before = groups.iter().take_while(is_before).count();
        groups.drain(..before);
        let (indexes, groups): (Vec<usize>, Vec<&RowGroupMetaData>) = groups.into_iter().unzip();
        let mut decoded = Vec::new();
        let mut constants = Vec::new();
        for name in B::columns().iter().filter(|column| props.wants(column)) {
            let columns = builder.parquet_schema().columns().iter();
            let index =
                columns.enumerate().find(|(_, column)| column.name() == *name).map(|(index, _)| index);
            match index.and_then(|index| constant(&groups, index)) {
                // Something must be decoded to count rows.
                Some(value) if *name != "time" => constants.push((*name, value)),
                _ => decoded.push(*name),
            }
        }
        // Without a list of columns all are decoded.
        let mask = match B::columns() {
            [] => ProjectionMask::all(),
            _ => ProjectionMask::columns(builder.parquet_schema(), decoded),
        };
        let rows = builder.with_projection(mask).with_row_groups(indexes).with_batch_size(B::ROWS);
        let rows =
            if skip > 0 { rows.with_offset(usize::try_from(skip).unwrap_or(usize::MAX)) } else { rows };
        let rows = rows.build();
        let rows = rows.map_err(|error| Error::Corrupt { path: path.to_owned(), what: error.to_string() })?;
        Ok(Self { path: path.to_owned(), rows, constants })
    }
}

/// What reading a run adds to.
pub(super) struct Tally {
    /// Rows read.
    pub(super) done: u64,
    /// Rows left out because of words this version does not know.
    pub(super) unknown: u64,
}

impl PartRun {
    /// Reads `parts` from a row on; see [`PartReader::open`].
    pub(super) fn new(mut parts: VecDeque<PathBuf>, from: PartRow) -> Self {
        parts.drain(..from.part.min(parts.len()));
        Self { parts, reader: None, read: from }
    }

    /// The row that comes next.
    pub(super) fn next_row(&self) -> PartRow {
        self.read
    }

    pub(super) fn next<B: Batch>(
        &mut self,
        batch: &mut B,
        registry: &mut Registry,
        props: &ScanProps,
        tally: &mut Tally,
    ) -> Result<bool> {
        loop {
            if self.reader.is_none() {
                let Some(path) = self.parts.front() else {
                    batch.clear();
                    return Ok(false);
                };
                self.reader = Some(PartReader::open::<B>(path, props, self.read.row)?);
            }
            let reader = self.reader.as_mut().expect("opened above");
            let corrupt = |what: String| Error::Corrupt { path: reader.path.clone(), what };
            match reader.rows.next() {
                Some(Ok(records)) => {
                    self.read.row += records.num_rows() as u64;
                    tally.done += records.num_rows() as u64;
                    let unknown = batch.read(records, &reader.constants, registry);
                    tally.unknown += unknown
                        .ok_or_else(|| corrupt("a column has another type than the format says".into()))?;
                    return Ok(true);
                }
                Some(Err(error)) => return Err(corrupt(error.to_string())),
                None => {
                    self.reader = None;
                    self.parts.pop_front();
                    self.read = PartRow { part: self.read.part + 1, row: 0 };
                }
            }
        }
    }
}
