//! A run: how high the memory of a command rose, when, in which process and in which phase.
//!
//! Unlike the other analyses this one folds *samples*, the values that somebody read from outside. A
//! value holds until the next one of its subject and metric, or until its subject ends; samples of one
//! instant count together, so that a sweep that finds one process grown and another shrunk is no peak.
//! Rows come in the order of time; a row that is late counts where it comes.
//!
//! What is summed: the job, if there is one, which counts shared memory and newborn processes as
//! whoever sampled knew best; else the processes; else the hosts.
//!
//! A peak between two sweeps shows in the high-water mark that the kernel keeps of each process. When
//! one is read that rose, it is compared with the highest sample since it was read before. If that was
//! nearly as high the peak was seen, and what little is missing counts at that instant; else it counts
//! now. Either way only one process rises above what was sampled, as if the others had stood still: a
//! job of one process is exact, and no sum is made of peaks that were not together.
//!
//! A process that replaces its program becomes another subject and stays the same process here.

mod now;
mod process;
mod result;
mod stack;
mod summary;

use std::collections::{BTreeMap, BTreeSet};

use floodmark_event::{Metric, SampleRow, ScopeAction, ScopeRow, SubjectKind, SubjectRow, Tables};

pub use self::summary::{RunCost, RunSummary, signal_name};
pub use now::{DeviceNow, ProcessNow, RunNow};
use process::{Instant, Roll};
pub use result::{CgroupMemory, DeviceMemory, PhaseMemory, ProcessMemory, RunMemory};
pub use stack::{PeakStack, PeakStackFold};

/// A point worth remembering, where one phase ends and the next begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub time_ns: i64,
    /// What it says.
    pub name: String,
}

impl Mark {
    /// The mark that a row is, if it is one.
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
/// instant and marked as a bound.
#[derive(Clone, Debug)]
pub struct RunFold {
    roll: Roll,
    /// What is summed.
    summed: SubjectKind,
    /// Ends of what is observed, in order, and how many of them have passed.
    ends: Vec<(i64, usize)>,
    ended: usize,
    marks: Vec<Mark>,
    phases: Vec<Phase>,
    /// Phase of the latest instant.
    phase: usize,
    /// The instant whose samples are coming in.
    now_ns: Option<i64>,
    sum: u64,
    total: Option<u64>,
    /// Processes with a sample of resident bytes at this instant, and with a new high-water mark.
    moved: Vec<usize>,
    risen: Vec<usize>,
    /// Processes that have memory now.
    holders: BTreeSet<usize>,
    peak: Peak,
    span: Option<(i64, i64)>,
    unknown: u64,
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
        let mut fold = Self {
            roll: Roll::default(),
            summed: SubjectKind::Job,
            ends: Vec::new(),
            ended: 0,
            phases: vec![Phase::default(); marks.len() + 1],
            marks,
            phase: 0,
            now_ns: None,
            sum: 0,
            total: None,
            moved: Vec::new(),
            risen: Vec::new(),
            holders: BTreeSet::new(),
            peak: Peak::default(),
            span: None,
            unknown: 0,
        };
        fold.learn(subjects);
        fold
    }

    /// Learns what is known of subjects by now: those that are new, new programs of processes, ends. For
    /// who follows a recording; to be told before the samples of new subjects.
    pub fn learn(&mut self, subjects: &BTreeMap<u64, SubjectRow>) {
        let before: Vec<Option<i64>> = self.roll.observed.iter().map(|one| one.end_ns).collect();
        self.roll.learn(subjects);
        for at in 0..self.roll.observed.len() {
            let known = before.get(at).copied().flatten();
            if self.roll.observed[at].end_ns != known {
                self.change_end(at, known);
            }
        }
        let summed = summed(subjects);
        if summed != self.summed {
            self.summed = summed;
            let counts = self.roll.observed.iter().filter(|one| one.kind == summed && !one.is_over);
            self.sum = counts.fold(0, |sum, one| sum.saturating_add(one.last(Metric::Rss)));
        }
    }

