//! Waiting until the time of a step in the log.

use std::time::Duration;

use floodmark_tail::clock::monotonic_ns;

/// A sleep may end this much late, so the rest is waited for awake.
const AWAKE_NS: u64 = 100_000;

/// The clock of a play that keeps the pace of its log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacer {
    begin_ns: u64,
    speed: f64,
}

impl Pacer {
    /// Began then, and runs at a multiple of the log's speed.
    pub(crate) const fn new(begin_ns: u64, speed: f64) -> Self {
        Self { begin_ns, speed }
    }

    /// Waits until what happened `due_ns` after the first event is due.
    pub(crate) fn wait_until(&self, due_ns: u64) {
        let due_ns = self.begin_ns + (due_ns as f64 / self.speed) as u64;
        loop {
            let left_ns = due_ns.saturating_sub(monotonic_ns());
            if left_ns == 0 {
                return;
            }
            if left_ns > 2 * AWAKE_NS {
                std::thread::sleep(Duration::from_nanos(left_ns - AWAKE_NS));
            } else {
                std::hint::spin_loop();
            }
        }
    }
}
