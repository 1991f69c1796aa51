//! Checkpoints along a trace, so that a zoom need not read everything that came before.
//!
//! A checkpoint is a scan cursor with the blocks that were live there. A background walk through the trace keeps
//! one per fixed number of events, as far as events are in parts: what is in the tail moves soon and is read from its
//! start. Rows that arrive late may make a checkpoint useless; a zoom that starts from one notices that, drops
//! it and takes an earlier one or the beginning. So an answer never depends on checkpoints, only the time it
//! takes.
//!
//! Memory is bounded: beyond [`Limits`] every other checkpoint is dropped, and from then on half as many are
//! kept.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use floodmark_analyze::{KeptLive, Tracker};
use floodmark_event::Filter;
use floodmark_event::units::Instant as Until;
use floodmark_event::{EventBatch, Tables};
use floodmark_store::ResumableEvents;
use floodmark_store::{ScanCursor, ScanProps, Table, Trace, is_trace};

use crate::error::Result;
use crate::symbols::open_trace;
use crate::zoom::StillWanted;

/// How long to walk at a time.
const TURN: Duration = Duration::from_millis(50);
/// How often a growing trace is polled for more to walk through.
const POLL: Duration = Duration::from_secs(2);

/// How many checkpoints there may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Events between two.
    every: u64,
    /// Bytes that all take together.
    bytes: usize,
    count: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { every: 1 << 18, bytes: 256 << 20, count: 1024 }
    }
}

/// The checkpoints of a trace, in order.
pub struct Checkpoints {
    path: PathBuf,
    filter: Filter,
    limits: Limits,
    /// What ids of blocks that are kept point to; only grow.
    tables: Tables,
    kept: Vec<Checkpoint>,
    walk: Option<Walk>,
    /// Events that were walked through, at most.
    walked: u64,
    polled: Option<Instant>,
    /// Whether there is nothing to walk through, or walking failed.
    is_off: bool,
}

struct Checkpoint {
    position: ScanCursor,
    live: KeptLive,
    /// Latest time of all events before.
    latest_ns: i64,
}

/// A walk through the trace.
struct Walk {
    events: ResumableEvents,
    tracker: Tracker,
    batch: EventBatch,
    latest_ns: Option<i64>,
    /// Events since the latest checkpoint.
    since: u64,
}

/// Events from a checkpoint on.
pub struct Started<'a> {
    /// Events from there on.
    pub events: ResumableEvents,
    /// What their ids point to.
    pub tables: &'a mut Tables,
    /// Blocks that were live there; none at the beginning.
    pub kept: Option<&'a KeptLive>,
}

impl Checkpoints {
    /// Starts without checkpoints. A foreign file never has any.
    pub fn new(path: &Path, filter: &Filter) -> Self {
        Self::limited(path, filter, Limits::default())
    }

    fn limited(path: &Path, filter: &Filter, limits: Limits) -> Self {
        Self {
            path: path.to_owned(),
            filter: filter.clone(),
            limits,
            tables: Tables::default(),
            kept: Vec::new(),
            walk: None,
            walked: 0,
            polled: None,
            is_off: !is_trace(path),
        }
    }

    /// Whether a walk is under way.
    pub fn is_walking(&self) -> bool {
        self.walk.is_some() || (self.polled.is_none() && !self.is_off)
    }

    /// Walks for a while. Errors are reported by the zoom that meets them.
    pub fn turn(&mut self) {
        let began = Instant::now();
        let walked = self.begin_walk().and_then(|()| {
            while began.elapsed() < TURN && self.step()? {}
            Ok(())
        });
        if walked.is_err() {
            (self.walk, self.is_off) = (None, true);
        }
    }

