//! The position of a scan of events, from which another scan can go on.
//!
//! A cursor names the parts it was taken among and how far each run was handed out. It is good as long as
//! everything that was added since belongs behind it: neither a new run nor the tail may have a row that
//! sorts before the latest one handed out. [`Trace::scan_from`](crate::Trace::scan_from) checks that.

use std::sync::Arc;

use super::batch::Batch as _;
use super::part_run::PartRow;
use super::run::Rows;
use super::{Run, Scan};
use crate::error::Result;
use crate::manifest::Part;

/// An `order`, and its parts by name and size.
type RunParts = (u32, Vec<(String, u64)>);

/// The position of a scan of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanCursor {
    /// The runs there were, shared by all cursors of a scan.
    parts: Arc<[RunParts]>,
    /// Position in each of them.
    runs: Vec<RunCursor>,
    /// Time at which the latest row that was handed out sorted.
    latest_ns: i64,
    events: u64,
}

impl ScanCursor {
    /// Number of events before it.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the position in the run with this index; `None` if it is new.
    pub(super) fn run(&self, index: usize) -> Option<RunCursor> {
        self.runs.get(index).copied()
    }

    /// Whether the runs it knows are unchanged, and later ones belong behind it.
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

/// A position in a run of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RunCursor {
    /// The row that comes next.
    pub(super) next: PartRow,
    /// Time at which it sorts, as far as that is known.
    pub(super) sorts_ns: i64,
    /// Whether there are no more rows.
    pub(super) is_ended: bool,
}

fn run_parts(orders: &[(u32, Vec<&Part>)]) -> Vec<RunParts> {
    let name = |part: &&Part| (part.file.clone(), part.bytes);
    orders.iter().map(|(order, parts)| (*order, parts.iter().map(name).collect())).collect()
}

/// What a scan remembers to make cursors.
pub(super) struct ScanPlan {
    parts: Arc<[RunParts]>,
    /// Positions in runs of parts that have ended.
    runs: Vec<RunCursor>,
    latest_ns: Option<i64>,
    rows: u64,
    has_tail_rows: bool,
}

impl ScanPlan {
    /// Starts at the beginning, or at a cursor; `None` if that does not fit.
    pub(super) fn new(orders: &[(u32, Vec<&Part>)], from: Option<&ScanCursor>) -> Option<Self> {
        let (mut runs, mut latest_ns, mut rows) = (Vec::new(), None, 0);
        if let Some(from) = from {
            if !from.fits(orders) {
                return None;
            }
            runs.clone_from(&from.runs);
            (latest_ns, rows) = (Some(from.latest_ns), from.events);
        }
        runs.resize(orders.len(), RunCursor::default());
        Some(Self { parts: run_parts(orders).into(), runs, latest_ns, rows, has_tail_rows: false })
    }

    /// Notes that rows were handed out, the last of which sorted at `time_ns`, and whether some of them are
    /// of the tail.
    pub(super) fn hand_out(&mut self, rows: usize, time_ns: i64, has_tail_rows: bool) {
        self.has_tail_rows |= has_tail_rows;
        self.rows += rows as u64;
        self.latest_ns = self.latest_ns.max(Some(time_ns));
    }

    /// Notes that a run of parts, which stood at `cursor`, has no more rows.
    pub(super) fn end(&mut self, of: Option<usize>, cursor: RunCursor) {
        if let Some(run) = of.and_then(|of| self.runs.get_mut(of)) {
            *run = RunCursor { is_ended: true, ..cursor };
        }
    }
}

impl Scan {
    /// Returns the position of the scan; `None` if no other scan could go on there, because it has come to
    /// the tail, which moves into parts, or does not read all rows.
    pub fn position(&self) -> Option<ScanCursor> {
        if self.plan.has_tail_rows || !self.props.wants_all_rows() {
            return None;
        }
        let mut runs = self.plan.runs.clone();
        for index in self.waiting.iter().map(|(_, index)| index).chain(&self.open) {
            let run = &self.runs[*index];
            if let Some(of) = run.of {
                runs[of] = run.cursor();
            }
        }
        // Rows that are planned were passed and not handed out.
        for first in self.planned.pending() {
            let run = &self.runs[self.planned.runs()[first.source as usize]];
            if let Some(of) = run.of {
                runs[of] = run.cursor_at(first.row as usize);
            }
        }
        let latest_ns = self.plan.latest_ns.unwrap_or(i64::MIN);
        Some(ScanCursor { parts: self.plan.parts.clone(), runs, latest_ns, events: self.plan.rows })
    }

    /// Whether the tail, if there is one, belongs behind the cursor from which the scan goes on.
    pub(crate) fn tail_fits(&mut self) -> Result<bool> {
        let is_tail = |run: &Run<_>| matches!(run.rows, Rows::Tail(_));
        let Some(index) = self.runs.iter().position(is_tail) else { return Ok(true) };
        self.waiting.retain(|(_, waiting)| *waiting != index);
        while self.runs[index].is_empty() {
            if !self.refill(index)? {
                return Ok(true);
            }
        }
        self.open_run(index);
        Ok(Some(self.runs[index].batch.time_ns(0)) >= self.plan.latest_ns)
    }
}
