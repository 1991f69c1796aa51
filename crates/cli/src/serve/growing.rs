//! A trace that is being recorded: what is known of it so far, and what comes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use floodmark_analyze::ScopeRoles;
use floodmark_event::EventBatch;
use floodmark_event::Filter;
use floodmark_event::Row;
use floodmark_store::TraceFollower;
use floodmark_store::{ScanProps, Step, Trace};
use floodmark_view::Page;

use super::peak::PeakKept;
use crate::pass::losses;
use crate::reporting::{self, EventFolds, RowFolds};
use crate::run_memory::PROCESSES;

/// How long to read before others get their turn.
const TURN: Duration = Duration::from_millis(200);

/// What came in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// Nothing.
    Nothing,
    /// Something, but not all there is.
    Some,
    /// Something, and that is all there is now.
    All,
    /// The recording has ended and all of it was read.
    End,
}

/// A growing trace, and the folds that follow it.
pub(super) struct Growing {
    path: PathBuf,
    following: TraceFollower,
    events: EventFolds,
    rows: RowFolds,
    batch: EventBatch,
    seen: Vec<Row>,
    peak: PeakKept,
    /// What is known of the run.
    about: Vec<(String, String)>,
}

impl Growing {
    /// Begins with the first event.
    pub(super) fn open(path: &Path, filter: &Filter) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            following: TraceFollower::open(path, &ScanProps::default())?,
            // What scopes are about matters for leaks, and those are known at the end.
            events: EventFolds::new(filter, ScopeRoles::default()),
            rows: RowFolds::of_growing(),
            batch: EventBatch::new(),
            seen: Vec::new(),
            peak: PeakKept::default(),
            about: Vec::new(),
        })
    }

    /// Reads on for a while.
    pub(super) fn read(&mut self) -> Result<ReadOutcome> {
        let began = Instant::now();
        let mut came = ReadOutcome::Nothing;
        while began.elapsed() < TURN {
            match self.following.next(&mut self.batch, &mut self.seen)? {
                Step::Ended => return Ok(ReadOutcome::End),
                Step::Waiting if came == ReadOutcome::Nothing => return Ok(came),
                Step::Waiting => return Ok(ReadOutcome::All),
                Step::Events => {
                    if !self.events.is_past_window() {
                        self.events.update(&self.batch);
                    }
                    self.peak.update(&self.seen);
                    self.rows.update(&self.seen, self.following.tables());
                    came = ReadOutcome::Some;
                }
            }
        }
        Ok(came)
    }

    /// The page so far.
    pub(super) fn page(&mut self) -> Result<Page> {
        let trace = Trace::open(&self.path)?;
        let mut known = Page::default();
        reporting::about(&mut known, &trace);
        self.about = known.about;
        let mut page = self.last();
        if let Some(samples) = &mut page.samples {
            samples.memory.peak_stack = self.peak.find(&trace, self.rows.run(), &samples.memory)?;
        }
        Ok(page)
    }

    /// The page as far as it can be told without the trace, which may be gone.
    pub(super) fn last(&mut self) -> Page {
        let mut page = Page { source: self.path.display().to_string(), ..Page::default() };
        if !self.events.is_empty() {
            let mut events = self.events.finish(self.following.tables());
            // What is live may still be freed.
            events.leaks = None;
            page.events = Some(events);
        }
        if !self.rows.is_empty() {
            let mut memory = self.rows.run().finish(Some(PROCESSES));
            memory.peak_stack = self.peak.last();
            page.samples = Some(self.rows.finish(memory));
        }
        reporting::add_losses(&mut page, losses(&self.following.losses()));
        page.about.clone_from(&self.about);
        page
    }
}
