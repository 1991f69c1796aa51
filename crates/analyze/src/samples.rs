//! Adds up samples over time: the one place that knows which values hold at an instant.
//!
//! A value holds until the next one of its subject and metric, or until its subject ends. Samples of one
//! *sweep* count together, so that a sweep that finds one process grown and another shrunk is no peak. A
//! sweep is over when a sample has another time, or when something reports a metric a second time, a process
//! that runs another program aside: clocks of logs may be coarser than their sweeps. Rows come in the order of time; a row that is late counts where
//! it comes.
//!
//! A process that replaces its program becomes another subject and stays the same process: subjects of
//! one process share one [`Observed`]. A program that was replaced is no end of its process.
//!
//! Subjects, programs and ends may become known while samples come; what was learned in time leads to the
//! same sums as what was known beforehand.

mod key;
mod observed;
mod sweeps;

use std::collections::{BTreeMap, BTreeSet};

use floodmark_event::{Metric, SampleRow, SubjectKind, SubjectRow};
use rustc_hash::FxHashMap;

use crate::usage::UsagePoint;

pub use key::SeriesKey;
pub use observed::{Gauge, Observed};
pub use sweeps::{SweepFold, SweepTotal};

/// Receives what [`SampleState`] finds out, in the order of time. Indexes are those of
/// [`SampleState::observed`].
pub trait SampleVisitor {
    /// A sample was taken in; `state` has its value already.
    fn sample(&mut self, _state: &SampleState, _sample: &TakenSample) {}

    /// Things ended after `end_ns`; their values do not count any more.
    fn ended(&mut self, _state: &SampleState, _ended: &[usize], _end_ns: i64) {}

    /// All samples of a sweep are in.
    fn settled(&mut self, _state: &SampleState, _time_ns: i64) {}
}

/// Visits nothing, for sums and peaks alone.
impl SampleVisitor for () {}

/// A sample that was taken in.
#[derive(Clone, Copy, Debug)]
pub struct TakenSample {
    /// Index of the thing that was sampled.
    pub at: usize,
    /// The sample.
    pub row: SampleRow,
    /// The value before; none for the first one.
    pub before: Option<u64>,
    /// Whether the value is higher than all before.
    pub is_highest: bool,
}

/// Sum of one metric over all subjects of a kind.
#[derive(Clone, Copy, Debug)]
struct SeriesTotal {
    key: SeriesKey,
    sum: u128,
    peak: UsagePoint,
    /// Things that ever reported it.
    things: usize,
    /// Whether it is in the list of totals that changed in this sweep.
    is_changed: bool,
}

/// Latest and highest values of everything that was observed, and their sums.
#[derive(Clone, Debug, Default)]
pub struct SampleState {
    observed: Vec<Observed>,
    of_subject: FxHashMap<u64, usize>,
    processes: FxHashMap<ProcessIdentity, usize>,
    /// Ends that are ahead, the earliest first.
    ends: BTreeSet<(i64, usize)>,
    totals: Vec<SeriesTotal>,
    of_key: BTreeMap<SeriesKey, usize>,
    /// Totals of this sweep.
    changed: Vec<usize>,
    /// Time of the sweep that is coming in.
    now_ns: Option<i64>,
    /// Number of that sweep.
    sweep: u64,
    span_ns: Option<(i64, i64)>,
    unknown: u64,
}

/// A recording, a PID and the time the process began: the same for all programs that the process ran.
type ProcessIdentity = (u64, u64, i64);

fn identity(row: &SubjectRow) -> Option<ProcessIdentity> {
    let start_ns = row.start_ns.filter(|_| row.kind == SubjectKind::Process)?;
    Some((row.subject >> 32, row.number, start_ns))
}

impl SampleState {
    /// Starts with the subjects that are known.
    pub fn new(subjects: &BTreeMap<u64, SubjectRow>) -> Self {
        let mut state = Self::default();
        state.learn(subjects);
        state
    }

