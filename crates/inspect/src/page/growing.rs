//! The page of a trace that is being recorded, kept up to date as rows arrive.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use floodmark_analyze::{RangesFold, ScopeRoles};
use floodmark_event::EventBatch;
use floodmark_event::Filter;
use floodmark_event::Row;
use floodmark_store::{ScanProps, Step};
use floodmark_store::{Trace, TraceFollower};

use super::peak::PeakStackFinder;
use super::{EventFolds, Page, RowFolds, about};
use crate::answer::join_losses;
use crate::error::Result;
use crate::origin::of_trace;
use crate::run::PROCESSES;
use crate::symbols::{frame_names, open_trace};

/// How long to read before others get their turn.
const TURN: Duration = Duration::from_millis(200);

/// How one turn of reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// Nothing was new.
    Idle,
    /// Something was read, and there is more.
    MoreAvailable,
    /// Something was read, and there is no more for now.
    CaughtUp,
    /// The recording has ended and all of it was read.
    Finished,
}

/// A growing trace, and the folds that follow it.
pub struct Growing {
    path: PathBuf,
    /// Instant that times count from, if the trace states it.
    origin_ns: Option<i64>,
    following: TraceFollower,
    events: EventFolds,
    rows: RowFolds,
    ranges: RangesFold,
    batch: EventBatch,
    seen: Vec<Row>,
    peak: PeakStackFinder,
    /// What is known of the run.
    about: Vec<(String, String)>,
}

impl Growing {
    /// Begins with the first event.
    ///
    /// # Errors
    /// If the trace is damaged.
    pub fn open(path: &Path, filter: &Filter) -> Result<Self> {
        let origin_ns = of_trace(&Trace::open(path)?);
        let filter = &Filter { origin_ns, ..filter.clone() };
        Ok(Self {
            origin_ns,
            path: path.to_owned(),
            following: TraceFollower::open(path, &ScanProps::default())?.with_frame_names(frame_names()),
            // What scopes are about matters for leaks, and those are known at the end.
            events: EventFolds::new(filter, ScopeRoles::default()),
            rows: RowFolds::of_growing(),
            ranges: RangesFold::default(),
            batch: EventBatch::new(),
            seen: Vec::new(),
            peak: PeakStackFinder::default(),
            about: Vec::new(),
        })
    }

    /// Reads on for a while.
    ///
    /// # Errors
    /// If the trace is damaged; what was read before stays good.
    pub fn read(&mut self) -> Result<ReadOutcome> {
        let began = Instant::now();
        let mut outcome = ReadOutcome::Idle;
        while began.elapsed() < TURN {
            match self.following.next(&mut self.batch, &mut self.seen)? {
                Step::Ended => return Ok(ReadOutcome::Finished),
                Step::Waiting if outcome == ReadOutcome::Idle => return Ok(outcome),
                Step::Waiting => return Ok(ReadOutcome::CaughtUp),
                Step::Events => {
                    if !self.events.is_past_window() {
                        self.events.update(&self.batch);
                    }
                    self.peak.update(&self.seen);
                    self.rows.update(&self.seen, self.following.tables());
                    for row in &self.seen {
                        self.ranges.row(row, self.following.tables());
                    }
                    outcome = ReadOutcome::MoreAvailable;
                }
            }
        }
        Ok(outcome)
    }

    /// The page so far.
    ///
    /// # Errors
    /// If the trace is damaged.
    pub fn page(&mut self) -> Result<Page> {
        let trace = open_trace(&self.path)?;
        self.about = about(&trace.manifest().run);
        let mut page = self.last();
        if let Some(samples) = &mut page.samples {
            samples.memory.peak_stack = self.peak.find(&trace, self.rows.run(), &samples.memory)?;
        }
        Ok(page)
    }

    /// The page as far as it can be told without the trace, which may be gone.
    pub fn last(&mut self) -> Page {
        let origin_ns = self.origin_ns;
        let mut page = Page { source: self.path.display().to_string(), origin_ns, ..Page::default() };
        if !self.events.is_empty() {
            let mut events = self.events.finish(self.following.tables());
            // What is live may still be freed.
            events.leaks = None;
            page.events = Some(events);
        }
        if !self.rows.is_empty() {
            let mut memory = self.rows.run().finish(Some(PROCESSES));
            memory.origin_time_ns = origin_ns.or(memory.first_time_ns);
            memory.peak_stack = self.peak.last();
            page.samples = Some(self.rows.finish(memory));
        }
        page.ranges = self.ranges.finish(self.following.tables());
        join_losses(&mut page.losses, &self.following.losses());
        page.about.clone_from(&self.about);
        page
    }
}
