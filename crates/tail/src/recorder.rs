//! Starting and stopping, threads that come and go, fork: everything around the recording path.
//!
//! There is one recording per process at a time, because everything in a process that records
//! belongs into one trace. Invariants: mappings and sessions are never freed, since any thread may
//! be about to use them; the recording path looks at two words, its lane's generation and the global
//! one, and everything unusual (recording off, new thread, forked child, ended recording) shows as a
//! difference between them.
#![expect(unsafe_code, reason = "hands out lanes in shared memory to threads")]

use std::cell::Cell;
use std::ffi::CStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use super::intern::Interner;
use super::lane::{Lane, Surroundings};
use super::record::{NumbersPayload, Place, RecordType};
use super::ring::{LossReason, Ring};
use super::session::{GENERATION, MAX_LANES, OFF, Session, current_pid};
use crate::clock::monotonic_ns;
use floodmark_event::event::{Action, StackId, StringId};
use floodmark_event::tables::Frame;

static SESSION: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
/// Pid of the process that is making a session: a forked child inherits its parent's, which it can
/// tell from its own.
static MAKER: AtomicU32 = AtomicU32::new(0);

/// How often a forked child could not make a ring.
static CHILD_FAILURES: AtomicU32 = AtomicU32::new(0);
/// How many events such a child loses before it tries again.
const CHILD_RETRY_EVENTS: u32 = 4096;

/// Number of the next recording.
static NEXT: AtomicU32 = AtomicU32::new(OFF + 1);

/// How long the end of a recording waits for threads that are in the middle of something.
const PATIENCE_NS: u64 = 2_000_000_000;

static NOWHERE: Lane = Lane::nowhere();

thread_local! {
    static LANE: Cell<*const Lane> = const { Cell::new(&raw const NOWHERE) };
    /// Set while this module allocates, so that its own allocations are not recorded.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static GUARD: Guard = const { Guard };
}

/// Gives the thread's lane back when the thread ends.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        vacate();
    }
}

fn vacate() {
    let lane = LANE.replace(&raw const NOWHERE);
    if !std::ptr::eq(lane, &raw const NOWHERE) {
        // SAFETY: lanes are never freed. In a forked child the page reads as zeros; marking that one
        // vacant does no harm, because no session of the child knows it.
        unsafe { (*lane).vacant.store(true, Ordering::Release) };
    }
}

/// What to record into.
#[derive(Clone, Debug)]
pub struct RecordProps {
    /// Directory of the trace; made if it does not exist.
    pub trace: PathBuf,
    /// Shared memory this process may use for chunks beyond the first of each thread.
    pub shared_memory_bytes: usize,
    /// Where to put the ring instead of the machine's shared memory.
    pub ring_directory: Option<PathBuf>,
}

impl RecordProps {
    /// Records into the trace at `trace` with everything else as usual.
    pub fn new(trace: impl Into<PathBuf>) -> Self {
        Self { trace: trace.into(), shared_memory_bytes: 16 << 20, ring_directory: None }
    }
}

