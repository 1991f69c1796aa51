//! The writing end of one recording: what threads call to record, and how they get their lanes.
//!
//! A [`Writer`] is one of a fixed number of statics. Writer 0 is the global one, behind the free functions
//! of this crate; the others each belong to a [`Recorder`](crate::Recorder). Invariants: the recording
//! path compares two words, its lane's generation and the writer's, and every unusual state (recording
//! off, new thread, forked child, ended recording, writer re-used by another recorder) shows as a
//! difference between them; generations are unique among all writers of a process; mappings and sessions
//! are never freed, since any thread may be about to use them.
#![expect(unsafe_code, reason = "hands out lanes in shared memory to threads")]

use std::cell::Cell;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::intern::Interner;
use crate::lane::{Lane, Surroundings};
use crate::protocol::{Current, OFF};
use crate::record::{AllocDomain, BlockEvent, TracedCall};
use crate::ring::{LossReason, Ring};
use crate::session::{Session, current_pid};
use floodmark_event::event::{Action, StackId, StringId};
use floodmark_event::tables::Frame;

/// Recorders that one process can have at the same time, beside the global one.
pub const MAX_RECORDERS: usize = 64;
/// Events that a forked child without a ring loses before it tries again to make one.
const CHILD_RETRY_EVENTS: u32 = 4096;

static GLOBAL: Writer = Writer::new(0);
static INSTANCES: [Writer; MAX_RECORDERS] = {
    let mut writers = [const { Writer::new(0) }; MAX_RECORDERS];
    let mut at = 0;
    while at < MAX_RECORDERS {
        writers[at].index = at as u32 + 1;
        at += 1;
    }
    writers
};
static NOWHERE: Lane = Lane::nowhere();

thread_local! {
    /// The thread's lane of the global writer.
    static LANE: Cell<*const Lane> = const { Cell::new(&raw const NOWHERE) };
    /// Its lanes of the other writers; null where it has none.
    static LANES: [Cell<*const Lane>; MAX_RECORDERS] =
        const { [const { Cell::new(std::ptr::null()) }; MAX_RECORDERS] };
    /// Set while this crate allocates, so that its own allocations are not recorded.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static GUARD: Guard = const { Guard };
}

/// Gives the thread's lanes back when the thread ends.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        for index in 0..=MAX_RECORDERS {
            vacate(index);
        }
    }
}

/// Returns this thread's lane of writer `index`, or one that belongs to no recording.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the index is a constant on the global recording path")]
fn lane_of(index: usize) -> *const Lane {
    if index == 0 {
        return LANE.get();
    }
    let lane = LANES.with(|lanes| lanes[index - 1].get());
    if lane.is_null() { &raw const NOWHERE } else { lane }
}

fn set_lane(index: usize, lane: *const Lane) {
    match index {
        0 => LANE.set(lane),
        _ => LANES.with(|lanes| lanes[index - 1].set(lane)),
    }
}

/// Leaves the thread's lane of writer `index` to the next thread.
fn vacate(index: usize) {
    let lane = lane_of(index);
    if !std::ptr::eq(lane, &raw const NOWHERE) {
        set_lane(index, &raw const NOWHERE);
        // SAFETY: lanes are never freed. In a forked child the page reads as zeros; marking that one
        // vacant does no harm, because no session of the child knows it.
        unsafe { (*lane).gate.vacate() };
    }
}

/// Calls `work` with this thread's allocations left out of the recording.
pub(crate) fn unrecorded<R>(work: impl FnOnce() -> R) -> R {
    let was_inside = INSIDE.replace(true);
    let result = work();
    INSIDE.set(was_inside);
    result
}

/// Returns the writer behind the free functions of this crate.
#[inline]
pub fn global() -> &'static Writer {
    &GLOBAL
}

/// Returns all writers, the global one first.
pub(crate) fn all() -> impl Iterator<Item = &'static Writer> {
    std::iter::once(&GLOBAL).chain(&INSTANCES)
}

