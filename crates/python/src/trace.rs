//! The tracer of calls: every call and return of a Python or native function, with the resident size of the process.
//!
//! Invariants: the state is used by threads that hold the interpreter's lock, so it has no lock of its own; between two
//! events nothing is allocated but for functions that are seen for the first time, and what is kept of those is in
//! memory that was backed when the trace began; nothing panics on the way of an event.
//!
//! | module | what lives there |
//! |---|---|
//! | `hooks` | what the interpreter calls, by version |
//! | `functions` | names of functions and lines of code |
//! | `natives` | what identifies native functions and types, and their names |
//! | `filter` | which functions are traced |
//! | `faults` | the change-driven mode, without events of the interpreter |
//! | `runs` | runs of adjacent pages, of which the change-driven mode takes fewer signals |
//! | `signals` | the signals of the kernel for that mode |
//! | `lines` | the mode that takes events of lines |
//! | `layout` | what it reads of the interpreter |
//! | `gate` | whether the resident size can have changed |
//! | `statm` | the resident size |
//! | `arena` | memory of the tracer |
#![expect(unsafe_code, reason = "keeps state that the interpreter's lock guards")]

mod arena;
mod faults;
mod filter;
mod functions;
mod gate;
mod hooks;
mod layout;
mod lines;
mod natives;
mod runs;
mod signals;
mod statm;

use std::cell::{Cell, UnsafeCell};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use floodmark_event::{CallAction, SubjectId};
use floodmark_tail::{self as tail, ThreadLane, TracedCall};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use self::filter::Filter;
use self::functions::Functions;
use self::gate::{Gate, RINGS, Ring};

/// The longest time that a change which the gate does not report goes unnoticed.
const POLL_NS: u64 = 1_000_000;
/// The same where changes are charged to lines: what takes longer belongs to the line in which it happened.
const LINES_POLL_NS: u64 = 20_000;
/// How long a thread takes it that there was no page fault, where a system call says so.
const RUSAGE_NS: u64 = 1_000;

/// Which events are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// None: no trace goes on.
    Off,
    /// All.
    Every,
    /// Those at which the resident size has changed since the last recorded one.
    Changes,
    /// Those and the event before each, on the same thread.
    Pairs,
    /// Stacks of lines in which the resident size has changed, and no calls.
    Lines,
}

/// State of the tracer.
struct Tracer {
    mode: Mode,
    gate: Gate,
    /// Number of the trace and of the process in it: threads prepare themselves anew when it changes.
    epoch: u32,
    /// What the thread of [`CURRENT`] keeps, and where it records.
    thread: *const Thread,
    lane: ThreadLane,
    /// When it was last found out whether the resident size has changed, and how long that is good, in ticks.
    polled: u64,
    poll_ticks: u64,
    /// The same for reading the size; it differs where a system call counts page faults.
    read_at: u64,
    read_ticks: u64,
    rss_pages: u32,
    /// The resident size at the latest recorded event, and the change that makes the next one recorded.
    reported_pages: u32,
    trigger_pages: u32,
    events: u64,
    recorded: u64,
    functions: Functions,
    /// The process as something that is observed, if stacks of lines are recorded; 0 before the first.
    subject: SubjectId,
    /// Keeps the file of the resident size open during a trace.
    statm: Option<StatmUse>,
    /// Since when there is growth that the threads which had events cannot have caused; 0 if there is none.
    uncharged_since: u64,
    /// Whether several threads had events since the latest recorded stack.
    has_switched: bool,
}

/// The thread that had the latest event, as [`thread_pointer`] returns it; 0 if there is none, or all have to begin anew.
/// A thread that ends takes itself away, without the interpreter's lock: the next one may have the same number.
static CURRENT: AtomicUsize = AtomicUsize::new(0);

/// Returns what tells the calling thread from others that run. Thread-local variables of a library that is loaded later
/// take a call to find, this is an instruction.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
fn thread_pointer() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let pointer: usize;
        // SAFETY: reads the word at which the thread's own block has its address, on every Linux system.
        unsafe {
            std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly, pure));
        }
        pointer
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: no arguments, cannot fail.
    unsafe {
        libc::pthread_self() as usize
    }
}

struct State(UnsafeCell<Tracer>);

// SAFETY: threads use it while they hold the interpreter's lock (`gil_used` of the module), or in a forked child
// before any other thread runs.
unsafe impl Sync for State {}