    /// The end of something became known, or was that of an earlier program.
    fn change_end(&mut self, at: usize, known: Option<i64>) {
        self.ends.retain({
            let (mut place, ended) = (0, self.ended);
            move |end| {
                place += 1;
                place <= ended || Some(end.0) != known || end.1 != at
            }
        });
        let one = &mut self.roll.observed[at];
        if let Some(end_ns) = one.end_ns {
            let ahead = self.ends[self.ended..].partition_point(|end| *end < (end_ns, at));
            self.ends.insert(self.ended + ahead, (end_ns, at));
        }
        if std::mem::replace(&mut one.is_over, false) {
            if one.kind == self.summed {
                self.sum = self.sum.saturating_add(one.last(Metric::Rss));
            }
            if one.kind == SubjectKind::Process && one.last(Metric::Rss) > 0 {
                self.holders.insert(at);
            }
        }
    }

    /// A phase ends and the next begins, after all samples and marks so far.
    pub fn mark(&mut self, mark: Mark) {
        let latest_ns = self.marks.last().map_or(mark.time_ns, |last| last.time_ns.max(mark.time_ns));
        self.marks.push(Mark { time_ns: latest_ns, ..mark });
        self.phases.push(Phase::default());
    }

    /// Takes in more samples.
    pub fn update(&mut self, rows: &[SampleRow]) {
        for row in rows {
            self.add(row);
        }
    }

    fn add(&mut self, row: &SampleRow) {
        let Some(&at) = self.roll.of_subject.get(&row.subject) else {
            self.unknown += 1;
            return;
        };
        if self.now_ns != Some(row.time_ns) {
            self.settle();
            self.go_to(row.time_ns);
        }
        let one = &mut self.roll.observed[at];
        if one.is_over {
            return;
        }
        let is_summed = one.kind == self.summed;
        let before = one.gauge(row.metric).map(|gauge| gauge.last);
        one.set(row);
        match row.metric {
            Metric::Rss => {
                if is_summed {
                    self.sum = self.sum.saturating_sub(before.unwrap_or(0)).saturating_add(row.value);
                }
                if one.kind == SubjectKind::Process {
                    self.moved.push(at);
                    if row.value > 0 {
                        self.holders.insert(at)
                    } else {
                        self.holders.remove(&at)
                    };
                }
            }
            Metric::Pss if one.kind == SubjectKind::Job => {
                let others = self.total.unwrap_or(0).saturating_sub(before.unwrap_or(0));
                self.total = Some(others.saturating_add(row.value));
            }
            Metric::Hwm if one.kind == SubjectKind::Process => {
                let first_ns = self.span.map_or(row.time_ns, |(first, _)| first);
                if before.map_or_else(|| one.began_since(first_ns), |before| before != row.value) {
                    self.risen.push(at);
                }
            }
            _ => {}
        }
    }

    /// A new instant: those who ended before it hold nothing any more.
    fn go_to(&mut self, time_ns: i64) {
        while let Some((_, at)) = self.ends.get(self.ended).filter(|(end_ns, _)| *end_ns < time_ns) {
            let one = &mut self.roll.observed[*at];
            one.is_over = true;
            if one.kind == self.summed {
                self.sum = self.sum.saturating_sub(one.last(Metric::Rss));
            }
            self.holders.remove(at);
            self.ended += 1;
        }
        self.now_ns = Some(time_ns);
        let (first, last) = self.span.unwrap_or((time_ns, time_ns));
        self.span = Some((first.min(time_ns), last.max(time_ns)));
    }

    /// All samples of an instant are in: the sums count.
    fn settle(&mut self) {
        let Some(time_ns) = self.now_ns.take() else { return };
        if self.sum > self.peak.seen_bytes {
            self.peak.seen_bytes = self.sum;
            let rss = |at: &usize| (*at, self.roll.observed[*at].last(Metric::Rss));
            self.peak.holders.clear();
            self.peak.holders.extend(self.holders.iter().map(rss));
        }
        if let Some(total) = self.total
            && self.peak.total.is_none_or(|(highest, _)| total > highest)
        {
            self.peak.total = Some((total, Some(time_ns)));
        }
        self.settle_phase(time_ns);
        self.reached(self.sum, time_ns);
        let instant = Instant { time_ns, sum: self.sum };
        for at in self.moved.drain(..) {
            self.roll.observed[at].saw(instant);
        }
        let mut risen = std::mem::take(&mut self.risen);
        risen.sort_unstable();
        risen.dedup();
        for at in risen {
            for (bytes, time_ns) in self.roll.observed[at].unseen(instant).into_iter().flatten() {
                self.reached(bytes, time_ns);
            }
        }
    }

