//! A run: how high the memory of a command rose, when, in which process and in which phase.
//!
//! Unlike the other analyses this one folds *samples*, values that were read from outside. Which values
//! hold at an instant, and what processes are, is known to [`SampleState`]; what is summed is its
//! [`summed_kind`](SampleState::summed_kind).
//!
//! A peak between two sweeps shows in the high-water mark that the kernel keeps of each process. When
//! one is read that rose, it is compared with the highest sample since it was read before. If that was
//! nearly as high the peak was seen, and what little is missing counts at that instant; else it counts
//! now. Either way only one process rises above what was sampled, as if the others had stood still: a
//! job of one process is exact, and no sum is made of peaks that were not together.

mod caller;
mod now;
mod process;
mod result;
mod stack;
mod summary;
mod watermark;

use std::collections::{BTreeMap, BTreeSet};

use floodmark_event::{Metric, SampleRow, ScopeAction, ScopeRow, SubjectKind, SubjectRow, Tables};

use crate::samples::{Observed, SampleState, SampleVisitor, TakenSample};

pub use self::summary::{GpuKind, GpuSummary, HeapSummary, NotRecorded, RunCost, RunSummary, signal_name};
pub use now::{DeviceNow, ProcessNow, RunNow};
use process::{Instant, ProcessMarks};
pub(crate) use process::{began_since, highest_rss};
pub use result::{CgroupMemory, DeviceMemory, PhaseMemory, ProcessMemory, RunMemory};
pub use stack::{PeakStack, PeakStackFold, waits};
pub use watermark::{ProcessAtPeak, RunWatermark};

/// A named instant, where one phase ends and the next begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Nanoseconds since 1970-01-01 UTC.
    pub time_ns: i64,
    /// Name of the phase that begins.
    pub name: String,
}

impl Mark {
    /// Returns the mark that a row is, if it is one.
    pub fn of(row: &ScopeRow, tables: &Tables) -> Option<Self> {
        let name = || tables.string(row.name).to_owned();
        (row.action == ScopeAction::Mark).then(|| Self { time_ns: row.time_ns, name: name() })
    }
}

/// Folds samples into [`RunMemory`].
///
/// Partial results merge if no subject has samples in both: those of different hosts, say. Everything
/// about a single process, device or group is then exact; the highest sum of two parts is not known
/// from theirs, so it becomes the sum of their peaks, which the true one cannot exceed, without an
/// instant and marked as a bound. That holds for clocks that tell sweeps apart: where several sweeps share an
/// instant, a part does not know how its samples of that instant belong to sweeps of the other.
#[derive(Clone, Debug)]
pub struct RunFold {
    samples: SampleState,
    peaks: RunPeaks,
}

/// Peaks of a run and of its phases.
#[derive(Clone, Debug)]
struct RunPeaks {
    /// Kind that is summed.
    summed: SubjectKind,
    marks: Vec<Mark>,
    phases: Vec<Phase>,
    /// Phase of the latest instant.
    phase: usize,
    /// What high-water marks of processes need, by the index of what was observed.
    processes: Vec<ProcessMarks>,
    /// Processes with a sample of resident bytes in this sweep, and with a new high-water mark.
    moved: Vec<usize>,
    risen: Vec<usize>,
    /// Processes that have memory now.
    holders: BTreeSet<usize>,
    peak: Peak,
}

/// The highest sum.
#[derive(Clone, Debug, Default)]
struct Peak {
    seen_bytes: u64,
    /// With what high-water marks add.
    bytes: u64,
    time_ns: Option<i64>,
    is_bound: bool,
    total: Option<(u64, Option<i64>)>,
    /// Resident bytes of processes at the instant of the highest sum that was seen.
    holders: Vec<(usize, u64)>,
}

/// A phase so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Phase {
    peak_bytes: u64,
    peak_time_ns: Option<i64>,
    total_bytes: Option<u64>,
    start_bytes: u64,
    end_bytes: u64,
}

impl RunFold {
    /// Starts with what was observed and the marks in between.
    pub fn new(subjects: &BTreeMap<u64, SubjectRow>, mut marks: Vec<Mark>) -> Self {
        marks.sort_by_key(|mark| mark.time_ns);
        let peaks = RunPeaks {
            summed: SubjectKind::Job,
            phases: vec![Phase::default(); marks.len() + 1],
            marks,
            phase: 0,
            processes: Vec::new(),
            moved: Vec::new(),
            risen: Vec::new(),
            holders: BTreeSet::new(),
            peak: Peak::default(),
        };
        let mut fold = Self { samples: SampleState::default(), peaks };
        fold.learn(subjects);
        fold
    }

    /// Learns what is known of subjects by now; see [`SampleState::learn`].
    pub fn learn(&mut self, subjects: &BTreeMap<u64, SubjectRow>) {
        self.samples.learn(subjects);
        self.peaks.summed = self.samples.summed_kind();
        self.peaks.processes.resize(self.samples.observed().len(), ProcessMarks::default());
    }

