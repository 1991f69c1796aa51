//! The change-driven mode: no event of the interpreter is traced; the kernel interrupts the thread that touches new
//! pages, and the handler records the Python stack and the resident size.
//!
//! Invariants: the handler allocates nothing, takes no lock that it could interrupt, and reads objects of the
//! interpreter without changing them. It may have interrupted `malloc`, and the first use of a thread-local variable
//! calls that; so it records only on threads that were prepared, see [`prepare_thread`], and knows those without
//! thread-local variables. The layout of frames is checked when the mode begins.
#![expect(unsafe_code, reason = "handles a signal and walks the frames of the interrupted thread")]

use std::ffi::{c_int, c_void};
use std::os::fd::IntoRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use floodmark_event::StackId;
use floodmark_event::sample::{Metric, StackReason, StackSeen, SubjectId};
use floodmark_event::tables::Frame;
use floodmark_tail::{self as tail, When};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;

use super::functions::line_of;
use super::runs::{PAGE, Run};
use super::signals::{self, FIRST_KERNEL, SIGNAL_DATA, ThreadEvent, open_events};
use super::statm::{self, StatmUse};
use super::{layout, lines, thread_pointer};

/// Frames of a stack beyond these are left out, the outermost first.
const MAX_FRAMES: usize = 64;
/// `TRAP_PERF`: why the kernel sends the signal.
const TRAP_PERF: c_int = 6;

/// The process as something that is observed; 0 while nothing is recorded.
static SUBJECT: AtomicU32 = AtomicU32::new(0);
static TRIGGER_PAGES: AtomicU32 = AtomicU32::new(1);
static REPORTED_PAGES: AtomicU32 = AtomicU32::new(0);
static SAMPLES: AtomicU32 = AtomicU32::new(0);
static EVENTS: Mutex<Vec<ThreadEvent>> = Mutex::new(Vec::new());
/// Whether the kernel was asked to signal fewer pages of a thread: threads that it starts then inherit that.
static HAS_RUNS: AtomicBool = AtomicBool::new(false);
/// What handled the signal before.
static EARLIER: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

/// Frames that were named, by code and instruction.
#[derive(Clone, Copy)]
struct Named {
    code: usize,
    line_table: usize,
    function: usize,
    offset: i32,
    frame: u32,
    recording: u32,
}

const NAMED: usize = 4096;

/// What is remembered of earlier stacks.
struct Names {
    frames: [Named; NAMED],
    /// The latest stack, the outermost frame first: each frame, and the stack up to it.
    latest: [(u32, StackId); MAX_FRAMES],
    latest_recording: u32,
}

struct NamesCell(std::cell::UnsafeCell<Names>);
// SAFETY: used by the handler that has set `NAMES_TAKEN`.
unsafe impl Sync for NamesCell {}
static NAMES: NamesCell = NamesCell(std::cell::UnsafeCell::new(Names {
    frames: [Named { code: 0, line_table: 0, function: 0, offset: 0, frame: 0, recording: 0 }; NAMED],
    latest: [(0, StackId(0)); MAX_FRAMES],
    latest_recording: 0,
}));
static NAMES_TAKEN: AtomicBool = AtomicBool::new(false);

/// Threads that may record.
struct Prepared {
    /// What [`thread_pointer`] returns for the thread; 0 for a free entry.
    pointer: AtomicUsize,
    /// Number of the thread: a system call returns it, which takes as long as much of the handler.
    thread: AtomicU32,
    /// Set while its handler runs, which may touch new memory itself.
    is_busy: AtomicBool,
    /// Signals that it got.
    signals: AtomicU32,
    /// Descriptor of its event for page faults, if runs of pages are followed; else -1.
    event: AtomicI32,
    run: RunCell,
}

struct RunCell(std::cell::UnsafeCell<Run>);
// SAFETY: used by the one that has set `is_busy`.
unsafe impl Sync for RunCell {}

impl Prepared {
    const fn free() -> Self {
        Self {
            pointer: AtomicUsize::new(0),
            thread: AtomicU32::new(0),
            is_busy: AtomicBool::new(false),
            signals: AtomicU32::new(0),
            event: AtomicI32::new(NO_EVENT),
            run: RunCell(std::cell::UnsafeCell::new(Run::new())),
        }
    }

