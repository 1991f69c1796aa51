//! What was sampled: totals, processes, devices.
//!
//! A process that replaces its program becomes another subject and stays one line. Of what is added up (jobs,
//! else processes, else hosts, as in [`RunFold`](crate::RunFold)) there is one line more for the sum.

use std::collections::{BTreeMap, BTreeSet};

use floodmark_event::{Metric, SampleRow, SubjectKind, SubjectRow};

use crate::series::{GroupSeries, SeriesFold, SeriesSet};
use crate::usage::UsagePoint;

/// Metrics that are lines.
const DRAWN: [Metric; 6] =
    [Metric::Rss, Metric::Pss, Metric::GpuUsed, Metric::CgroupUsage, Metric::Live, Metric::Reserved];

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectSeries {
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
pub struct SubjectSeriesFold {
    limit: usize,
    /// What lies outside of these instants is left out.
    window_ns: (i64, i64),
    summed: SubjectKind,
    lines: BTreeMap<u64, Line>,
    /// Ends of lines, in order, and how many of them have passed.
    ends: Vec<(i64, Line)>,
    ended: usize,
    courses: BTreeMap<(SubjectKind, Metric), SeriesFold<u64, UsagePoint>>,
}

/// To which line a subject belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    kind: SubjectKind,
    /// The first program of its process, and the last.
    first: u64,
    last: u64,
}

fn lines(subjects: &BTreeMap<u64, SubjectRow>) -> BTreeMap<u64, Line> {
    let identity = |one: &SubjectRow| {
        let is_process = one.kind == SubjectKind::Process;
        let start_ns = one.start_ns.filter(|_| is_process)?;
        Some((one.number, start_ns, one.subject >> 32))
    };
    // Later ones have larger numbers.
    let mut programs: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for one in subjects.values() {
        if let Some(identity) = identity(one) {
            programs.entry(identity).or_insert((one.subject, one.subject)).1 = one.subject;
        }
    }
    let line = |one: &SubjectRow| {
        let known = identity(one).and_then(|identity| programs.get(&identity).copied());
        let (first, last) = known.unwrap_or((one.subject, one.subject));
        Line { kind: one.kind, first, last }
    };
    subjects.values().map(|one| (one.subject, line(one))).collect()
}

impl SubjectSeriesFold {
    /// Starts lines of at most `limit` points each.
    pub fn new(subjects: &BTreeMap<u64, SubjectRow>, limit: usize) -> Self {
        let mut fold = Self {
            limit,
            window_ns: (i64::MIN, i64::MAX),
            summed: SubjectKind::Job,
            lines: BTreeMap::new(),
            ends: Vec::new(),
            ended: 0,
            courses: BTreeMap::new(),
        };
        fold.learn(subjects);
        fold
    }

    /// Has lines keep what lies between two instants only; their peaks stay those of everything.
    #[must_use]
    pub fn within(self, from_ns: i64, to_ns: i64) -> Self {
        Self { window_ns: (from_ns, to_ns), ..self }
    }

    /// Learns what is known of subjects by now; for who follows a recording, to be told before the samples
    /// of new subjects.
    pub fn learn(&mut self, subjects: &BTreeMap<u64, SubjectRow>) {
        let has = |kind| subjects.values().any(|subject| subject.kind == kind);
        let preferred = [SubjectKind::Job, SubjectKind::Process, SubjectKind::Host];
        self.summed = preferred.into_iter().find(|kind| has(*kind)).unwrap_or(SubjectKind::Job);
        self.lines = lines(subjects);
        // A program that was replaced is no end of its process.
        let end = |line: &Line| subjects.get(&line.last)?.end_ns.map(|end_ns| (end_ns, *line));
        let last = self.lines.iter().filter(|(subject, line)| **subject == line.last);
        let mut ends: Vec<(i64, Line)> = last.filter_map(|(_, line)| end(line)).collect();
        // Builds start tens of thousands of processes, and this is learned again whenever one comes or goes.
        let passed: BTreeSet<(i64, Line)> = self.ends[..self.ended].iter().copied().collect();
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
        let Some(line) = self.lines.get(&row.subject).copied() else { return };
        while let Some((end_ns, line)) = self.ends.get(self.ended).copied()
            && end_ns < row.time_ns
        {
            self.ended += 1;
            self.end(line, end_ns);
        }
        let (limit, (from_ns, to_ns)) = (self.limit, self.window_ns);
        let course = self.courses.entry((line.kind, row.metric));
        let course = course.or_insert_with(|| SeriesFold::new(limit).within(from_ns, to_ns));
        course.set(&line.first, row.time_ns, row.value);
    }

    fn end(&mut self, line: Line, end_ns: i64) {
        for metric in DRAWN {
            if let Some(course) =
                self.courses.get_mut(&(line.kind, metric)).filter(|one| one.has(&line.first))
            {
                course.end(&line.first, end_ns);
            }
        }
    }

    /// Returns the lines so far: sums first, then subjects by number. The fold may go on afterwards.
    pub fn finish(&self) -> Vec<SubjectSeries> {
        let mut whole = self.clone();
        for (end_ns, line) in whole.ends.split_off(whole.ended) {
            whole.end(line, end_ns);
        }
        let mut found = Vec::new();
        for ((kind, metric), fold) in &whole.courses {
            let SeriesSet { groups, moments, interval_ns, peak, .. } = fold.finish();
            let course = |subject, points, interval_ns, peak: UsagePoint| SubjectSeries {
                subject,
                metric: *metric,
                points,
                interval_ns,
                peak_bytes: peak.live_bytes,
                peak_time_ns: peak.time_ns,
            };
            if *kind == whole.summed {
                found.push(course(None, moments, interval_ns, peak));
            }
            found.extend(groups.into_iter().map(|GroupSeries { group, points, interval_ns, peak }| {
                let last = whole.lines.get(&group).map_or(group, |line| line.last);
                course(Some(last), points, interval_ns, peak)
            }));
        }
        found.sort_by_key(|course| (course.subject, course.metric as u8));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(subject: u64, end_ns: Option<i64>) -> (u64, SubjectRow) {
        let row = SubjectRow { end_ns, ..SubjectRow::new(subject, SubjectKind::Process, subject, "") };
        (subject, row)
    }

    fn row(time_ns: i64, subject: u64, value: u64) -> SampleRow {
        SampleRow { time_ns, subject, metric: Metric::Rss, value }
    }

    fn points(series: &SubjectSeries) -> Vec<(i64, u64)> {
        series.points.iter().map(|point| (point.time_ns, point.live_bytes)).collect()
    }

    #[test]
    fn a_sum_counts_once_per_sweep_and_falls_when_a_process_ends() {
        let subjects = [subject(1, Some(15)), subject(2, Some(40))].into();
        let mut fold = SubjectSeriesFold::new(&subjects, 100);
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
        let mut fold = SubjectSeriesFold::new(&subjects, 100);
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
        let mut whole = SubjectSeriesFold::new(&all, 100);
        whole.update(&rows);
        let mut growing = SubjectSeriesFold::new(&BTreeMap::new(), 100);
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
        let mut fold = SubjectSeriesFold::new(&subjects, 30);
        let rows: Vec<_> = (0..1000).map(|at| row(at, 1, if at == 777 { 5000 } else { at as u64 })).collect();
        fold.update(&rows);
        let lines = fold.finish();
        assert!(lines[1].points.len() <= 30 && lines[1].interval_ns.is_some());
        assert!(points(&lines[1]).contains(&(777, 5000)) && points(&lines[1]).contains(&(999, 999)));
    }
}
