//! Keeps panics of this library away from the program, and switches recording off when it fails repeatedly.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::capture;

/// Failures after which nothing more is recorded in this process.
const MAX_FAILURES: u32 = 3;

static FAILURES: AtomicU32 = AtomicU32::new(0);

/// Calls `work`; a panic in it is counted, and returned as none.
///
/// What happens at every event is outside of it and cannot panic: `work` is a call of a function that gets what it needs
/// through memory, and the result in the same way.
#[inline]
pub(crate) fn fence<R>(work: impl FnOnce() -> R) -> Option<R> {
    // What the library shares between threads is behind atomics, and what belongs to a thread is not used again after
    // a panic in the middle of a record: its guard stays set.
    if let Ok(result) = catch_unwind(AssertUnwindSafe(work)) {
        return Some(result);
    }
    if FAILURES.fetch_add(1, Ordering::Relaxed) + 1 == MAX_FAILURES {
        capture::switch_off();
    }
    None
}

/// Makes panics of this library silent: the program's standard error is not ours.
pub(crate) fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}
