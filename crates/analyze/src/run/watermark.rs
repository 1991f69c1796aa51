//! What held memory when a run had most: processes, and the code that made the largest one grow.

use serde::{Deserialize, Serialize};

use super::{PeakStack, RunMemory};

/// What held memory at the peak of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunWatermark {
    /// Instant that elapsed times count from.
    pub origin_time_ns: Option<i64>,
    /// Highest sum of resident bytes, with what the kernel's marks add to it.
    pub peak_rss_bytes: u64,
    /// When it was reached; none for a bound.
    pub peak_time_ns: Option<i64>,
    /// Whether the peak is an upper bound.
    pub peak_is_bound: bool,
    /// Whether the peak is a lower bound.
    pub peak_is_lower_bound: bool,
    /// Name of the phase in which it was reached; none before the first mark.
    pub peak_phase: Option<String>,
    /// Highest sum of resident bytes that a sweep found: that of the processes below.
    pub peak_seen_bytes: u64,
    /// Highest total in which shared memory counts once, where it is known.
    pub peak_pss_bytes: Option<u64>,
    /// Processes that had memory then, most first.
    pub processes: Vec<ProcessAtPeak>,
    /// Processes that are not listed because of the limit.
    pub processes_omitted: u64,
    /// What the process that grew most was doing, if stacks were taken.
    pub peak_stack: Option<PeakStack>,
}

/// A process that had memory at the peak of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessAtPeak {
    /// PID.
    pub pid: u64,
    /// Rank in an MPI job.
    pub rank: Option<u64>,
    /// Name of its program.
    pub name: String,
    /// Command line.
    pub command: String,
    /// Resident bytes at the peak.
    pub rss_bytes: u64,
    /// Their share of those of all processes, from 0 to 1.
    pub share: f64,
    /// Most resident bytes that it had at any time.
    pub peak_rss_bytes: u64,
}

impl RunMemory {
    /// Returns what held memory at the peak, with at most `limit` of the listed processes.
    pub fn watermark(&self, limit: Option<usize>) -> RunWatermark {
        let held = |process: &super::ProcessMemory| process.rss_at_peak_bytes.unwrap_or(0);
        let mut holders: Vec<_> = self.process_list.iter().filter(|process| held(process) > 0).collect();
        holders.sort_by_key(|process| (std::cmp::Reverse(held(process)), process.pid));
        let whole: u64 = holders.iter().map(|process| held(process)).sum();
        let shown = holders.len().min(limit.unwrap_or(usize::MAX));
        let processes = holders[..shown].iter().map(|process| ProcessAtPeak {
            pid: process.pid,
            rank: process.rank,
            name: process.name.clone(),
            command: process.command.clone(),
            rss_bytes: held(process),
            share: held(process) as f64 / whole.max(1) as f64,
            peak_rss_bytes: process.peak_rss_bytes,
        });
        let phase = self.peak_phase.and_then(|at| self.phases.get(at));
        RunWatermark {
            origin_time_ns: self.origin_time_ns,
            peak_rss_bytes: self.peak_rss_bytes,
            peak_time_ns: self.peak_time_ns,
            peak_is_bound: self.peak_is_bound,
            peak_is_lower_bound: self.peak_is_lower_bound,
            peak_phase: phase.and_then(|phase| phase.name.clone()),
            peak_seen_bytes: self.peak_seen_bytes,
            peak_pss_bytes: self.peak_pss_bytes,
            processes: processes.collect(),
            processes_omitted: (holders.len() - shown) as u64,
            peak_stack: self.peak_stack.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use floodmark_event::{Metric, SampleRow, SubjectKind, SubjectRow};

    use super::super::{Mark, RunFold};

    #[test]
    fn processes_are_listed_by_what_they_held_at_the_peak_of_all() {
        let process = |subject: u64, name: &str| {
            (subject, SubjectRow::new(subject, SubjectKind::Process, subject * 10, name))
        };
        let subjects: BTreeMap<u64, SubjectRow> =
            [process(1, "early"), process(2, "late"), process(3, "gone")].into();
        let sample = |time_ns, subject, value| SampleRow { time_ns, subject, metric: Metric::Rss, value };
        let mut fold = RunFold::new(&subjects, vec![Mark { time_ns: 25, name: "solve".into() }]);
        fold.update(&[sample(10, 1, 900), sample(10, 3, 50), sample(20, 1, 100), sample(20, 3, 0)]);
        fold.update(&[sample(30, 2, 900), sample(30, 1, 300), sample(40, 2, 10)]);
        let memory = fold.finish(None);
        let found = memory.watermark(None);
        let list: Vec<_> =
            found.processes.iter().map(|one| (one.name.as_str(), one.rss_bytes, one.share)).collect();
        assert_eq!(list, [("late", 900, 0.75), ("early", 300, 0.25)]);
        assert_eq!((found.peak_rss_bytes, found.peak_time_ns), (1200, Some(30)));
        assert_eq!((found.peak_phase.as_deref(), found.processes[1].peak_rss_bytes), (Some("solve"), 900));
        let short = memory.watermark(Some(1));
        assert_eq!((short.processes.len(), short.processes_omitted, short.processes[0].share), (1, 1, 0.75));
    }
}
