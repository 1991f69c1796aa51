//! What was sampled, as lines over time: totals, processes, devices.
//!
//! A value holds until the next one of its subject, or until its subject ends, which is a fall to
//! nothing. Of what is added up (jobs, else processes, else hosts, as in [`RunFold`](crate::RunFold))
//! there is one line more for the sum, told once all samples of an instant are in. Each line keeps at
//! most so many points, with the extremes of every interval among them.

use std::collections::BTreeMap;

use floodmark_event::{Metric, SampleRow, SubjectKind, SubjectRow};

use crate::usage::UsagePoint;
use crate::usage::reduce::Reducer;

/// Metrics that are lines.
const DRAWN: [Metric; 6] =
    [Metric::Rss, Metric::Pss, Metric::GpuUsed, Metric::CgroupUsage, Metric::Live, Metric::Reserved];

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleSeries {
    /// Whose; none for the sum.
    pub subject: Option<u64>,
    /// Of what.
    pub metric: Metric,
    /// The points, in order.
    pub points: Vec<UsagePoint>,
    /// Width of the intervals whose extremes are kept; none if every change is a point.
    pub interval_ns: Option<u64>,
    /// The highest value.
    pub peak_bytes: u64,
    /// First instant of that.
    pub peak_time_ns: i64,
}

/// Folds samples into lines.
#[derive(Clone, Debug)]
pub struct SeriesFold {
    limit: usize,
    summed: SubjectKind,
    /// The line of each subject: that of the last program of its process.
    lines_of: BTreeMap<u64, (u64, SubjectKind)>,
    /// Ends of subjects, in order, and how many of them have passed.
    ends: Vec<(i64, u64)>,
    ended: usize,
    /// By subject, 0 for sums, and number of the metric.
    lines: BTreeMap<(u64, u8), Line>,
    window: Window,
    now_ns: Option<i64>,
    /// Sums that moved at this instant.
    moved: Vec<Metric>,
}

/// Points outside of these instants are left out, but for what holds when they begin.
#[derive(Clone, Copy, Debug)]
struct Window {
    from_ns: i64,
    to_ns: i64,
}

#[derive(Clone, Debug)]
struct Line {
    metric: Metric,
    latest: Option<u64>,
    /// The value that holds when the window opens, as long as no point is in it.
    held: Option<UsagePoint>,
    points: Reducer,
    peak: (u64, i64),
}

/// A process that replaces its program becomes another subject and stays one line.
fn lines_of(subjects: &BTreeMap<u64, SubjectRow>) -> BTreeMap<u64, (u64, SubjectKind)> {
    let identity = |one: &SubjectRow| (one.kind, one.number, one.start_ns, one.subject >> 32);
    let is_known = |one: &SubjectRow| one.kind == SubjectKind::Process && one.start_ns.is_some();
    let processes = subjects.values().filter(|one| is_known(one));
    // Later ones have larger numbers.
    let last: BTreeMap<_, u64> = processes.map(|one| (identity(one), one.subject)).collect();
    let line = |one: &SubjectRow| last.get(&identity(one)).copied().unwrap_or(one.subject);
    subjects.values().map(|one| (one.subject, (line(one), one.kind))).collect()
}

impl SeriesFold {
    /// Starts lines of at most `limit` points each.
    pub fn new(subjects: &BTreeMap<u64, SubjectRow>, limit: usize) -> Self {
        let mut fold = Self {
            limit,
            summed: SubjectKind::Job,
            lines_of: BTreeMap::new(),
            ends: Vec::new(),
            ended: 0,
            lines: BTreeMap::new(),
            window: Window { from_ns: i64::MIN, to_ns: i64::MAX },
            now_ns: None,
            moved: Vec::new(),
        };
        fold.learn(subjects);
        fold
    }

    /// Has lines keep what lies between two instants only; their peaks stay those of everything.
    #[must_use]
    pub fn within(self, from_ns: i64, to_ns: i64) -> Self {
        Self { window: Window { from_ns, to_ns }, ..self }
    }