    /// Begins a walk if enough was sealed since the last one.
    fn begin_walk(&mut self) -> Result<()> {
        let is_due = self.polled.is_none_or(|polled| polled.elapsed() >= POLL);
        if self.is_off || self.walk.is_some() || !is_due {
            return Ok(());
        }
        self.polled = Some(Instant::now());
        let trace = open_trace(&self.path)?;
        let sealed = trace.manifest().rows_of(Table::Event);
        if sealed < self.walked.saturating_add(self.limits.every) {
            return Ok(());
        }
        let (events, at) = self.open(&trace, &ScanProps::default(), i64::MAX)?;
        let from = at.map(|at| &self.kept[at]);
        self.walk = Some(Walk {
            events,
            tracker: match from {
                Some(from) => Tracker::resume(&self.filter, &from.live),
                None => Tracker::new(&self.filter),
            },
            batch: EventBatch::new(),
            latest_ns: from.map(|from| from.latest_ns),
            since: 0,
        });
        Ok(())
    }

    /// Walks on by a batch; returns whether there is more.
    fn step(&mut self) -> Result<bool> {
        let Some(walk) = &mut self.walk else { return Ok(false) };
        let is_more = walk.events.next(&mut walk.batch, &mut self.tables)?;
        let Some(position) = walk.events.position().filter(|_| is_more) else {
            // At the tail, or at the end.
            self.walk = None;
            return Ok(false);
        };
        walk.tracker.update(&walk.batch);
        walk.latest_ns =
            (0..walk.batch.len()).map(|row| walk.batch.time_ns.at(row)).max().max(walk.latest_ns);
        walk.since += walk.batch.len() as u64;
        self.walked = self.walked.max(position.events());
        if let Some(latest_ns) = walk.latest_ns.filter(|_| walk.since >= self.limits.every) {
            walk.since = 0;
            let live = walk.tracker.keep();
            self.keep(Checkpoint { position, live, latest_ns });
        }
        Ok(true)
    }

    fn keep(&mut self, checkpoint: Checkpoint) {
        if checkpoint.live.size_bytes() > self.limits.bytes / 2 {
            return;
        }
        self.kept.push(checkpoint);
        let is_too_much = |kept: &[Checkpoint]| {
            let bytes: usize = kept.iter().map(|checkpoint| checkpoint.live.size_bytes()).sum();
            bytes > self.limits.bytes || kept.len() > self.limits.count
        };
        while is_too_much(&self.kept) {
            let mut at = 0;
            self.kept.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.limits.every = self.limits.every.saturating_mul(2);
        }
    }

    /// Starts so that all events at `from_ns` and later, or after `end`, come, and walks there first if that was
    /// not done yet; none if the answer is not wanted any more.
    ///
    /// # Errors
    /// If the trace is damaged.
    pub fn start(
        &mut self,
        from_ns: i64,
        end: Option<Until>,
        props: &ScanProps,
        wanted: StillWanted<'_>,
    ) -> Result<Option<Started<'_>>> {
        self.begin_walk()?;
        while self.walk.as_ref().is_some_and(|walk| walk.latest_ns < Some(from_ns)) && self.step()? {
            if !wanted() {
                return Ok(None);
            }
        }
        let end_ns = end.and_then(|end| self.kept.first()?.live.time_ns(end));
        let from_ns = end_ns.map_or(from_ns, |end_ns| from_ns.min(end_ns.saturating_add(1)));
        let (events, at) = self.open(&open_trace(&self.path)?, props, from_ns)?;
        let kept = at.map(|at| &self.kept[at].live);
        Ok(Some(Started { events, tables: &mut self.tables, kept }))
    }

    /// Opens the trace at the latest valid checkpoint before `from_ns`.
    fn open(
        &mut self,
        trace: &Trace,
        props: &ScanProps,
        from_ns: i64,
    ) -> Result<(ResumableEvents, Option<usize>)> {
        let mut before = self.kept.partition_point(|checkpoint| checkpoint.latest_ns < from_ns);
        while let Some(at) = before.checked_sub(1) {
            let position = &self.kept[at].position;
            if let Some(events) = ResumableEvents::resume(trace, props, position, &mut self.tables)? {
                return Ok((events, Some(at)));
            }
            self.kept.remove(at);
            // What does not fit a checkpoint does not fit a walk that went past it.
            self.walk = None;
            before = at;
        }
        Ok((ResumableEvents::begin(trace, props, &mut self.tables)?, None))
    }
}
