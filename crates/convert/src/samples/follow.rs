//! The rows of a growing trace, as they come.
//!
//! Every table is followed by itself and looks at the trace at a moment of its own; rows are held back
//! until all tables have looked past their time, so that they come out in order.

use std::path::Path;
use std::time::Duration;

use floodmark_event::clock::Anchor;
use floodmark_event::{LogRow, OutputRow, SampleRow, ScopeRow, StackSampleRow, Tables};
use floodmark_store::{Follow, Losses, Result, Row, ScanProps, Step, Trace};

use super::adopt::Adopted;
use super::merged::{IntoSeen, Queue, drain};
use super::{SampleSource, Seen};

/// How long rows may take to be recorded after their time; a slow sweep takes that long.
const SETTLE: Duration = Duration::from_millis(250);
/// How much longer they are held back, for the tables to agree.
const MARGIN: Duration = Duration::from_millis(50);

/// Follows the rows of the trace at `path` from the first one on. The source waits for new rows, and
/// ends when the recording has ended.
///
/// # Errors
/// What is wrong with the trace's files.
pub fn follow(path: &Path, props: &ScanProps) -> Result<Box<dyn SampleSource>> {
    Ok(Box::new(FollowSamples {
        path: path.to_owned(),
        scopes: Table::of(path, props)?,
        samples: Table::of(path, props)?,
        output: Table::of(path, props)?,
        stacks: Table::of(path, props)?,
        logs: Table::of(path, props)?,
        queues: Default::default(),
        tables: Tables::default(),
    }))
}

struct Table<T: Row> {
    follow: Follow<Vec<T>>,
    rows: Vec<T>,
    is_done: bool,
}

impl<T: Row + IntoSeen> Table<T> {
    fn of(path: &Path, props: &ScanProps) -> Result<Self> {
        let follow = Follow::<Vec<T>>::open_rows(path, props.clone())?.settling(SETTLE);
        Ok(Self { follow, rows: Vec::new(), is_done: false })
    }

    /// Moves everything that is there to `queue`.
    fn fill(&mut self, queue: &mut Queue, tables: &mut Tables) -> Result<()> {
        while !self.is_done {
            match self.follow.next(&mut self.rows)? {
                Step::Waiting => return Ok(()),
                Step::Ended => self.is_done = true,
                Step::Events => {
                    // Ids are good for this look at the trace only.
                    let mut adopted = Adopted::default();
                    Adopted::names(self.follow.tables(), tables);
                    for row in self.rows.drain(..) {
                        let mut row = row.into_seen();
                        adopted.row(&mut row, self.follow.tables(), tables);
                        queue.push(row);
                    }
                }
            }
        }
        Ok(())
    }
}

struct FollowSamples {
    path: std::path::PathBuf,
    scopes: Table<ScopeRow>,
    samples: Table<SampleRow>,
    output: Table<OutputRow>,
    stacks: Table<StackSampleRow>,
    logs: Table<LogRow>,
    queues: [Queue; 5],
    tables: Tables,
}

impl SampleSource for FollowSamples {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn next(&mut self, rows: &mut Vec<Seen>) -> Result<bool> {
        rows.clear();
        loop {
            let held = (SETTLE + MARGIN).as_nanos() as i64;
            let until_ns = Anchor::now().utc_ns.saturating_sub(held);
            let [scopes, samples, output, stacks, logs] = &mut self.queues;
            self.scopes.fill(scopes, &mut self.tables)?;
            self.samples.fill(samples, &mut self.tables)?;
            self.output.fill(output, &mut self.tables)?;
            self.stacks.fill(stacks, &mut self.tables)?;
            self.logs.fill(logs, &mut self.tables)?;
            let is_done = self.scopes.is_done
                && self.samples.is_done
                && self.output.is_done
                && self.stacks.is_done
                && self.logs.is_done;
            drain(&mut self.queues, if is_done { i64::MAX } else { until_ns }, rows);
            if !rows.is_empty() {
                // A subject may have ended, or been named, without a row of its own.
                self.tables.subjects.extend(Trace::open(&self.path)?.subjects()?);
                return Ok(true);
            }
            if is_done {
                return Ok(false);
            }
            std::thread::sleep(Follow::PAUSE);
        }
    }

    fn losses(&self) -> Losses {
        let mut losses = self.samples.follow.losses().clone();
        let others = [
            self.scopes.follow.losses(),
            self.output.follow.losses(),
            self.stacks.follow.losses(),
            self.logs.follow.losses(),
        ];
        for gap in others.into_iter().flat_map(|losses| &losses.gaps) {
            if !losses.gaps.iter().any(|known| known.reason == gap.reason) {
                losses.gaps.push(gap.clone());
            }
        }
        losses
    }
}