/// Records one event with the global writer.
#[inline(never)]
pub(crate) fn global_event(action: Action, address: u64, bytes: u64, domain: &AllocDomain, stack: StackId) {
    GLOBAL.event(0, action, address, bytes, domain, stack);
}

/// Records one call with the global writer.
#[inline]
pub(crate) fn global_traced_call(call: &TracedCall) {
    GLOBAL.traced_call_with(0, call);
}

/// The lane of a thread, for tracers that know which thread they run on.
///
/// None of them is zeros in memory.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct ThreadLane(NonNull<Lane>);

impl ThreadLane {
    /// Returns a lane that belongs to no recording.
    pub const fn nowhere() -> Self {
        Self::of(&raw const NOWHERE)
    }

    const fn of(lane: *const Lane) -> Self {
        // SAFETY: lanes are statics or mapped.
        Self(unsafe { NonNull::new_unchecked(lane.cast_mut()) })
    }

    /// Whether the lane is of the global recording that goes on in this process; it is not in a forked child.
    pub fn is_current(self) -> bool {
        // SAFETY: the pointer is to NOWHERE or to a lane, and those are never freed; the word is an atomic one.
        let generation = unsafe { (*self.get()).gate.generation.load(Ordering::Relaxed) };
        generation == GLOBAL.current.generation()
    }

    /// Returns the lane, which is a static or never freed.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) const fn get(self) -> *const Lane {
        self.0.as_ptr()
    }
}

/// Records one call with the global writer as [`traced_call`](crate::traced_call) does, without looking the thread's lane
/// up.
///
/// # Safety
/// `lane` is what [`Writer::thread_lane`] of the global writer returned on the calling thread.
#[inline]
pub unsafe fn traced_call_on(lane: ThreadLane, call: &TracedCall) {
    // SAFETY: the pointer is to NOWHERE or to a lane, and those are never freed. The thread that calls holds the lane.
    let lane = unsafe { &*lane.get() };
    if lane.gate.generation.load(Ordering::Relaxed) == GLOBAL.current.generation() {
        lane.traced_call(call, &GLOBAL);
    } else {
        GLOBAL.traced_call_without_lane(call);
    }
}

/// Does what [`event_on`] does if that is nothing unusual; else it does nothing and returns `false`. Never panics.
///
/// # Safety
/// As for [`event_on`].
#[inline(always)]
#[expect(clippy::inline_always, reason = "the recording path of injected code")]
pub unsafe fn plain_event_on(
    lane: ThreadLane,
    what: BlockEvent,
    domain: &AllocDomain,
    stack: StackId,
    before: Option<u64>,
) -> bool {
    // SAFETY: the pointer is to NOWHERE or to a lane, and those are never freed. The thread that calls holds the lane.
    unsafe { &*lane.get() }.plain_event(what, domain, stack, before, &GLOBAL)
}

/// Records one event with the global writer, without looking the thread's lane up; returns whether `lane` is of the
/// recording that goes on, without which nothing is recorded. The event is of now, or of an earlier reading of
/// [`ticks`](crate::ticks()); [`calibrate_later`](crate::calibrate_later) makes reading them cheap.
///
/// # Safety
/// `lane` is one that [`Writer::take_lane`] or [`Writer::thread_lane`] of the global writer returned on the calling
/// thread and that was not given back.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path of injected code")]
pub unsafe fn event_on(
    lane: ThreadLane,
    what: BlockEvent,
    domain: &AllocDomain,
    stack: StackId,
    before: Option<u64>,
) -> bool {
    // SAFETY: the pointer is to NOWHERE or to a lane, and those are never freed. The thread that calls holds the lane.
    let lane = unsafe { &*lane.get() };
    let is_current = lane.gate.generation.load(Ordering::Relaxed) == GLOBAL.current.generation();
    if is_current {
        lane.event_read(what, domain, stack, || lane.time_of(before), &GLOBAL);
    }
    is_current
}

