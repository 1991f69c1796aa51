//! Events, or rows of another table, of a growing trace, as they come.
//!
//! A follower reads what a look at the trace has to offer, and looks again; see [`GrowthPoller`].

use std::path::Path;
use std::time::Duration;

use floodmark_event::{EventBatch, Tables};

use crate::error::Result;
use crate::poller::GrowthPoller;
use crate::rows::TableRow;
use crate::scan::batch::Batch;
use crate::scan::{Scan, ScanProps};
use crate::source::Losses;

/// What [`Follow::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Events, or rows.
    Events,
    /// Nothing new yet; look again after a while.
    Waiting,
    /// The recording has ended and everything was read.
    Ended,
}

/// Reads a growing trace: its events, unless another table is named.
pub struct Follow<B = EventBatch> {
    looks: GrowthPoller,
    scan: Option<Scan<B>>,
    tables: Tables,
    rows: u64,
    losses: Losses,
}

impl Follow {
    /// How long to wait before looking again.
    pub const PAUSE: Duration = GrowthPoller::PAUSE;

    /// Follows the events of the trace at `path` from the first one on.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn open(path: &Path, props: ScanProps) -> Result<Self> {
        Self::start(path, props)
    }

    /// What the ids of the latest events point to.
    pub fn tables(&self) -> &Tables {
        self.latest_tables()
    }

    /// What is known to be missing.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Replaces the rows of `batch` by the next ones, if there are any.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn next(&mut self, batch: &mut EventBatch) -> Result<Step> {
        self.step(batch)
    }
}

impl<T: TableRow> Follow<Vec<T>> {
    /// Follows the rows of another table of the trace at `path`, which the type of row says.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn open_rows(path: &Path, props: ScanProps) -> Result<Self> {
        Self::start(path, props)
    }

    /// Has rows held back for so long after their time; see [`GrowthPoller::settling`].
    #[must_use]
    pub fn settling(self, settle: Duration) -> Self {
        Self { looks: self.looks.settling(settle), ..self }
    }

    /// What the ids of the latest rows point to.
    pub fn tables(&self) -> &Tables {
        self.latest_tables()
    }

    /// What is known to be missing.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Replaces `rows` by the next ones, if there are any.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn next(&mut self, rows: &mut Vec<T>) -> Result<Step> {
        self.step(rows)
    }
}

impl<B: Batch> Follow<B> {
    fn start(path: &Path, props: ScanProps) -> Result<Self> {
        let looks = GrowthPoller::open(path, props)?;
        Ok(Self { looks, scan: None, tables: Tables::default(), rows: 0, losses: Losses::default() })
    }

    fn latest_tables(&self) -> &Tables {
        self.scan.as_ref().map_or(&self.tables, Scan::registry_tables)
    }

    fn step(&mut self, batch: &mut B) -> Result<Step> {
        batch.clear();
        if self.scan.is_none() {
            let Some((trace, new)) = self.looks.again()? else { return Ok(Step::Ended) };
            self.scan = Some(trace.batches(&new)?);
        }
        let Some(scan) = &mut self.scan else { return Ok(Step::Waiting) };
        if scan.next_batch(batch)? {
            self.rows += batch.len() as u64;
            return Ok(Step::Events);
        }
        self.losses = scan.all_losses();
        self.tables = scan.registry_tables().clone();
        self.scan = None;
        if !self.looks.is_last() {
            return Ok(Step::Waiting);
        }
        self.looks.count_late::<B>(self.rows, &mut self.losses)?;
        Ok(Step::Ended)
    }
}
