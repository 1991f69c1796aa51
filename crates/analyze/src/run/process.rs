//! Finds peaks between two sweeps, by the high-water marks that the kernel keeps of processes.

use floodmark_event::Metric;

use crate::samples::Observed;

/// A sweep and its sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instant {
    pub(super) time_ns: i64,
    pub(super) sum: u64,
}

/// What is kept of a process besides its gauges.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessMarks {
    /// Resident bytes when the highest proportional size was read.
    pub(super) rss_at_pss: Option<u64>,
    /// Resident bytes when the proportional size was last read.
    pub(super) rss_at_last_pss: Option<u64>,
    /// The highest sample since the high-water mark was last read, and when that was.
    highest: Option<(u64, Instant)>,
}

/// A high-water mark that is higher than what was sampled by no more than this, or by this share, was
/// seen: the kernel counts pages in batches.
const NEARLY_BYTES: u64 = 1 << 20;
const NEARLY_SHARE: u64 = 50;
/// A process that began no more than this before the first sample has no high-water mark from before.
const FRESH_NS: i64 = 1_000_000_000;

/// Returns whether a process began when the sampling did, or later.
pub(crate) fn began_since(one: &Observed, first_ns: i64) -> bool {
    one.start_ns.is_some_and(|start_ns| start_ns.saturating_add(FRESH_NS) >= first_ns)
}

/// Returns the most resident bytes that are known of.
pub(crate) fn highest_rss(one: &Observed) -> u64 {
    let high = |metric| one.gauge(metric).map(|gauge| gauge.high);
    one.peak_rss_bytes.max(high(Metric::Rss)).max(high(Metric::Hwm)).unwrap_or(0)
}

/// Returns the resident bytes when they were first read.
pub(super) fn first_rss(one: &Observed) -> u64 {
    one.gauge(Metric::Rss).map_or(0, |gauge| gauge.first)
}

impl ProcessMarks {
    /// The proportional size was read.
    pub(super) fn read_pss(&mut self, one: &Observed, is_highest: bool) {
        let rss = one.gauge(Metric::Rss).map(|gauge| gauge.last);
        if is_highest {
            self.rss_at_pss = rss;
        }
        self.rss_at_last_pss = rss;
    }

    /// The latest sample is of this instant.
    pub(super) fn saw(&mut self, one: &Observed, instant: Instant) {
        let rss = one.last(Metric::Rss);
        if self.highest.is_none_or(|(highest, _)| rss >= highest) {
            self.highest = Some((rss, instant));
        }
    }

    /// The high-water mark was read and rose: returns how high the sum must have been, and when.
    pub(super) fn unseen(&mut self, one: &Observed, now: Instant) -> [Option<(u64, i64)>; 2] {
        let (hwm, rss) = (one.last(Metric::Hwm), one.last(Metric::Rss));
        let (highest, then) = self.highest.unwrap_or((rss, now));
        self.highest = Some((rss, now));
        let above = |instant: Instant, rss: u64| {
            (instant.sum.saturating_add(hwm.saturating_sub(rss)), instant.time_ns)
        };
        let was_seen = hwm.saturating_sub(highest) <= NEARLY_BYTES.max(highest / NEARLY_SHARE);
        [(hwm > highest).then(|| above(then, highest)), (!was_seen).then(|| above(now, rss))]
    }
}