/// Writes records into the tail of one recording, from any thread.
///
/// Get one from a [`Recorder`](crate::Recorder), which dereferences to its writer, or from [`global`]. While
/// nothing is recorded every method returns at once, and ids are 0.
pub struct Writer {
    index: u32,
    /// The recording that lanes compare their own with.
    pub(crate) current: Current<Session>,
    /// Pid of the process that is starting or stopping a session; 0 while none is.
    maker: AtomicU32,
    /// How often a forked child could not make a ring.
    child_failures: AtomicU32,
    /// Whether a recorder has it.
    pub(crate) taken: AtomicBool,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Writer")
            .field("index", &self.index)
            .field("recording", &self.recording())
            .finish_non_exhaustive()
    }
}

impl Surroundings for Writer {
    #[inline]
    fn generation(&self) -> u32 {
        self.current.generation()
    }

    fn ring(&self) -> &Ring {
        self.session().ring()
    }

    fn ring_path(&self) -> &CStr {
        self.session().ring_path()
    }

    fn may_grow(&self) -> bool {
        self.session().may_grow()
    }

    fn with_segment_path(&self, lane: u32, number: u32, with: &mut dyn FnMut(&CStr)) {
        self.session().with_segment_path(lane, number, with);
    }
}

impl Writer {
    const fn new(index: u32) -> Self {
        Self {
            index,
            current: Current {
                generation: AtomicU32::new(OFF),
                session: AtomicPtr::new(std::ptr::null_mut()),
            },
            maker: AtomicU32::new(0),
            child_failures: AtomicU32::new(0),
            taken: AtomicBool::new(false),
        }
    }

