//! Reading events back: sealed parts and unsealed tail look the same.
//!
//! A trace is a set of *runs*, each in order by itself: the parts of one import, one sealing, the
//! tail. Runs are merged by time; where their times do not overlap, which is nearly everywhere,
//! whole batches pass through untouched. Within a run rows keep their order even if their times do
//! not: the order of a log is the order in which things happened.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{Column, EventBatch, ProcessId, Tables};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;

use crate::columns::{EVENT_COLUMNS, FromRecords, Value};
use crate::error::{Error, Result};
use crate::manifest::{Manifest, Part};
use crate::merge::TailMerge;
use crate::part;
use crate::registry::Registry;
use crate::source::{Losses, Progress, Source};

/// Which events and columns to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanProps {
    /// Names of the columns to read, of [`EVENT_COLUMNS`]; all if `None`. Others read as "none".
    pub columns: Option<Vec<&'static str>>,
    /// Only events of these processes.
    pub processes: Option<Vec<ProcessId>>,
    /// Only events from this time on.
    pub from_ns: Option<i64>,
    /// Only events up to this time.
    pub to_ns: Option<i64>,
}

impl ScanProps {
    fn wants(&self, column: &str) -> bool {
        // Times are needed to merge, and what is filtered by must be read.
        let filtered = self.processes.is_some() && column == "process";
        column == "time" || filtered || self.columns.as_ref().is_none_or(|columns| columns.contains(&column))
    }

    fn overlaps(&self, from_ns: i64, to_ns: i64) -> bool {
        self.from_ns.is_none_or(|from| to_ns >= from) && self.to_ns.is_none_or(|to| from_ns <= to)
    }

    /// Whether a row group can hold a row we want.
    fn wants_group(&self, group: &RowGroupMetaData) -> bool {
        group.columns().iter().all(|column| {
            match (column.column_path().string().as_str(), column.statistics()) {
                ("time", Some(Statistics::Int64(times))) => match (times.min_opt(), times.max_opt()) {
                    (Some(from), Some(to)) => self.overlaps(*from, *to),
                    _ => true,
                },
                ("process", Some(Statistics::Int32(ids))) => {
                    match (&self.processes, ids.min_opt(), ids.max_opt()) {
                        (Some(wanted), Some(from), Some(to)) => {
                            wanted.iter().any(|id| (*from..=*to).contains(&(id.0 as i32)))
                        }
                        _ => true,
                    }
                }
                _ => true,
            }
        })
    }

    /// Removes the rows that are not wanted.
    fn filter(&self, batch: &mut EventBatch) {
        if self.processes.is_none() && self.from_ns.is_none() && self.to_ns.is_none() {
            return;
        }
        let keep: Vec<bool> = (0..batch.len())
            .map(|row| {
                let time = batch.time_ns.at(row);
                let process = batch.process.at(row);
                self.overlaps(time, time) && self.processes.as_ref().is_none_or(|ids| ids.contains(&process))
            })
            .collect();
        if keep.iter().all(|keep| *keep) {
            return;
        }
        retain(&mut batch.time_ns, &keep);
        retain(&mut batch.process, &keep);
        retain(&mut batch.thread, &keep);
        retain(&mut batch.action, &keep);
        retain(&mut batch.address, &keep);
        retain(&mut batch.bytes, &keep);
        retain(&mut batch.device, &keep);
        retain(&mut batch.stream, &keep);
        retain(&mut batch.kind, &keep);
        retain(&mut batch.resource, &keep);
        retain(&mut batch.scope, &keep);
        retain(&mut batch.stack, &keep);
        retain(&mut batch.name, &keep);
        batch.set_len(keep.iter().filter(|keep| **keep).count());
    }
}

fn retain<T>(column: &mut Column<T>, keep: &[bool]) {
    if let Column::Each(values) = column {
        let mut keep = keep.iter();
        values.retain(|_| *keep.next().expect("as many as rows"));
    }
}

/// Parts that follow one another.
struct PartRun {
    parts: VecDeque<PathBuf>,
    reader: Option<PartReader>,
}

