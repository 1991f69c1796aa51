//! From a hook to a record.
//!
//! A hook calls [`allocated`], [`freed`] or [`failed`], or those of [`Entered`]; each returns at once unless the process
//! is recorded. The first call of the process starts the recording. Invariants: while a thread is in here, calls of
//! hooked functions on it are not recorded; what a thread records goes through the lane that it keeps; the error number
//! of the C library stays as it is.

mod lanes;
mod scopes;
mod start;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use floodmark_event::event::Action;
use floodmark_event::{StackId, UNKNOWN_BYTES};
use floodmark_stacks::{Replay, ReplayProps};
use floodmark_tail::heap::{HeapNote, scaled_bytes};
use floodmark_tail::reader::LossReason;
use floodmark_tail::{
    AllocDomain, BlockEvent, ThreadLane, event_on, global, is_nearly_full, make_room_on, plain_event_on,
    ticks,
};
use lanes::{event_without_lane, take_lane};
use start::note;
pub(crate) use start::{start, start_recording, switch_off};

use crate::bounds::stack_bounds;
use crate::cold::run_cold;
use crate::fence::fence;
use crate::python::{Python, merged_stack};
use crate::thread::{Guard, Inside, SavedErrno, Thread, current};
use crate::{sample, tracked};

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

/// Whether a sample leaves out an allocation of the program, which needs nothing more then than the function of the C
/// library. An allocation that is left out for good is counted as such; others go the general way.
#[inline(always)]
#[expect(clippy::inline_always, reason = "all that an allocation costs that a sample leaves out")]
pub(crate) fn is_left_out(bytes: usize) -> bool {
    if SELECTION.load(Ordering::Relaxed) != SAMPLE {
        return false;
    }
    let thread = current();
    thread.inside.get() == Inside::No && sample::passes(thread, bytes)
}

/// Whether the free of a block is not recorded, because its allocation was not.
#[inline(always)]
#[expect(clippy::inline_always, reason = "all that a free costs that a sample leaves out")]
pub(crate) fn is_free_left_out(block: usize) -> bool {
    SELECTION.load(Ordering::Relaxed) != EVERY && !tracked::may_be_tracked(block)
}

/// Records that the program got a block, from `realloc` or another function.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(crate) fn allocated(domain: Domain, block: usize, bytes: usize, caller: Caller, is_moved: bool) {
    if SELECTION.load(Ordering::Relaxed) != EVERY {
        return allocated_selected(domain, block, bytes, caller, is_moved);
    }
    if let Some(entered) = enter() {
        entered.allocated(domain, block, bytes, entered.stack(caller), is_moved);
    }
}

/// Records an allocation of a process of which not all are recorded.
#[cold]
#[inline(never)]
fn allocated_selected(domain: Domain, block: usize, bytes: usize, caller: Caller, is_moved: bool) {
    // What passes in a signal handler while the thread is recording is lost like any other event.
    if SELECTION.load(Ordering::Relaxed) == SAMPLE && sample::passes(current(), bytes) {
        return;
    }
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
        entered.allocated(domain, block, counted as usize, entered.stack(caller), is_moved);
    });
}

/// Reads the tick counter for a free that is recorded later, if at all.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(crate) fn ticks_before() -> u64 {
    // SAFETY: the thread took the lane and has not given it back.
    if current().lane.get().is_some_and(|lane| unsafe { is_nearly_full(lane) }) {
        make_room();
    }
    ticks()
}

/// Begins the chunk of the next event now, so that a time which is read next is not before it.
#[cold]
#[inline(never)]
fn make_room() {
    let _errno = SavedErrno::save();
    if current().inside.get() == Inside::No
        && let Some(entered) = enter()
        && let Some(lane) = entered.thread.lane.get()
    {
        // SAFETY: the thread took the lane and has not given it back.
        fence(|| unsafe { make_room_on(lane) });
    }
}

