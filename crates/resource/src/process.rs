//! What a forked child must not take over from its parent.
#![expect(unsafe_code, reason = "asks the system for numbers and to be told of forks")]

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);
static TOLD: Once = Once::new();

thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Runs in a child, on its only thread.
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    THREAD.set(0);
}

fn listen() {
    // SAFETY: the function lives as long as the process and only stores two numbers, which is allowed
    // between fork and exec. If there is no memory to register it, forks are not noticed.
    TOLD.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

/// How many forks lie between the first process and this one, counted from the first call. What was
/// buffered at another number is the parent's.
pub(crate) fn forks() -> u32 {
    listen();
    FORKS.load(Ordering::Relaxed)
}

/// The system's number of the calling thread.
pub(crate) fn thread_id() -> u64 {
    match THREAD.get() {
        0 => {
            listen();
            // SAFETY: no arguments, cannot fail.
            let id = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
            THREAD.set(id);
            id
        }
        id => id,
    }
}