    /// Learns what is known of subjects by now: new ones, new programs of processes, ends. To be called
    /// before the samples of new subjects, and before samples later than new ends. Indexes stay.
    pub fn learn(&mut self, subjects: &BTreeMap<u64, SubjectRow>) {
        // In the order of their ids, so that the latest program of a process comes last.
        for row in subjects.values() {
            let identity = identity(row);
            let same = identity.and_then(|identity| self.processes.get(&identity));
            let at = match same.or_else(|| self.of_subject.get(&row.subject)) {
                Some(at) => *at,
                None => {
                    self.observed.push(Observed::new(row));
                    self.observed.len() - 1
                }
            };
            if let Some(identity) = identity {
                self.processes.insert(identity, at);
            }
            self.observed[at].learn(row);
            self.of_subject.insert(row.subject, at);
        }
        for (at, one) in self.observed.iter_mut().enumerate() {
            if one.end_ns == one.scheduled_end_ns {
                continue;
            }
            let before = std::mem::replace(&mut one.scheduled_end_ns, one.end_ns);
            // It ended unless that was the end of an earlier program. Its values count again from the
            // next sample on.
            one.is_over = false;
            if let Some(end_ns) = before {
                self.ends.remove(&(end_ns, at));
            }
            if let Some(end_ns) = one.end_ns {
                self.ends.insert((end_ns, at));
            }
        }
    }

    /// Takes in a sample, and tells `visitor` what that leads to.
    pub fn push(&mut self, row: &SampleRow, visitor: &mut impl SampleVisitor) {
        let Some(at) = self.of_subject.get(&row.subject).copied() else {
            self.unknown += 1;
            return;
        };
        if self.now_ns != Some(row.time_ns) {
            self.settle(visitor);
            self.pass_ends(Some(row.time_ns), visitor);
            self.now_ns = Some(row.time_ns);
            let (first, last) = self.span_ns.unwrap_or((row.time_ns, row.time_ns));
            self.span_ns = Some((first.min(row.time_ns), last.max(row.time_ns)));
        }
        if self.observed[at].is_over {
            return;
        }
        let place = match self.observed[at].place(row.metric) {
            Some(place) => {
                let gauge = &self.observed[at].gauges[place];
                if gauge.sweep == self.sweep && row.subject <= gauge.subject {
                    self.settle(visitor);
                    self.now_ns = Some(row.time_ns);
                }
                place
            }
            None => {
                let total = self.total_of(SeriesKey { kind: self.observed[at].kind, metric: row.metric });
                self.totals[total].things += 1;
                self.observed[at].gauges.push(Gauge::new(row, total));
                self.observed[at].gauges.len() - 1
            }
        };
        let gauge = &mut self.observed[at].gauges[place];
        let counted = gauge.counted;
        let (before, is_highest) = gauge.set(row, self.sweep);
        let total = &mut self.totals[gauge.total];
        total.sum = total.sum - u128::from(counted) + u128::from(row.value);
        if !std::mem::replace(&mut total.is_changed, true) {
            self.changed.push(gauge.total);
        }
        visitor.sample(self, &TakenSample { at, row: *row, before, is_highest });
    }

    fn total_of(&mut self, key: SeriesKey) -> usize {
        let next = self.totals.len();
        let total = *self.of_key.entry(key).or_insert(next);
        if total == next {
            self.totals.push(SeriesTotal {
                key,
                sum: 0,
                peak: UsagePoint::default(),
                things: 0,
                is_changed: false,
            });
        }
        total
    }

    /// Completes the sweep that is coming in: its sums count.
    pub fn settle(&mut self, visitor: &mut impl SampleVisitor) {
        let Some(time_ns) = self.now_ns.take() else { return };
        self.sweep += 1;
        for at in self.changed.drain(..) {
            let total = &mut self.totals[at];
            total.is_changed = false;
            let live_bytes = total.bytes();
            if live_bytes > total.peak.live_bytes {
                total.peak = UsagePoint { time_ns, live_bytes };
            }
        }
        visitor.settled(self, time_ns);
    }

    /// Completes the last sweep and lets everything end whose end is known. Samples may still follow.
    pub fn finish(&mut self, visitor: &mut impl SampleVisitor) {
        self.settle(visitor);
        self.pass_ends(None, visitor);
    }

