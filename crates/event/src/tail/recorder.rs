//! Starting and stopping, threads that come and go, fork: everything around the recording path.
//!
//! There is one recording per process at a time, because everything in a process that records
//! belongs into one trace. Invariants: mappings and sessions are never freed, since any thread may
//! be about to use them; the recording path looks at two words, its lane's generation and the global
//! one, and everything unusual (recording off, new thread, forked child, ended recording) shows as a
//! difference between them.
#![expect(unsafe_code, reason = "hands out lanes in shared memory to threads")]

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use super::intern::Interner;
use super::lane::{Lane, Surroundings};
use super::record::{Payload, Place, RecordType};
use super::ring::{
    CHUNK_BYTES, CHUNK_FREE, HEADER_BYTES, Identity, LossReason, Ring, c_path, host_in_names, path_of,
};
use crate::clock::{Anchor, monotonic_ns};
use crate::event::{Action, StackId, StringId};
use crate::tables::Frame;

/// Threads that can record at the same time.
const MAX_LANES: usize = 4096;
/// Value of [`GENERATION`] while nothing is recorded; lanes never have it.
const OFF: u32 = 1;

static GENERATION: AtomicU32 = AtomicU32::new(OFF);
static SESSION: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
/// Pid of the process that is making a session: a forked child inherits its parent's, which it can
/// tell from its own.
static MAKER: AtomicU32 = AtomicU32::new(0);

/// Number of the next recording.
static NEXT: AtomicU32 = AtomicU32::new(OFF + 1);

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

/// A process's part in a recording, from the first event to the end.
pub(crate) struct Session {
    pid: u32,
    generation: u32,
    ring: Ring,
    ring_path: CString,
    /// `segments/STEM.ring` in the trace: the ring itself or a link to it.
    link_path: CString,
    /// `segments/STEM`, what the names of this process's segments start with.
    stem: CString,
    props: RecordProps,
    interner: &'static Interner,
    next_scope: AtomicU32,
    lane_count: AtomicU32,
    lanes: Box<[AtomicPtr<Lane>]>,
    definitions: AtomicBool,
}

/// The recording of this process, whichever it is, looked up when needed.
struct Current;

impl Surroundings for Current {
    #[inline]
    fn generation(&self) -> u32 {
        GENERATION.load(Ordering::Relaxed)
    }

    fn ring(&self) -> &Ring {
        &session().ring
    }

    fn ring_path(&self) -> &CStr {
        &session().ring_path
    }

    fn may_grow(&self) -> bool {
        let session = session();
        let lanes = session.lane_count.load(Ordering::Relaxed) as usize;
        let chunks = session.ring.header().chunks.load(Ordering::Relaxed) as usize;
        chunks.saturating_sub(lanes) < session.props.shared_memory_bytes / CHUNK_BYTES
    }

    fn with_segment_path(&self, lane: u32, number: u32, with: &mut dyn FnMut(&CStr)) {
        let mut path = PathText::default();
        path.push(session().stem.to_bytes());
        path.push(b".");
        path.number(lane);
        path.push(b".");
        path.number(number);
        path.push(b".seg");
        if let Some(path) = path.finish() {
            with(path);
        }
    }
}

/// A path put together without allocating.
struct PathText {
    bytes: [u8; libc::PATH_MAX as usize],
    len: usize,
}

impl Default for PathText {
    fn default() -> Self {
        Self { bytes: [0; libc::PATH_MAX as usize], len: 0 }
    }
}

impl PathText {
    fn push(&mut self, text: &[u8]) {
        let end = (self.len + text.len()).min(self.bytes.len());
        self.bytes[self.len..end].copy_from_slice(&text[..end - self.len]);
        self.len = end;
    }

    fn number(&mut self, number: u32) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.push(&[b'0' + (number % 10) as u8]);
    }

    /// The path, unless it was too long.
    fn finish(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).ok()
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
/// `bytes` is what the caller of the free says, or [`UNKNOWN_BYTES`](crate::UNKNOWN_BYTES).
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
            Payload::new(RecordType::Mark).number(elapsed).number(u64::from(name.0))
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
fn define(find: impl FnOnce(&Interner, &mut dyn FnMut(&mut Payload)) -> Option<u32>) -> Option<u32> {
    if !is_recording() || INSIDE.replace(true) {
        return None;
    }
    let session = current_session();
    let id = session.and_then(|session| {
        let found = find(session.interner, &mut |payload| session.write_definition(payload));
        if found.is_none() {
            session.ring.lose(LossReason::NoDefinition, 1);
        }
        found
    });
    INSIDE.set(false);
    id
}

impl Session {
    /// Writes to lane 0, which holds definitions and is shared under a lock: they are rare.
    fn write_definition(&self, payload: &mut Payload) {
        while self.definitions.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: lane 0 is made with the session, and lanes are never freed.
        let lane = unsafe { &*self.lanes[0].load(Ordering::Acquire) };
        lane.put(payload.finish(), &Current);
        self.definitions.store(false, Ordering::Release);
    }