    /// The sum was this high at an instant that may be past.
    fn reached(&mut self, bytes: u64, time_ns: i64) {
        let phase = self.phase_at(time_ns);
        self.peak.reach(bytes, time_ns);
        if let Some(phase) = self.phases.get_mut(phase).filter(|phase| bytes > phase.peak_bytes) {
            (phase.peak_bytes, phase.peak_time_ns) = (bytes, Some(time_ns));
        }
    }

    fn settle_phase(&mut self, time_ns: i64) {
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
        let total = self.total;
        let state = &mut self.phases[phase];
        state.total_bytes = state.total_bytes.max(total);
        // A row that comes late says nothing about the end of the phase it belongs to.
        if phase == self.phase {
            state.end_bytes = self.sum;
        }
    }

    fn phase_at(&self, time_ns: i64) -> usize {
        self.marks.partition_point(|mark| mark.time_ns <= time_ns)
    }

    /// Takes in what `other` found in samples of other subjects.
    ///
    /// From then on the fold is complete: samples of instants that are past would not be added up with
    /// those they belong to. Phases merge if both have the same marks, else there are none.
    pub fn merge(&mut self, mut other: Self) {
        self.complete();
        other.complete();
        let offset = self.roll.observed.len();
        self.roll.observed.append(&mut other.roll.observed);
        self.roll
            .of_subject
            .extend(other.roll.of_subject.into_iter().map(|(subject, at)| (subject, at + offset)));
        self.peak.merge(&other.peak);
        let covered = |span: Option<(i64, i64)>| span.into_iter().flat_map(|(from, to)| [from, to]);
        let times = || covered(self.span).chain(covered(other.span));
        self.span = times().min().zip(times().max());
        self.unknown += other.unknown;
        if self.marks == other.marks {
            for (ours, theirs) in self.phases.iter_mut().zip(&other.phases) {
                ours.merge(theirs);
            }
        } else {
            self.marks.clear();
            self.phases.clear();
        }
    }

    /// Nothing more comes: the last instant counts.
    fn complete(&mut self) {
        self.settle();
        while self.phase + 1 < self.phases.len() {
            self.settle_phase(self.marks[self.phase].time_ns);
        }
    }

    /// Returns the result so far; the fold may go on afterwards. Lists of processes have at most
    /// `limit` entries.
    pub fn finish(&self, limit: Option<usize>) -> RunMemory {
        let mut whole = self.clone();
        whole.complete();
        result::result(&whole, limit.unwrap_or(usize::MAX))
    }
}

/// What is added up: whatever stands for most.
fn summed(subjects: &BTreeMap<u64, SubjectRow>) -> SubjectKind {
    let has = |kind| subjects.values().any(|subject| subject.kind == kind);
    let preferred = [SubjectKind::Job, SubjectKind::Process, SubjectKind::Host];
    preferred.into_iter().find(|kind| has(*kind)).unwrap_or(SubjectKind::Job)
}

impl Peak {
    fn reach(&mut self, bytes: u64, time_ns: i64) {
        // Of equal ones the earliest counts, also if it is known late.
        let is_earlier = bytes > 0 && bytes == self.bytes && self.time_ns.is_some_and(|at| time_ns < at);
        if bytes > self.bytes || is_earlier {
            (self.bytes, self.time_ns) = (bytes, Some(time_ns));
        }
    }

    fn merge(&mut self, other: &Self) {
        if other.bytes > 0 {
            if self.bytes > 0 {
                (self.is_bound, self.time_ns) = (true, None);
                self.holders.clear();
            } else {
                (self.is_bound, self.time_ns) = (other.is_bound, other.time_ns);
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
