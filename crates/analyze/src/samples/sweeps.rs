//! Totals sweep by sweep, for views that show samples line by line as they come.

use std::collections::BTreeMap;

use floodmark_event::{SampleRow, SubjectKind, SubjectRow};

use super::{SampleState, SampleVisitor, SeriesKey, TakenSample};

/// Total of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepTotal {
    /// Nanoseconds since 1970-01-01 UTC.
    pub time_ns: i64,
    /// Sum over all subjects that have not ended.
    pub total: u64,
    /// Subjects that reported in this sweep, with their values: hosts of a job, else those added up.
    pub reports: Vec<(u64, u64)>,
}

/// Folds samples into the totals of sweeps.
#[derive(Clone, Debug)]
pub struct SweepFold {
    state: SampleState,
    open: OpenSweep,
}

/// The sweep that is coming in.
#[derive(Clone, Debug)]
struct OpenSweep {
    key: SeriesKey,
    time_ns: i64,
    reports: Vec<(u64, u64)>,
    hosts: Vec<(u64, u64)>,
    done: Option<SweepTotal>,
}

impl OpenSweep {
    fn is_host(&self, key: SeriesKey) -> bool {
        self.key.kind == SubjectKind::Job && key == SeriesKey { kind: SubjectKind::Host, ..self.key }
    }
}

impl SampleVisitor for OpenSweep {
    fn sample(&mut self, state: &SampleState, sample: &TakenSample) {
        let key = SeriesKey { kind: state.observed()[sample.at].kind, metric: sample.row.metric };
        let list = if self.is_host(key) { &mut self.hosts } else { &mut self.reports };
        list.push((sample.row.subject, sample.row.value));
        self.time_ns = sample.row.time_ns;
    }

    fn settled(&mut self, state: &SampleState, time_ns: i64) {
        let (reports, hosts) = (std::mem::take(&mut self.reports), std::mem::take(&mut self.hosts));
        if !reports.is_empty() {
            let total = state.total(self.key.kind, self.key.metric).unwrap_or(0);
            let reports = if hosts.is_empty() { reports } else { hosts };
            self.done = Some(SweepTotal { time_ns, total, reports });
        }
    }
}

impl SweepFold {
    /// Adds up the samples of `key`.
    pub fn new(key: SeriesKey) -> Self {
        let (reports, hosts) = (Vec::new(), Vec::new());
        let open = OpenSweep { key, time_ns: i64::MIN, reports, hosts, done: None };
        Self { state: SampleState::default(), open }
    }

    /// Learns what is known of subjects by now; see [`SampleState::learn`].
    pub fn learn(&mut self, subjects: &BTreeMap<u64, SubjectRow>) {
        self.state.learn(subjects);
    }

    /// Takes a sample; returns the total of the sweep before if that is over now.
    pub fn push(&mut self, row: &SampleRow) -> Option<SweepTotal> {
        let kind = self.state.of_subject(row.subject)?.kind;
        let key = SeriesKey { kind, metric: row.metric };
        if key != self.open.key && !self.open.is_host(key) {
            return self.before(row.time_ns);
        }
        self.state.push(row, &mut self.open);
        self.open.done.take()
    }

    /// Returns whether the sweep that is coming in has this time and a total.
    pub fn is_open_at(&self, time_ns: i64) -> bool {
        !self.open.reports.is_empty() && self.open.time_ns == time_ns
    }

    /// Returns the total of the sweep that is coming in if `time_ns` is not its time.
    pub fn before(&mut self, time_ns: i64) -> Option<SweepTotal> {
        (time_ns != self.open.time_ns).then(|| self.finish()).flatten()
    }

    /// Returns the total of the sweep that is coming in, if it has one.
    pub fn finish(&mut self) -> Option<SweepTotal> {
        self.state.settle(&mut self.open);
        self.open.done.take()
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::Metric;

    use super::*;

    fn totals(
        kinds: &[SubjectKind],
        rows: &[(i64, u64, u64)],
        key: SeriesKey,
    ) -> (Vec<(i64, u64, usize)>, SampleState) {
        let subjects: BTreeMap<u64, SubjectRow> =
            (1..).zip(kinds).map(|(id, kind)| (id, SubjectRow::new(id, *kind, 0, ""))).collect();
        let row = |&(time_ns, subject, value)| SampleRow { time_ns, subject, metric: key.metric, value };
        let (mut fold, mut survey) = (SweepFold::new(key), SampleState::new(&subjects));
        fold.learn(&subjects);
        for each in rows {
            survey.push(&row(each), &mut ());
        }
        survey.finish(&mut ());
        let mut all: Vec<_> = rows.iter().filter_map(|each| fold.push(&row(each))).collect();
        all.extend(fold.finish());
        (all.into_iter().map(|sweep| (sweep.time_ns, sweep.total, sweep.reports.len())).collect(), survey)
    }

    #[test]
    fn a_sweep_over_devices_is_one_total() {
        let key = SeriesKey { kind: SubjectKind::Device, metric: Metric::GpuUsed };
        let rows = [(1, 1, 10), (1, 2, 20), (2, 1, 40), (2, 2, 5), (3, 2, 6)];
        let (all, survey) = totals(&[SubjectKind::Device; 2], &rows, key);
        assert_eq!(all, [(1, 30, 2), (2, 45, 2), (3, 46, 1)]);
        assert_eq!(survey.peak(key).unwrap().live_bytes, 46, "sums within a sweep do not count");
    }

    #[test]
    fn hosts_of_a_job_report_and_the_job_is_the_total() {
        use SubjectKind::{Host, Job};
        let key = SeriesKey { kind: Job, metric: Metric::Rss };
        // The second and third row of the log have the same time.
        let rows = [(1, 1, 10), (1, 2, 10), (2, 1, 30), (2, 3, 20), (2, 1, 35), (2, 2, 15)];
        let (all, survey) = totals(&[Job, Host, Host], &rows, key);
        assert_eq!(all, [(1, 10, 1), (2, 30, 1), (2, 35, 1)]);
        assert_eq!(survey.main_key(None), Some(key));
        assert_eq!(survey.reporters(SeriesKey { kind: Host, ..key }), 2);
    }
}