static STATE: State = State(UnsafeCell::new(Tracer {
    mode: Mode::Off,
    gate: Gate::Rusage,
    epoch: 0,
    thread: std::ptr::null(),
    lane: ThreadLane::nowhere(),
    polled: 0,
    poll_ticks: 0,
    read_at: 0,
    read_ticks: 0,
    rss_pages: 0,
    reported_pages: 0,
    trigger_pages: 0,
    events: 0,
    recorded: 0,
    functions: Functions::new(),
    subject: SubjectId(0),
    statm: None,
    uncharged_since: 0,
    has_switched: false,
}));

/// # Safety
/// The calling thread holds the interpreter's lock and has no other reference to the state.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
unsafe fn state() -> &'static mut Tracer {
    // SAFETY: the caller's promise.
    unsafe { &mut *STATE.0.get() }
}

/// What a thread keeps between events.
struct Thread {
    epoch: Cell<u32>,
    /// Word that changes when the resident size may have changed, and what it was.
    head: Cell<*const AtomicU64>,
    seen: Cell<u64>,
    /// Page faults so far, if a system call counts them.
    faults: Cell<u64>,
    /// The latest event that was not recorded, and the Python function that it was in.
    previous: Cell<Option<(TracedCall, u32)>>,
    /// Page faults since its latest recorded stack, where changes are charged to lines.
    own_faults: Cell<u64>,
    /// Where it was at the latest event of a line.
    place: Cell<lines::CodePlace>,
    /// Whether it is a thread of ours, whose events are not the program's.
    is_ignored: Cell<bool>,
}

impl Thread {
    fn add_faults(&self, count: u64) {
        self.own_faults.set(self.own_faults.get().wrapping_add(count));
    }
}

/// What a thread gives back when it ends: the number of its ring, or 0.
struct ThreadRing(Cell<u64>);

thread_local! {
    static THREAD: Thread = const {
        Thread {
            epoch: Cell::new(0),
            head: Cell::new(std::ptr::null()),
            seen: Cell::new(0),
            faults: Cell::new(0),
            previous: Cell::new(None),
            own_faults: Cell::new(0),
            place: Cell::new(lines::CodePlace::nowhere()),
            is_ignored: Cell::new(false),
        }
    };
    static RING: ThreadRing = const { ThreadRing(Cell::new(0)) };
}

impl Drop for ThreadRing {
    fn drop(&mut self) {
        // The head must not be read once the ring is unmapped.
        let _ = CURRENT.compare_exchange(thread_pointer(), 0, Ordering::Relaxed, Ordering::Relaxed);
        let _ = THREAD.try_with(|thread| {
            thread.head.set(gate::no_head());
            thread.epoch.set(0);
        });
        RINGS.remove(self.0.get());
    }
}