/// An open part.
struct PartReader {
    path: PathBuf,
    rows: ParquetRecordBatchReader,
    /// Columns that have one value in the whole part, which are not decoded.
    constants: Vec<(&'static str, Constant)>,
}

/// The value of a column that has only one.
enum Constant {
    Null,
    Number(i64),
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
    fn open(path: &Path, props: &ScanProps) -> Result<Self> {
        let builder: ParquetRecordBatchReaderBuilder<File> = part::open(path)?;
        let metadata = builder.metadata().clone();
        let groups: Vec<(usize, &RowGroupMetaData)> =
            metadata.row_groups().iter().enumerate().filter(|(_, group)| props.wants_group(group)).collect();
        let (indexes, groups): (Vec<usize>, Vec<&RowGroupMetaData>) = groups.into_iter().unzip();
        let mut decoded = Vec::new();
        let mut constants = Vec::new();
        for name in EVENT_COLUMNS.into_iter().filter(|column| props.wants(column)) {
            let columns = builder.parquet_schema().columns().iter();
            let index = columns.enumerate().find(|(_, column)| column.name() == name).map(|(index, _)| index);
            match index.and_then(|index| constant(&groups, index)) {
                // Something must be decoded to count rows.
                Some(value) if name != "time" => constants.push((name, value)),
                _ => decoded.push(name),
            }
        }
        let mask = ProjectionMask::columns(builder.parquet_schema(), decoded);
        let rows = builder.with_projection(mask).with_row_groups(indexes).with_batch_size(BATCH_ROWS).build();
        let rows = rows.map_err(|error| Error::Corrupt { path: path.to_owned(), what: error.to_string() })?;
        Ok(Self { path: path.to_owned(), rows, constants })
    }
}

impl PartRun {
    fn next(
        &mut self,
        batch: &mut EventBatch,
        registry: &mut Registry,
        props: &ScanProps,
        done: &mut u64,
    ) -> Result<bool> {
        loop {
            if self.reader.is_none() {
                let Some(path) = self.parts.front() else {
                    batch.clear();
                    return Ok(false);
                };
                self.reader = Some(PartReader::open(path, props)?);
            }
            let reader = self.reader.as_mut().expect("opened above");
            let corrupt = |what: String| Error::Corrupt { path: reader.path.clone(), what };
            match reader.rows.next() {
                Some(Ok(records)) => {
                    let mut converter =
                        FromRecords { tables: &mut registry.tables, stacks: &registry.stacks };
                    let converted = converter.convert(records, batch);
                    converted
                        .ok_or_else(|| corrupt("a column has another type than the format says".into()))?;
                    for (name, value) in &reader.constants {
                        let value = match value {
                            Constant::Null => None,
                            Constant::Number(number) => Some(Value::Number(*number)),
                            Constant::Word(word) => Some(Value::Word(word)),
                        };
                        converter.set(name, value.as_ref(), batch);
                    }
                    *done += batch.len() as u64;
                    return Ok(true);
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

enum Rows {
    Parts(PartRun),
    Tail(Box<TailMerge>),
}

struct Run {
    rows: Rows,
    batch: EventBatch,
    at: usize,
    /// Time at which the next row sorts: never less than that of an earlier row of the run.
    time_ns: i64,
    started: bool,
}

impl Run {
    fn advance(&mut self) {
        self.at += 1;
        if self.at < self.batch.len() {
            self.time_ns = self.time_ns.max(self.batch.time_ns.at(self.at));
        }
    }
}

/// The events of a trace, in order.
pub struct Scan {
    runs: Vec<Run>,
    registry: Registry,
    props: ScanProps,
    losses: Losses,
    done: u64,
    total: u64,
}

impl Scan {
    pub(crate) fn new(
        trace: &Path,
        manifest: &Manifest,
        registry: Registry,
        tail: Option<TailMerge>,
        props: ScanProps,
    ) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        let mut orders: Vec<(u32, Vec<&Part>)> = Vec::new();
        for part in
            manifest.parts_of("event").filter(|part| props.overlaps(part.min_time_ns, part.max_time_ns))
        {
            match orders.iter_mut().find(|(order, _)| *order == part.order) {
                Some((_, parts)) => parts.push(part),
                None => orders.push((part.order, vec![part])),
            }
        }
        let rows = orders.iter().flat_map(|(_, parts)| parts).map(|part| part.rows);
        let total = rows.fold(0u64, u64::saturating_add);
        let run = |rows, time_ns| Run { rows, batch: EventBatch::new(), at: 0, time_ns, started: false };
        for (_, parts) in orders {
            // Rows of an import may come before its first row in time, but are read after it.
            let earliest = parts.iter().map(|part| part.min_time_ns).min().unwrap_or(i64::MIN);
            let parts = parts.iter().map(|part| part.path(trace)).collect();
            runs.push(run(Rows::Parts(PartRun { parts, reader: None }), earliest));
        }
        if let Some(tail) = tail {
            runs.push(run(Rows::Tail(Box::new(tail)), i64::MIN));
        }
        Self { runs, registry, props, losses: manifest.all_losses(), done: 0, total }
    }

    /// Reads the next batch of a run into its own batch; removes the run at its end.
    fn refill(&mut self, index: usize) -> Result<bool> {
        let run = &mut self.runs[index];
        let filled = match &mut run.rows {
            Rows::Parts(parts) => {
                parts.next(&mut run.batch, &mut self.registry, &self.props, &mut self.done)?
            }
            Rows::Tail(tail) => {
                // Scopes have a table of their own, which is not read here.
                let mut scopes = Vec::new();
                tail.next(&mut run.batch, &mut scopes, &self.registry)
            }
        };
        if !filled {
            if let Rows::Tail(tail) = &run.rows {
                self.losses.extend(&tail.losses);
            }
            self.runs.remove(index);
            return Ok(false);
        }
        run.at = 0;
        if !run.batch.is_empty() {
            let first = run.batch.time_ns.at(0);
            run.time_ns = if run.started { run.time_ns.max(first) } else { first };
            run.started = true;
        }
        Ok(true)
    }

    fn next_unfiltered(&mut self, out: &mut EventBatch) -> Result<bool> {
        out.clear();
        while out.is_empty() {
            let Some(first) = (0..self.runs.len()).min_by_key(|index| self.runs[*index].time_ns) else {
                return Ok(false);
            };
            if self.runs[first].at >= self.runs[first].batch.len() {
                self.refill(first)?;
                continue;
            }
            // Equal times go in the order of the runs.
            let others = self.runs.iter().enumerate().filter(|(index, _)| *index != first);
            let until = others.map(|(index, run)| (run.time_ns, index)).min();
            let comes_first = |time_ns| until.is_none_or(|until| (time_ns, first) < until);
            let run = &mut self.runs[first];
            if run.at == 0 && (until.is_none() || comes_first(latest(&run.batch))) {
                std::mem::swap(out, &mut run.batch);
                if until.is_some() {
                    run.time_ns = run.time_ns.max(latest(out));
                }
                run.batch.clear();
                return Ok(true);
            }
            while run.at < run.batch.len() && comes_first(run.time_ns) && out.len() < BATCH_ROWS {
                out.push(&run.batch.event(run.at));
                run.advance();
            }
        }
        Ok(true)
    }
}

fn latest(batch: &EventBatch) -> i64 {
    match &batch.time_ns {
        Column::Same(time) => *time,
        Column::Each(times) => times.iter().copied().max().unwrap_or(i64::MIN),
    }
}

impl Source for Scan {
    fn tables(&self) -> &Tables {
        &self.registry.tables
    }

    fn next(&mut self, batch: &mut EventBatch) -> Result<bool> {
        while self.next_unfiltered(batch)? {
            self.props.filter(batch);
            if !batch.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }

    fn progress(&self) -> Progress {
        Progress { done: self.done, total: Some(self.total) }
    }
}