    /// Calls `act` with the run of the thread, unless a handler or another thread uses it.
    fn with_run(&self, act: impl FnOnce(&mut Run, c_int)) {
        if !self.is_busy.swap(true, Ordering::Acquire) {
            // SAFETY: `is_busy` was not set.
            act(unsafe { &mut *self.run.0.get() }, self.event.load(Ordering::Relaxed));
            self.is_busy.store(false, Ordering::Release);
        }
    }
}

const NO_EVENT: c_int = -1;

const THREADS: usize = 1024;
static PREPARED: [Prepared; THREADS] = [const { Prepared::free() }; THREADS];
/// Interruptions of threads that were not prepared.
static UNPREPARED: AtomicU32 = AtomicU32::new(0);

/// Takes a thread off the list when it ends.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(entry) = find_thread(thread_pointer()) {
            entry.pointer.store(0, Ordering::Relaxed);
        }
    }
}

thread_local! {
    static GUARD: Guard = const { Guard };
}

pub(super) fn current_thread() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Finds the entry of the calling thread, or a free one for it if `pointer` is 0. Entries of threads are near each other.
fn find_thread(pointer: usize) -> Option<&'static Prepared> {
    // Blocks of threads are at least a page apart.
    let first = thread_pointer() >> 12;
    (0..THREADS)
        .map(|probe| &PREPARED[(first + probe) % THREADS])
        .take(64)
        .find(|entry| entry.pointer.load(Ordering::Relaxed) == pointer)
}

/// Returns the entries of threads that are prepared.
fn used_entries() -> impl Iterator<Item = &'static Prepared> {
    PREPARED.iter().filter(|entry| entry.pointer.load(Ordering::Relaxed) != 0)
}

/// Prepare the calling thread to record stacks.
#[pyfunction]
pub(crate) fn prepare_thread() {
    let pointer = thread_pointer();
    // Both use thread-local variables for the first time, here and not in the handler.
    tail::global().reserve_lane();
    if GUARD.try_with(|_| ()).is_err() || find_thread(pointer).is_some() {
        return;
    }
    while let Some(entry) = find_thread(0) {
        if entry.pointer.compare_exchange(0, pointer, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            entry.thread.store(current_thread(), Ordering::Relaxed);
            entry.is_busy.store(false, Ordering::Relaxed);
            attach_event(entry);
            if HAS_RUNS.load(Ordering::Relaxed) && entry.event.load(Ordering::Relaxed) == NO_EVENT {
                require_single_pages(entry);
            }
            return;
        }
    }
}

/// Has a thread follow runs of pages if it has an event of its own.
fn attach_event(entry: &Prepared) {
    let thread = entry.thread.load(Ordering::Relaxed);
    let events = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let own = events.iter().find(|event| event.is_single && event.thread == thread);
    entry.event.store(own.map_or(NO_EVENT, |event| event.descriptor), Ordering::Relaxed);
    entry.with_run(|run, _| *run = Run::new());
}

/// Opens an event for the calling thread if the one that it inherited does not signal every page, because the thread that
/// started it was within a run.
fn require_single_pages(entry: &Prepared) {
    const PAGES: usize = 2;
    // Signals are counted, and nothing is recorded.
    entry.is_busy.store(true, Ordering::Relaxed);
    let before = entry.signals.load(Ordering::Relaxed);
    // SAFETY: a new mapping touches nothing of ours; it is written within its bounds and unmapped at the end.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = libc::mmap(std::ptr::null_mut(), PAGES * PAGE, protection, flags, -1, 0);
        if base != libc::MAP_FAILED {
            for index in 0..PAGES {
                base.cast::<u8>().add(index * PAGE).write_volatile(1);
            }
            libc::munmap(base, PAGES * PAGE);
        }
    }
    let signals = entry.signals.load(Ordering::Relaxed).wrapping_sub(before) as usize;
    entry.is_busy.store(false, Ordering::Relaxed);
    if signals < PAGES
        && let Ok(event) = signals::page_faults(1).open(0, -1)
    {
        let thread = entry.thread.load(Ordering::Relaxed);
        let own = ThreadEvent { thread, descriptor: event.into_raw_fd(), is_single: true };
        EVENTS.lock().unwrap_or_else(PoisonError::into_inner).push(own);
        attach_event(entry);
    }
}