    /// Learns what is known of subjects by now; for who follows a recording, to be told before the samples
    /// of new subjects.
    pub fn learn(&mut self, subjects: &BTreeMap<u64, SubjectRow>) {
        let has = |kind| subjects.values().any(|subject| subject.kind == kind);
        let preferred = [SubjectKind::Job, SubjectKind::Process, SubjectKind::Host];
        self.summed = preferred.into_iter().find(|kind| has(*kind)).unwrap_or(SubjectKind::Job);
        let before = std::mem::replace(&mut self.lines_of, lines_of(subjects));
        for (subject, (line, _)) in &self.lines_of {
            // The line goes on under the number of the new program.
            let known = before.get(subject).map(|(known, _)| *known).filter(|known| known != line);
            let metrics =
                known.map(|known| DRAWN.map(|metric| ((known, metric as u8), (*line, metric as u8))));
            for (from, to) in metrics.into_iter().flatten() {
                if let Some(moved) = self.lines.remove(&from) {
                    self.lines.insert(to, moved);
                }
            }
        }
        // A program that was replaced is no end of its process.
        let is_last =
            |one: &&SubjectRow| self.lines_of.get(&one.subject).is_some_and(|(last, _)| *last == one.subject);
        let end = |one: &SubjectRow| one.end_ns.map(|end_ns| (end_ns, one.subject));
        let mut ends: Vec<(i64, u64)> = subjects.values().filter(is_last).filter_map(end).collect();
        let passed = &self.ends[..self.ended];
        ends.retain(|end| !passed.contains(end));
        ends.sort_unstable();
        self.ends.truncate(self.ended);
        self.ends.append(&mut ends);
    }

    /// Takes in more samples.
    pub fn update(&mut self, rows: &[SampleRow]) {
        for row in rows.iter().filter(|row| DRAWN.contains(&row.metric)) {
            self.add(row);
        }
    }

    fn add(&mut self, row: &SampleRow) {
        let Some((line, kind)) = self.lines_of.get(&row.subject).copied() else { return };
        if self.now_ns != Some(row.time_ns) {
            self.settle();
            while let Some((end_ns, subject)) = self.ends.get(self.ended).copied()
                && end_ns < row.time_ns
            {
                self.ended += 1;
                self.end(subject, end_ns);
            }
            self.now_ns = Some(row.time_ns);
        }
        self.set(line, kind, row.metric, row.time_ns, row.value);
    }

    fn set(&mut self, subject: u64, kind: SubjectKind, metric: Metric, time_ns: i64, value: u64) {
        let window = self.window;
        let before = self.line(subject, metric).put(time_ns, value, window);
        if kind == self.summed {
            let sum = self.line(0, metric);
            sum.latest = Some(sum.latest.unwrap_or(0).saturating_sub(before).saturating_add(value));
            if !self.moved.contains(&metric) {
                self.moved.push(metric);
            }
        }
    }

    fn end(&mut self, subject: u64, end_ns: i64) {
        let Some((_, kind)) = self.lines_of.get(&subject).copied() else { return };
        for metric in DRAWN {
            if self.lines.get(&(subject, metric as u8)).is_some_and(|line| line.latest > Some(0)) {
                self.set(subject, kind, metric, end_ns, 0);
            }
        }
        self.now_ns = Some(end_ns);
        self.settle();
    }

    /// All samples of an instant are in: the sums count.
    fn settle(&mut self) {
        let Some(time_ns) = self.now_ns.take() else { return };
        let window = self.window;
        for metric in std::mem::take(&mut self.moved) {
            let sum = self.line(0, metric);
            let value = sum.latest.unwrap_or(0);
            sum.put(time_ns, value, window);
        }
    }

    fn line(&mut self, subject: u64, metric: Metric) -> &mut Line {
        let limit = self.limit;
        self.lines.entry((subject, metric as u8)).or_insert_with(|| Line {
            metric,
            latest: None,
            held: None,
            points: Reducer::new(limit),
            peak: (0, 0),
        })
    }

    /// Returns the lines so far: sums first, then subjects by number. The fold may go on afterwards.
    pub fn finish(&self) -> Vec<SampleSeries> {
        let mut whole = self.clone();
        whole.settle();
        for (end_ns, subject) in whole.ends.split_off(whole.ended) {
            whole.end(subject, end_ns);
        }
        for line in whole.lines.values_mut() {
            line.open();
        }
        let series = |((subject, _), line): (&(u64, u8), &Line)| SampleSeries {
            subject: (*subject != 0).then_some(*subject),
            metric: line.metric,
            points: line.points.points(),
            interval_ns: line.points.width_ns(),
            peak_bytes: line.peak.0,
            peak_time_ns: line.peak.1,
        };
        whole.lines.iter().map(series).collect()
    }
}

