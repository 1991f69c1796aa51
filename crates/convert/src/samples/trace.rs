//! The rows of a trace, those of all its tables together.

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{LogRow, OutputRow, SampleRow, ScopeRow, StackSampleRow, Tables};
use floodmark_store::{Losses, Progress, Result, Row, Scan, ScanProps, Trace};

use super::adopt::Adopted;
use super::merged::{IntoSeen, Queue, drain_ready};
use super::{SampleSource, Seen};

/// Opens the rows of a trace as they are now.
pub(crate) fn open(trace: &Trace, props: &ScanProps) -> Result<Box<dyn SampleSource>> {
    let mut source = TraceSamples {
        scopes: Table::of(trace, props)?,
        samples: Table::of(trace, props)?,
        output: Table::of(trace, props)?,
        stacks: Table::of(trace, props)?,
        logs: Table::of(trace, props)?,
        queues: Default::default(),
        tables: Tables::default(),
    };
    source.tables.subjects = trace.subjects()?;
    Adopted::names(source.samples.scan.tables(), &mut source.tables);
    Ok(Box::new(source))
}

/// One table and what of it has ids in the tables of all.
struct Table<T: Row> {
    scan: Scan<Vec<T>>,
    adopted: Adopted,
    rows: Vec<T>,
    is_done: bool,
}

impl<T: Row + IntoSeen> Table<T> {
    fn of(trace: &Trace, props: &ScanProps) -> Result<Self> {
        let scan = trace.rows::<T>(props)?;
        Ok(Self { scan, adopted: Adopted::default(), rows: Vec::new(), is_done: false })
    }

    /// Fills `queue` if it is empty and there is more.
    fn fill(&mut self, queue: &mut Queue, tables: &mut Tables) -> Result<()> {
        if self.is_done || !queue.is_empty() {
            return Ok(());
        }
        self.is_done = !self.scan.next(&mut self.rows)?;
        for row in self.rows.drain(..) {
            let mut row = row.into_seen();
            self.adopted.row(&mut row, self.scan.tables(), tables);
            queue.push(row);
        }
        Ok(())
    }
}

struct TraceSamples {
    scopes: Table<ScopeRow>,
    samples: Table<SampleRow>,
    output: Table<OutputRow>,
    stacks: Table<StackSampleRow>,
    logs: Table<LogRow>,
    /// In the order of the tables above.
    queues: [Queue; 5],
    tables: Tables,
}

impl SampleSource for TraceSamples {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn next(&mut self, rows: &mut Vec<Seen>) -> Result<bool> {
        rows.clear();
        while rows.is_empty() {
            let [scopes, samples, output, stacks, logs] = &mut self.queues;
            self.scopes.fill(scopes, &mut self.tables)?;
            self.samples.fill(samples, &mut self.tables)?;
            self.output.fill(output, &mut self.tables)?;
            self.stacks.fill(stacks, &mut self.tables)?;
            self.logs.fill(logs, &mut self.tables)?;
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

    fn losses(&self) -> Losses {
        // All tables tell the same of the trace, and each of its own rows.
        let mut losses = self.samples.scan.losses();
        for other in [
            self.scopes.scan.losses(),
            self.output.scan.losses(),
            self.stacks.scan.losses(),
            self.logs.scan.losses(),
        ] {
            for gap in other.gaps {
                if !losses.gaps.iter().any(|known| known.reason == gap.reason) {
                    losses.gaps.push(gap);
                }
            }
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
