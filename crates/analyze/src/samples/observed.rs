//! What is known of one thing that was observed: its gauges, their latest and highest values.

use floodmark_event::{Metric, SampleRow, SubjectKind, SubjectRow};

/// One metric of something.
#[derive(Clone, Copy, Debug)]
pub struct Gauge {
    metric: Metric,
    /// The first value.
    pub first: u64,
    /// The latest value.
    pub last: u64,
    /// The highest value.
    pub high: u64,
    /// Time of the highest value, in nanoseconds since 1970-01-01 UTC.
    pub high_ns: i64,
    /// Part of the sum: the latest value, or 0 after the end.
    pub(super) counted: u64,
    /// Index of the sum.
    pub(super) total: usize,
    /// Sweep of the latest value, and the subject that it was read of.
    pub(super) sweep: u64,
    pub(super) subject: u64,
}

impl Gauge {
    pub(super) fn new(row: &SampleRow, total: usize) -> Self {
        Self {
            metric: row.metric,
            first: row.value,
            last: row.value,
            high: row.value,
            high_ns: row.time_ns,
            counted: 0,
            total,
            sweep: u64::MAX,
            subject: row.subject,
        }
    }

    /// Sets the value; returns the one before, if there was one, and whether all before were lower.
    pub(super) fn set(&mut self, row: &SampleRow, sweep: u64) -> (Option<u64>, bool) {
        let before = (self.sweep != u64::MAX).then_some(self.last);
        let is_highest = before.is_none() || row.value > self.high;
        if is_highest {
            (self.high, self.high_ns) = (row.value, row.time_ns);
        }
        (self.last, self.counted) = (row.value, row.value);
        (self.sweep, self.subject) = (sweep, row.subject);
        (before, is_highest)
    }
}

/// Something that was observed: a process with all programs it ran, a device, a control group, a job, a host.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Sort of thing.
    pub kind: SubjectKind,
    /// Subject of its latest program.
    pub subject: u64,
    /// PID or number of the device; 0 for others.
    pub number: u64,
    /// Subject that it came from.
    pub parent: u64,
    /// Name of its latest program, of the device, group or host.
    pub name: String,
    /// Latest command line, UUID of the device, path of the group.
    pub detail: String,
    /// Time at which it began, if known.
    pub start_ns: Option<i64>,
    /// Time at which it ended, as far as known.
    pub end_ns: Option<i64>,
    /// Exit status as `wait` gives it.
    pub wait_status: Option<i32>,
    /// Most resident bytes, where the kernel reported them at the end.
    pub peak_rss_bytes: Option<u64>,
    /// Whether its end is past.
    pub is_over: bool,
    /// Few of the metrics there are, so a list is smaller and as fast as an array.
    pub(super) gauges: Vec<Gauge>,
    /// The end that sums know of.
    pub(super) scheduled_end_ns: Option<i64>,
}

impl Observed {
    pub(super) fn new(row: &SubjectRow) -> Self {
        Self {
            kind: row.kind,
            subject: row.subject,
            number: row.number,
            parent: row.parent,
            name: String::new(),
            detail: String::new(),
            start_ns: row.start_ns,
            end_ns: None,
            wait_status: None,
            peak_rss_bytes: None,
            is_over: false,
            gauges: Vec::new(),
            scheduled_end_ns: None,
        }
    }

    /// Takes over what is known of its latest program.
    pub(super) fn learn(&mut self, row: &SubjectRow) {
        // Repeated for every subject while a trace grows, so strings are copied only if they changed.
        if self.name != row.name || self.detail != row.detail {
            self.name.clone_from(&row.name);
            self.detail.clone_from(&row.detail);
        }
        self.subject = row.subject;
        (self.end_ns, self.wait_status) = (row.end_ns, row.wait_status);
        self.peak_rss_bytes = self.peak_rss_bytes.max(row.peak_rss_bytes);
    }

    pub(super) fn place(&self, metric: Metric) -> Option<usize> {
        self.gauges.iter().position(|gauge| gauge.metric == metric)
    }

    /// Returns a metric, if there was a sample of it.
    pub fn gauge(&self, metric: Metric) -> Option<&Gauge> {
        self.gauges.iter().find(|gauge| gauge.metric == metric)
    }

    /// Returns the latest value of a metric, 0 if there is none.
    pub fn last(&self, metric: Metric) -> u64 {
        self.gauge(metric).map_or(0, |gauge| gauge.last)
    }

    /// Returns the number of the process in its MPI job.
    pub fn rank(&self) -> Option<u64> {
        self.gauge(Metric::Rank).map(|gauge| gauge.last)
    }
}
