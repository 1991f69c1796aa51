//! From a hook to a record.
//!
//! A hook calls [`allocated`], [`freed`] or [`failed`], or those of [`Entered`]; each returns at once unless the process is recorded. The first call
//! of the process starts the recording. Invariants: while a thread is in here, calls of hooked functions on it are not
//! recorded; what a thread records goes through the lane that it keeps; the error number of the C library stays as it is.

mod scopes;

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use floodmark_event::event::Action;
use floodmark_event::tables::Frame;
use floodmark_event::{Kind, NO_DEVICE, StackId, UNKNOWN_BYTES};
use floodmark_stacks::{Replay, ReplayProps};
use floodmark_tail::heap::{
    HEAP_NOTE, HeapMode, HeapNote, MALLOC_RESOURCE, MMAP_RESOURCE, PYMALLOC_RESOURCE, scaled_bytes,
};
use floodmark_tail::reader::LossReason;
use floodmark_tail::{AllocDomain, RecordProps, Recorder, When};
use floodmark_tail::{event_on, global, intern, intern_frame};

use crate::bounds::stack_bounds;
use crate::cold::{ThreadMemory, run_cold};
use crate::config::{self, Config};
use crate::fence::{fence, silence_panics};
use crate::next::prepare_for_children;
use crate::python::{self, Python, merged_stack};
use crate::thread::{Guard, Inside, SavedErrno, Thread, current};
use crate::{hooks, next, sample, tracked};

/// Whether the process is recorded.
static STATE: AtomicU8 = AtomicU8::new(NEW);
const NEW: u8 = 0;
const STARTING: u8 = 1;
const ON: u8 = 2;
const OFF: u8 = 3;

/// Which allocations are recorded, for the recording path; before the start as if all were.
static SELECTION: AtomicU8 = AtomicU8::new(EVERY);
const EVERY: u8 = 0;
const SAMPLE: u8 = 1;
const AT_LEAST: u8 = 2;

/// Which allocations are recorded.
enum Selection {
    Every,
    /// About one in that many bytes of each thread.
    Sample(u64),
    /// Those of at least that many bytes.
    AtLeast(u64),
}

/// What is known once the recording has started.
struct Started {
    selection: Selection,
    heap: AllocDomain,
    mappings: AllocDomain,
    objects: AllocDomain,
    /// The interpreter, if this is a Python program whose frames are recorded.
    python: Option<Python>,
    /// Its version, whether its frames are recorded or not.
    python_version: Option<u32>,
    stacks: Stacks,
    /// Key whose destructor gives a thread's lane back.
    key: libc::pthread_key_t,
}

/// Whether stacks are recorded.
#[derive(Clone, Copy)]
enum Stacks {
    Off,
    On {
        depth: usize,
        /// Whether each is found in another way too, for tests.
        check: bool,
    },
}

static STARTED: OnceLock<Started> = OnceLock::new();

/// Calls of other threads while the recording was being started.
static EARLY: AtomicU32 = AtomicU32::new(0);

/// The registers of the program at its call of a hooked function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// Where the return address is.
    pub(crate) stack: u64,
    /// The base pointer.
    pub(crate) base: u64,
}

/// What a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    Heap,
    Mapping,
    /// An object of Python.
    Object,
}

/// Records that the program got a block.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(crate) fn allocated(domain: Domain, block: usize, bytes: usize, caller: Caller) {
    match SELECTION.load(Ordering::Relaxed) {
        EVERY => {
            if let Some(entered) = enter() {
                fence(|| entered.allocated(domain, block, bytes, entered.stack(caller)));
            }
        }
        SAMPLE if !sample::is_due(current(), bytes) => {}
        _ => allocated_selected(domain, block, bytes, caller),
    }
}

