//! What is known of one thing that was observed: its gauges, their latest and highest values.

use std::collections::BTreeMap;

use floodmark_event::{Metric, SampleRow, SubjectKind, SubjectRow};
use rustc_hash::FxHashMap;

/// One metric of something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gauge {
    metric: Metric,
    first: u64,
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
    /// Resident bytes when the highest proportional size was read.
    pub(super) rss_at_pss: Option<u64>,
    /// The same when it was last read.
    pub(super) rss_at_last_pss: Option<u64>,
    /// Whether its end is past.
    pub(super) is_over: bool,
    /// The highest sample since its high-water mark was last read, and when that was.
    highest: Option<(u64, Instant)>,
}

/// A time, and how much all had then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instant {
    pub(super) time_ns: i64,
    pub(super) sum: u64,
}

/// A high-water mark that is higher than what was sampled by no more than this, or by this share, was
/// seen: the kernel counts pages in batches.
const NEARLY_BYTES: u64 = 1 << 20;
const NEARLY_SHARE: u64 = 50;
/// A process that began no more than this before the first sample has no high-water mark from before.
const FRESH_NS: i64 = 1_000_000_000;

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
            rss_at_pss: None,
            rss_at_last_pss: None,
            is_over: false,
            highest: None,
        }
    }

    /// What is known of its latest program counts.
    fn learn(&mut self, row: &SubjectRow) {
        // Told again and again while a trace grows.
        if self.name != row.name || self.detail != row.detail {
            self.name.clone_from(&row.name);
            self.detail.clone_from(&row.detail);
        }
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

    /// The most resident bytes that are known of.
    pub(super) fn highest_rss(&self) -> u64 {
        let high = |metric| self.gauge(metric).map(|gauge| gauge.high);
        self.peak_rss_bytes.max(high(Metric::Rss)).max(high(Metric::Hwm)).unwrap_or(0)
    }

    /// Resident bytes when it was first read.
    pub(super) fn first_rss(&self) -> u64 {
        self.gauge(Metric::Rss).map_or(0, |gauge| gauge.first)
    }

    pub(super) fn set(&mut self, row: &SampleRow) {
        let SampleRow { time_ns, metric, value, .. } = *row;
        if metric == Metric::Pss && self.gauge(metric).is_none_or(|gauge| value > gauge.high) {
            self.rss_at_pss = self.gauge(Metric::Rss).map(|gauge| gauge.last);
        }
        if metric == Metric::Pss {
            self.rss_at_last_pss = self.gauge(Metric::Rss).map(|gauge| gauge.last);
        }
        match self.gauges.iter_mut().find(|gauge| gauge.metric == metric) {
            None => {
                self.gauges.push(Gauge { metric, first: value, last: value, high: value, high_ns: time_ns });
            }
            Some(gauge) => {
                gauge.last = value;
                if value > gauge.high {
                    (gauge.high, gauge.high_ns) = (value, time_ns);
                }
            }
        }
    }

    /// Whether it began when the watching did, or later.
    pub(super) fn began_since(&self, first_ns: i64) -> bool {
        self.start_ns.is_some_and(|start_ns| start_ns.saturating_add(FRESH_NS) >= first_ns)
    }

    /// Its latest sample is of this instant.
    pub(super) fn saw(&mut self, instant: Instant) {
        let rss = self.last(Metric::Rss);
        if self.highest.is_none_or(|(highest, _)| rss >= highest) {
            self.highest = Some((rss, instant));
        }
    }

    /// Its high-water mark was read and rose: how high the sum must have been, and when.
    pub(super) fn unseen(&mut self, now: Instant) -> [Option<(u64, i64)>; 2] {
        let (hwm, rss) = (self.last(Metric::Hwm), self.last(Metric::Rss));
        let (highest, then) = self.highest.unwrap_or((rss, now));
        self.highest = Some((rss, now));
        let above = |instant: Instant, rss: u64| {
            (instant.sum.saturating_add(hwm.saturating_sub(rss)), instant.time_ns)
        };
        let was_seen = hwm.saturating_sub(highest) <= NEARLY_BYTES.max(highest / NEARLY_SHARE);
        [(hwm > highest).then(|| above(then, highest)), (!was_seen).then(|| above(now, rss))]
    }
}

/// A recording, a process of the system and when that began: the same for all programs it ran.
pub(super) type Identity = (u64, u64, i64);

/// What is known of which subjects are the same thing.
#[derive(Clone, Debug, Default)]
pub(super) struct Roll {
    pub(super) observed: Vec<Observed>,
    pub(super) of_subject: FxHashMap<u64, usize>,
    processes: FxHashMap<Identity, usize>,
}

impl Roll {
    /// Finds which subjects are the same thing, and which thing each subject is. Things keep their places
    /// when more is learned.
    pub(super) fn learn(&mut self, subjects: &BTreeMap<u64, SubjectRow>) {
        // In the order of their numbers, so that the latest program of a process comes last.
        for row in subjects.values() {
            let identity = match (row.kind, row.start_ns) {
                (SubjectKind::Process, Some(start_ns)) => Some((row.subject >> 32, row.number, start_ns)),
                _ => None,
            };
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
    }
}
