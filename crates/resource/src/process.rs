//! Forks and the end of the process: what a child must not take over from its parent, and what has to be written
//! before it is too late.
#![expect(unsafe_code, reason = "asks the system for numbers, and to be called at forks and at exit")]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, Weak};

static FORKS: AtomicU32 = AtomicU32::new(0);
static TOLD: Once = Once::new();

thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Something that buffers, or has something to say at the end.
///
/// The current resource of a device, like any static, is never dropped, so its destructor is no place for that.
pub(crate) trait Lasting: Send + Sync {
    /// Called once when the process exits normally. Other threads may still run.
    fn at_exit(&self);

    /// Called in the parent before it forks.
    fn before_fork(&self) {}
}

static LASTING: Mutex<Vec<Weak<dyn Lasting>>> = Mutex::new(Vec::new());
static IS_EXITING: AtomicBool = AtomicBool::new(false);
static CALLED_AT_EXIT: Once = Once::new();

/// Whether the process is exiting: there may be no later call.
pub(crate) fn is_exiting() -> bool {
    IS_EXITING.load(Ordering::Relaxed)
}

/// Has `lasting` called at exit and before forks, as long as it lives.
pub(crate) fn keep_informed(lasting: &Arc<impl Lasting + 'static>) {
    listen();
    // SAFETY: the function lives as long as the process. If it cannot be registered, it is not called.
    CALLED_AT_EXIT.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
    let Ok(mut all) = LASTING.lock() else { return };
    all.retain(|other| other.strong_count() > 0);
    let lasting = Arc::downgrade(lasting);
    all.push(lasting);
}

/// Returns all that are alive. None if another thread has the list: it must not be waited for here.
fn lasting() -> Vec<Arc<dyn Lasting>> {
    LASTING.try_lock().map_or_else(|_| Vec::new(), |all| all.iter().filter_map(Weak::upgrade).collect())
}

extern "C" fn at_exit() {
    IS_EXITING.store(true, Ordering::Relaxed);
    for lasting in lasting() {
        // A panic must not leave a function that C calls.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lasting.at_exit()));
        // Dropping the last one here could give memory back to a driver that is gone already.
        std::mem::forget(lasting);
    }
}

extern "C" fn before_fork() {
    for lasting in lasting() {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lasting.before_fork()));
    }
}

/// Runs in a child, on its only thread.
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    THREAD.set(0);
}

fn listen() {
    // SAFETY: the functions live as long as the process. The one that runs in the child only stores two numbers,
    // which is allowed between fork and exec. If there is no memory to register them, forks are not noticed.
    TOLD.call_once(|| unsafe {
        libc::pthread_atfork(Some(before_fork), None, Some(in_child));
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