    /// Takes a vacant lane or makes one.
    fn lane(&self) -> Option<&'static Lane> {
        let thread = current_thread();
        let made = (self.lane_count.load(Ordering::Acquire) as usize).min(MAX_LANES);
        for lane in &self.lanes[1..made] {
            let lane = lane.load(Ordering::Acquire);
            if lane.is_null() {
                continue;
            }
            // SAFETY: lanes are never freed.
            let lane = unsafe { &*lane };
            if lane.vacant.load(Ordering::Relaxed) && lane.vacant.swap(false, Ordering::Acquire) {
                lane.take(thread, &Current);
                return Some(lane);
            }
        }
        let number = self.lane_count.fetch_add(1, Ordering::Relaxed) as usize;
        let page = (number < MAX_LANES).then(|| lane_page().ok()).flatten();
        let Some(lane) = page else {
            self.ring.lose(LossReason::NoLane, 1);
            return None;
        };
        lane.initialize(number as u32, self.generation);
        lane.take(thread, &Current);
        self.lanes[number].store(std::ptr::from_ref(lane).cast_mut(), Ordering::Release);
        Some(lane)
    }
}

/// Maps a page for a lane that forked children see as zeros.
fn lane_page() -> io::Result<&'static Lane> {
    // SAFETY: a new anonymous mapping touches nothing of ours; it is a page and so large enough and
    // aligned for a Lane, for which all zeros are valid; it is never unmapped.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if libc::madvise(page, 4096, libc::MADV_WIPEONFORK) != 0 {
            // Without it a forked child would write into its parent's chunks.
            return Err(io::Error::last_os_error());
        }
        Ok(&*page.cast::<Lane>())
    }
}

fn current_thread() -> u64 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u64 }
}

fn current_pid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::getpid() as u32 }
}

/// Calls `with` with this thread's lane, finding one if it has none.
fn with_lane<R>(with: impl FnOnce(&Lane) -> R) -> Option<R> {
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

/// Returns the session of this process, making one in a forked child.
fn current_session() -> Option<&'static Session> {
    let pid = current_pid();
    let found = session();
    if found.pid == pid {
        return Some(found);
    }
    // Another thread of the child may be at it; a parent's unfinished attempt shows as another pid.
    loop {
        let maker = MAKER.load(Ordering::Acquire);
        if maker != pid && MAKER.compare_exchange(maker, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            break;
        }
        std::thread::yield_now();
        if session().pid == pid {
            return Some(session());
        }
    }
    if session().pid != pid {
        let generation = GENERATION.load(Ordering::Relaxed).wrapping_add(1).max(OFF + 1);
        match Session::create(found.props.clone(), generation, found.interner) {
            Ok(session) => session.install(),
            Err(_) => GENERATION.store(OFF, Ordering::Relaxed),
        }
    }
    MAKER.store(0, Ordering::Release);
    is_recording().then(session)
}

impl Session {
    fn create(
        props: RecordProps,
        generation: u32,
        interner: &'static Interner,
    ) -> Result<Box<Self>, StartError> {
        let segments = props.trace.join("segments");
        let error = |act, path: &Path| {
            let path = path.to_owned();
            move |source| StartError::Io { act, path, source }
        };
        std::fs::create_dir_all(&segments).map_err(error("creating", &segments))?;
        let segments = segments.canonicalize().map_err(error("opening", &segments))?;
        let pid = current_pid();
        let stem = format!("{}-{pid}-{:x}", host_in_names(), monotonic_ns());
        let link = segments.join(format!("{stem}.ring"));
        let identity = Identity { anchor: Anchor::now(), command: command() };
        let (ring, ring_path) =
            create_ring(&props, &link, &stem, &identity).map_err(error("creating", &link))?;
        let c_string = |path: &Path| c_path(path).map_err(error("naming", path));
        let session = Box::new(Self {
            pid,
            generation,
            ring_path: c_string(&ring_path)?,
            link_path: c_string(&link)?,
            stem: c_string(&segments.join(&stem))?,
            ring,
            props,
            interner,
            next_scope: AtomicU32::new(1),
            lane_count: AtomicU32::new(1),
            lanes: (0..MAX_LANES).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect(),
            definitions: AtomicBool::new(false),
        });
        let lane = lane_page().map_err(error("recording into", &session.props.trace))?;
        lane.initialize(0, generation);
        session.lanes[0].store(std::ptr::from_ref(lane).cast_mut(), Ordering::Release);
        Ok(session)
    }

    /// Makes this the recording of the process.
    fn install(self: Box<Self>) {
        let session = Box::leak(self);
        SESSION.store(session, Ordering::Release);
        GENERATION.store(session.generation, Ordering::Release);
        session.interner.define_all(&mut |payload| session.write_definition(payload));
    }
}

