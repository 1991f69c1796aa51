//! Where a scan of events stands, so that another one can go on there.
//!
//! A position names the parts it was taken among and what of each run was handed out. It is good for as long
//! as all that came since belongs behind it: runs of rows that are new, or a tail, must not have a row
//! that sorts before the latest one handed out. Whoever resumes finds out, and reads from elsewhere if not.

use std::sync::Arc;

use floodmark_event::EventBatch;

use super::batch::Batch as _;
use super::part_run::PartRow;
use super::{Rows, Run, Scan, ScanProps};
use crate::error::Result;
use crate::manifest::Part;

/// Parts of one number, by name and size.
type RunParts = (u32, Vec<(String, u64)>);

/// Where a scan of events stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanCursor {
    /// The runs there were, shared by all positions of a scan.
    parts: Arc<[RunParts]>,
    /// Where each stands.
    stands: Vec<RunCursor>,
    /// Time at which the latest row that was handed out sorted.
    latest_ns: i64,
    events: u64,
}

impl ScanCursor {
    /// Events that come before.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Where the run of a number stands; none if it is new.
    pub(super) fn stand(&self, order: u32) -> Option<RunCursor> {
        let at = self.parts.iter().position(|(known, _)| *known == order)?;
        self.stands.get(at).copied()
    }

    /// Whether runs that were there are as they were, and those that came since belong behind.
    fn fits(&self, orders: &[(u32, Vec<&Part>)]) -> bool {
        let known = self.parts.len();
        orders.len() >= known
            && run_parts(&orders[..known]) == *self.parts
            && orders[known..]
                .iter()
                .flat_map(|(_, parts)| parts)
                .all(|part| part.min_time_ns >= self.latest_ns)
    }
}

/// Where a run of parts stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RunCursor {
    /// The row that comes next.
    pub(super) next: PartRow,
    /// Time at which it sorts, as far as that is known.
    pub(super) sorts_ns: i64,
    /// Whether any row was read.
    pub(super) started: bool,
    /// Whether there is no more.
    pub(super) ended: bool,
}

fn run_parts(orders: &[(u32, Vec<&Part>)]) -> Vec<RunParts> {
    let name = |part: &&Part| (part.file.clone(), part.bytes);
    orders.iter().map(|(order, parts)| (*order, parts.iter().map(name).collect())).collect()
}

/// What a scan has to remember to say where it stands.
#[derive(Default)]
pub(super) struct ScanPlan {
    parts: Arc<[RunParts]>,
    /// Where each run of parts stood at its end.
    stands: Vec<RunCursor>,
    pub(super) latest_ns: Option<i64>,
    rows: u64,
    has_tail_rows: bool,
}

impl ScanPlan {
    /// Starts at the beginning, or at a position; none if that does not fit.
    pub(super) fn new(orders: &[(u32, Vec<&Part>)], from: Option<&ScanCursor>) -> Option<Self> {
        let (mut stands, mut latest_ns, mut rows) = (Vec::new(), None, 0);
        if let Some(from) = from {
            if !from.fits(orders) {
                return None;
            }
            stands.clone_from(&from.stands);
            (latest_ns, rows) = (Some(from.latest_ns), from.events);
        }
        stands.resize(orders.len(), RunCursor::default());
        Some(Self { parts: run_parts(orders).into(), stands, latest_ns, rows, has_tail_rows: false })
    }

    /// Notes that rows of a run were handed out, the last of which sorted at `time_ns`.
    pub(super) fn hand_out(&mut self, of: Option<usize>, rows: usize, time_ns: i64) {
        self.has_tail_rows |= of.is_none() && rows > 0;
        self.rows += rows as u64;
        self.latest_ns = self.latest_ns.max(Some(time_ns));
    }

    /// Notes that a run has no more rows.
    pub(super) fn end(&mut self, of: Option<usize>) {
        if let Some(stand) = of.and_then(|of| self.stands.get_mut(of)) {
            stand.ended = true;
        }
    }
}

impl ScanProps {
    /// Whether all rows are wanted.
    pub(crate) fn wants_all_rows(&self) -> bool {
        let Self { columns: _, processes, subjects: _, from_ns, to_ns, event_chunks: _ } = self;
        processes.is_none() && from_ns.is_none() && to_ns.is_none()
    }
}

impl Scan {
    /// Where the scan stands; none if nobody could go on there: it has come to the tail, which is
    /// elsewhere soon, or does not read all rows.
    pub fn position(&self) -> Option<ScanCursor> {
        if self.standing.has_tail_rows || !self.props.wants_all_rows() {
            return None;
        }
        let mut stands = self.standing.stands.clone();
        for Run { of, next, time_ns, started, .. } in &self.runs {
            if let Some(of) = *of {
                stands[of] = RunCursor { next: *next, sorts_ns: *time_ns, started: *started, ended: false };
            }
        }
        let latest_ns = self.standing.latest_ns.unwrap_or(i64::MIN);
        Some(ScanCursor { parts: self.standing.parts.clone(), stands, latest_ns, events: self.standing.rows })
    }

    /// Whether the tail, if there is one, belongs behind what came before the position.
    pub(crate) fn tail_fits(&mut self) -> Result<bool> {
        let Some(index) = self.runs.iter().position(|run| matches!(run.rows, Rows::Tail(_))) else {
            return Ok(true);
        };
        while self.runs.get(index).is_some_and(|run| run.batch.is_empty()) {
            self.refill(index)?;
        }
        let first_ns = self.runs.get(index).map(|run: &Run<EventBatch>| run.batch.time_ns(0));
        Ok(first_ns.is_none_or(|first_ns| Some(first_ns) >= self.standing.latest_ns))
    }
}
