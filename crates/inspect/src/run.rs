//! The memory of a run, as its samples show it.

use floodmark_analyze::{PeakStack, RunFold, RunMemory};
use floodmark_event::{Metric, SampleRow, StackSampleRow, SubjectKind};
use floodmark_store::{Losses, ScanProps, Trace};

use crate::error::Result;
use crate::input::Input;

/// Processes that are listed for programs.
pub const PROCESSES: usize = 1000;

impl Input {
    /// Folds the samples of a trace into the memory of its run, with at most `limit` processes listed.
    /// Returns none if nothing was sampled from outside.
    ///
    /// # Errors
    /// If the trace is damaged.
    pub fn run_memory(&self, limit: Option<usize>) -> Result<Option<(RunMemory, Losses)>> {
        let Some(trace) = self.trace() else { return Ok(None) };
        let subjects = trace.subjects()?;
        if subjects.is_empty() {
            return Ok(None);
        }
        let mut fold = RunFold::new(&subjects, self.marks()?);
        let mut scan = trace.rows::<SampleRow>(&ScanProps::default())?;
        let mut rows = Vec::new();
        let is_run = |kind| !matches!(kind, SubjectKind::Device | SubjectKind::Host);
        let mut is_run = subjects.values().any(|subject| is_run(subject.kind));
        while scan.next(&mut rows)? {
            // Figures that an allocator counted itself are not samples from outside.
            is_run |= rows.iter().any(|row| !matches!(row.metric, Metric::Live | Metric::Reserved));
            fold.update(&rows);
        }
        if !is_run {
            return Ok(None);
        }
        let peak_stack = peak_stack(trace, &fold)?;
        let memory = fold.finish(limit);
        let origin_time_ns = self.origin_ns().or(memory.first_time_ns);
        Ok(Some((RunMemory { origin_time_ns, peak_stack, ..memory }, scan.losses())))
    }
}

/// Finds the stack that was sampled nearest to the peak.
pub(crate) fn peak_stack(trace: &Trace, fold: &RunFold) -> Result<Option<PeakStack>> {
    let Some(mut stacks) = fold.peak_stack() else { return Ok(None) };
    let mut scan = trace.rows::<StackSampleRow>(&ScanProps::default())?;
    let mut rows = Vec::new();
    while scan.next(&mut rows)? {
        stacks.update(&rows, scan.tables());
    }
    Ok(stacks.finish(scan.tables()))
}
