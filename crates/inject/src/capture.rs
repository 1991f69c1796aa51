//! From a hook to a record.
//!
//! A hook calls [`allocated`], [`freed`] or [`failed`]; each returns at once unless the process is recorded. The first call
//! of the process starts the recording. Invariants: while a thread is in here, calls of hooked functions on it are not
//! recorded; what a thread records goes through the lane that it keeps; the error number of the C library stays as it is.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use floodmark_event::event::Action;
use floodmark_event::tables::Frame;
use floodmark_event::{Kind, NO_DEVICE, StackId, UNKNOWN_BYTES};
use floodmark_tail::heap::{HEAP_NOTE, HeapMode, HeapNote, MALLOC_RESOURCE, MMAP_RESOURCE};
use floodmark_tail::reader::LossReason;
use floodmark_tail::{AllocDomain, RecordProps, Recorder, When, event_on, global, intern, intern_frame};

use crate::config::{self, Config, Environment};
use crate::fence::{fence, silence_panics};
use crate::thread::{Guard, Inside, SavedErrno, Thread, current};

/// Whether the process is recorded.
static STATE: AtomicU8 = AtomicU8::new(NEW);
const NEW: u8 = 0;
const STARTING: u8 = 1;
const ON: u8 = 2;
const OFF: u8 = 3;

/// What is known once the recording has started.
struct Started {
    heap: AllocDomain,
    mappings: AllocDomain,
    /// Key whose destructor gives a thread's lane back.
    key: libc::pthread_key_t,
}

static STARTED: OnceLock<Started> = OnceLock::new();

/// Allocations that were not recorded because the recording had not started.
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
}

/// Records that the program got a block.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(crate) fn allocated(domain: Domain, block: usize, bytes: usize, caller: Caller) {
    recorded(|thread, started| {
        let stack = stack(thread, caller);
        event(thread, started, domain, (Action::Alloc, block as u64, bytes as u64), stack, When::Now);
    });
}

/// Records that the program gives a block back, at `when`.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(crate) fn freed(domain: Domain, block: usize, when: When) {
    recorded(|thread, started| {
        event(thread, started, domain, (Action::Free, block as u64, UNKNOWN_BYTES), StackId(0), when);
    });
}

/// Records that the program asked for memory in vain.
#[cold]
pub(crate) fn failed(domain: Domain, bytes: usize, caller: Caller) {
    let _errno = SavedErrno::save();
    recorded(|thread, started| {
        let stack = stack(thread, caller);
        event(thread, started, domain, (Action::Failure, 0, bytes as u64), stack, When::Now);
    });
}

/// Calls `record` if the process is recorded and the thread is not in here already.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
fn recorded(record: impl FnOnce(&'static Thread, &'static Started)) {
    if STATE.load(Ordering::Acquire) != ON && !start() {
        return;
    }
    let Some(started) = STARTED.get() else { return };
    let thread = current();
    match thread.inside.get() {
        Inside::No => {
            thread.inside.set(Inside::Recording);
            fence(|| record(thread, started));
            thread.inside.set(Inside::No);
        }
        Inside::Recording => global().lose(LossReason::Nested, 1),
        Inside::Preparing => {}
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
fn event(
    thread: &'static Thread,
    started: &'static Started,
    domain: Domain,
    what: (Action, u64, u64),
    stack: StackId,
    when: When,
) {
    let domain = match domain {
        Domain::Heap => &started.heap,
        Domain::Mapping => &started.mappings,
    };
    let lane = thread.lane.get();
    // SAFETY: the thread took the lane and has not given it back.
    let is_recorded = lane.is_some_and(|lane| unsafe { event_on(lane, what, domain, stack, when) });
    if !is_recorded {
        event_without_lane(thread, started, domain, what, stack, when);
    }
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
    let _errno = SavedErrno::save();
    let _guard = Guard::preparing(thread);
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
    });
}

/// The stack of the caller in the recording.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
fn stack(_thread: &'static Thread, _caller: Caller) -> StackId {
    StackId(0)
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
    let _errno = SavedErrno::save();
    let _guard = Guard::preparing(thread);
    let state = fence(|| match config::read() {
        Environment::NotReady => NEW,
        Environment::Off => OFF,
        Environment::On(config) => {
            if begin(&config) {
                ON
            } else {
                OFF
            }
        }
    });
    let state = state.unwrap_or(OFF);
    if state == NEW {
        EARLY.fetch_add(1, Ordering::Relaxed);
    }
    STATE.store(state, Ordering::Release);
    state == ON
}

fn begin(config: &Config) -> bool {
    silence_panics();
    let mut key = 0;
    // SAFETY: the place is valid, and the function stays loaded: a library that is preloaded is never unloaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } != 0 {
        return false;
    }
    let Ok(recorder) = Recorder::start_global(RecordProps::new(&config.trace)) else { return false };
    recorder.detach();
    let domain =
        |kind, resource| AllocDomain { device: NO_DEVICE, kind, stream: 0, resource: intern(resource) };
    let started = Started {
        heap: domain(Kind::Pageable, MALLOC_RESOURCE),
        mappings: domain(Kind::Mapped, MMAP_RESOURCE),
        key,
    };
    match config.options.mode {
        HeapMode::All | HeapMode::Python => note(HeapNote::All, config.options.min_bytes as u32),
        HeapMode::Sample(bytes) => note(HeapNote::Sampled, bytes as u32),
    }
    if !config.unknown.is_empty() {
        note(HeapNote::UnknownOption, 0);
    }
    STARTED.set(started).is_ok()
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