    /// Ends a phase and begins the next, after all samples and marks so far.
    pub fn mark(&mut self, mark: Mark) {
        let peaks = &mut self.peaks;
        let latest_ns = peaks.marks.last().map_or(mark.time_ns, |last| last.time_ns.max(mark.time_ns));
        peaks.marks.push(Mark { time_ns: latest_ns, ..mark });
        peaks.phases.push(Phase::default());
    }

    /// Takes in more samples.
    pub fn update(&mut self, rows: &[SampleRow]) {
        for row in rows {
            self.samples.push(row, &mut self.peaks);
        }
    }

    /// Takes in what `other` found in samples of other subjects.
    ///
    /// From then on the fold is complete: samples of instants that are past would not be added up with
    /// those they belong to. Phases merge if both have the same marks, else there are none.
    pub fn merge(&mut self, mut other: Self) {
        self.complete_sweeps();
        other.complete_sweeps();
        // A part without memory adds nothing to the peaks of the other, but it may lengthen the run, in which
        // they get their instants when all is known.
        if self.has_memory() && other.has_memory() {
            self.peaks.reach_single_peaks(&self.samples);
            other.peaks.reach_single_peaks(&other.samples);
        }
        self.samples.merge(other.samples);
        let (ours, theirs) = (&mut self.peaks, other.peaks);
        ours.peak.merge(&theirs.peak, ours.processes.len());
        ours.processes.extend(theirs.processes);
        if ours.marks == theirs.marks {
            for (ours, theirs) in ours.phases.iter_mut().zip(&theirs.phases) {
                ours.merge(theirs);
            }
        } else {
            ours.marks.clear();
            ours.phases.clear();
        }
    }

    /// Counts the last sweep and the peaks that no sweep found: nothing more comes.
    fn complete(&mut self) {
        self.complete_sweeps();
        self.peaks.reach_single_peaks(&self.samples);
    }

    fn complete_sweeps(&mut self) {
        self.samples.settle(&mut self.peaks);
        self.peaks.complete_phases(&self.samples);
    }

    fn has_memory(&self) -> bool {
        self.peaks.peak.bytes > 0 || single_peaks(&self.samples).any(|(bytes, _)| bytes > 0)
    }

    /// Returns the result so far; the fold may go on afterwards. Lists of processes have at most
    /// `limit` entries.
    pub fn finish(&self, limit: Option<usize>) -> RunMemory {
        let mut whole = self.clone();
        whole.complete();
        result::result(&whole, limit.unwrap_or(usize::MAX))
    }
}

impl SampleVisitor for RunPeaks {
    fn sample(&mut self, state: &SampleState, sample: &TakenSample) {
        let TakenSample { at, row, before, is_highest } = *sample;
        let one = &state.observed()[at];
        if row.metric == Metric::Pss {
            self.processes[at].read_pss(one, is_highest);
        }
        if one.kind != SubjectKind::Process {
            return;
        }
        match row.metric {
            Metric::Rss => {
                self.moved.push(at);
                if row.value > 0 {
                    self.holders.insert(at)
                } else {
                    self.holders.remove(&at)
                };
            }
            Metric::Hwm => {
                let first_ns = state.span_ns().map_or(row.time_ns, |(first, _)| first);
                if before.map_or_else(|| process::began_since(one, first_ns), |before| before != row.value) {
                    self.risen.push(at);
                }
            }
            _ => {}
        }
    }

    fn ended(&mut self, _state: &SampleState, ended: &[usize], _end_ns: i64) {
        for at in ended {
            self.holders.remove(at);
        }
    }

    fn settled(&mut self, state: &SampleState, time_ns: i64) {
        let sum = self.sum(state);
        if sum > self.peak.seen_bytes {
            self.peak.seen_bytes = sum;
            let rss = |at: &usize| (*at, state.observed()[*at].last(Metric::Rss));
            self.peak.holders.clear();
            self.peak.holders.extend(self.holders.iter().map(rss));
        }
        if let Some(total) = state.total(SubjectKind::Job, Metric::Pss)
            && self.peak.total.is_none_or(|(highest, _)| total > highest)
        {
            self.peak.total = Some((total, Some(time_ns)));
        }
        self.settle_phase(state, time_ns);
        self.reached(sum, time_ns);
        let instant = Instant { time_ns, sum };
        for at in self.moved.drain(..) {
            self.processes[at].saw(&state.observed()[at], instant);
        }
        let mut risen = std::mem::take(&mut self.risen);
        risen.sort_unstable();
        risen.dedup();
        for at in risen {
            let unseen = self.processes[at].unseen(&state.observed()[at], instant);
            for (bytes, time_ns) in unseen.into_iter().flatten() {
                self.reached(bytes, time_ns);
            }
        }
    }
}

impl RunPeaks {
    /// Returns the resident bytes of everything, as they are now.
    fn sum(&self, state: &SampleState) -> u64 {
        state.total(self.summed, Metric::Rss).unwrap_or(0)
    }

