//! Samples as lines: totals, processes, devices.
//!
//! Which values hold when, what a process is and when it ends is known to [`SampleState`]; here its values are
//! kept over time.

use std::collections::BTreeMap;

use floodmark_event::{Metric, SampleRow, SubjectRow};

use crate::samples::{SampleState, SampleVisitor, SeriesKey, TakenSample};
use crate::series::{GroupSeries, SeriesFold, SeriesPoint, SeriesSet};
use crate::usage::UsagePoint;

/// Metrics that reports draw.
const DRAWN: [Metric; 6] =
    [Metric::Rss, Metric::Pss, Metric::GpuUsed, Metric::CgroupUsage, Metric::Live, Metric::Reserved];

/// Values over time of one subject, or of all together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectSeries {
    /// Subject of the latest program; none for the sum.
    pub subject: Option<u64>,
    /// Metric of the values.
    pub metric: Metric,
    /// The points, in order.
    pub points: Vec<UsagePoint>,
    /// Width of the intervals whose extremes are kept; none if every change is a point.
    pub interval_ns: Option<u64>,
    /// The highest value.
    pub peak_bytes: u64,
    /// First instant of the highest value.
    pub peak_time_ns: i64,
}

/// A part of a sum: a metric of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesMember {
    /// Metric of the values.
    pub metric: Metric,
    /// Index in [`SampleState::observed`].
    pub at: usize,
}

/// Folds samples into values over time, of every subject and of all subjects of a kind.
#[derive(Clone, Debug)]
pub struct SubjectSeriesFold<T = UsagePoint> {
    state: SampleState,
    series: SeriesByKey<T>,
}

#[derive(Clone, Debug)]
struct SeriesByKey<T> {
    limit: usize,
    /// Instants outside of which nothing is kept.
    window_ns: (i64, i64),
    metrics: Vec<Metric>,
    /// Whether all metrics are parts of one sum.
    is_joined: bool,
    folds: BTreeMap<SeriesKey, SeriesFold<SeriesMember, T>>,
}

impl<T: SeriesPoint> SeriesByKey<T> {
    fn key(&self, key: SeriesKey) -> SeriesKey {
        let joined = self.metrics.first().copied().filter(|_| self.is_joined);
        SeriesKey { metric: joined.unwrap_or(key.metric), ..key }
    }
}

impl<T: SeriesPoint> SampleVisitor for SeriesByKey<T> {
    fn sample(&mut self, state: &SampleState, sample: &TakenSample) {
        let TakenSample { at, row, .. } = *sample;
        let key = self.key(SeriesKey { kind: state.observed()[at].kind, metric: row.metric });
        let (limit, (from_ns, to_ns)) = (self.limit, self.window_ns);
        let fold = self.folds.entry(key);
        let fold = fold.or_insert_with(|| SeriesFold::new(limit).within(from_ns, to_ns));
        fold.set(&SeriesMember { metric: row.metric, at }, row.time_ns, row.value);
    }

    fn ended(&mut self, state: &SampleState, ended: &[usize], end_ns: i64) {
        let mut members = Vec::new();
        for (key, fold) in &mut self.folds {
            members.clear();
            for at in ended.iter().copied().filter(|at| state.observed()[*at].kind == key.kind) {
                let metrics =
                    if self.is_joined { &self.metrics[..] } else { std::slice::from_ref(&key.metric) };
                members.extend(metrics.iter().map(|metric| SeriesMember { metric: *metric, at }));
            }
            fold.end(&members, end_ns);
        }
    }

    fn settled(&mut self, _state: &SampleState, _time_ns: i64) {
        self.folds.values_mut().for_each(SeriesFold::settle);
    }
}

impl<T: SeriesPoint> SubjectSeriesFold<T> {
    /// Starts lines of at most `limit` points each.
    pub fn new(subjects: &BTreeMap<u64, SubjectRow>, limit: usize) -> Self {
        let series = SeriesByKey {
            limit,
            window_ns: (i64::MIN, i64::MAX),
            metrics: DRAWN.to_vec(),
            is_joined: false,
            folds: BTreeMap::new(),
        };
        Self { state: SampleState::new(subjects), series }
    }