/// Records that the program gives a block back, now or at an earlier reading of the tick counter; returns whether it is
/// recorded.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(crate) fn freed(domain: Domain, block: usize, before: Option<u64>) -> bool {
    if is_free_left_out(block) || (SELECTION.load(Ordering::Relaxed) != EVERY && !untracked(block)) {
        return false;
    }
    let Some(entered) = enter() else { return false };
    entered.freed(domain, block, before);
    true
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
    pub(crate) fn allocated(
        &self,
        domain: Domain,
        block: usize,
        bytes: usize,
        stack: StackId,
        is_moved: bool,
    ) {
        let (address, bytes) = (block as u64, bytes as u64);
        self.event(
            domain,
            BlockEvent { action: Action::Alloc, address, bytes, is_named: is_moved },
            stack,
            None,
        );
    }

    /// Records that the program gives a block back, now or at an earlier reading of the tick counter.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) fn freed(&self, domain: Domain, block: usize, before: Option<u64>) {
        let (address, bytes) = (block as u64, UNKNOWN_BYTES);
        self.event(
            domain,
            BlockEvent { action: Action::Free, address, bytes, is_named: false },
            StackId(0),
            before,
        );
    }

    /// Records that the program asked for memory in vain.
    pub(crate) fn failed(&self, domain: Domain, bytes: usize, caller: Caller) {
        let stack = self.stack(caller);
        let bytes = bytes as u64;
        self.event(
            domain,
            BlockEvent { action: Action::Failure, address: 0, bytes, is_named: false },
            stack,
            None,
        );
    }

    /// The stack of the caller in the recording.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) fn stack(&self, caller: Caller) -> StackId {
        let replay = self.thread.replay.get();
        if replay.is_null() || self.thread.unloads.get() != UNLOADS.load(Ordering::Relaxed) {
            return self.unusual_stack(caller);
        }
        // SAFETY: the replay is this thread's, and the caller's registers are those at a call that has not returned.
        match unsafe { (*replay).same_stack(caller.stack, caller.base) } {
            Some(stack) if self.started.python.is_none() => stack,
            Some(stack) => self.python_stack(stack),
            None => self.other_stack(caller),
        }
    }

    /// The last native stack together with the Python frames of now.
    #[inline(never)]
    fn python_stack(&self, native: StackId) -> StackId {
        // SAFETY: the replay is this thread's, and is there.
        fence(|| self.with_python(unsafe { &mut *self.thread.replay.get() }, native)).unwrap_or(StackId(0))
    }

    /// Whether a function that `is_wanted` says is on the native stack that was found last, which has not returned.
    pub(crate) fn is_on_stack(&self, is_wanted: impl FnMut(u64) -> bool) -> bool {
        let replay = self.thread.replay.get();
        // SAFETY: the replay is this thread's.
        !replay.is_null() && unsafe { (*replay).return_addresses() }.any(is_wanted)
    }

    /// A stack that is another one than the last.
    #[inline(never)]
    fn other_stack(&self, caller: Caller) -> StackId {
        fence(|| {
            self.prepare_lane();
            // SAFETY: the replay is this thread's, and is there.
            let replay = unsafe { &mut *self.thread.replay.get() };
            // SAFETY: the caller's registers are those at a call that has not returned.
            let stack = unsafe { replay.stack(caller.stack, caller.base) };
            self.with_python(replay, stack)
        })
        .unwrap_or(StackId(0))
    }

    /// Takes a lane if the thread has none of this process. Naming a stack in a forked child would else make the child's
    /// part of the recording, which allocates and takes much of the stack.
    fn prepare_lane(&self) {
        let thread = self.thread;
        if !thread.lane.get().is_some_and(ThreadLane::is_current) && !thread.has_ended.get() {
            run_cold(&mut || take_lane(thread, self.started, |_| ()));
        }
    }

    /// The stack that a native one and the Python frames of the thread make together.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
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
        fence(|| self.found_stack(caller)).unwrap_or(StackId(0))
    }

    fn found_stack(&self, caller: Caller) -> StackId {
        self.prepare_lane();
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
    fn event(&self, domain: Domain, what: BlockEvent, stack: StackId, before: Option<u64>) {
        let domain = match domain {
            Domain::Heap => &self.started.heap,
            Domain::Mapping => &self.started.mappings,
            Domain::Object => &self.started.objects,
        };
        self.event_in(domain, what, stack, before);
    }

    /// Records what happened in an allocation domain.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) fn event_in(
        &self,
        domain: &AllocDomain,
        what: BlockEvent,
        stack: StackId,
        before: Option<u64>,
    ) {
        if let Some(lane) = self.thread.lane.get()
            // SAFETY: the thread took the lane and has not given it back.
            && unsafe { plain_event_on(lane, what, domain, stack, before) }
        {
            return;
        }
        self.unusual_event(domain, what, stack, before);
    }

    /// An event that takes more than writing it.
    #[inline(never)]
    fn unusual_event(&self, domain: &AllocDomain, what: BlockEvent, stack: StackId, before: Option<u64>) {
        fence(|| {
            if let Some(lane) = self.thread.lane.get() {
                // SAFETY: the thread took the lane and has not given it back.
                if unsafe { event_on(lane, what, domain, stack, before) } {
                    return;
                }
            }
            event_without_lane(self.thread, self.started, domain, what, stack, before);
        });
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