    /// Lets things end that ended before `time_ns`. What was sampled at that very instant held until then.
    fn pass_ends(&mut self, time_ns: Option<i64>, visitor: &mut impl SampleVisitor) {
        let mut ended = Vec::new();
        while let Some((end_ns, _)) = self.ends.first().copied()
            && time_ns.is_none_or(|time_ns| end_ns < time_ns)
        {
            ended.clear();
            while let Some((_, at)) = self.ends.first().copied().filter(|(next_ns, _)| *next_ns == end_ns) {
                self.ends.pop_first();
                ended.push(at);
                let one = &mut self.observed[at];
                one.is_over = true;
                for gauge in &mut one.gauges {
                    self.totals[gauge.total].sum -= u128::from(std::mem::take(&mut gauge.counted));
                }
            }
            visitor.ended(self, &ended, end_ns);
        }
    }

    /// Everything that was observed, in the order in which it became known.
    pub fn observed(&self) -> &[Observed] {
        &self.observed
    }

    /// Subjects and the index of what each of them is.
    pub fn subjects(&self) -> impl Iterator<Item = (u64, usize)> {
        self.of_subject.iter().map(|(subject, at)| (*subject, *at))
    }

    /// Returns what a subject is.
    pub fn of_subject(&self, subject: u64) -> Option<&Observed> {
        self.of_subject.get(&subject).map(|at| &self.observed[*at])
    }

    /// First and last time of a sample.
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        self.span_ns
    }

    /// Number of samples whose subject is not known.
    pub fn unknown_samples(&self) -> u64 {
        self.unknown
    }

    /// Returns the kind whose sum stands for the whole run: the job, which counts shared memory and
    /// newborn processes as the sampler knew best; else processes; else hosts.
    pub fn summed_kind(&self) -> SubjectKind {
        let has = |kind| self.observed.iter().any(|one| one.kind == kind);
        let preferred = [SubjectKind::Job, SubjectKind::Process, SubjectKind::Host];
        preferred.into_iter().find(|kind| has(*kind)).unwrap_or(SubjectKind::Job)
    }

    /// Sums for which there are samples.
    pub fn keys(&self) -> impl Iterator<Item = SeriesKey> {
        self.of_key.keys().copied()
    }

    /// Returns a sum as it is now; none if there was no sample.
    pub fn total(&self, kind: SubjectKind, metric: Metric) -> Option<u64> {
        self.sum(SeriesKey { kind, metric }).map(SeriesTotal::bytes)
    }

    /// Returns the highest sum of all sweeps so far and its first time; none if there was no sample.
    pub fn peak(&self, key: SeriesKey) -> Option<UsagePoint> {
        self.sum(key).map(|total| total.peak)
    }

    /// Returns how many things ever reported what is summed.
    pub fn reporters(&self, key: SeriesKey) -> usize {
        self.sum(key).map_or(0, |total| total.things)
    }

    fn sum(&self, key: SeriesKey) -> Option<&SeriesTotal> {
        self.of_key.get(&key).map(|at| &self.totals[*at])
    }

    /// Takes in what `other` observed of other subjects. Sums of past instants stay those of each.
    pub(crate) fn merge(&mut self, other: Self) {
        let offset = self.observed.len();
        for mut one in other.observed {
            for gauge in &mut one.gauges {
                gauge.total = self.total_of(other.totals[gauge.total].key);
                self.totals[gauge.total].sum += u128::from(gauge.counted);
                self.totals[gauge.total].things += 1;
            }
            self.observed.push(one);
        }
        self.ends.extend(other.ends.into_iter().map(|(end_ns, at)| (end_ns, at + offset)));
        self.of_subject.extend(other.of_subject.into_iter().map(|(subject, at)| (subject, at + offset)));
        self.processes.extend(other.processes.into_iter().map(|(identity, at)| (identity, at + offset)));
        let covered = |span: Option<(i64, i64)>| span.into_iter().flat_map(|(from, to)| [from, to]);
        let times = || covered(self.span_ns).chain(covered(other.span_ns));
        self.span_ns = times().min().zip(times().max());
        self.unknown += other.unknown;
    }
}