/// Records an allocation of a process of which not all are recorded.
#[cold]
#[inline(never)]
fn allocated_selected(domain: Domain, block: usize, bytes: usize, caller: Caller) {
    let _errno = SavedErrno::save();
    let Some(entered) = enter() else { return };
    fence(|| {
        let counted = match entered.started.selection {
            Selection::AtLeast(least) if (bytes as u64) < least => return,
            Selection::Every | Selection::AtLeast(_) => bytes as u64,
            Selection::Sample(period) => match sample::take(entered.thread, bytes, period) {
                sample::Taken::No => return,
                sample::Taken::Yes => scaled_bytes(bytes as u64, period),
            },
        };
        tracked::track(block);
        entered.allocated(domain, block, counted as usize, entered.stack(caller));
    });
}

/// Records that the program gives a block back, at `when`.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(crate) fn freed(domain: Domain, block: usize, when: When) {
    if SELECTION.load(Ordering::Relaxed) != EVERY && !(tracked::may_be_tracked(block) && untracked(block)) {
        return;
    }
    if let Some(entered) = enter() {
        fence(|| entered.freed(domain, block, when));
    }
}

/// Takes a block out of those that were recorded; returns whether it was among them.
#[cold]
#[inline(never)]
fn untracked(block: usize) -> bool {
    let Some(_entered) = enter() else { return false };
    let _errno = SavedErrno::save();
    fence(|| tracked::untrack(block)).unwrap_or(false)
}

/// Records that the program asked for memory in vain.
#[cold]
pub(crate) fn failed(domain: Domain, bytes: usize, caller: Caller) {
    let _errno = SavedErrno::save();
    if let Some(entered) = enter() {
        fence(|| entered.failed(domain, bytes, caller));
    }
}

/// Whether the process is recorded.
pub(crate) fn is_on() -> bool {
    STATE.load(Ordering::Acquire) == ON
}

/// Marks the calling thread as recording; none if the process is not recorded or the thread is in here already.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(crate) fn enter() -> Option<Entered> {
    let state = STATE.load(Ordering::Acquire);
    // Where the heap is not recorded, its hooks are there for nothing.
    if state != ON && (state == OFF || !start()) {
        return None;
    }
    Entered::begin(STARTED.get()?)
}

/// Does as [`enter`] for a recorder of something else than the heap, which has called [`start_recording`].
#[inline]
pub(crate) fn enter_started() -> Option<Entered> {
    Entered::begin(STARTED.get()?)
}

/// A thread that is recording, until this is dropped.
pub(crate) struct Entered {
    thread: &'static Thread,
    started: &'static Started,
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        self.thread.inside.set(Inside::No);
    }
}

impl Entered {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    fn begin(started: &'static Started) -> Option<Self> {
        let thread = current();
        match thread.inside.get() {
            Inside::No => {
                thread.inside.set(Inside::Recording);
                Some(Self { thread, started })
            }
            Inside::Recording => {
                global().lose(LossReason::Nested, 1);
                None
            }
            Inside::Preparing | Inside::Passing => None,
        }
    }

