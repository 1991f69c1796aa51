//! Starting and stopping a recording.
//!
//! A process can record into several traces at once, each through a [`Recorder`] of its own; one of them
//! may be the global recording, which code that knows no recorder writes into. Starting and stopping
//! take turns per writer. Invariants: a recording has ended only when no thread is in the middle of a
//! record; what it committed is then in the trace's directory, or in a ring that the trace links to.
#![expect(unsafe_code, reason = "calls atexit")]

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::clock::monotonic_ns;
use crate::intern::Interner;
use crate::protocol::OFF;
use crate::session::Session;
use crate::writer::{self, Writer, global, unrecorded};

/// Generation of the next recording. Forked children count on from their parent's, hence the stride.
static NEXT: AtomicU32 = AtomicU32::new(OFF + 1);
const GENERATION_STRIDE: u32 = 1 << 12;

/// How long the end of a recording waits for threads that are in the middle of a record.
const SETTLE_TIMEOUT_NS: u64 = 2_000_000_000;

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct RecordProps {
    /// Directory of the trace; made if it does not exist.
    pub trace: PathBuf,
    /// Shared memory this process may use for chunks beyond the first of each thread.
    pub shared_memory_bytes: usize,
    /// Directory for the ring instead of the machine's shared memory.
    pub ring_directory: Option<PathBuf>,
}

impl RecordProps {
    /// Returns the default options for recording into the trace at `trace`.
    pub fn new(trace: impl Into<PathBuf>) -> Self {
        Self { trace: trace.into(), shared_memory_bytes: 16 << 20, ring_directory: None }
    }
}

/// Why a recording could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The global recording of this process is going on already.
    AlreadyRecording,
    /// This process has [`MAX_RECORDERS`](crate::MAX_RECORDERS) recorders already.
    TooManyRecorders,
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
            Self::TooManyRecorders => out.write_str("this process has too many recorders at once"),
            Self::Io { act, path, source } => write!(out, "{act} {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for StartError {}

/// A recording that goes on until it is stopped or dropped.
///
/// Threads record through its [`Writer`], to which it dereferences.
#[derive(Debug)]
pub struct Recorder {
    writer: &'static Writer,
    /// The first generation of this recording, which forked children keep as its name.
    recording: u32,
}

impl Deref for Recorder {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        self.writer
    }
}

impl Recorder {
    /// Starts a recording of its own: only what is recorded through this value goes into the trace.
    /// Children that this process forks record into the same trace.
    ///
    /// # Errors
    /// [`StartError`] if there are too many recorders or the trace cannot be written.
    pub fn start(props: RecordProps) -> Result<Self, StartError> {
        let writer = Writer::take().ok_or(StartError::TooManyRecorders)?;
        let started = Self::start_with(writer, props);
        if started.is_err() {
            writer.taken.store(false, Ordering::Release);
        }
        started
    }

    /// Starts the global recording of this process, which the free functions of this crate and injected
    /// code record into.
    ///
    /// # Errors
    /// [`StartError`] if it is going on already or the trace cannot be written.
    pub fn start_global(props: RecordProps) -> Result<Self, StartError> {
        Self::start_with(global(), props)
    }

    fn start_with(writer: &'static Writer, props: RecordProps) -> Result<Self, StartError> {
        if writer.is_recording() || !writer.try_turn() {
            return Err(StartError::AlreadyRecording);
        }
        let recording = NEXT.fetch_add(GENERATION_STRIDE, Ordering::Relaxed).max(OFF + 1);
        let started = unrecorded(|| {
            Session::create(props, recording, recording, Interner::new())
                .map(|session| writer.install(session))
        });
        writer.end_turn();
        started?;
        register_exit();
        Ok(Self { writer, recording })
    }

    /// Returns the writer of this recording, which outlives it: once the recording has ended, the writer
    /// does nothing until a later recorder takes it.
    pub fn writer(&self) -> &'static Writer {
        self.writer
    }

    /// Directory of the trace.
    pub fn trace(&self) -> &'static Path {
        &self.writer.session().props.trace
    }

    /// Ends the recording and moves what is still in shared memory into the trace, as dropping does.
    ///
    /// Returns once no thread is in the middle of a record.
    pub fn stop(self) {
        drop(self);
    }

    /// Lets the recording go on until the process exits or [`stop_global`] is called.
    pub fn detach(self) {
        std::mem::forget(self);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        stop(self.writer, Some(self.recording));
        if !std::ptr::eq(self.writer, global()) {
            self.writer.taken.store(false, Ordering::Release);
        }
    }
}

/// Ends the global recording of this process, if it is going on.
pub fn stop_global() {
    stop(global(), None);
}

/// Ends the recording of `writer` if there is one, and if it is `recording` where that is given.
fn stop(writer: &'static Writer, recording: Option<u32>) {
    if !writer.has_session() {
        return;
    }
    let deadline = monotonic_ns() + SETTLE_TIMEOUT_NS;
    while !writer.try_turn() {
        if monotonic_ns() > deadline {
            return;
        }
        std::thread::yield_now();
    }
    let session = writer.session();
    if writer.is_recording() && recording.is_none_or(|recording| recording == session.recording) {
        unrecorded(|| {
            // A forked child that recorded nothing has its parent's session, which is not its to end.
            let is_own = session.is_own();
            session.refuse_records();
            writer.current.end();
            if is_own {
                settle(session);
                session.end();
            }
        });
    }
    writer.end_turn();
}

/// Waits until no thread is in the middle of a record of a recording that was ended.
fn settle(session: &Session) {
    // A thread that was stopped in the middle of a record, by a debugger say, is not waited for.
    let deadline = monotonic_ns() + SETTLE_TIMEOUT_NS;
    for lane in session.made_lanes() {
        while !lane.gate.is_idle() && monotonic_ns() < deadline {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Registers that all recordings end in order when the process exits.
fn register_exit() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    extern "C" fn at_exit() {
        // A panic must not leave the host's exit; nothing could report it here.
        let _ = std::panic::catch_unwind(|| writer::all().for_each(|writer| stop(writer, None)));
    }
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the function lives as long as the process.
        unsafe { libc::atexit(at_exit) };
    }
}
