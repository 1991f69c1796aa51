//! The stack at the peak of a growing trace, looked for only when there may be another.
//!
//! A stack that comes fits better than the one that was found only if it was taken nearer to the peak, or
//! if it is the first of its process.

use std::collections::HashSet;

use floodmark_analyze::{PeakStack, RunFold, RunMemory};
use floodmark_event::Row;
use floodmark_event::StackId;
use floodmark_store::Trace;

use crate::error::Result;
use crate::run::peak_stack;

/// What was found last.
#[derive(Default)]
pub(super) struct PeakStackFinder {
    /// When the peak was, and how high.
    peak: Option<(Option<i64>, u64)>,
    found: Option<PeakStack>,
    /// Subjects that have stacks.
    subjects: HashSet<u64>,
    is_stale: bool,
}

impl PeakStackFinder {
    /// Takes in more rows.
    pub(super) fn update(&mut self, rows: &[Row]) {
        let peak_ns = self.peak.and_then(|(peak_ns, _)| peak_ns);
        for row in rows {
            let Row::Stack(row) = row else { continue };
            if row.stack == StackId(0) {
                continue;
            }
            let is_first = self.subjects.insert(row.subject);
            let nearest = self.found.as_ref().map(|found| found.after_peak_ns.unsigned_abs());
            let distance = peak_ns.map(|peak_ns| row.time_ns.abs_diff(peak_ns));
            self.is_stale |= is_first || nearest.is_none() || distance <= nearest;
        }
    }

    /// The stack at the peak of `memory`, which is what `fold` found.
    pub(super) fn find(
        &mut self,
        trace: &Trace,
        fold: &RunFold,
        memory: &RunMemory,
    ) -> Result<Option<PeakStack>> {
        let peak = Some((memory.peak_time_ns, memory.peak_seen_bytes));
        if self.peak != peak || self.is_stale {
            self.found = peak_stack(trace, fold)?;
            (self.peak, self.is_stale) = (peak, false);
        }
        Ok(self.found.clone())
    }

    /// The stack that was found last.
    pub(super) fn last(&self) -> Option<PeakStack> {
        self.found.clone()
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::{StackReason, StackSampleRow};

    use super::*;

    fn stack(subject: u64, time_ns: i64) -> Row {
        let (stack, reason) = (StackId(1), StackReason::Peak);
        Row::Stack(StackSampleRow { subject, time_ns, thread: subject, stack, reason, pause_ns: 0 })
    }

    #[test]
    fn only_a_stack_that_may_fit_better_is_looked_for() {
        let found = PeakStack {
            pid: 1,
            name: String::new(),
            thread: 1,
            time_ns: 95,
            after_peak_ns: -5,
            reason: "".into(),
            growth_bytes: 9,
            frames: Vec::new(),
            frames_omitted: 0,
        };
        let mut kept =
            PeakStackFinder { peak: Some((Some(100), 9)), found: Some(found), ..PeakStackFinder::default() };
        kept.update(&[stack(1, 90)]);
        assert!(std::mem::take(&mut kept.is_stale), "the first of its process");
        kept.update(&[stack(1, 106), stack(1, 200)]);
        assert!(!kept.is_stale);
        kept.update(&[stack(1, 105)]);
        assert!(kept.is_stale);
    }
}