    /// Counts a sum at an instant that may be past.
    fn reached(&mut self, bytes: u64, time_ns: i64) {
        let phase = self.phase_at(time_ns);
        self.peak.reach(bytes, time_ns);
        if let Some(phase) = self.phases.get_mut(phase).filter(|phase| bytes > phase.peak_bytes) {
            (phase.peak_bytes, phase.peak_time_ns) = (bytes, Some(time_ns));
        }
    }

    fn settle_phase(&mut self, state: &SampleState, time_ns: i64) {
        let phase = self.phase_at(time_ns);
        let held = self.phases[self.phase].end_bytes;
        while self.phase < phase {
            // What was held when the phase began counts in it.
            self.phase += 1;
            let mark_ns = self.marks[self.phase - 1].time_ns;
            let peak_time_ns = (held > 0).then_some(mark_ns);
            self.phases[self.phase] = Phase {
                peak_bytes: held,
                peak_time_ns,
                start_bytes: held,
                end_bytes: held,
                total_bytes: None,
            };
        }
        let sum = self.sum(state);
        let in_phase = &mut self.phases[phase];
        in_phase.total_bytes = in_phase.total_bytes.max(state.total(SubjectKind::Job, Metric::Pss));
        // A row that comes late does not change the end of the phase it belongs to.
        if phase == self.phase {
            in_phase.end_bytes = sum;
        }
    }

    /// Begins all phases that no sample is in.
    fn complete_phases(&mut self, state: &SampleState) {
        while self.phase + 1 < self.phases.len() {
            self.settle_phase(state, self.marks[self.phase].time_ns);
        }
    }

    /// Raises the peak to the highest of any one process. Sums leave out memory that a forked process shares
    /// with its parent at first, and processes that ended before a sweep could read them.
    fn reach_single_peaks(&mut self, state: &SampleState) {
        for (bytes, time_ns) in single_peaks(state) {
            if bytes > self.peak.bytes {
                self.reached(bytes, time_ns);
            }
        }
    }

    fn phase_at(&self, time_ns: i64) -> usize {
        self.marks.partition_point(|mark| mark.time_ns <= time_ns)
    }
}

/// Returns the highest memory of every process and job by itself, and when that was: at its highest sample, else
/// when the kernel's high-water mark was read, else at its end.
fn single_peaks(state: &SampleState) -> impl Iterator<Item = (u64, i64)> {
    let of = |one: &Observed, (first_ns, last_ns): (i64, i64)| {
        let bytes = match one.kind {
            SubjectKind::Process if process::began_since(one, first_ns) => process::highest_rss(one),
            SubjectKind::Job => one.peak_rss_bytes.unwrap_or(0),
            _ => 0,
        };
        let sampled = one.gauge(Metric::Rss).or_else(|| one.gauge(Metric::Hwm));
        let sampled = sampled.filter(|_| one.kind == SubjectKind::Process);
        let time_ns = sampled.map(|gauge| gauge.high_ns).or(one.end_ns).unwrap_or(last_ns);
        (bytes, time_ns.clamp(first_ns, last_ns))
    };
    state
        .span_ns()
        .into_iter()
        .flat_map(move |span_ns| state.observed().iter().map(move |one| of(one, span_ns)))
}

impl Peak {
    fn reach(&mut self, bytes: u64, time_ns: i64) {
        // Of equal ones the earliest counts, also if it is known late.
        let is_earlier = bytes > 0 && bytes == self.bytes && self.time_ns.is_some_and(|at| time_ns < at);
        if bytes > self.bytes || is_earlier {
            (self.bytes, self.time_ns) = (bytes, Some(time_ns));
        }
    }

    /// Adds a peak of other processes, whose indexes become higher by `offset`.
    fn merge(&mut self, other: &Self, offset: usize) {
        if other.bytes > 0 {
            self.holders.clear();
            if self.bytes > 0 {
                (self.is_bound, self.time_ns) = (true, None);
            } else {
                (self.is_bound, self.time_ns) = (other.is_bound, other.time_ns);
                self.holders.extend(other.holders.iter().map(|(at, bytes)| (at + offset, *bytes)));
            }
        }
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.seen_bytes = self.seen_bytes.saturating_add(other.seen_bytes);
        self.total = match (self.total, other.total) {
            (Some((ours, _)), Some((theirs, _))) => Some((ours.saturating_add(theirs), None)),
            (ours, theirs) => ours.or(theirs),
        };
    }
}

impl Phase {
    fn merge(&mut self, other: &Self) {
        let is_one = self.peak_bytes == 0 || other.peak_bytes == 0;
        self.peak_time_ns = self.peak_time_ns.or(other.peak_time_ns).filter(|_| is_one);
        self.peak_bytes = self.peak_bytes.saturating_add(other.peak_bytes);
        self.start_bytes = self.start_bytes.saturating_add(other.start_bytes);
        self.end_bytes = self.end_bytes.saturating_add(other.end_bytes);
        self.total_bytes = match (self.total_bytes, other.total_bytes) {
            (Some(ours), Some(theirs)) => Some(ours.saturating_add(theirs)),
            (ours, theirs) => ours.or(theirs),
        };
    }
}