/// Creates the ring in shared memory with a link to it in the trace, or in the trace itself.
fn create_ring(
    props: &RecordProps,
    link: &Path,
    stem: &str,
    identity: &Identity,
) -> io::Result<(Ring, PathBuf)> {
    let extra = props.shared_memory_bytes / CHUNK_BYTES;
    let shared = props.ring_directory.clone().unwrap_or_else(|| PathBuf::from("/dev/shm"));
    let path = shared.join(format!("floodmark-{stem}.ring"));
    // The link comes first: a process killed in between leaves a link that leads nowhere, which the
    // next open deletes, and not a file in shared memory that nobody knows.
    std::os::unix::fs::symlink(&path, link)?;
    if let Ok(ring) = Ring::create(&c_path(&path)?, MAX_LANES + extra, identity) {
        return Ok((ring, path));
    }
    std::fs::remove_file(link)?;
    // No shared memory to be had: a file of the trace costs page faults and write-back, but works.
    Ring::create(&c_path(link)?, MAX_LANES + extra, identity).map(|ring| (ring, link.to_owned()))
}

/// The command line of this process, cut to what a header holds.
fn command() -> [u8; 512] {
    let mut command = [0; 512];
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = line.strip_suffix(&[0]).unwrap_or(&line);
    for (to, from) in command[..511].iter_mut().zip(words) {
        *to = if *from == 0 { b' ' } else { *from };
    }
    command
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
    if !is_recording() || session().pid != current_pid() {
        return;
    }
    let was_inside = INSIDE.replace(true);
    GENERATION.store(OFF, Ordering::SeqCst);
    settle();
    let session = session();
    session.ring.header().closed.store(1, Ordering::Release);
    // If the disk is full the ring stays where it is and the link in the trace leads to it.
    let _ = session.bring_home();
    INSIDE.set(was_inside);
}

/// Waits until no thread is in the middle of a record.
///
/// A thread marks its lane busy and then looks at the generation; we changed the generation and then
/// look at the lanes. The barrier between makes each of us see at least one of the other's stores,
/// which a fence on the recording path would do at ten times its cost.
fn settle() {
    // SAFETY: plain system calls; the first registers the intent, as the second requires.
    let fenced = unsafe {
        libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0
            && libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0
    };
    if !fenced {
        std::thread::sleep(Duration::from_millis(10));
    }
    let session = session();
    let made = (session.lane_count.load(Ordering::Acquire) as usize).min(MAX_LANES);
    // A thread that was stopped in the middle of a record, by a debugger say, is not waited for.
    let deadline = monotonic_ns() + 200_000_000;
    for lane in &session.lanes[..made] {
        let lane = lane.load(Ordering::Acquire);
        // SAFETY: lanes are never freed.
        while !lane.is_null() && unsafe { (*lane).busy.load(Ordering::Acquire) } && monotonic_ns() < deadline
        {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

impl Session {
    /// Replaces the link in the trace by a copy of the ring, and removes the ring.
    fn bring_home(&self) -> io::Result<()> {
        let (ring, link) = (path_of(&self.ring_path), path_of(&self.link_path));
        if ring == link {
            return Ok(());
        }
        let temporary = link.with_extension("ring.tmp");
        let copied = self.copy_to(&temporary).and_then(|()| std::fs::rename(&temporary, &link));
        if copied.is_err() {
            let _ = std::fs::remove_file(&temporary);
            return copied;
        }
        std::fs::remove_file(&ring)
    }

    fn copy_to(&self, path: &Path) -> io::Result<()> {
        let mut file = std::fs::File::create(path)?;
        let chunks = (self.ring.header().chunks.load(Ordering::Acquire) as usize).min(self.ring.capacity());
        let mut original = std::fs::File::open(std::ffi::OsStr::from_bytes(self.ring_path.to_bytes()))?;
        let mut page = vec![0; HEADER_BYTES];
        io::Read::read_exact(&mut original, &mut page)?;
        file.write_all(&page)?;
        let backed = original.metadata()?.len() as usize;
        for index in 0..chunks {
            let at = HEADER_BYTES + index * CHUNK_BYTES;
            if at + CHUNK_BYTES > backed {
                break;
            }
            // SAFETY: backed by the file as just checked, and mapped.
            let (free, bytes) = unsafe {
                let chunk = self.ring.chunk(index);
                let free = (*chunk).state.load(Ordering::Acquire) == CHUNK_FREE;
                (free, std::slice::from_raw_parts(chunk.cast::<u8>(), CHUNK_BYTES))
            };
            if !free {
                file.seek(io::SeekFrom::Start(at as u64))?;
                file.write_all(bytes)?;
            }
        }
        file.set_len((HEADER_BYTES + chunks * CHUNK_BYTES) as u64)?;
        file.sync_data()
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
