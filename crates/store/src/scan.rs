//! Reading rows back: sealed parts and unsealed tail look the same.
//!
//! A trace is a set of *runs*, each in order by itself: the parts of one import, one sealing, the
//! tail. Runs are merged by time; where their times do not overlap, which is nearly everywhere,
//! whole batches pass through untouched. Within a run rows keep their order even if their times do
//! not: the order of a log is the order in which things happened.
//!
//! All tables are read this way. The event table comes by columns and is a [`Source`]; the others come
//! as vectors of rows.

pub(crate) mod batch;
mod cursor;
mod part_run;

use std::path::Path;
use std::sync::Arc;

use floodmark_event::{EventBatch, ProcessId, Tables};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;

use self::batch::Batch;
pub use self::cursor::ScanCursor;
use self::cursor::ScanPlan;
use self::part_run::{PartRow, PartRun, Tally};
use crate::error::Result;
use crate::manifest::{Manifest, Part};
use crate::merge::{EventChunks, TailMerge, TailRows};
use crate::registry::Registry;
use crate::rows::TableRow;
use crate::source::{Losses, Progress, Source};

/// Reason for rows that a later version wrote.
const UNKNOWN_WORDS: &str = "they have words that this version of Floodmark does not know";

/// Which rows and columns to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanProps {
    /// Names of the columns to read, of [`EVENT_COLUMNS`](crate::columns::EVENT_COLUMNS); all if
    /// `None`. Others read as "none". Other tables are always read with all columns.
    pub columns: Option<Vec<&'static str>>,
    /// Only rows recorded by these processes.
    pub processes: Option<Vec<ProcessId>>,
    /// Only rows about these subjects, in tables that are about subjects.
    pub subjects: Option<Vec<u64>>,
    /// Only rows from this time on.
    pub from_ns: Option<i64>,
    /// Only rows up to this time.
    pub to_ns: Option<i64>,
    /// What somebody who read all events found out ([`Scan::event_chunks`]): other tables are not looked for
    /// there.
    pub event_chunks: Option<Arc<EventChunks>>,
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

    /// Whether a row is wanted; one that says nothing about subjects is not filtered by them.
    fn wants_row(&self, time_ns: i64, process: ProcessId, subject: Option<u64>) -> bool {
        self.overlaps(time_ns, time_ns)
            && self.processes.as_ref().is_none_or(|ids| ids.contains(&process))
            && subject.is_none_or(|subject| self.subjects.as_ref().is_none_or(|ids| ids.contains(&subject)))
    }
}

enum Rows {
    Parts(PartRun),
    Tail(Box<(TailMerge, TailRows)>),
}

struct Run<B> {
    rows: Rows,
    /// Which of the runs of parts it is; none for the tail.
    of: Option<usize>,
    batch: B,
    at: usize,
    /// The row of its parts that is handed out next.
    next: PartRow,
    /// Time at which the next row sorts: never less than that of an earlier row of the run.
    time_ns: i64,
    started: bool,
}

impl<B: Batch> Run<B> {
    fn advance(&mut self) {
        self.at += 1;
        self.next.row += 1;
        if self.at < self.batch.len() {
            self.time_ns = self.time_ns.max(self.batch.time_ns(self.at));
        }
    }
}

/// The rows of a table of a trace, in order: its events, unless another table is named.
pub struct Scan<B = EventBatch> {
    runs: Vec<Run<B>>,
    registry: Registry,
    props: ScanProps,
    losses: Losses,
    tally: Tally,
    total: u64,
    standing: ScanPlan,
    event_chunks: EventChunks,
}

impl<B: Batch> Scan<B> {
    /// Reads from the beginning, or from a position; none if that does not fit.
    pub(crate) fn new(
        trace: &Path,
        manifest: &Manifest,
        (registry, tail): (Registry, Option<TailMerge>),
        props: ScanProps,
        from: Option<&ScanCursor>,
    ) -> Option<Self> {
        let mut runs: Vec<Run<B>> = Vec::new();
        let mut orders: Vec<(u32, Vec<&Part>)> = Vec::new();
        let parts = manifest.parts_of(B::TABLE.name());
        for part in parts.filter(|part| props.overlaps(part.min_time_ns, part.max_time_ns)) {
            match orders.iter_mut().find(|(order, _)| *order == part.order) {
                Some((_, parts)) => parts.push(part),
                None => orders.push((part.order, vec![part])),
            }
        }
        let rows = orders.iter().flat_map(|(_, parts)| parts).map(|part| part.rows);
        let total = rows.fold(0u64, u64::saturating_add);
        let standing = ScanPlan::new(&orders, from)?;
        let run = |rows, of, next, time_ns, started| Run {
            rows,
            of,
            batch: B::default(),
            at: 0,
            next,
            time_ns,
            started,
        };
        for (of, (order, parts)) in orders.into_iter().enumerate() {
            // Rows of an import may come before its first row in time, but are read after it.
            let earliest = parts.iter().map(|part| part.min_time_ns).min().unwrap_or(i64::MIN);
            let stand = from.and_then(|from| from.stand(order));
            if stand.is_some_and(|stand| stand.ended) {
                continue;
            }
            let (next, sorts_ns, started) =
                stand.map_or((PartRow::default(), earliest, false), |s| (s.next, s.sorts_ns, s.started));
            let parts = parts.iter().map(|part| part.path(trace)).collect();
            runs.push(run(Rows::Parts(PartRun::new(parts, next)), Some(of), next, sorts_ns, started));
        }
        if let Some(tail) = tail {
            let rows = Rows::Tail(Box::new((tail, TailRows::default())));
            runs.push(run(rows, None, PartRow::default(), i64::MIN, false));
        }
        let tally = Tally { done: 0, unknown: 0 };
        let (losses, event_chunks) = (manifest.all_losses(), EventChunks::default());
        Some(Self { runs, registry, props, losses, tally, total, standing, event_chunks })
    }

