//! Reads parts that follow one another, and of each only the columns that vary and are asked for.
//!
//! Parts and row groups without a row that is wanted are not read. Rows behind them still sort as if they
//! had been: a run keeps its order, so its rows sort at the latest time that came before them.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;

use super::ScanProps;
use super::batch::Batch;
use super::props::latest_ns;
use crate::columns::Constant;
use crate::error::{Error, Result};
use crate::manifest::Part;
use crate::part::{PartFiles, WRONG_TYPE};
use crate::registry::Registry;

/// Parts that follow one another.
pub(super) struct PartRun {
    files: PartFiles,
    parts: VecDeque<Part>,
    reader: Option<PartReader>,
    /// The row that is read next.
    next: PartRow,
    /// Latest time of everything that was not read.
    skipped_ns: i64,
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
    file: File,
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    /// Columns that have one value in the whole part, which are not decoded.
    constants: Vec<(String, Constant)>,
    /// Row groups that are left to read.
    stretches: VecDeque<Stretch>,
    /// Rows of the next stretch to leave out.
    offset: u64,
    rows: Option<ParquetRecordBatchReader>,
}

/// Row groups that follow one another.
#[derive(Default)]
struct Stretch {
    groups: Vec<usize>,
    /// Latest time of the row groups before it that are not read.
    skipped_ns: Option<i64>,
    /// Rows of these row groups.
    skipped_rows: u64,
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
    /// Opens a part behind its first `rows` rows, which may be left out only if all rows are wanted.
    fn open<B: Batch>(
        files: &PartFiles,
        part: &Part,
        layout: &B::Layout,
        props: &ScanProps,
        rows: u64,
    ) -> Result<Self> {
        let path = part.path(files.trace());
        let (file, metadata) = files.open(part)?;
        let groups = metadata.metadata().row_groups();
        let mut offset = rows;
        let mut stretches: VecDeque<Stretch> = VecDeque::new();
        let mut read: Vec<&RowGroupMetaData> = Vec::new();
        let mut stretch = Stretch::default();
        for (index, group) in groups.iter().enumerate() {
            let rows = u64::try_from(group.num_rows()).unwrap_or(0);
            if read.is_empty() && offset >= rows && offset > 0 {
                offset -= rows;
            } else if props.wants_group(group, B::table(layout)) {
                stretch.groups.push(index);
                read.push(group);
            } else {
                if !stretch.groups.is_empty() {
                    stretches.push_back(std::mem::take(&mut stretch));
                }
                stretch.skipped_ns = stretch.skipped_ns.max(Some(latest_ns(group, B::table(layout))));
                stretch.skipped_rows += rows;
            }
        }
        stretches.push_back(stretch);
        let (mut constants, mut mask) = (Vec::new(), ProjectionMask::all());
        if let Some(columns) = B::columns(layout, props) {
            let mut decoded = Vec::new();
            let schema = metadata.parquet_schema();
            for name in columns {
                let index = schema.columns().iter().position(|column| column.name() == name);
                let takes_constant = |_: &usize| B::takes_constant(layout, name);
                match index.filter(takes_constant).and_then(|index| constant(&read, index)) {
                    // Something must be decoded to count rows.
                    Some(value) if name != "time" => constants.push((name.to_owned(), value)),
                    _ => decoded.push(name),
                }
            }
            mask = ProjectionMask::columns(schema, decoded);
        }
        Ok(Self { path, file, metadata, mask, constants, stretches, offset, rows: None })
    }

    /// Reads the next row groups and returns them; `None` at the end of the part.
    fn next_stretch(&mut self, batch_rows: usize) -> Result<Option<Stretch>> {
        let Some(stretch) = self.stretches.pop_front() else { return Ok(None) };
        if !stretch.groups.is_empty() {
            let file = self.file.try_clone().map_err(Error::io("reading", &self.path))?;
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
                .with_projection(self.mask.clone())
                .with_row_groups(stretch.groups.clone())
                .with_batch_size(batch_rows);
            let offset = usize::try_from(std::mem::take(&mut self.offset)).unwrap_or(usize::MAX);
            let builder = if offset > 0 { builder.with_offset(offset) } else { builder };
            let rows = builder.build().map_err(|error| Error::corrupt(&self.path, error.to_string()))?;
            self.rows = Some(rows);
        }
        Ok(Some(stretch))
    }
}

/// Counts what a scan has read.
#[derive(Default)]
pub(super) struct Tally {
    /// Rows read or passed over.
    pub(super) done: u64,
    /// Rows left out because of words this version does not know.
    pub(super) unknown: u64,
}

/// What a run needs to read rows.
pub(super) struct ReadContext<'a, B: Batch> {
    pub(super) layout: &'a B::Layout,
    pub(super) props: &'a ScanProps,
    pub(super) registry: &'a mut Registry,
    pub(super) tally: &'a mut Tally,
}

impl PartRun {
    /// Reads `parts` from a row on, which may be another than the first only if all rows are wanted.
    pub(super) fn new(files: PartFiles, mut parts: VecDeque<Part>, from: PartRow) -> Self {
        parts.drain(..from.part.min(parts.len()));
        Self { files, parts, reader: None, next: from, skipped_ns: i64::MIN }
    }

    /// The row that is read next.
    pub(super) fn next_row(&self) -> PartRow {
        self.next
    }

    /// Latest time of everything before the batch that was not read.
    pub(super) fn skipped_ns(&self) -> i64 {
        self.skipped_ns
    }

    /// Replaces the rows of `batch` by the next ones; `false` at the end.
    pub(super) fn next<B: Batch>(&mut self, batch: &mut B, context: &mut ReadContext<'_, B>) -> Result<bool> {
        loop {
            let Some(reader) = &mut self.reader else {
                let Some(part) = self.parts.front() else {
                    batch.clear();
                    return Ok(false);
                };
                if context.props.wants_part(part) {
                    let (layout, props) = (context.layout, context.props);
                    let reader = PartReader::open::<B>(&self.files, part, layout, props, self.next.row)?;
                    self.reader = Some(reader);
                } else {
                    self.skipped_ns = self.skipped_ns.max(part.max_time_ns);
                    self.pass_part();
                }
                continue;
            };
            match reader.rows.as_mut().and_then(Iterator::next) {
                Some(Ok(records)) => {
                    self.next.row += records.num_rows() as u64;
                    context.tally.done += records.num_rows() as u64;
                    let unknown = batch.read(records, &reader.constants, context.layout, context.registry);
                    context.tally.unknown +=
                        unknown.ok_or_else(|| Error::corrupt(&reader.path, WRONG_TYPE))?;
                    return Ok(true);
                }
                Some(Err(error)) => return Err(Error::corrupt(&reader.path, error.to_string())),
                None => match reader.next_stretch(B::full_rows(context.layout))? {
                    Some(stretch) => {
                        self.skipped_ns = self.skipped_ns.max(stretch.skipped_ns.unwrap_or(i64::MIN));
                        context.tally.done += stretch.skipped_rows;
                    }
                    None => self.pass_part(),
                },
            }
        }
    }

    fn pass_part(&mut self) {
        self.reader = None;
        self.parts.pop_front();
        self.next = PartRow { part: self.next.part + 1, row: 0 };
    }
}