impl Tracer {
    /// Returns what the calling thread keeps if nothing has changed since its latest event: no other thread had one, the
    /// resident size is the same, and was read not too long ago.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    fn unchanged_thread(&self, ticks: u64) -> Option<&'static Thread> {
        if CURRENT.load(Ordering::Relaxed) != thread_pointer()
            || ticks.wrapping_sub(self.polled) > self.poll_ticks
        {
            return None;
        }
        // SAFETY: it is the calling thread's, which is alive. Its head is that of its own ring, which is mapped, or the
        // one that never changes.
        unsafe {
            let thread = &*self.thread;
            let head = (*thread.head.get()).load(Ordering::Acquire);
            (head == thread.seen.get()).then_some(thread)
        }
    }

    /// Takes one event of the function `caller` or of a native one that it calls; `function` returns the frame and the line,
    /// and is called if they are needed.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    fn event(
        &mut self,
        action: CallAction,
        caller: u32,
        function: impl FnOnce(&mut Functions) -> (u32, u32),
    ) {
        let ticks = tail::ticks();
        let Some(thread) = self.unchanged_thread(ticks).or_else(|| self.refresh(ticks)) else { return };
        self.events += 1;
        let rss_pages = self.rss_pages;
        if self.mode == Mode::Every {
            let (code, line) = function(&mut self.functions);
            // SAFETY: the lane is that of the calling thread, see `unchanged_thread`.
            unsafe { tail::traced_call_on(self.lane, &TracedCall { action, code, line, rss_pages, ticks }) };
            return;
        }
        let has_changed = rss_pages.abs_diff(self.reported_pages) >= self.trigger_pages;
        if !has_changed && self.mode == Mode::Changes {
            return;
        }
        let (code, line) = function(&mut self.functions);
        let call = TracedCall { action, code, line, rss_pages, ticks };
        if has_changed {
            self.record_change(thread, call, caller);
        } else {
            thread.previous.set(Some((call, caller)));
        }
    }

    #[cold]
    fn record_change(&mut self, thread: &Thread, call: TracedCall, caller: u32) {
        if let Some((previous, caller)) = thread.previous.take() {
            self.record(previous, caller);
        }
        self.record(call, caller);
        self.reported_pages = call.rss_pages;
    }

    fn record(&mut self, mut call: TracedCall, caller: u32) {
        if call.code != caller {
            call.code = self.functions.called_from(call.code, caller);
        }
        tail::traced_call(&call);
        self.recorded += 1;
    }

    /// Reads the resident size if it may have changed, and prepares threads that are new; `None` if no trace goes on or the
    /// thread is ignored.
    #[cold]
    #[inline(never)]
    fn refresh(&mut self, ticks: u64) -> Option<&'static Thread> {
        if self.mode == Mode::Off {
            return None;
        }
        // SAFETY: the reference is used by this thread, during an event.
        let thread = unsafe { &*THREAD.with(std::ptr::from_ref) };
        // Such a thread never becomes the current one, so that all its events come here.
        if thread.is_ignored.get() {
            return None;
        }
        if thread.epoch.get() != self.epoch {
            self.prepare(thread);
        }
        let is_same = CURRENT.load(Ordering::Relaxed) == thread_pointer();
        // SAFETY: as in `unchanged_thread`; a thread that is prepared has a head.
        let head = unsafe { (*thread.head.get()).load(Ordering::Acquire) };
        if std::ptr::eq(thread.head.get(), gate::no_head()) {
            // With another gate this thread alone has no ring: the head never equals what was seen, so that every
            // event comes here.
            let is_gate = self.gate == Gate::Rusage;
            thread.seen.set(if is_gate { head } else { u64::MAX });
            let faults = gate::thread_faults();
            let before = thread.faults.replace(faults);
            let has_faulted = faults != before;
            thread.add_faults(faults.wrapping_sub(before));
            if !has_faulted && is_same && ticks.wrapping_sub(self.read_at) <= self.read_ticks {
                if is_gate {
                    self.polled = ticks;
                }
                return Some(thread);
            }
        } else {
            // The kernel writes a header without anything behind it for each.
            thread.add_faults(head.wrapping_sub(thread.seen.replace(head)) / 8);
        }
        if !is_same {
            self.has_switched = true;
            self.thread = thread;
            self.lane = tail::global().thread_lane();
            hooks::enter_thread();
            CURRENT.store(thread_pointer(), Ordering::Relaxed);
        }
        (self.polled, self.read_at) = (ticks, ticks);
        match statm::resident_pages() {
            0 => {}
            pages => self.rss_pages = pages,
        }
        hooks::poll();
        Some(thread)
    }

    /// Gives a thread its ring and its memory in the trace.
    fn prepare(&self, thread: &Thread) {
        tail::global().reserve_lane();
        let ring = Ring::open(self.gate);
        thread.head.set(ring.as_ref().map_or_else(gate::no_head, Ring::head));
        thread.previous.set(None);
        thread.place.set(lines::CodePlace::nowhere());
        // SAFETY: the head of the ring that was just mapped, or the one that never changes.
        thread.seen.set(unsafe { (*thread.head.get()).load(Ordering::Acquire) });
        thread.faults.set(gate::thread_faults());
        thread.own_faults.set(0);
        // A thread whose ring was refused (there is a limit of memory for them) counts its faults by system calls.
        let kept = RING.try_with(|kept| {
            let number = ring.map_or(0, |ring| RINGS.add(ring));
            RINGS.remove(kept.0.replace(number));
        });
        if kept.is_err() {
            // The thread ends; the ring was dropped with the closure.
            thread.head.set(gate::no_head());
        }
        thread.epoch.set(self.epoch);
    }
}

/// Runs in a forked child before anything else: rings are not inherited, and the file of the resident size is the
/// parent's.
extern "C" fn after_fork() {
    // SAFETY: the child has one thread, which forked with the interpreter's lock or does not use the interpreter.
    let tracer = unsafe { state() };
    CURRENT.store(0, Ordering::Relaxed);
    tracer.epoch = tracer.epoch.wrapping_add(1);
    tracer.reported_pages = 0;
    tracer.subject = SubjectId(0);
    let _ = THREAD.try_with(|thread| {
        thread.head.set(gate::no_head());
        thread.previous.set(None);
    });
    let _ = RING.try_with(|kept| kept.0.set(0));
    RINGS.forget();
    statm::close_statm();
    faults::after_fork();
}

/// Has forked children begin anew.
pub(crate) fn watch_forks() {
    static AT_FORK: Once = Once::new();
    AT_FORK.call_once(|| {
        // SAFETY: the function lives as long as the process.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
    });
}

