//! The rows of a trace, those of all its tables together.

use crate::{GrowthPoller, Losses, Progress, Result, Scan, ScanProps, TableRow, Trace};
use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{LogRow, OutputRow, SampleRow, ScopeRow, StackSampleRow, Tables};

use super::RowSource;
use super::id_map::IdMap;
use super::merged::{IntoRow, Queue, drain_ready};
use floodmark_event::Row;

/// Opens the rows of a trace as they are now.
pub(crate) fn open(trace: &Trace, props: &ScanProps) -> Result<Box<dyn RowSource>> {
    let mut tables = Tables::default();
    let rows = TraceRows::open(trace, props, &mut tables)?;
    Ok(Box::new(TraceSamples { rows, tables }))
}

/// One table and what of it has ids in the tables of all.
struct Table<T: TableRow> {
    scan: Scan<Vec<T>>,
    ids: IdMap,
    rows: Vec<T>,
    read: u64,
    is_done: bool,
}

impl<T: TableRow + IntoRow> Table<T> {
    fn of(trace: &Trace, props: &ScanProps) -> Result<Self> {
        let scan = trace.rows::<T>(props)?;
        Ok(Self { scan, ids: IdMap::default(), rows: Vec::new(), read: 0, is_done: false })
    }

    /// Fills `queue` if it is empty and there is more.
    fn fill(&mut self, queue: &mut Queue, tables: &mut Tables) -> Result<()> {
        if self.is_done || !queue.is_empty() {
            return Ok(());
        }
        self.is_done = !self.scan.next(&mut self.rows)?;
        self.read += self.rows.len() as u64;
        for row in self.rows.drain(..) {
            let mut row = row.into_row();
            self.ids.remap_row(&mut row, self.scan.tables(), tables);
            queue.push(row);
        }
        Ok(())
    }
}

/// The rows of a trace as it was when looked at. Ids are given in tables of whoever reads, which may
/// have those of earlier looks.
pub(super) struct TraceRows {
    scopes: Table<ScopeRow>,
    samples: Table<SampleRow>,
    output: Table<OutputRow>,
    stacks: Table<StackSampleRow>,
    logs: Table<LogRow>,
    /// In the order of the tables above.
    queues: [Queue; 5],
}

/// Rows that were read of each table, in the same order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowCounts([u64; 5]);

impl RowCounts {
    pub(super) fn add(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    /// Adds to `losses` what came too late for all looks.
    pub(super) fn count_late(self, looks: &GrowthPoller, losses: &mut Losses) -> Result<()> {
        let [scopes, samples, output, stacks, logs] = self.0;
        looks.count_late_rows::<ScopeRow>(scopes, losses)?;
        looks.count_late_rows::<SampleRow>(samples, losses)?;
        looks.count_late_rows::<OutputRow>(output, losses)?;
        looks.count_late_rows::<StackSampleRow>(stacks, losses)?;
        looks.count_late_rows::<LogRow>(logs, losses)
    }
}

impl TraceRows {
    /// Begins to read; processes and subjects are in `tables` from now on.
    pub(super) fn open(trace: &Trace, props: &ScanProps, tables: &mut Tables) -> Result<Self> {
        let source = Self {
            scopes: Table::of(trace, props)?,
            samples: Table::of(trace, props)?,
            output: Table::of(trace, props)?,
            stacks: Table::of(trace, props)?,
            logs: Table::of(trace, props)?,
            queues: Default::default(),
        };
        // The table that was opened last may know of more than the others.
        IdMap::merge_names(source.samples.scan.tables(), tables);
        IdMap::merge_names(source.logs.scan.tables(), tables);
        Ok(source)
    }

    /// Replaces `rows` by the next ones; `false` at the end, with `rows` empty.
    pub(super) fn next(&mut self, rows: &mut Vec<Row>, tables: &mut Tables) -> Result<bool> {
        rows.clear();
        while rows.is_empty() {
            let [scopes, samples, output, stacks, logs] = &mut self.queues;
            self.scopes.fill(scopes, tables)?;
            self.samples.fill(samples, tables)?;
            self.output.fill(output, tables)?;
            self.stacks.fill(stacks, tables)?;
            self.logs.fill(logs, tables)?;
            let is_done = [
                self.scopes.is_done,
                self.samples.is_done,
                self.output.is_done,
                self.stacks.is_done,
                self.logs.is_done,
            ];
            drain_ready(&mut self.queues, &is_done, rows, BATCH_ROWS);
            if rows.is_empty() && is_done == [true; 5] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn counts(&self) -> RowCounts {
        let Self { scopes, samples, output, stacks, logs, .. } = self;
        RowCounts([scopes.read, samples.read, output.read, stacks.read, logs.read])
    }

    pub(super) fn losses(&self) -> Losses {
        let mut losses = self.samples.scan.losses();
        let others = [
            self.scopes.scan.losses(),
            self.output.scan.losses(),
            self.stacks.scan.losses(),
            self.logs.scan.losses(),
        ];
        for other in &others {
            join(&mut losses, other);
        }
        losses
    }

    fn progress(&self) -> Progress {
        let parts = [
            self.scopes.scan.progress(),
            self.samples.scan.progress(),
            self.output.scan.progress(),
            self.stacks.scan.progress(),
            self.logs.scan.progress(),
        ];
        let total = parts.iter().filter_map(|part| part.total).sum();
        Progress { done: parts.iter().map(|part| part.done).sum(), total: Some(total) }
    }
}

/// Adds what another table of the same trace tells: all tell the same of the trace, and each of its own
/// rows.
pub(super) fn join(losses: &mut Losses, other: &Losses) {
    for gap in &other.gaps {
        if !losses.gaps.iter().any(|known| known.reason == gap.reason) {
            losses.gaps.push(gap.clone());
        }
    }
}

struct TraceSamples {
    rows: TraceRows,
    tables: Tables,
}

impl RowSource for TraceSamples {
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