    /// Takes a writer that no recorder has; `None` if there is none left.
    pub(crate) fn take() -> Option<&'static Self> {
        INSTANCES.iter().find(|writer| !writer.taken.swap(true, Ordering::AcqRel))
    }

    #[inline]
    fn index(&self) -> usize {
        self.index as usize
    }

    /// Returns the session that is recording, or the last one. The caller must know that there was one: it has
    /// a lane, or called `first_generation`.
    pub(crate) fn session(&self) -> &'static Session {
        // SAFETY: set before the generation leaves OFF, replaced but never freed.
        unsafe { &*self.current.session() }
    }

    /// Whether this writer records at the moment, and [`session`](Self::session) may be called.
    pub(crate) fn has_session(&self) -> bool {
        self.current.first_generation() != OFF
    }

    /// Whether this writer records at the moment.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.current.generation() != OFF
    }

    /// Returns a number for the recording that goes on; 0 while nothing is recorded.
    ///
    /// Ids from [`intern`](Self::intern) and its like are valid as long as this stays the same: a caller
    /// that keeps one interns again when the number changed.
    #[inline]
    pub fn recording(&self) -> u32 {
        match self.current.generation() {
            OFF => 0,
            generation => generation,
        }
    }

    /// Records that a block came to life. Call it after the memory was handed out.
    #[inline]
    pub fn alloc(&self, address: u64, bytes: u64, domain: &AllocDomain, stack: StackId) {
        self.own_event(Action::Alloc, address, bytes, domain, stack);
    }

    /// Records that a block ends. Call it before the memory is given back.
    ///
    /// `bytes` is what the caller of the free passes, or [`UNKNOWN_BYTES`](floodmark_event::UNKNOWN_BYTES).
    #[inline]
    pub fn free(&self, address: u64, bytes: u64, domain: &AllocDomain) {
        self.own_event(Action::Free, address, bytes, domain, StackId(0));
    }

    /// Records that an allocation of `bytes` failed.
    #[inline]
    pub fn failure(&self, bytes: u64, domain: &AllocDomain, stack: StackId) {
        self.own_event(Action::Failure, 0, bytes, domain, stack);
    }

    #[inline(never)]
    fn own_event(&self, action: Action, address: u64, bytes: u64, domain: &AllocDomain, stack: StackId) {
        self.event(self.index(), action, address, bytes, domain, stack);
    }

    /// `index` is the writer's own, given again so that it can be a constant.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the index is a constant on the global recording path")]
    fn event(
        &self,
        index: usize,
        action: Action,
        address: u64,
        bytes: u64,
        domain: &AllocDomain,
        stack: StackId,
    ) {
        // SAFETY: the pointer is to NOWHERE or to a lane, and those are never freed.
        let lane = unsafe { &*lane_of(index) };
        if lane.gate.generation.load(Ordering::Relaxed) == self.current.generation() {
            lane.event(action, address, bytes, domain, stack, self);
        } else {
            self.event_without_lane(action, address, bytes, domain, stack);
        }
    }

    #[cold]
    fn event_without_lane(
        &self,
        action: Action,
        address: u64,
        bytes: u64,
        domain: &AllocDomain,
        stack: StackId,
    ) {
        self.with_lane(|lane| lane.event(action, address, bytes, domain, stack, self));
    }

    /// Records that a function was called or ended, as a tracer sees it that calls this millions of times a second.
    ///
    /// Call [`calibrate`](crate::calibrate) before the first one. A call is never earlier than the thread's previous
    /// record.
    #[inline]
    pub fn traced_call(&self, call: &TracedCall) {
        self.traced_call_with(self.index(), call);
    }

    /// `index` is the writer's own, given again so that it can be a constant.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the index is a constant on the global recording path")]
    fn traced_call_with(&self, index: usize, call: &TracedCall) {
        // SAFETY: the pointer is to NOWHERE or to a lane, and those are never freed.
        let lane = unsafe { &*lane_of(index) };
        if lane.gate.generation.load(Ordering::Relaxed) == self.current.generation() {
            lane.traced_call(call, self);
        } else {
            self.traced_call_without_lane(call);
        }
    }

    #[cold]
    fn traced_call_without_lane(&self, call: &TracedCall) {
        self.with_lane(|lane| lane.traced_call(call, self));
    }

    /// Gives the calling thread its lane and backs all memory that the lane may use, half a megabyte, so that
    /// recording does not change the resident size of the process.
    pub fn reserve_lane(&self) {
        self.with_lane(|lane| lane.reserve(self));
    }

    /// Takes a lane for the calling thread that is not given back when the thread ends, see
    /// [`give_back_lane`](Self::give_back_lane): for injected code, which cannot use the destructors of thread-local
    /// variables, because the system allocates for them.
    pub fn take_lane(&self) -> Option<ThreadLane> {
        if self.current.first_generation() == OFF || INSIDE.replace(true) {
            return None;
        }
        let lane = self.current_session().and_then(Session::lane);
        INSIDE.set(false);
        lane.map(|lane| ThreadLane::of(lane))
    }

    /// Leaves a lane to the next thread.
    ///
    /// # Safety
    /// [`take_lane`](Self::take_lane) returned it on the calling thread, which does not use it any more.
    pub unsafe fn give_back_lane(&self, lane: ThreadLane) {
        if !std::ptr::eq(lane.get(), &raw const NOWHERE) {
            // SAFETY: lanes are never freed; see `vacate` for those of a parent process.
            unsafe { (*lane.get()).gate.vacate() };
        }
    }

    /// Counts events that could not be recorded.
    pub fn lose(&self, reason: LossReason, events: u64) {
        if self.has_session() {
            self.session().ring.lose(reason, events);
        }
    }

    /// Returns the lane of the calling thread, see [`traced_call_on`].
    pub fn thread_lane(&self) -> ThreadLane {
        self.with_lane(|_| ());
        ThreadLane::of(lane_of(self.index()))
    }

    /// Backs the memory of the tables that names are kept in, about 12 MB for some 60,000 functions, so that naming
    /// one does not change the resident size of the process.
    pub fn reserve_names(&self) {
        self.define(|interner, _| {
            interner.populate();
            Some(0)
        });
    }

    /// Returns the id of `text` in this recording.
    pub fn intern(&self, text: &str) -> StringId {
        self.define(|interner, write| interner.string(text, write)).map_or(StringId(0), StringId)
    }

    /// Returns the id of `frame` in this recording.
    pub fn intern_frame(&self, frame: &Frame) -> u32 {
        self.define(|interner, write| interner.frame(frame, write)).unwrap_or(0)
    }

    /// Returns the id of the stack that is `frame` called from `parent`.
    ///
    /// A stack that is known already costs one look-up without a lock.
    pub fn intern_stack(&self, parent: StackId, frame: u32) -> StackId {
        self.define(|interner, write| interner.stack(parent, frame, write)).map_or(StackId(0), StackId)
    }

    /// Calls `find` with the interner and a function that writes definitions, each once.
    pub(crate) fn define(
        &self,
        find: impl FnOnce(&Interner, &mut dyn FnMut(&[u8]) -> bool) -> Option<u32>,
    ) -> Option<u32> {
        if !self.has_session() || INSIDE.replace(true) {
            return None;
        }
        let session = self.current_session();
        let id = session.and_then(|session| {
            let found = find(session.interner, &mut |record| session.write_definition(record));
            // A definition that the end of the recording refused is missed by no record.
            if found.is_none() && self.is_recording() {
                session.ring.lose(LossReason::NoDefinition, 1);
            }
            found
        });
        INSIDE.set(false);
        id
    }

    /// Calls `with` with this thread's lane, finding one if it has none.
    pub(crate) fn with_lane<R>(&self, with: impl FnOnce(&Lane) -> R) -> Option<R> {
        let generation = self.current.first_generation();
        if generation == OFF {
            return None;
        }
        let index = self.index();
        // SAFETY: the pointer is to NOWHERE or to a lane, and those are never freed.
        let lane = unsafe { &*lane_of(index) };
        if lane.gate.generation.load(Ordering::Relaxed) == generation {
            return Some(with(lane));
        }
        if INSIDE.replace(true) {
            return None;
        }
        // A lane of an earlier recording or of the parent process is given up.
        set_lane(index, &raw const NOWHERE);
        let lane = self.current_session().and_then(Session::lane);
        INSIDE.set(false);
        let lane = lane?;
        set_lane(index, lane);
        // While a thread's destructors run, nothing would give the lane back later: it is given back at
        // once.
        let guarded = GUARD.try_with(|_| ()).is_ok();
        let result = with(lane);
        if !guarded {
            vacate(index);
        }
        Some(result)
    }

    /// Returns the session of this process, making one in a forked child.
    fn current_session(&self) -> Option<&'static Session> {
        let found = self.session();
        if found.is_own() {
            return Some(found);
        }
        // Another thread of the child may be at it.
        while !self.try_turn() {
            std::thread::yield_now();
            if self.session().is_own() {
                return Some(self.session());
            }
        }
        if !self.session().is_own() {
            self.make_child_session(found);
        }
        self.end_turn();
        Some(self.session()).filter(|session| session.is_own())
    }

    /// Makes a session for a forked child from its parent's.
    ///
    /// A child that cannot have a ring (it gave up its rights, or there is no space) tries again now and
    /// then, and counts its losses in its parent's ring, which it still has.
    fn make_child_session(&self, parent: &'static Session) {
        let failures = self.child_failures.load(Ordering::Relaxed);
        self.child_failures.store(failures.wrapping_add(1), Ordering::Relaxed);
        let generation = self.current.generation().wrapping_add(1).max(OFF + 1);
        let made = failures.is_multiple_of(CHILD_RETRY_EVENTS).then(|| parent.for_child(generation));
        match made {
            Some(Ok(session)) => self.install(session),
            _ => parent.ring.lose(LossReason::NoSpace, 1),
        }
    }

    /// Takes the turn to start or stop a session; `false` while another thread has it.
    pub(crate) fn try_turn(&self) -> bool {
        let pid = current_pid();
        let maker = self.maker.load(Ordering::Acquire);
        // An attempt of the parent process, cut off by a fork, shows as another pid.
        maker != pid && self.maker.compare_exchange(maker, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn end_turn(&self) {
        self.maker.store(0, Ordering::Release);
    }

    /// Makes `session` the one that this writer records into.
    pub(crate) fn install(&self, session: Box<Session>) {
        let session = Box::leak(session);
        // Definitions that a child inherited are written before any of its threads can use them.
        session.interner.define_all(&mut |record| session.write_definition(record));
        self.child_failures.store(0, Ordering::Relaxed);
        self.current.install(session, session.generation);
    }
}