    /// Keeps what lies between two instants only; peaks stay those of everything.
    #[must_use]
    pub fn within(mut self, from_ns: i64, to_ns: i64) -> Self {
        self.set_window(from_ns, to_ns);
        self
    }

    /// Does the same before the first sample, where the window depends on it.
    pub fn set_window(&mut self, from_ns: i64, to_ns: i64) {
        self.series.window_ns = (from_ns, to_ns);
    }

    /// Keeps these metrics only.
    #[must_use]
    pub fn of_metrics(mut self, metrics: &[Metric]) -> Self {
        self.series.metrics = metrics.to_vec();
        self
    }

    /// Makes all metrics parts of one sum, whose key has the first of them.
    #[must_use]
    pub fn joined(mut self) -> Self {
        self.series.is_joined = true;
        self
    }

    /// Learns what is known of subjects by now; see [`SampleState::learn`].
    pub fn learn(&mut self, subjects: &BTreeMap<u64, SubjectRow>) {
        self.state.learn(subjects);
    }

    /// Takes in more samples.
    pub fn update(&mut self, rows: &[SampleRow]) {
        for row in rows {
            self.push(row);
        }
    }

    /// Takes in a sample.
    pub fn push(&mut self, row: &SampleRow) {
        if self.series.metrics.contains(&row.metric) {
            self.state.push(row, &mut self.series);
        }
    }

    /// Completes the last sweep and lets everything end whose end is known.
    pub fn complete(&mut self) {
        self.state.finish(&mut self.series);
    }

    /// What is known of subjects, and their sums.
    pub fn state(&self) -> &SampleState {
        &self.state
    }

    /// Returns the values over time of all subjects of a kind; none if there was no sample.
    pub fn series(&self, key: SeriesKey) -> Option<SeriesSet<SeriesMember, T>> {
        self.series.folds.get(&key).map(SeriesFold::finish)
    }

    /// Returns whether there are values of `key`.
    pub fn has(&self, key: SeriesKey) -> bool {
        self.series.folds.contains_key(&key)
    }
}

impl SubjectSeriesFold<UsagePoint> {
    /// Returns the lines so far: sums first, then subjects by id. The fold may go on afterwards. Sums
    /// are those of the kind that stands for the whole run.
    pub fn finish(&self) -> Vec<SubjectSeries> {
        let mut whole = self.clone();
        whole.complete();
        let summed = whole.state.summed_kind();
        let mut found = Vec::new();
        for (key, fold) in &whole.series.folds {
            let SeriesSet { groups, points, interval_ns, peak, .. } = fold.finish();
            let series = |subject, points, interval_ns, peak: UsagePoint| SubjectSeries {
                subject,
                metric: key.metric,
                points,
                interval_ns,
                peak_bytes: peak.live_bytes,
                peak_time_ns: peak.time_ns,
            };
            if key.kind == summed {
                found.push(series(None, points, interval_ns, peak));
            }
            found.extend(groups.into_iter().map(|GroupSeries { group, points, interval_ns, peak }| {
                series(Some(whole.state.observed()[group.at].subject), points, interval_ns, peak)
            }));
        }
        found.sort_by_key(|series| (series.subject, series.metric as u8));
        found
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::SubjectKind;

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
        let mut fold: SubjectSeriesFold = SubjectSeriesFold::new(&subjects, 100);
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
        let mut fold: SubjectSeriesFold = SubjectSeriesFold::new(&subjects, 100);
        fold.update(&[row(10, 1, 5), row(20, 2, 8), row(40, 1, 0)]);
        let lines = fold.finish();
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[1].subject, points(&lines[1])), (Some(2), vec![(10, 5), (20, 8), (30, 0)]));
        assert_eq!(points(&lines[0]), [(10, 5), (20, 8), (30, 0)], "what comes after the end is ignored");
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
