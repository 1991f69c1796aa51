//! The rows of a trace, those of all its tables together.

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{Row, Tables};

use super::RowSource;
use super::id_map::IdMap;
use super::merged::Queue;
use crate::error::Result;
use crate::poller::GrowthPoller;
use crate::rows::MergedRow;
use crate::scan::{Scan, ScanProps};
use crate::source::{Losses, Progress};
use crate::table::ROW_TABLES;
use crate::trace::Trace;

/// Opens the rows of a trace as they are now.
pub(crate) fn open(trace: &Trace, props: &ScanProps) -> Result<Box<dyn RowSource>> {
    let mut tables = Tables::default();
    let rows = TraceRows::open(trace, props, &mut tables)?;
    Ok(Box::new(TableRows { rows, tables }))
}

/// A scan of any table, which yields rows with ids in tables that are shared with others.
pub(crate) trait AnyRowScan: Send {
    /// Appends the next rows to `out`, with ids in `tables`; `false` at the end.
    fn next(&mut self, out: &mut dyn FnMut(Row), tables: &mut Tables) -> Result<bool>;
    /// What the scan's own ids point to.
    fn own_tables(&self) -> &Tables;
    /// What is known to be missing from the rows so far.
    fn losses(&self) -> Losses;
    /// How far reading has come.
    fn progress(&self) -> Progress;
}

/// A scan of one table and the ids it was given in the tables of all.
pub(crate) struct RowScan<T: MergedRow> {
    scan: Scan<Vec<T>>,
    ids: IdMap,
    rows: Vec<T>,
}

impl<T: MergedRow> RowScan<T> {
    pub(crate) fn open(trace: &Trace, props: &ScanProps) -> Result<Self> {
        Ok(Self { scan: trace.rows::<T>(props)?, ids: IdMap::default(), rows: Vec::new() })
    }
}

impl<T: MergedRow> AnyRowScan for RowScan<T> {
    fn next(&mut self, out: &mut dyn FnMut(Row), tables: &mut Tables) -> Result<bool> {
        let has_more = self.scan.next(&mut self.rows)?;
        for mut row in self.rows.drain(..) {
            row.remap(&mut self.ids, self.scan.tables(), tables);
            out(row.into_row());
        }
        Ok(has_more)
    }

    fn own_tables(&self) -> &Tables {
        self.scan.tables()
    }

    fn losses(&self) -> Losses {
        self.scan.losses()
    }

    fn progress(&self) -> Progress {
        self.scan.progress()
    }
}

/// One table, and its rows that wait for those of others.
struct TableQueue {
    scan: Box<dyn AnyRowScan>,
    queue: Queue,
    read: u64,
    is_done: bool,
}

impl TableQueue {
    /// Reads rows if none wait and there are more.
    fn fill(&mut self, tables: &mut Tables) -> Result<()> {
        let Self { scan, queue, read, is_done } = self;
        if !*is_done && queue.is_empty() {
            let mut push = |row| {
                *read += 1;
                queue.push(row);
            };
            *is_done = !scan.next(&mut push, tables)?;
        }
        Ok(())
    }

    /// Whether rows that are not read yet may come before those of others.
    fn must_fill(&self) -> bool {
        !self.is_done && self.queue.is_empty()
    }
}

/// The rows of a trace at one moment. Ids are given in tables of the caller, which may have those of
/// earlier polls.
pub(super) struct TraceRows {
    /// In the order of [`ROW_TABLES`], without those that are read on their own.
    tables: Vec<TableQueue>,
}

/// Rows that were read of each table, in the order of [`ROW_TABLES`], without those that are read on their
/// own.
#[derive(Clone, Debug, Default)]
pub(super) struct RowCounts(Vec<u64>);

impl RowCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(count, more)| *count += more);
    }

    /// Adds rows that were committed too late for all polls to `losses`.
    pub(super) fn count_late(&self, poller: &GrowthPoller, losses: &mut Losses) -> Result<()> {
        let mut read = self.0.iter().copied();
        let merged = ROW_TABLES.iter().filter(|table| table.scan.is_some());
        merged
            .map(|table| table.table)
            .try_for_each(|table| poller.count_late(table, read.next().unwrap_or(0), losses))
    }
}

impl TraceRows {
    /// Begins to read; processes and subjects are in `tables` from now on.
    pub(super) fn open(trace: &Trace, props: &ScanProps, tables: &mut Tables) -> Result<Self> {
        let mut queues = Vec::new();
        for open in ROW_TABLES.iter().filter_map(|table| table.scan) {
            let scan = open(trace, props)?;
            // A table that was opened later may know of more than the others.
            IdMap::merge_names(scan.own_tables(), tables);
            queues.push(TableQueue { scan, queue: Queue::default(), read: 0, is_done: false });
        }
        Ok(Self { tables: queues })
    }

    /// Replaces `rows` by the next ones; `false` at the end, with `rows` empty.
    pub(super) fn next(&mut self, rows: &mut Vec<Row>, tables: &mut Tables) -> Result<bool> {
        rows.clear();
        while rows.is_empty() {
            self.tables.iter_mut().try_for_each(|table| table.fill(tables))?;
            self.drain_ready(rows);
            if rows.is_empty() && self.tables.iter().all(|table| table.is_done) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves rows to `rows` in the order of their times, at equal times in that of the tables, as long as
    /// every table has rows or is done.
    fn drain_ready(&mut self, rows: &mut Vec<Row>) {
        while rows.len() < BATCH_ROWS && !self.tables.iter().any(TableQueue::must_fill) {
            let waiting = self.tables.iter_mut().filter(|table| !table.queue.is_empty());
            let Some(first) = waiting.min_by_key(|table| table.queue.first_ns()) else { return };
            rows.extend(first.queue.pop());
        }
    }

    pub(super) fn counts(&self) -> RowCounts {
        RowCounts(self.tables.iter().map(|table| table.read).collect())
    }

    pub(super) fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        for table in &self.tables {
            join(&mut losses, &table.scan.losses());
        }
        losses
    }

    fn progress(&self) -> Progress {
        let parts: Vec<Progress> = self.tables.iter().map(|table| table.scan.progress()).collect();
        let total = parts.iter().filter_map(|part| part.total).sum();
        Progress { done: parts.iter().map(|part| part.done).sum(), total: Some(total) }
    }
}

/// Adds the losses of another table of the same trace: all have those of the trace, and each has its own.
pub(super) fn join(losses: &mut Losses, other: &Losses) {
    for gap in &other.gaps {
        if !losses.gaps.iter().any(|known| known.reason == gap.reason) {
            losses.gaps.push(gap.clone());
        }
    }
}

struct TableRows {
    rows: TraceRows,
    tables: Tables,
}

impl RowSource for TableRows {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn next(&mut self, rows: &mut Vec<Row>) -> Result<bool> {
        self.rows.next(rows, &mut self.tables)
    }

    fn losses(&self) -> Losses {
        self.rows.losses()
    }

    fn progress(&self) -> Progress {
        self.rows.progress()
    }
}