    /// Records that the program got a block.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) fn allocated(&self, domain: Domain, block: usize, bytes: usize, stack: StackId) {
        self.event(domain, (Action::Alloc, block as u64, bytes as u64), stack, When::Now);
    }

    /// Records that the program gives a block back, at `when`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) fn freed(&self, domain: Domain, block: usize, when: When) {
        self.event(domain, (Action::Free, block as u64, UNKNOWN_BYTES), StackId(0), when);
    }

    /// Records that the program asked for memory in vain.
    pub(crate) fn failed(&self, domain: Domain, bytes: usize, caller: Caller) {
        let stack = self.stack(caller);
        self.event(domain, (Action::Failure, 0, bytes as u64), stack, When::Now);
    }

    /// The stack of the caller in the recording.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) fn stack(&self, caller: Caller) -> StackId {
        let replay = self.thread.replay.get();
        if replay.is_null() || self.thread.unloads.get() != UNLOADS.load(Ordering::Relaxed) {
            return self.unusual_stack(caller);
        }
        // SAFETY: the replay is this thread's.
        let replay = unsafe { &mut *replay };
        // SAFETY: the caller's registers are those at a call that has not returned.
        let stack = unsafe { replay.stack(caller.stack, caller.base) };
        self.with_python(replay, stack)
    }

    /// The stack that a native one and the Python frames of the thread make together.
    #[inline]
    fn with_python(&self, replay: &mut Replay, stack: StackId) -> StackId {
        match &self.started.python {
            Some(python) => merged_stack(python, self.thread, replay, stack),
            None => stack,
        }
    }

    /// The first stack of a thread, one after a module was unloaded, one that is checked, or none.
    #[cold]
    #[inline(never)]
    fn unusual_stack(&self, caller: Caller) -> StackId {
        let thread = self.thread;
        let Stacks::On { depth, check } = self.started.stacks else { return StackId(0) };
        let unloads = UNLOADS.load(Ordering::Relaxed);
        if thread.replay.get().is_null() {
            run_cold(&mut || begin_stacks(thread, caller, depth));
            if thread.replay.get().is_null() {
                return StackId(0);
            }
        } else if thread.unloads.get() != unloads {
            // SAFETY: the replay is this thread's.
            unsafe { (*thread.replay.get()).forget_unloaded() };
        }
        // SAFETY: the replay is this thread's.
        let replay = unsafe { &mut *thread.replay.get() };
        if check {
            // Every stack comes here.
            thread.unloads.set(unloads.wrapping_sub(1));
            let stack = checked_stack(replay, caller);
            return self.with_python(replay, stack);
        }
        thread.unloads.set(unloads);
        // SAFETY: the caller's registers are those at a call that has not returned.
        let stack = unsafe { replay.stack(caller.stack, caller.base) };
        self.with_python(replay, stack)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    fn event(&self, domain: Domain, what: (Action, u64, u64), stack: StackId, when: When) {
        let domain = match domain {
            Domain::Heap => &self.started.heap,
            Domain::Mapping => &self.started.mappings,
            Domain::Object => &self.started.objects,
        };
        self.event_in(domain, what, stack, when);
    }

    /// Records what happened in an allocation domain: the action, the address and the bytes.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) fn event_in(
        &self,
        domain: &AllocDomain,
        what: (Action, u64, u64),
        stack: StackId,
        when: When,
    ) {
        if let Some(lane) = self.thread.lane.get() {
            // SAFETY: the thread took the lane and has not given it back.
            if unsafe { event_on(lane, what, domain, stack, when) } {
                return;
            }
        }
        event_without_lane(self.thread, self.started, domain, what, stack, when);
    }
}

/// Prepares the thread for finding its stacks.
fn begin_stacks(thread: &'static Thread, caller: Caller, depth: usize) {
    let memory = thread.memory.get();
    if !memory.is_some() || thread.has_ended.get() {
        return;
    }
    let replay = memory.replay();
    // SAFETY: as much memory, of zeros or of a thread that ended, and this thread's from now on.
    unsafe { Replay::begin_in(replay, ReplayProps { depth, run_cold }) };
    let (low, high) = stack_bounds(caller.stack).unwrap_or((0, 0));
    // SAFETY: made just now.
    unsafe { (*replay).set_stack(low, high) };
    thread.replay.set(replay);
}

/// Finds a stack in both ways; for tests.
fn checked_stack(replay: &mut Replay, caller: Caller) -> StackId {
    let before = replay.check();
    // SAFETY: the caller's registers are those at a call that has not returned.
    let stack = unsafe { replay.checked_stack(caller.stack, caller.base) };
    let after = replay.check();
    CHECKED.fetch_add((after.walked - before.walked) as u32, Ordering::Relaxed);
    let wrong = after.wrong - before.wrong + after.different - before.different;
    MISMATCHES.fetch_add(wrong as u32, Ordering::Relaxed);
    stack
}

/// Stacks that were checked, and those that were found to be wrong.
static CHECKED: AtomicU32 = AtomicU32::new(0);
static MISMATCHES: AtomicU32 = AtomicU32::new(0);

/// Leaves notes about the checks.
extern "C" fn report_checks() {
    fence(|| {
        let _guard = Guard::preparing(current());
        note(HeapNote::Checked, CHECKED.load(Ordering::Relaxed));
        match MISMATCHES.load(Ordering::Relaxed) {
            0 => {}
            wrong => note(HeapNote::Mismatch, wrong),
        }
    });
}

