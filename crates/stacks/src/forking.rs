//! Keeps threads out of the dynamic loader while another one forks.
//!
//! `dl_iterate_phdr` takes a lock of the loader, which `fork` copies as it is. A child that is forked while another thread
//! has that lock waits for it forever as soon as it asks the loader itself. We ask at times of our own choosing, so a program
//! would hang because it is recorded. Hence a fork waits until none of our threads is in the loader, and they wait for the
//! fork. Waiting has a bound: what a signal handler may fork is rather as it would be without this.
//!
//! Calls to the loader by the program itself are its own affair, and so are children made without `fork`, for which the C
//! library calls no handlers.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest wait of either side.
const PATIENCE: Duration = Duration::from_secs(1);

/// Threads in the loader.
static VISITORS: AtomicU32 = AtomicU32::new(0);
/// The thread that forks, by [`this_thread`]; 0 if none does.
static FORKING: AtomicUsize = AtomicUsize::new(0);
static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);

/// A visit of the loader.
pub(crate) struct Visit;

impl Visit {
    /// Begins a visit when no other thread forks.
    pub(crate) fn begin() -> Self {
        // No `Once`: a child that is forked in the middle would wait for it.
        if !HAS_HANDLERS.load(Ordering::Relaxed) && !HAS_HANDLERS.swap(true, Ordering::Relaxed) {
            // SAFETY: the handlers touch atomics alone. Without memory for them, forks are as they would be without us.
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        }
        let is_free = || {
            let forking = FORKING.load(Ordering::SeqCst);
            forking == 0 || forking == this_thread()
        };
        let mut is_late = false;
        loop {
            VISITORS.fetch_add(1, Ordering::SeqCst);
            if is_late || is_free() {
                return Self;
            }
            VISITORS.fetch_sub(1, Ordering::SeqCst);
            is_late = !wait_until(is_free);
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        VISITORS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Identifies the calling thread.
fn this_thread() -> usize {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::pthread_self() as usize }
}

/// Waits until `is_reached`, and returns whether it was in time.
fn wait_until(is_reached: impl Fn() -> bool) -> bool {
    let mut since = None;
    while !is_reached() {
        // The clock is read only if there is a wait.
        if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

extern "C" fn before() {
    let take = || FORKING.compare_exchange(0, this_thread(), Ordering::SeqCst, Ordering::SeqCst).is_ok();
    if wait_until(take) {
        wait_until(|| VISITORS.load(Ordering::SeqCst) == 0);
    }
}

extern "C" fn in_parent() {
    // Fails if another thread's fork took longer than this one waited.
    let _ = FORKING.compare_exchange(this_thread(), 0, Ordering::SeqCst, Ordering::SeqCst);
}

extern "C" fn in_child() {
    VISITORS.store(0, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::Loads;

    #[test]
    fn children_that_are_forked_during_visits_can_ask_the_loader() {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        Loads::now();
                    }
                });
            }
            let ends: Vec<i32> = (0..500)
                .map(|_| {
                    let mut status = -1;
                    // SAFETY: the child calls the loader, which this test is about, and functions that are safe after a fork.
                    unsafe {
                        let child = libc::fork();
                        if child == 0 {
                            libc::alarm(5);
                            Loads::now();
                            libc::_exit(0);
                        }
                        libc::waitpid(child, &raw mut status, 0);
                    }
                    status
                })
                .take_while(|&status| status == 0)
                .collect();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(ends.len(), 500, "the child after these never returned from the loader");
        });
    }
}
