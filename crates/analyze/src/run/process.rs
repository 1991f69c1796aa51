//! What is known of one thing that was observed: its gauges, their latest and highest values.

use std::collections::BTreeMap;

use floodmark_event::{Metric, SampleRow, SubjectKind, SubjectRow};
use rustc_hash::FxHashMap;

/// One metric of something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gauge {
    metric: Metric,
    pub(super) last: u64,
    pub(super) high: u64,
    pub(super) high_ns: i64,
}

/// Something that was observed: a process with all programs it ran, a device, a group, a job, a host.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub(super) kind: SubjectKind,
    pub(super) number: u64,
    pub(super) parent: u64,
    pub(super) name: String,
    pub(super) detail: String,
    pub(super) start_ns: Option<i64>,
    pub(super) end_ns: Option<i64>,
    pub(super) wait_status: Option<i32>,
    pub(super) peak_rss_bytes: Option<u64>,
    /// Few of the metrics there are, so a list is smaller and as fast as an array.
    gauges: Vec<Gauge>,
    /// Whether its end is past.
    pub(super) is_over: bool,
}

impl Observed {
    fn new(row: &SubjectRow) -> Self {
        Self {
            kind: row.kind,
            number: row.number,
            parent: row.parent,
            name: String::new(),
            detail: String::new(),
            start_ns: row.start_ns,
            end_ns: None,
            wait_status: None,
            peak_rss_bytes: None,
            gauges: Vec::new(),
            is_over: false,
        }
    }

    /// What is known of its latest program counts.
    fn learn(&mut self, row: &SubjectRow) {
        self.name.clone_from(&row.name);
        self.detail.clone_from(&row.detail);
        (self.end_ns, self.wait_status) = (row.end_ns, row.wait_status);
        self.peak_rss_bytes = self.peak_rss_bytes.max(row.peak_rss_bytes);
    }

    pub(super) fn gauge(&self, metric: Metric) -> Option<&Gauge> {
        self.gauges.iter().find(|gauge| gauge.metric == metric)
    }

    /// The latest value, 0 if there is none.
    pub(super) fn last(&self, metric: Metric) -> u64 {
        self.gauge(metric).map_or(0, |gauge| gauge.last)
    }

    pub(super) fn set(&mut self, row: &SampleRow) {
        let SampleRow { time_ns, metric, value, .. } = *row;
        match self.gauges.iter_mut().find(|gauge| gauge.metric == metric) {
            None => self.gauges.push(Gauge { metric, last: value, high: value, high_ns: time_ns }),
            Some(gauge) => {
                gauge.last = value;
                if value > gauge.high {
                    (gauge.high, gauge.high_ns) = (value, time_ns);
                }
            }
        }
    }

    /// By how much its mark exceeds what was sampled.
    pub(super) fn excess(&self) -> u64 {
        self.last(Metric::Hwm).saturating_sub(self.last(Metric::Rss))
    }
}

/// Finds which subjects are the same thing, and which thing each subject is.
pub(super) fn observed(subjects: &BTreeMap<u64, SubjectRow>) -> (Vec<Observed>, FxHashMap<u64, usize>) {
    let mut observed: Vec<Observed> = Vec::new();
    let mut of_subject = FxHashMap::default();
    let mut processes: FxHashMap<(u64, u64, i64), usize> = FxHashMap::default();
    // In the order of their numbers, so that the latest program of a process comes last.
    for row in subjects.values() {
        let identity = match (row.kind, row.start_ns) {
            (SubjectKind::Process, Some(start_ns)) => Some((row.subject >> 32, row.number, start_ns)),
            _ => None,
        };
        let at = match identity.and_then(|identity| processes.get(&identity)) {
            Some(at) => *at,
            None => {
                observed.push(Observed::new(row));
                observed.len() - 1
            }
        };
        if let Some(identity) = identity {
            processes.insert(identity, at);
        }
        observed[at].learn(row);
        of_subject.insert(row.subject, at);
    }
    (observed, of_subject)
}