/// How many modules were unloaded.
static UNLOADS: AtomicU32 = AtomicU32::new(1);

/// Makes threads look whether code that they remember is still there.
pub(crate) fn module_unloaded() {
    UNLOADS.fetch_add(1, Ordering::Relaxed);
}

/// Takes a lane for the thread and records its event: the first one of a thread, or of a forked child.
#[cold]
#[inline(never)]
fn event_without_lane(
    thread: &'static Thread,
    started: &'static Started,
    domain: &AllocDomain,
    what: (Action, u64, u64),
    stack: StackId,
    when: When,
) {
    run_cold(&mut || {
        // A lane of the parent process or of an ended recording is not given back: its recording does not know it.
        thread.lane.set(None);
        let Some(lane) = global().take_lane() else { return };
        // SAFETY: taken by this thread just now.
        unsafe { event_on(lane, what, domain, stack, when) };
        if register_end(thread, started) {
            thread.lane.set(Some(lane));
        } else {
            // While a thread ends nothing would give the lane back later.
            // SAFETY: taken by this thread just now, and not kept.
            unsafe { global().give_back_lane(lane) };
        }
    });
}

/// Arranges that the thread's lane is given back when the thread ends; `false` if it is ending.
fn register_end(thread: &'static Thread, started: &'static Started) -> bool {
    if thread.has_ended.get() {
        return false;
    }
    if !thread.is_registered.get() {
        // The value only has to be another one than null.
        let value = std::ptr::from_ref(thread).cast();
        // SAFETY: the key was made when the recording started.
        thread.is_registered.set(unsafe { libc::pthread_setspecific(started.key, value) } == 0);
    }
    thread.is_registered.get()
}

/// Gives back what the thread has. Runs after the destructors of its thread-local variables, which may free memory.
unsafe extern "C" fn thread_ends(_: *mut libc::c_void) {
    fence(|| {
        let thread = current();
        let _guard = Guard::preparing(thread);
        thread.has_ended.set(true);
        if let Some(lane) = thread.lane.take() {
            // SAFETY: this thread took it and does not use it any more.
            unsafe { global().give_back_lane(lane) };
        }
        thread.replay.set(std::ptr::null_mut());
        let python = thread.python.replace(std::ptr::null_mut());
        if !python.is_null() {
            // SAFETY: made by this thread, from a box, and not used any more.
            drop(unsafe { Box::from_raw(python) });
        }
        thread.memory.replace(ThreadMemory::NONE).give_back();
    });
}

/// Starts the recording if that was not tried yet; returns whether the process is recorded now.
#[cold]
#[inline(never)]
pub(crate) fn start() -> bool {
    if STATE.load(Ordering::Relaxed) == OFF {
        return false;
    }
    let thread = current();
    if thread.inside.get() != Inside::No
        || STATE.compare_exchange(NEW, STARTING, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        if thread.inside.get() == Inside::No {
            EARLY.fetch_add(1, Ordering::Relaxed);
        }
        return STATE.load(Ordering::Acquire) == ON;
    }
    let mut state = OFF;
    fence(|| {
        run_cold(&mut || {
            if config::read().is_some_and(|config| begin(&config)) {
                state = ON;
            }
        });
    });
    STATE.store(state, Ordering::Release);
    if state == ON {
        global().lose(LossReason::Nested, u64::from(EARLY.swap(0, Ordering::Relaxed)));
    }
    state == ON
}