    /// Reads the next batch of a run into its own batch; removes the run at its end.
    fn refill(&mut self, index: usize) -> Result<bool> {
        let run = &mut self.runs[index];
        let filled = match &mut run.rows {
            Rows::Parts(parts) => {
                let filled = parts.next(&mut run.batch, &mut self.registry, &self.props, &mut self.tally)?;
                let PartRow { part, row } = parts.next_row();
                run.next = PartRow { part, row: row.saturating_sub(run.batch.len() as u64) };
                filled
            }
            Rows::Tail(tail) => {
                let (tail, rows) = tail.as_mut();
                let filled = tail.next(rows, &self.registry);
                run.batch.take(rows);
                filled
            }
        };
        if !filled {
            if let Rows::Tail(tail) = &mut run.rows {
                self.losses.extend(&tail.0.losses);
                self.event_chunks = tail.0.event_chunks();
            }
            self.standing.end(run.of);
            self.runs.remove(index);
            return Ok(false);
        }
        run.at = 0;
        if run.batch.len() > 0 {
            let first = run.batch.time_ns(0);
            run.time_ns = if run.started { run.time_ns.max(first) } else { first };
            run.started = true;
        }
        Ok(true)
    }

    fn next_unfiltered(&mut self, out: &mut B) -> Result<bool> {
        out.clear();
        while out.len() == 0 {
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
            if run.at == 0 {
                let latest_ns = run.batch.latest_ns();
                if comes_first(latest_ns) {
                    std::mem::swap(out, &mut run.batch);
                    run.time_ns = run.time_ns.max(latest_ns);
                    run.next.row += out.len() as u64;
                    run.batch.clear();
                    self.standing.hand_out(run.of, out.len(), run.time_ns);
                    return Ok(true);
                }
            }
            while run.at < run.batch.len() && comes_first(run.time_ns) && out.len() < B::ROWS {
                out.push_from(&run.batch, run.at);
                self.standing.hand_out(run.of, 1, run.time_ns);
                run.advance();
            }
        }
        Ok(true)
    }

    pub(crate) fn next_batch(&mut self, batch: &mut B) -> Result<bool> {
        while self.next_unfiltered(batch)? {
            batch.filter(&self.props);
            if batch.len() > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn registry_tables(&self) -> &Tables {
        &self.registry.tables
    }

    pub(crate) fn all_losses(&self) -> Losses {
        let mut losses = self.losses.clone();
        if self.tally.unknown > 0 {
            losses.add(self.tally.unknown, UNKNOWN_WORDS);
        }
        losses
    }

    fn rows_read(&self) -> Progress {
        Progress { done: self.tally.done, total: Some(self.total) }
    }
}

impl Scan {
    /// Which chunks of the tail hold nothing but events. Known at the end.
    pub fn event_chunks(&self) -> &EventChunks {
        &self.event_chunks
    }
}

impl Source for Scan {
    fn tables(&self) -> &Tables {
        self.registry_tables()
    }

    fn next(&mut self, batch: &mut EventBatch) -> Result<bool> {
        self.next_batch(batch)
    }

    fn losses(&self) -> Losses {
        self.all_losses()
    }

    fn progress(&self) -> Progress {
        self.rows_read()
    }
}

impl<T: TableRow> Scan<Vec<T>> {
    /// What ids in the rows point to. Grows while rows are read.
    pub fn tables(&self) -> &Tables {
        self.registry_tables()
    }

    /// Replaces `rows` by the next ones; `false` at the end, with `rows` empty.
    ///
    /// # Errors
    /// If the trace cannot be read on; what came before stays good.
    pub fn next(&mut self, rows: &mut Vec<T>) -> Result<bool> {
        self.next_batch(rows)
    }

    /// What is known to be missing from the rows so far.
    pub fn losses(&self) -> Losses {
        self.all_losses()
    }

    /// How far reading has come.
    pub fn progress(&self) -> Progress {
        self.rows_read()
    }
}