/// Why a recording could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// This process is recording already.
    AlreadyRecording,
    /// The system refused something.
    Io {
        /// What was being done, as in "creating".
        act: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl std::fmt::Display for StartError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AlreadyRecording => out.write_str("this process is recording already"),
            Self::Io { act, path, source } => write!(out, "{act} {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for StartError {}

/// The recording of this process, whichever it is, looked up when needed.
pub(super) struct Current;

impl Surroundings for Current {
    #[inline]
    fn generation(&self) -> u32 {
        GENERATION.load(Ordering::Relaxed)
    }

    fn ring(&self) -> &Ring {
        session().ring()
    }

    fn ring_path(&self) -> &CStr {
        session().ring_path()
    }

    fn may_grow(&self) -> bool {
        session().may_grow()
    }

    fn with_segment_path(&self, lane: u32, number: u32, with: &mut dyn FnMut(&CStr)) {
        session().with_segment_path(lane, number, with);
    }
}

fn session() -> &'static Session {
    // SAFETY: set before GENERATION leaves OFF, replaced but never freed.
    unsafe { &*SESSION.load(Ordering::Acquire) }
}

/// Records that a block came to life. Call it after the memory was handed out.
#[inline]
pub fn alloc(address: u64, bytes: u64, place: &Place, stack: StackId) {
    event(Action::Alloc, address, bytes, place, stack);
}

/// Records that a block ends. Call it before the memory is given back.
///
/// `bytes` is what the caller of the free says, or [`UNKNOWN_BYTES`](floodmark_event::UNKNOWN_BYTES).
#[inline]
pub fn free(address: u64, bytes: u64, place: &Place) {
    event(Action::Free, address, bytes, place, StackId(0));
}

/// Records that an allocation of `bytes` failed.
#[inline]
pub fn failure(bytes: u64, place: &Place, stack: StackId) {
    event(Action::Failure, 0, bytes, place, stack);
}

#[inline]
fn event(action: Action, address: u64, bytes: u64, place: &Place, stack: StackId) {
    // SAFETY: the pointer is to NOWHERE or to a lane, and those are never freed.
    let lane = unsafe { &*LANE.get() };
    if lane.generation.load(Ordering::Relaxed) == GENERATION.load(Ordering::Relaxed) {
        lane.event(action, address, bytes, place, stack, &Current);
    } else {
        event_elsewhere(action, address, bytes, place, stack);
    }
}

#[cold]
fn event_elsewhere(action: Action, address: u64, bytes: u64, place: &Place, stack: StackId) {
    with_lane(|lane| lane.event(action, address, bytes, place, stack, &Current));
}

/// Whether this process records at the moment.
#[inline]
pub fn is_recording() -> bool {
    GENERATION.load(Ordering::Relaxed) != OFF
}

/// A number for the recording that goes on; 0 while nothing is recorded.
///
/// Ids from [`intern`] and its like hold as long as this stays the same: whoever keeps one asks for it
/// anew when the number changed.
#[inline]
pub fn recording() -> u32 {
    match GENERATION.load(Ordering::Relaxed) {
        OFF => 0,
        generation => generation,
    }
}

/// Enters a scope on this thread; give the result to [`exit_scope`].
pub fn enter_scope(name: StringId) -> u32 {
    with_lane(|lane| {
        let scope = session().next_scope.fetch_add(1, Ordering::Relaxed);
        lane.enter(scope, name, &Current)
    })
    .unwrap_or(0)
}

/// Leaves the innermost scope of this thread; `outer` is what [`enter_scope`] gave.
pub fn exit_scope(outer: u32) {
    with_lane(|lane| lane.exit(outer, &Current));
}

/// Records that the program came to a point worth remembering.
pub fn mark(name: StringId) {
    with_lane(|lane| {
        lane.other(&Current, |elapsed| {
            NumbersPayload::new(RecordType::Mark).number(elapsed).number(u64::from(name.0))
        });
    });
}

/// Returns the id of `text` in this process; 0 while nothing is recorded.
pub fn intern(text: &str) -> StringId {
    define(|interner, write| interner.string(text, write)).map_or(StringId(0), StringId)
}

/// Returns the id of `frame` in this process; 0 while nothing is recorded.
pub fn intern_frame(frame: &Frame) -> u32 {
    define(|interner, write| interner.frame(frame, write)).unwrap_or(0)
}

/// Returns the id of the stack that is `frame` called from `parent`.
///
/// A stack that is known already costs one look-up without a lock.
pub fn intern_stack(parent: StackId, frame: u32) -> StackId {
    define(|interner, write| interner.stack(parent, frame, write)).map_or(StackId(0), StackId)
}

/// Calls `find` with the interner and a function that writes definitions, each once.
pub(super) fn define(
    find: impl FnOnce(&Interner, &mut dyn FnMut(&[u8]) -> bool) -> Option<u32>,
) -> Option<u32> {
    if !is_recording() || INSIDE.replace(true) {
        return None;
    }
    let session = current_session();
    let id = session.and_then(|session| {
        let found = find(session.interner, &mut |record| session.write_definition(record));
        if found.is_none() {
            session.ring.lose(LossReason::NoDefinition, 1);
        }
        found
    });
    INSIDE.set(false);
    id
}

/// Calls `with` with this thread's lane, finding one if it has none.
pub(super) fn with_lane<R>(with: impl FnOnce(&Lane) -> R) -> Option<R> {
    let generation = GENERATION.load(Ordering::Relaxed);
    if generation == OFF {
        return None;
    }
    // SAFETY: the pointer is to NOWHERE or to a lane, and those are never freed.
    let lane = unsafe { &*LANE.get() };
    if lane.generation.load(Ordering::Relaxed) == generation {
        return Some(with(lane));
    }
    if INSIDE.replace(true) {
        return None;
    }
    // A lane of an earlier recording or of the parent process is given up.
    LANE.set(&raw const NOWHERE);
    let lane = current_session().and_then(Session::lane);
    INSIDE.set(false);
    let lane = lane?;
    LANE.set(lane);
    // While a thread's destructors run there is nothing left that would give the lane back later, so
    // it is given back at once.
    let guarded = GUARD.try_with(|_| ()).is_ok();
    let result = with(lane);
    if !guarded {
        vacate();
    }
    Some(result)
}

/// Whether a session is this process's own and not one it inherited by a fork.
fn is_own(session: &Session) -> bool {
    // A child in a pid namespace of its own may have its parent's number, but lanes of the parent read
    // as zeros there.
    // SAFETY: lane 0 is made with the session, and lanes are never freed.
    let definitions = unsafe { &*session.lanes[0].load(Ordering::Acquire) };
    session.pid == current_pid() && definitions.generation.load(Ordering::Relaxed) == session.generation
}

/// Returns the session of this process, making one in a forked child.
fn current_session() -> Option<&'static Session> {
    let found = session();
    if is_own(found) {
        return Some(found);
    }
    // Another thread of the child may be at it; a parent's unfinished attempt shows as another pid.
    let pid = current_pid();
    loop {
        let maker = MAKER.load(Ordering::Acquire);
        if maker != pid && MAKER.compare_exchange(maker, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            break;
        }
        std::thread::yield_now();
        if is_own(session()) {
            return Some(session());
        }
    }
    // A child that cannot have a ring (it gave up its rights, or there is no space) tries again now and
    // then, and counts what it loses in its parent's ring, which it still has.
    if !is_own(session()) {
        let failures = CHILD_FAILURES.load(Ordering::Relaxed);
        CHILD_FAILURES.store(failures.wrapping_add(1), Ordering::Relaxed);
        let generation = GENERATION.load(Ordering::Relaxed).wrapping_add(1).max(OFF + 1);
        let made = failures
            .is_multiple_of(CHILD_RETRY_EVENTS)
            .then(|| Session::create(found.props.clone(), generation, found.interner));
        match made {
            Some(Ok(session)) => session.install(),
            _ => found.ring.lose(LossReason::NoSpace, 1),
        }
    }
    MAKER.store(0, Ordering::Release);
    Some(session()).filter(|session| is_own(session))
}

