//! The memory of a run as the sampler remembers it, beside what its samples show.

use floodmark_analyze::{ProcessMemory, RunMemory};
use floodmark_sampler::{Note, Outcome, PeakSource};
use floodmark_tail::clock::Anchor;

/// Adds what only the sampler knows. Where other nodes were recorded too, that is no more than the samples show.
pub(crate) fn with_outcome(
    memory: RunMemory,
    outcome: &Outcome,
    anchor: &Anchor,
    has_nodes: bool,
) -> RunMemory {
    if has_nodes {
        return memory;
    }
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
        peak_is_exact: peak.known == PeakSource::Exit,
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
        peak_is_lower_bound: outcome.notes.iter().any(|note| matches!(note, Note::InexactPeaks { .. })),
        peak_seen_bytes: peaks.rss_seen.bytes,
        process_list: outcome.largest.iter().map(process).collect(),
        processes_omitted: outcome.processes.seen.saturating_sub(outcome.largest.len() as u64),
        ..RunMemory::default()
    }
}