/// Has the calling thread record nothing until it ends.
pub(super) fn ignore_thread() {
    prepare_thread();
    if let Some(entry) = find_thread(thread_pointer()) {
        // As if its handler were running.
        entry.is_busy.store(true, Ordering::Relaxed);
    }
}

unsafe extern "C" fn on_trap(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid `info`; the value of the event stands behind the address, which is 0 for a
    // release of memory.
    let (address, is_ours) = unsafe {
        let [address, data] = info.cast::<u64>().add(2).cast::<[u64; 2]>().read();
        (address as usize, (*info).si_code == TRAP_PERF && data == SIGNAL_DATA)
    };
    if !is_ours {
        // SAFETY: passes on what the kernel passed.
        return unsafe { pass_on(signal, info, context) };
    }
    // SAFETY: every thread has its own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    match find_thread(thread_pointer()) {
        Some(entry) => {
            entry.signals.fetch_add(1, Ordering::Relaxed);
            let thread = entry.thread.load(Ordering::Relaxed);
            entry.with_run(|run, event| record(thread, run, event, address));
        }
        None => {
            UNPREPARED.fetch_add(1, Ordering::Relaxed);
        }
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// # Safety
/// The arguments are those of a handler.
#[cold]
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: what was installed before is called as the system would.
    unsafe {
        let Some(earlier) = EARLIER.load(Ordering::Acquire).as_ref() else { return };
        match earlier.sa_sigaction {
            libc::SIG_IGN => {}
            libc::SIG_DFL => {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
            handler if earlier.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}

/// Records the stack of the calling thread if the resident size has changed enough.
fn record(thread: u32, run: &mut Run, event: c_int, address: usize) {
    let subject = SubjectId(SUBJECT.load(Ordering::Relaxed));
    if subject.0 == 0 {
        return;
    }
    let pages = statm::resident_pages();
    let reported = REPORTED_PAGES.load(Ordering::Relaxed);
    if pages == 0 || pages.abs_diff(reported) < TRIGGER_PAGES.load(Ordering::Relaxed) {
        run.end(event);
        return;
    }
    // SAFETY: reads a thread-specific value; the frames of this thread do not change while it is interrupted.
    let stack = unsafe {
        let state = ffi::PyGILState_GetThisThreadState();
        stack_from(layout::current_frame(state), None)
    };
    // Of what was gained, the page that the signal is about is not the ended run's.
    let most = pages.saturating_sub(u32::from(address != 0));
    if let Some((ended, touched)) = run.follow(event, stack, address) {
        record_rest(subject, thread, ended, touched, most);
    }
    if run.is_coarse() {
        HAS_RUNS.store(true, Ordering::Relaxed);
    }
    REPORTED_PAGES.store(pages, Ordering::Relaxed);
    SAMPLES.fetch_add(1, Ordering::Relaxed);
    record_stack(subject, thread, stack, pages);
}

/// Records what a run of pages gained after its last signal: as many pages as it touched, to the size `most`.
fn record_rest(subject: SubjectId, thread: u32, stack: StackId, touched: u32, most: u32) {
    let reported = REPORTED_PAGES.load(Ordering::Relaxed);
    let pages = reported.saturating_add(touched).min(most);
    if pages > reported {
        REPORTED_PAGES.store(pages, Ordering::Relaxed);
        SAMPLES.fetch_add(1, Ordering::Relaxed);
        record_stack(subject, thread, stack, pages);
    }
}

/// Records a stack of a thread with the resident size, which the stack made what it is.
pub(super) fn record_stack(subject: SubjectId, thread: u32, stack: StackId, pages: u32) {
    let when = When::At(tail::clock::monotonic_ns());
    let seen = StackSeen { thread: u64::from(thread), stack, reason: StackReason::Growth, pause_ns: 0 };
    tail::stack_sample(subject, &seen, when);
    tail::sample(subject, Metric::Rss, u64::from(pages) * 4096, when);
}

/// Returns the Python stack from a frame on, 0 if there is none; `place` is where its innermost function was, if not
/// where it is now.
///
/// # Safety
/// `frame` is a frame of the calling thread, or none, and the chain of frames does not change meanwhile.
pub(super) unsafe fn stack_from(frame: Option<*const u8>, mut place: Option<i32>) -> StackId {
    let mut frames = [0u32; MAX_FRAMES];
    let mut count = 0;
    // Another thread may be in the handler; this one then names its frames anew.
    let has_names = !NAMES_TAKEN.swap(true, Ordering::Acquire);
    let mut next = frame;
    while let Some(frame) = next {
        // SAFETY: a frame of the chain; code that is not a code object is skipped.
        unsafe {
            if count < MAX_FRAMES
                && let Some((code, offset)) = layout::code_of(frame)
            {
                let offset = place.take().unwrap_or(offset);
                let names = has_names.then(|| &mut *NAMES.0.get());
                let id = names.map_or_else(|| name(code, offset), |names| names.frame(code, offset));
                if id != 0 {
                    frames[count] = id;
                    count += 1;
                }
            }
            next = layout::previous(frame);
        }
    }
    if !has_names {
        return frames[..count]
            .iter()
            .rev()
            .fold(StackId(0), |parent, frame| tail::intern_stack(parent, *frame));
    }
    // SAFETY: this handler has set `NAMES_TAKEN`.
    let stack = unsafe { (*NAMES.0.get()).stack(frames[..count].iter().rev().copied()) };
    NAMES_TAKEN.store(false, Ordering::Release);
    stack
}

impl Names {
    /// Returns the stack of frames, the outermost first. What it shares with the latest one is not looked up again.
    fn stack(&mut self, frames: impl Iterator<Item = u32>) -> StackId {
        let recording = tail::recording();
        let mut is_shared = self.latest_recording == recording;
        self.latest_recording = recording;
        let mut stack = StackId(0);
        for (frame, latest) in frames.zip(&mut self.latest) {
            is_shared &= latest.0 == frame;
            if !is_shared {
                let found = tail::intern_stack(stack, frame);
                // A signal that interrupts the interning of another stack finds none, and remembers none.
                *latest = (if found == StackId(0) { 0 } else { frame }, found);
            }
            stack = latest.1;
        }
        stack
    }

    /// Names a frame, remembering it.
    ///
    /// # Safety
    /// `code` is a code object.
    unsafe fn frame(&mut self, code: *const u8, offset: i32) -> u32 {
        let key = (code.addr() >> 4) ^ (offset as usize).wrapping_mul(0x9e37_79b9);
        let slot = &mut self.frames[key % NAMED];
        // SAFETY: the caller's promise.
        let (line_table, function) = unsafe { layout::identity(code) };
        let wanted = Named {
            code: code.addr(),
            line_table,
            function,
            offset,
            frame: slot.frame,
            recording: tail::recording(),
        };
        let is_known = slot.code == wanted.code
            && slot.line_table == line_table
            && slot.function == function
            && slot.offset == offset
            && slot.recording == wanted.recording;
        if !is_known {
            // SAFETY: the caller's promise.
            let frame = unsafe { name(code, offset) };
            // A signal that interrupts the naming of another function finds no name.
            if frame == 0 {
                return 0;
            }
            *slot = Named { frame, ..wanted };
        }
        slot.frame
    }
}

/// Names the function and the line of an instruction, or of what [`lines::place_of_line`] returns for a line.
///
/// # Safety
/// `code` is a code object.
unsafe fn name(code: *const u8, offset: i32) -> u32 {
    let mut text = [0u8; 512];
    // SAFETY: the caller's promise.
    unsafe {
        let file = tail::intern(layout::text(layout::file(code), &mut text));
        let function = tail::intern(layout::text(layout::function(code), &mut text));
        let line = match lines::line_of_place(offset) {
            Some(line) => line,
            None => line_of(layout::line_table(code), layout::first_line(code), offset),
        };
        tail::intern_frame(&Frame { function, file, line, ..Frame::default() })
    }
}

/// Record the Python stack whenever the process touches new memory; return how exact that is, and what would make it more
/// exact.
#[pyfunction]
pub(crate) fn begin_fault_trace(trigger_bytes: u64) -> PyResult<(&'static str, &'static str)> {
    if !tail::is_recording() {
        return Err(PyRuntimeError::new_err(
            "stacks are recorded into a recording, and there is none: use floodmark.trace.start",
        ));
    }
    layout::require_known("faults")?;
    if signals::kernel_version().is_some_and(|version| version < FIRST_KERNEL) {
        return Err(PyRuntimeError::new_err(
            "mode faults needs Linux 5.19: earlier kernels end a process whose threads block the signal",
        ));
    }
    super::watch_forks();
    let pages = u32::try_from(trigger_bytes.div_ceil(4096)).unwrap_or(u32::MAX).max(1);
    TRIGGER_PAGES.store(pages, Ordering::Relaxed);
    tail::global().reserve_names();
    prepare_thread();
    let subject = crate::monitor::own_subject();
    SAMPLES.store(0, Ordering::Relaxed);
    // SAFETY: the handler has the form that SA_SIGINFO asks for and lives as long as the process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        // On the stack of the thread: the one that `faulthandler` sets aside for signals is too small to name functions.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_NODEFER;
        let mut earlier: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGTRAP, &raw const action, &raw mut earlier) != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        if earlier.sa_sigaction != action.sa_sigaction {
            // Never freed: a handler may be reading it.
            EARLIER.store(Box::into_raw(Box::new(earlier)), Ordering::Release);
        }
    }
    let statm = StatmUse::begin();
    let pages_now = statm::resident_pages();
    REPORTED_PAGES.store(pages_now, Ordering::Relaxed);
    tail::sample(subject, Metric::Rss, u64::from(pages_now) * 4096, When::Now);
    let opened = open_events(u64::from(pages)).map_err(|error| {
        let number = error.raw_os_error().unwrap_or(0);
        let text = "the kernel refuses to signal page faults; it needs \
                    kernel.perf_event_paranoid of 2 or less, and a container must allow perf_event_open";
        PyOSError::new_err((number, text))
    })?;
    *EVENTS.lock().unwrap_or_else(PoisonError::into_inner) = opened.events;
    HAS_RUNS.store(false, Ordering::Relaxed);
    for entry in used_entries() {
        attach_event(entry);
    }
    // Until the trace ends, or a forked child does without it.
    std::mem::forget(statm);
    SUBJECT.store(subject.0, Ordering::Relaxed);
    Ok(if opened.has_releases {
        (
            "the line that touches or releases a page is exact; growth in system calls appears at the next touched page",
            "",
        )
    } else {
        (
            "the line that touches a page is exact; growth in system calls and releases appear at the next touched page",
            "let the user read /sys/kernel/tracing to have releases charged to their line",
        )
    })
}

/// End recording stacks; return how many were recorded, and how many were not because their thread was not prepared.
#[pyfunction]
pub(crate) fn end_fault_trace() -> (u32, u32) {
    let subject = SubjectId(SUBJECT.swap(0, Ordering::Relaxed));
    if subject.0 != 0 {
        for entry in used_entries() {
            let thread = entry.thread.load(Ordering::Relaxed);
            entry.with_run(|run, event| {
                if let Some((stack, touched)) = run.end(event) {
                    record_rest(subject, thread, stack, touched, statm::resident_pages());
                }
            });
            entry.event.store(NO_EVENT, Ordering::Relaxed);
        }
    }
    for event in std::mem::take(&mut *EVENTS.lock().unwrap_or_else(PoisonError::into_inner)) {
        // SAFETY: opened by this module. The handler stays: a signal may be on its way.
        unsafe { libc::close(event.descriptor) };
    }
    if subject.0 != 0 {
        tail::sample(subject, Metric::Rss, u64::from(statm::resident_pages()) * 4096, When::Now);
        StatmUse::end();
    }
    (SAMPLES.load(Ordering::Relaxed), UNPREPARED.swap(0, Ordering::Relaxed))
}

/// Stops recording in a forked child, which has neither the events nor the subject of its parent.
pub(super) fn after_fork() {
    if SUBJECT.swap(0, Ordering::Relaxed) != 0 {
        StatmUse::end();
    }
    NAMES_TAKEN.store(false, Ordering::Relaxed);
    for entry in &PREPARED {
        entry.pointer.store(0, Ordering::Relaxed);
        entry.event.store(NO_EVENT, Ordering::Relaxed);
    }
}
