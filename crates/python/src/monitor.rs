//! The monitor: a thread that records resident size and processor time of its own process.
//!
//! Invariants: the thread never runs Python and never takes the interpreter's lock; it blocks all signals, so that the
//! program's handlers run where they did before. A forked child has no thread: the package ends
//! it before a fork and begins it anew in both processes, and a fork that Python does not know of leaves it to the
//! parent.
#![expect(unsafe_code, reason = "reads clocks and blocks signals in a thread")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use floodmark_event::sample::{Metric, Subject, SubjectId, SubjectKind};
use floodmark_tail::{self as tail, When};
use pyo3::prelude::*;

use crate::trace::{self, StatmUse};

/// Recording takes little of it, and the kernel backs what is touched alone.
const STACK_BYTES: usize = 128 << 10;

/// Tells the thread to end.
#[derive(Default)]
struct Stop {
    is_wanted: Mutex<bool>,
    changed: Condvar,
}

struct Running {
    /// The process that the thread is of.
    process: u32,
    stop: Arc<Stop>,
    thread: JoinHandle<(u64, u64)>,
    statm: StatmUse,
}

impl Running {
    /// Forgets a thread that does not exist in this process.
    fn forget(self) {
        let Self { stop, thread, statm, .. } = self;
        std::mem::forget((stop, thread));
        drop(statm);
    }
}

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process and the recording that [`OWN`] is of, 0 if of none; both change while the interpreter's lock is held.
static OWN_OF: AtomicU64 = AtomicU64::new(0);
static OWN: AtomicU32 = AtomicU32::new(0);

/// Returns the calling process as something that is observed, the same to all that record it: sizes of several subjects
/// are added up. The caller holds the interpreter's lock.
pub(crate) fn own_subject() -> SubjectId {
    // A forked child is another process, and a subject is known to its recording only.
    let own_of = u64::from(std::process::id()) << 32 | u64::from(tail::recording());
    if OWN_OF.load(Ordering::Acquire) != own_of {
        // A fork in between makes the child define its own.
        OWN_OF.store(0, Ordering::Release);
        let subject = define_own_subject();
        OWN.store(subject.0, Ordering::Relaxed);
        if subject.0 != 0 {
            OWN_OF.store(own_of, Ordering::Release);
        }
    }
    SubjectId(OWN.load(Ordering::Relaxed))
}

fn define_own_subject() -> SubjectId {
    let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    tail::subject(&Subject {
        kind: SubjectKind::Process,
        number: u64::from(std::process::id()),
        start_ns: 0,
        parent: SubjectId(0),
        name: "python".to_owned(),
        detail: command.trim_end().to_owned(),
    })
}

/// Reads a clock of processor time in nanoseconds.
fn processor_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the value is writable.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Records one sample; returns how many that were: none if the system does not say the size.
fn sample(subject: SubjectId) -> u64 {
    let bytes = u64::from(trace::resident_pages()) * 4096;
    if bytes == 0 {
        return 0;
    }
    let processor_ns = processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    tail::samples(subject, &[(Metric::Rss, bytes), (Metric::CpuTime, processor_ns)], When::Now);
    1
}

/// Records samples until it is stopped, and a last one; returns their number and the processor time that it took.
fn watch(subject: SubjectId, stop: &Stop, interval: Duration) -> (u64, u64) {
    let mut count = 0;
    let mut next = Instant::now();
    let mut is_wanted = lock(&stop.is_wanted);
    while !*is_wanted {
        // A sample that comes late does not make the next ones come early.
        let now = Instant::now();
        next = (next + interval).max(now);
        let left = next - now;
        // A wait may end for no reason; that is no time for a sample.
        is_wanted = stop
            .changed
            .wait_timeout_while(is_wanted, left, |is_wanted| !*is_wanted)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        count += if *is_wanted { 0 } else { sample(subject) };
    }
    (count + sample(subject), processor_ns(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// Runs a function with all signals blocked in the calling thread, which threads that it starts inherit.
fn with_signals_blocked<T>(run: impl FnOnce() -> T) -> T {
    // SAFETY: all zeros are a valid set, which the calls fill; the thread gets its own set back.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let result = run();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        result
    }
}

/// Wait until the resident size of the process has reached `bytes`, or for a time; return the size then.
#[pyfunction]
pub(crate) fn wait_for_rss(py: Python<'_>, bytes: u64, timeout_ns: u64) -> u64 {
    const POLL: Duration = Duration::from_millis(2);
    let deadline = Instant::now() + Duration::from_nanos(timeout_ns);
    let size = py.detach(|| {
        loop {
            let resident = u64::from(trace::resident_pages()) * 4096;
            let left = deadline.saturating_duration_since(Instant::now());
            if resident >= bytes || left.is_zero() {
                return resident;
            }
            std::thread::sleep(left.min(POLL));
        }
    });
    trace::close_unused_statm();
    size
}

/// Record resident size and processor time of the process at an interval, from a thread of its own; return whether it
/// was started, and not already running.
#[pyfunction]
pub(crate) fn start_monitor(interval_ns: u64) -> PyResult<bool> {
    let mut running = lock(&RUNNING);
    match running.take() {
        Some(one) if one.process == std::process::id() => {
            *running = Some(one);
            return Ok(false);
        }
        // The thread is that of the process which forked this one: there is nothing to wait for.
        Some(other) => other.forget(),
        None => {}
    }
    let stop = Arc::new(Stop::default());
    let shared = Arc::clone(&stop);
    let builder = std::thread::Builder::new().name("floodmark-watch".to_owned()).stack_size(STACK_BYTES);
    let interval = Duration::from_nanos(interval_ns);
    trace::watch_forks();
    let statm = StatmUse::begin();
    // The first sample is of this instant, however long the thread takes to begin.
    let subject = own_subject();
    let first = sample(subject);
    let run = move || {
        let (count, processor_ns) = watch(subject, &shared, interval);
        (first + count, processor_ns)
    };
    let thread = with_signals_blocked(|| builder.spawn(run))?;
    *running = Some(Running { process: std::process::id(), stop, thread, statm });
    Ok(true)
}

/// End the monitor after a last sample; return the number of samples and the processor time of its thread in nanoseconds.
#[pyfunction]
pub(crate) fn stop_monitor(py: Python<'_>) -> (u64, u64) {
    let Some(running) = lock(&RUNNING).take() else { return (0, 0) };
    if running.process != std::process::id() {
        running.forget();
        return (0, 0);
    }
    let Running { stop, thread, statm, .. } = running;
    let result = py.detach(|| {
        *lock(&stop.is_wanted) = true;
        stop.changed.notify_all();
        thread.join().unwrap_or_default()
    });
    drop(statm);
    result
}