impl SeriesTotal {
    fn bytes(&self) -> u64 {
        u64::try_from(self.sum).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(subject: u64, number: u64, end_ns: Option<i64>) -> (u64, SubjectRow) {
        let row = SubjectRow {
            start_ns: Some(1),
            end_ns,
            ..SubjectRow::new(subject, SubjectKind::Process, number, "")
        };
        (subject, row)
    }

    fn row(time_ns: i64, subject: u64, value: u64) -> SampleRow {
        SampleRow { time_ns, subject, metric: Metric::RssAnon, value }
    }

    /// Collects sums, and ends as sums of nothing.
    #[derive(Default)]
    struct Sums(Vec<(i64, u64)>);

    impl SampleVisitor for Sums {
        fn settled(&mut self, state: &SampleState, time_ns: i64) {
            self.0.push((time_ns, state.total(SubjectKind::Process, Metric::RssAnon).unwrap_or(0)));
        }
    }

    fn sums(subjects: &BTreeMap<u64, SubjectRow>, rows: &[SampleRow]) -> (Vec<(i64, u64)>, SampleState) {
        let (mut state, mut sums) = (SampleState::new(subjects), Sums::default());
        for row in rows {
            state.push(row, &mut sums);
        }
        state.finish(&mut sums);
        (sums.0, state)
    }

    const KEY: SeriesKey = SeriesKey { kind: SubjectKind::Process, metric: Metric::RssAnon };

    #[test]
    fn processes_in_turn_are_never_added_up() {
        let subjects = [process(1, 11, Some(15)), process(2, 12, Some(25)), process(3, 13, None)].into();
        let rows = [row(10, 1, 60), row(20, 2, 60), row(30, 3, 50), row(40, 3, 61)];
        let (sums, state) = sums(&subjects, &rows);
        assert_eq!(sums, [(10, 60), (20, 60), (30, 50), (40, 61)]);
        assert_eq!(state.peak(KEY), Some(UsagePoint { time_ns: 40, live_bytes: 61 }));
        assert_eq!(state.reporters(KEY), 3);
    }

    #[test]
    fn a_process_that_replaces_its_program_is_counted_once() {
        let subjects = [process(1, 11, None), process(2, 11, Some(35))].into();
        let rows = [row(10, 1, 60), row(20, 2, 20), row(30, 2, 25), row(40, 2, 99)];
        let (sums, state) = sums(&subjects, &rows);
        assert_eq!(sums, [(10, 60), (20, 20), (30, 25), (40, 0)], "what comes after the end is ignored");
        assert_eq!((state.observed().len(), state.observed()[0].subject), (1, 2));
    }

    #[test]
    fn a_subject_that_reports_twice_at_a_time_begins_another_sweep() {
        let subjects = [process(1, 11, None), process(2, 12, None)].into();
        let rows = [row(1, 1, 10), row(1, 2, 20), row(1, 1, 30), row(1, 2, 5), row(2, 1, 1)];
        let (sums, state) = sums(&subjects, &rows);
        assert_eq!(sums, [(1, 30), (1, 35), (2, 6)]);
        assert_eq!(state.peak(KEY), Some(UsagePoint { time_ns: 1, live_bytes: 35 }));
    }

    #[test]
    fn an_end_that_was_that_of_an_earlier_program_is_taken_back() {
        let mut state = SampleState::new(&[process(1, 11, Some(15))].into());
        let mut sums = Sums::default();
        state.push(&row(10, 1, 60), &mut sums);
        state.push(&row(20, 1, 61), &mut sums);
        assert_eq!(state.total(SubjectKind::Process, Metric::RssAnon), Some(0));
        state.learn(&[process(1, 11, Some(15)), process(2, 11, None)].into());
        state.push(&row(30, 2, 70), &mut sums);
        state.finish(&mut sums);
        assert_eq!(sums.0, [(10, 60), (20, 0), (30, 70)]);
    }
}
