//! How far the clock of another host is off: question and answer, of which the quickest counts.

use floodmark_tail::clock::{Anchor, monotonic_ns};

/// How to get from the clock of another host to ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Nanoseconds to add to the UTC of the other host.
    pub offset_ns: i64,
    /// Nanoseconds by which the offset may be wrong: half of the time between question and answer.
    pub error_ns: u64,
}

/// Measures the offset of one host.
#[derive(Clone, Debug)]
pub struct ClockMeter {
    anchor: Anchor,
    /// Number of the last question, and when it was asked.
    asked: (u64, u64),
    best: Option<ClockOffset>,
    answers: u32,
}

impl Default for ClockMeter {
    fn default() -> Self {
        Self { anchor: Anchor::now(), asked: (0, 0), best: None, answers: 0 }
    }
}

impl ClockMeter {
    /// Begins a question; returns its number.
    pub fn ask(&mut self) -> u64 {
        self.asked = (self.asked.0 + 1, monotonic_ns());
        self.asked.0
    }

    /// Takes an answer: the UTC of the other host, in nanoseconds. One to an earlier question is ignored.
    pub fn answered(&mut self, number: u64, utc_ns: i64) {
        self.answered_at(number, utc_ns, monotonic_ns());
    }

    fn answered_at(&mut self, number: u64, utc_ns: i64, now_ns: u64) {
        if number != self.asked.0 || number == 0 {
            return;
        }
        let took_ns = now_ns.saturating_sub(self.asked.1);
        let middle_ns = self.anchor.utc_ns(self.asked.1 + took_ns / 2);
        let error_ns = took_ns.div_ceil(2);
        self.answers += 1;
        if self.best.is_none_or(|best| error_ns < best.error_ns) {
            self.best = Some(ClockOffset { offset_ns: middle_ns.wrapping_sub(utc_ns), error_ns });
        }
    }

    /// Returns the best measurement so far.
    pub fn best(&self) -> Option<ClockOffset> {
        self.best
    }

    /// Returns the number of answers.
    pub fn answers(&self) -> u32 {
        self.answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_answer_counts_and_its_error_covers_the_truth() {
        let mut meter = ClockMeter::default();
        let anchor = meter.anchor;
        // The other clock is 5 s ahead; answers come after 4 ms, 1 ms and 9 ms, most of it on the way there.
        for took_ns in [4_000_000, 1_000_000, 9_000_000] {
            let number = meter.ask();
            let asked = meter.asked.1;
            let there = anchor.utc_ns(asked + took_ns * 3 / 4) + 5_000_000_000;
            meter.answered_at(number, there, asked + took_ns);
        }
        let best = meter.best().expect("an answer");
        assert_eq!(best.error_ns, 500_000);
        assert!((best.offset_ns + 5_000_000_000).unsigned_abs() <= best.error_ns, "{best:?}");
        meter.answered_at(1, 0, 0);
        assert_eq!((meter.best(), meter.answers()), (Some(best), 3), "an old answer does not count");
    }
}