/// Starts the recording into `trace`, with stacks of at most so many frames, or without.
fn begin_recording(trace: &Path, stacks: Stacks, selection: Selection) -> Option<Started> {
    silence_panics();
    prepare_for_children();
    let mut key = 0;
    // SAFETY: the place is valid, and the function stays loaded: this library is never unloaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } != 0 {
        return None;
    }
    let recorder = Recorder::start_global(RecordProps::new(trace)).ok()?;
    recorder.detach();
    let domain =
        |kind, resource| AllocDomain { device: NO_DEVICE, kind, stream: 0, resource: intern(resource) };
    let python = find_python();
    Some(Started {
        selection,
        heap: domain(Kind::Pageable, MALLOC_RESOURCE),
        mappings: domain(Kind::Mapped, MMAP_RESOURCE),
        objects: domain(Kind::Pageable, PYMALLOC_RESOURCE),
        python_version: python.map(|python| python.version),
        python: if matches!(stacks, Stacks::On { .. }) { python } else { None },
        stacks,
        key,
    })
}

/// Starts the recording for a recorder of something else than the heap, unless the heap is recorded already; returns
/// whether the process is recorded now. Callers see to it that one thread at a time calls this.
pub(crate) fn start_recording(trace: &Path, depth: Option<u32>) -> bool {
    if STARTED.get().is_none() {
        let stacks = match depth {
            Some(depth) => Stacks::On { depth: depth as usize, check: false },
            None => Stacks::Off,
        };
        fence(|| {
            run_cold(&mut || {
                if let Some(started) = begin_recording(trace, stacks, Selection::Every) {
                    let _ = STARTED.set(started);
                }
            });
        });
    }
    STARTED.get().is_some()
}

fn begin(config: &Config) -> bool {
    let selection = match config.options.mode {
        HeapMode::Sample(period) => Selection::Sample(period),
        HeapMode::All | HeapMode::Python if config.options.min_bytes > 0 => {
            Selection::AtLeast(config.options.min_bytes)
        }
        HeapMode::All | HeapMode::Python => Selection::Every,
    };
    let path = match selection {
        Selection::Every => EVERY,
        Selection::Sample(_) => SAMPLE,
        Selection::AtLeast(_) => AT_LEAST,
    };
    let stacks = if config.options.stacks {
        Stacks::On { depth: config.options.depth as usize, check: config.options.check }
    } else {
        Stacks::Off
    };
    let Some(started) = begin_recording(&config.trace, stacks, selection) else { return false };
    if config.options.check {
        // SAFETY: the function stays loaded. It runs before the recording ends, since it is registered later.
        unsafe { libc::atexit(report_checks) };
    }
    match config.options.mode {
        HeapMode::All | HeapMode::Python => note(HeapNote::All, config.options.min_bytes as u32),
        HeapMode::Sample(bytes) => note(HeapNote::Sampled, bytes as u32),
    }
    if !config.unknown.is_empty() {
        note(HeapNote::UnknownOption, 0);
    }
    let version = started.python_version;
    let is_first = STARTED.set(started).is_ok();
    SELECTION.store(path, Ordering::Relaxed);
    if let Some(version) = version
        && config.options.mode == HeapMode::Python
        && Python::record_objects()
    {
        note(HeapNote::Python, version);
    }
    is_first
}

/// Starts the recording when the library is loaded, if no allocation did before.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = loaded;

extern "C" fn loaded() {
    // Looking a name up may free the message of an earlier error, so `free` has to be known before any such error.
    next::free();
    if STATE.load(Ordering::Acquire) == NEW {
        start();
    }
    if STATE.load(Ordering::Acquire) == ON && !hooks::are_called() {
        fence(|| run_cold(&mut || note(HeapNote::OwnAllocator, 0)));
    }
}

/// Looks for the interpreter of Python, and says in the trace if it is not a known one.
fn find_python() -> Option<Python> {
    match python::find() {
        python::Found::Known(python) => Some(python),
        python::Found::Unknown => {
            note(HeapNote::PythonUnknown, 0);
            None
        }
        python::Found::None => None,
    }
}

/// Leaves a note in the trace about how the process is recorded.
fn note(note: HeapNote, line: u32) {
    let (function, file) = (intern(HEAP_NOTE), intern(note.text()));
    intern_frame(&Frame { function, file, line, ..Frame::default() });
}

/// Records nothing more in this process.
pub(crate) fn switch_off() {
    STATE.store(OFF, Ordering::Release);
    fence(|| note(HeapNote::SwitchedOff, 0));
}