impl Line {
    /// Takes the next value and returns the one before.
    fn put(&mut self, time_ns: i64, value: u64, window: Window) -> u64 {
        if value > self.peak.0 {
            self.peak = (value, time_ns);
        }
        if time_ns < window.from_ns {
            self.held = Some(UsagePoint { time_ns: window.from_ns, live_bytes: value });
        } else if time_ns <= window.to_ns {
            if time_ns == window.from_ns {
                self.held = None;
            }
            self.open();
            self.points.push(UsagePoint { time_ns, live_bytes: value });
        }
        self.latest.replace(value).unwrap_or(0)
    }

    /// The window is open: what holds when it does is its first point.
    fn open(&mut self) {
        if let Some(held) = self.held.take() {
            self.points.push(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(subject: u64, end_ns: Option<i64>) -> (u64, SubjectRow) {
        let row = SubjectRow {
            subject,
            kind: SubjectKind::Process,
            number: subject,
            start_ns: None,
            parent: 0,
            name: String::new(),
            detail: String::new(),
            end_ns,
            wait_status: None,
            peak_rss_bytes: None,
        };
        (subject, row)
    }

    fn row(time_ns: i64, subject: u64, value: u64) -> SampleRow {
        SampleRow { time_ns, subject, metric: Metric::Rss, value }
    }

    fn points(series: &SampleSeries) -> Vec<(i64, u64)> {
        series.points.iter().map(|point| (point.time_ns, point.live_bytes)).collect()
    }

    #[test]
    fn a_sum_counts_once_per_sweep_and_falls_when_a_process_ends() {
        let subjects = [subject(1, Some(15)), subject(2, Some(40))].into();
        let mut fold = SeriesFold::new(&subjects, 100);
        fold.update(&[row(10, 1, 5), row(10, 2, 7), row(20, 2, 9), row(30, 2, 1)]);
        let lines = fold.finish();
        assert_eq!(points(&lines[0]), [(10, 12), (15, 7), (20, 9), (30, 1), (40, 0)]);
        assert_eq!(points(&lines[1]), [(10, 5), (15, 0)]);
        assert_eq!((lines[0].subject, lines[0].peak_bytes, lines[0].peak_time_ns), (None, 12, 10));
        assert_eq!(lines[2].subject, Some(2));
    }

    #[test]
    fn a_process_that_becomes_another_program_stays_one_line() {
        let mut subjects: BTreeMap<_, _> = [subject(1, Some(30)), subject(2, Some(30))].into();
        for one in subjects.values_mut() {
            (one.number, one.start_ns) = (7, Some(3));
        }
        let mut fold = SeriesFold::new(&subjects, 100);
        fold.update(&[row(10, 1, 5), row(20, 2, 8), row(40, 1, 0)]);
        let lines = fold.finish();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (lines[1].subject, points(&lines[1])),
            (Some(2), vec![(10, 5), (20, 8), (30, 0), (40, 0)])
        );
        assert_eq!(points(&lines[0]), [(10, 5), (20, 8), (30, 0), (40, 0)]);
    }

    #[test]
    fn what_is_learned_bit_by_bit_is_what_was_known_at_once() {
        let all: BTreeMap<_, _> = [subject(1, None), subject(2, Some(30)), subject(3, Some(35))]
            .map(|(id, row)| (id, SubjectRow { number: id.min(2), start_ns: Some(3), ..row }))
            .into();
        let rows = [row(10, 1, 5), row(20, 2, 8), row(25, 3, 7), row(40, 1, 6)];
        let mut whole = SeriesFold::new(&all, 100);
        whole.update(&rows);
        let mut growing = SeriesFold::new(&BTreeMap::new(), 100);
        for (count, one) in (1..).zip(&rows) {
            let known = all.iter().take(count).map(|(id, row)| {
                let end_ns = row.end_ns.filter(|end_ns| *end_ns < one.time_ns);
                (*id, SubjectRow { end_ns, ..row.clone() })
            });
            growing.learn(&known.collect());
            growing.update(&[*one]);
        }
        assert_eq!(growing.finish(), whole.finish());
    }

    #[test]
    fn a_long_line_keeps_its_peak() {
        let subjects = [subject(1, None)].into();
        let mut fold = SeriesFold::new(&subjects, 30);
        let rows: Vec<_> = (0..1000).map(|at| row(at, 1, if at == 777 { 5000 } else { at as u64 })).collect();
        fold.update(&rows);
        let lines = fold.finish();
        assert!(lines[1].points.len() <= 30 && lines[1].interval_ns.is_some());
        assert!(points(&lines[1]).contains(&(777, 5000)) && points(&lines[1]).contains(&(999, 999)));
    }
}