impl Session {
    /// Makes this the recording of the process.
    fn install(self: Box<Self>) {
        let session = Box::leak(self);
        // What a child inherited is defined before any of its threads can use it.
        session.interner.define_all(&mut |record| session.write_definition(record));
        SESSION.store(session, Ordering::Release);
        GENERATION.store(session.generation, Ordering::Release);
    }
}

/// The recording of this process. Ends with [`Recorder::stop`]; dropping it does not end it.
#[derive(Debug)]
pub struct Recorder(());

impl Recorder {
    /// Starts to record this process, and the children it forks, into a trace.
    ///
    /// # Errors
    /// [`StartError`] if a recording is going on or the trace cannot be written.
    pub fn start(props: RecordProps) -> Result<Self, StartError> {
        let pid = current_pid();
        if is_recording() || MAKER.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(StartError::AlreadyRecording);
        }
        // Forked children count on from their parent's number, hence the stride.
        let generation = NEXT.fetch_add(1 << 12, Ordering::Relaxed).max(OFF + 1);
        let was_inside = INSIDE.replace(true);
        let session = Session::create(props, generation, Interner::new());
        let started = session.map(|session| {
            session.install();
            Self(())
        });
        INSIDE.set(was_inside);
        MAKER.store(0, Ordering::Release);
        if started.is_ok() {
            register_exit();
        }
        started
    }

    /// Directory of the trace.
    pub fn trace(&self) -> &'static Path {
        &session().props.trace
    }

    /// Ends the recording and moves what is still in shared memory into the trace.
    ///
    /// Returns once no thread is in the middle of an event.
    pub fn stop(self) {
        stop();
    }
}

/// Ends the recording of this process, if there is one of its own.
fn stop() {
    if !is_recording() {
        return;
    }
    // Nobody starts or stops meanwhile.
    let pid = current_pid();
    let deadline = monotonic_ns() + PATIENCE_NS;
    while MAKER.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        if monotonic_ns() > deadline {
            return;
        }
        std::thread::yield_now();
    }
    let session = session();
    if is_recording() && is_own(session) {
        let was_inside = INSIDE.replace(true);
        GENERATION.store(OFF, Ordering::SeqCst);
        settle(session);
        session.ring.header().closed.store(1, Ordering::Release);
        // If the disk is full the ring stays where it is and the link in the trace leads to it.
        let _ = session.bring_home();
        INSIDE.set(was_inside);
    }
    MAKER.store(0, Ordering::Release);
}

/// Waits until no thread is in the middle of a record.
///
/// A thread marks its lane busy and then looks at the generation; we changed the generation and then
/// look at the lanes. The barrier between makes each of us see at least one of the other's stores,
/// which a fence on the recording path would do at ten times its cost.
fn settle(session: &Session) {
    // SAFETY: plain system calls; the first registers the intent, as the second requires.
    let fenced = unsafe {
        libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0
            && libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0
    };
    if !fenced {
        std::thread::sleep(Duration::from_millis(10));
    }
    let made = (session.lane_count.load(Ordering::Acquire) as usize).min(MAX_LANES);
    // A thread that was stopped in the middle of a record, by a debugger say, is not waited for.
    let deadline = monotonic_ns() + PATIENCE_NS;
    for lane in &session.lanes[..made] {
        let lane = lane.load(Ordering::Acquire);
        // SAFETY: lanes are never freed.
        while !lane.is_null() && unsafe { (*lane).busy.load(Ordering::Acquire) } && monotonic_ns() < deadline
        {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Has the recording ended in order when the process exits.
fn register_exit() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    extern "C" fn at_exit() {
        // A panic must not leave the host's exit; there is nothing to tell and nobody to tell it.
        let _ = std::panic::catch_unwind(stop);
    }
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the function lives as long as the process.
        unsafe { libc::atexit(at_exit) };
    }
}
