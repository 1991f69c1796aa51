//! The memory of a run: from its trace, or from what the sampler remembers of it.

use anyhow::Result;
use floodmark_analyze::{Mark, PeakStack, ProcessMemory, RunFold, RunMemory};
use floodmark_event::{Metric, SampleRow, ScopeRow, StackSampleRow, SubjectKind};
use floodmark_sampler::{Outcome, PeakSource};
use floodmark_store::{Losses, ScanProps, Trace};
use floodmark_tail::clock::Anchor;

/// Processes that are listed for programs.
pub(crate) const PROCESSES: usize = 1000;

/// Folds the samples of a trace; gives what is missing from it too, and none if nothing was seen from outside.
pub(crate) fn of(trace: &Trace, limit: Option<usize>) -> Result<Option<(RunMemory, Losses)>> {
    let subjects = trace.subjects()?;
    if subjects.is_empty() {
        return Ok(None);
    }
    let mut fold = RunFold::new(&subjects, marks(trace)?);
    let mut scan = trace.rows::<SampleRow>(&ScanProps::default())?;
    let mut rows = Vec::new();
    let is_run = |kind| !matches!(kind, SubjectKind::Device | SubjectKind::Host);
    let mut is_run = subjects.values().any(|subject| is_run(subject.kind));
    while scan.next(&mut rows)? {
        // What an allocator counted itself is no look from outside.
        is_run |= rows.iter().any(|row| !matches!(row.metric, Metric::Live | Metric::Reserved));
        fold.update(&rows);
    }
    if !is_run {
        return Ok(None);
    }
    let peak_stack = peak_stack(trace, &fold)?;
    Ok(Some((RunMemory { peak_stack, ..fold.finish(limit) }, scan.losses())))
}

/// The stack that was taken nearest to the peak.
pub(crate) fn peak_stack(trace: &Trace, fold: &RunFold) -> Result<Option<PeakStack>> {
    let Some(mut stacks) = fold.peak_stack() else { return Ok(None) };
    let mut scan = trace.rows::<StackSampleRow>(&ScanProps::default())?;
    let mut rows = Vec::new();
    while scan.next(&mut rows)? {
        stacks.update(&rows, scan.tables());
    }
    Ok(stacks.finish(scan.tables()))
}

fn marks(trace: &Trace) -> Result<Vec<Mark>> {
    let mut scan = trace.rows::<ScopeRow>(&ScanProps::default())?;
    let (mut rows, mut marks) = (Vec::new(), Vec::new());
    while scan.next(&mut rows)? {
        let tables = scan.tables();
        marks.extend(rows.iter().filter_map(|row| Mark::of(row, tables)));
    }
    Ok(marks)
}

/// Adds what only the sampler knows.
pub(crate) fn with_outcome(memory: RunMemory, outcome: &Outcome, anchor: &Anchor) -> RunMemory {
    let counts = outcome.processes;
    let total = outcome.peaks.total;
    // Samples say less about how certain a total is.
    let most = total.map_or(0, |total| total.peak.bytes);
    let mut phases = memory.phases;
    for phase in &mut phases {
        phase.peak_pss_bytes = phase.peak_pss_bytes.map(|pss| pss.min(most));
    }
    RunMemory {
        // Samples that were lost take nothing from it.
        peak_rss_bytes: memory.peak_rss_bytes.max(outcome.peaks.rss_seen.bytes),
        peak_pss_bytes: total.map(|total| total.peak.bytes),
        peak_pss_time_ns: total.map(|total| anchor.utc_ns(total.peak.at_ns)),
        processes: counts.seen.max(memory.processes),
        most_processes: Some(counts.most),
        own_cpu_ns: Some(outcome.cost.own_cpu_ns),
        late_sweeps: Some(outcome.cost.late_sweeps),
        missed_processes: Some(counts.missed + counts.unread),
        phases,
        ..memory
    }
}

/// What the sampler remembers, for a run whose trace could not be written.
pub(crate) fn of_outcome(outcome: &Outcome, anchor: &Anchor) -> RunMemory {
    let peaks = &outcome.peaks;
    let process = |peak: &floodmark_sampler::ProcessPeak| ProcessMemory {
        pid: u64::from(peak.pid.unsigned_abs()),
        parent_pid: None,
        rank: None,
        name: peak.name.clone(),
        command: String::new(),
        start_time_ns: None,
        end_time_ns: None,
        wait_status: None,
        peak_rss_bytes: peak.rss_bytes,
        peak_is_exact: peak.known == PeakSource::LastWord,
        peak_time_ns: None,
        rss_at_peak_bytes: None,
        peak_pss_bytes: None,
        rss_at_peak_pss_bytes: None,
        peak_gpu_bytes: None,
        most_threads: None,
        cpu_ns: None,
    };
    RunMemory {
        first_time_ns: Some(anchor.utc_ns(outcome.began_ns)),
        last_time_ns: Some(anchor.utc_ns(outcome.began_ns + outcome.duration_ns)),
        peak_rss_bytes: peaks.rss.bytes,
        peak_time_ns: (peaks.rss.bytes > 0).then(|| anchor.utc_ns(peaks.rss.at_ns)),
        peak_seen_bytes: peaks.rss_seen.bytes,
        process_list: outcome.largest.iter().map(process).collect(),
        processes_omitted: outcome.processes.seen.saturating_sub(outcome.largest.len() as u64),
        ..RunMemory::default()
    }
}
