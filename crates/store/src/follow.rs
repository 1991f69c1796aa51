//! Follows the events of a growing trace.
//!
//! A follower reads what a poll of the trace has to offer, and polls again; see [`GrowthPoller`].

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use floodmark_event::{EventBatch, Tables};

use crate::error::Result;
use crate::frame_names::NameFrames;
use crate::poller::GrowthPoller;
use crate::scan::{Scan, ScanProps};
use crate::source::{Losses, Source as _};
use crate::table::Table;

/// What [`Follow::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Events, or rows.
    Events,
    /// Nothing new yet; poll again after a while.
    Waiting,
    /// The recording has ended and everything was read.
    Ended,
}

/// Reads the events of a growing trace.
pub struct Follow {
    poller: GrowthPoller,
    scan: Option<Scan>,
    tables: Tables,
    events: u64,
    losses: Losses,
}

impl Follow {
    /// How long to wait between two polls.
    pub const PAUSE: Duration = GrowthPoller::PAUSE;

    /// Follows the events of the trace at `path` from the first one on.
    ///
    /// # Errors
    /// What is wrong with the trace's files.
    pub fn open(path: &Path, props: ScanProps) -> Result<Self> {
        let poller = GrowthPoller::open(path, props)?;
        Ok(Self { poller, scan: None, tables: Tables::default(), events: 0, losses: Losses::default() })
    }

    /// Names frames that were recorded as addresses with `names`.
    #[must_use]
    pub fn with_frame_names(self, names: Arc<dyn NameFrames>) -> Self {
        Self { poller: self.poller.with_frame_names(names), ..self }
    }

    /// What the ids of the latest events point to.
    pub fn tables(&self) -> &Tables {
        self.scan.as_ref().map_or(&self.tables, |scan| scan.tables())
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
        batch.clear();
        let scan = match &mut self.scan {
            Some(scan) => scan,
            none => {
                let Some((trace, new)) = self.poller.again()? else { return Ok(Step::Ended) };
                none.insert(trace.scan(&new)?)
            }
        };
        if scan.next(batch)? {
            self.events += batch.len() as u64;
            return Ok(Step::Events);
        }
        self.losses = scan.losses();
        self.tables = scan.tables().clone();
        self.scan = None;
        if !self.poller.is_last() {
            return Ok(Step::Waiting);
        }
        self.poller.count_late(Table::Event, self.events, &mut self.losses)?;
        Ok(Step::Ended)
    }
}