/// Prepare to trace calls into the recording that goes on; return the name of the gate, how exact the resident sizes
/// are, and what would make them more exact.
#[pyfunction]
#[pyo3(signature = (mode, trigger_bytes, package, include, exclude, gate = None))]
pub(crate) fn begin_trace(
    mode: &str,
    trigger_bytes: u64,
    package: String,
    include: Vec<String>,
    exclude: Vec<String>,
    gate: Option<&str>,
) -> PyResult<(&'static str, String, &'static str)> {
    let mode = match mode {
        "every" => Mode::Every,
        "changes" => Mode::Changes,
        "pairs" => Mode::Pairs,
        "lines" => Mode::Lines,
        _ => {
            return Err(PyValueError::new_err(format!(
                "there is no mode {mode:?}: use every, changes, pairs or lines"
            )));
        }
    };
    if !tail::is_recording() {
        return Err(PyRuntimeError::new_err(
            "calls are traced into a recording, and there is none: use floodmark.trace.start",
        ));
    }
    // SAFETY: a function that Python calls holds the interpreter's lock.
    let tracer = unsafe { state() };
    if tracer.mode != Mode::Off {
        return Err(PyRuntimeError::new_err("this process traces calls already"));
    }
    if mode == Mode::Lines {
        layout::require_known("lines")?;
    }
    watch_forks();
    tail::calibrate();
    tail::global().reserve_names();
    // SAFETY: functions that Python calls are attached to the interpreter.
    let is_layout_known = unsafe { layout::is_known() };
    tracer.functions.begin(Filter { package, include, exclude }, is_layout_known);
    tracer.gate = Gate::probe(gate);
    tracer.epoch = tracer.epoch.wrapping_add(1);
    CURRENT.store(0, Ordering::Relaxed);
    tracer.read_ticks = tail::ticks_in(if mode == Mode::Lines { LINES_POLL_NS } else { POLL_NS });
    tracer.poll_ticks =
        if tracer.gate == Gate::Rusage { tail::ticks_in(RUSAGE_NS) } else { tracer.read_ticks };
    tracer.trigger_pages = u32::try_from(trigger_bytes.div_ceil(4096)).unwrap_or(u32::MAX).max(1);
    (tracer.events, tracer.recorded) = (0, 0);
    let error = gate::measure_error();
    tail::global().reserve_lane();
    tracer.statm = Some(StatmUse::begin());
    tracer.rss_pages = statm::resident_pages();
    // So that the first event is recorded: changes are counted from it.
    tracer.reported_pages = 0;
    tracer.subject = SubjectId(0);
    tracer.mode = mode;
    if mode == Mode::Lines {
        tracer.begin_lines();
    }
    let mut exactness = tracer.gate.exactness().to_owned();
    if mode == Mode::Lines {
        exactness = exactness.replace("1 ms", "20 µs");
    }
    if error > 0 {
        exactness = format!("{exactness}; this kernel counts pages with an error of up to {error}");
    }
    Ok((tracer.gate.name(), exactness, tracer.gate.remedy()))
}

/// End the trace of calls; return how many events were seen, how many were recorded, and how many were of functions that
/// there was no memory to name.
#[pyfunction]
pub(crate) fn end_trace() -> (u64, u64, u64) {
    // SAFETY: a function that Python calls holds the interpreter's lock.
    let tracer = unsafe { state() };
    let recorded = if tracer.mode == Mode::Every { tracer.events } else { tracer.recorded };
    if tracer.mode == Mode::Lines {
        tracer.end_lines();
    }
    tracer.mode = Mode::Off;
    CURRENT.store(0, Ordering::Relaxed);
    // No thread reads a head any more: that begins with another trace, for which threads prepare themselves anew.
    RINGS.clear();
    tracer.statm = None;
    (tracer.events, recorded, tracer.functions.unnamed)
}

/// Trace nothing that the calling thread does, until it ends.
#[pyfunction]
pub(crate) fn ignore_thread() {
    THREAD.with(|thread| thread.is_ignored.set(true));
    let _ = CURRENT.compare_exchange(thread_pointer(), 0, Ordering::Relaxed, Ordering::Relaxed);
    faults::ignore_thread();
}

/// Whether calls are traced.
#[pyfunction]
pub(crate) fn is_tracing() -> bool {
    // SAFETY: a function that Python calls holds the interpreter's lock.
    unsafe { state() }.mode != Mode::Off
}

pub(crate) use faults::{begin_fault_trace, end_fault_trace, prepare_thread};
pub(crate) use hooks::{install_profile, monitoring_callbacks, profile_thread, remove_profile};
pub(crate) use statm::{StatmUse, close_unused_statm, resident_pages};
