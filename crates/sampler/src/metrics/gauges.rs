//! The latest values of a subject's metrics, and which of them have to be sent to the sink.

use floodmark_event::Metric;

/// Time after which unchanged values are sent again.
const HOLD_NS: u64 = 1_000_000_000;

const COUNT: usize = Metric::ALL.len();

/// Latest values of the metrics of one subject.
pub(crate) struct Gauges {
    values: [u64; COUNT],
    /// Bitmaps of the metrics that have a value, and of those whose value has not been sent yet.
    known: u32,
    fresh: u32,
    last_ns: u64,
}

const _: () = assert!(COUNT <= 32, "a bit for each metric");

/// Samples of one subject, to be sent at once.
pub(crate) struct Batch {
    samples: [(Metric, u64); COUNT],
    length: usize,
}

impl Batch {
    pub(crate) fn as_slice(&self) -> &[(Metric, u64)] {
        &self.samples[..self.length]
    }
}

impl Default for Gauges {
    fn default() -> Self {
        Self { values: [0; COUNT], known: 0, fresh: 0, last_ns: 0 }
    }
}

impl Gauges {
    pub(crate) fn set(&mut self, metric: Metric, value: u64) {
        let index = metric as usize - 1;
        let bit = 1 << index;
        if self.known & bit == 0 || self.values[index] != value {
            self.values[index] = value;
            self.known |= bit;
            self.fresh |= bit;
        }
    }

    pub(crate) fn set_if_known(&mut self, metric: Metric, value: Option<u64>) {
        if let Some(value) = value {
            self.set(metric, value);
        }
    }

    /// Whether a metric has a value.
    pub(crate) fn has(&self, metric: Metric) -> bool {
        self.known & 1 << (metric as usize - 1) != 0
    }

    /// Marks all values as unsent, because the process got a new subject.
    pub(crate) fn resend_all(&mut self) {
        self.fresh = self.known;
    }

    /// The samples to be sent now; none if there are none.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<Batch> {
        if now_ns.saturating_sub(self.last_ns) >= HOLD_NS {
            self.fresh = self.known;
            self.last_ns = now_ns;
        }
        if self.fresh == 0 {
            return None;
        }
        let mut batch = Batch { samples: [(Metric::Rss, 0); COUNT], length: 0 };
        // Few of many are set.
        while self.fresh != 0 {
            let index = self.fresh.trailing_zeros() as usize;
            self.fresh &= self.fresh - 1;
            batch.samples[batch.length] = (Metric::ALL[index], self.values[index]);
            batch.length += 1;
        }
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_metrics_have_no_holes() {
        for (index, metric) in Metric::ALL.into_iter().enumerate() {
            assert_eq!(metric as usize, index + 1);
        }
    }

    #[test]
    fn a_value_is_sent_when_it_changes_and_once_a_second() {
        let mut gauges = Gauges::default();
        let mut at = |now_ns, rss| {
            gauges.set(Metric::Rss, rss);
            gauges.set(Metric::Threads, 1);
            gauges.take(now_ns).map(|batch| batch.as_slice().to_vec())
        };
        let both = |rss| Some(vec![(Metric::Rss, rss), (Metric::Threads, 1)]);
        assert_eq!(at(HOLD_NS, 5), both(5));
        assert_eq!(at(HOLD_NS + 1, 5), None);
        assert_eq!(at(HOLD_NS + 2, 6), Some(vec![(Metric::Rss, 6)]));
        assert_eq!(at(2 * HOLD_NS - 1, 6), None);
        assert_eq!(at(2 * HOLD_NS, 6), both(6));
    }
}
