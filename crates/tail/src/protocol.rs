//! The steps by which threads, the sealer and readers share chunks and lanes.
//!
//! Everything here is about the order in which words become visible; what the words are for is said where
//! they are used (`lane`, `reader`, `recorder`, `session`). The module is compiled twice: here, and with
//! loom's atomics in `tests/loom.rs`, which runs it through all orders that the memory model allows.
//!
//! Invariants: records below a chunk's commit word never change while its sequence number stays the same;
//! a chunk whose state is full does not change until the sealer frees it; after [`Current::end`] and
//! [`heavy_barrier`] no thread writes into a lane whose gate was seen idle.

use std::io;

use crate::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence, heavy_barrier, light_barrier,
};

/// The chunk holds nothing that is not stored elsewhere.
pub(crate) const CHUNK_FREE: u32 = 0;
/// The chunk is being written.
pub(crate) const CHUNK_WRITING: u32 = 1;
/// The chunk waits for a sealer.
pub(crate) const CHUNK_FULL: u32 = 2;

/// Flag of a chunk: times in it go back, or go back from the lane's previous chunk to it.
pub(crate) const CHUNK_DISORDERED: u32 = 1;

/// Sequence number of a chunk whose header is being written; its earlier contents are stored elsewhere.
pub(crate) const NO_SEQUENCE: u64 = u64::MAX;

/// Generation of a writer that records nothing; lanes never have it.
pub(crate) const OFF: u32 = 1;

/// Times that a reader copies a chunk before it gives up. A thread can go through all of its chunks while
/// one is copied, but not without end.
const MAX_COPIES: usize = 1000;

/// Start of a chunk in shared memory.
#[repr(C)]
pub(crate) struct ChunkHeader {
    pub(crate) state: AtomicU32,
    pub(crate) lane: AtomicU32,
    /// Number of the chunk's contents in its lane, from 0; [`NO_SEQUENCE`] while the header changes.
    pub(crate) sequence: AtomicU64,
    /// Bytes of records that exist.
    pub(crate) committed: AtomicU32,
    pub(crate) flags: AtomicU32,
    pub(crate) base_time_ns: AtomicU64,
}

/// Values of a chunk's header that stay the same until the chunk is used again.
pub(crate) struct Contents {
    pub(crate) lane: u32,
    pub(crate) sequence: u64,
    pub(crate) base_time_ns: u64,
    pub(crate) is_disordered: bool,
}

/// The steps of the thread that holds the chunk's lane.
impl ChunkHeader {
    /// Begins new contents. The earlier ones must be stored elsewhere: the chunk is free, or its thread
    /// appended it to a segment file.
    pub(crate) fn begin(&self, contents: &Contents) {
        // A reader that copies the chunk meanwhile reads the sequence number first and last. If it saw any
        // store after the fence, of the header or of a record, it finds that the number changed.
        self.sequence.store(NO_SEQUENCE, Ordering::Relaxed);
        fence(Ordering::Release);
        self.committed.store(0, Ordering::Relaxed);
        self.lane.store(contents.lane, Ordering::Relaxed);
        self.base_time_ns.store(contents.base_time_ns, Ordering::Relaxed);
        let flags = if contents.is_disordered { CHUNK_DISORDERED } else { 0 };
        self.flags.store(flags, Ordering::Relaxed);
        self.sequence.store(contents.sequence, Ordering::Release);
        self.state.store(CHUNK_WRITING, Ordering::Relaxed);
    }

    /// Makes the records below `bytes` exist.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) fn commit(&self, bytes: u32) {
        self.committed.store(bytes, Ordering::Release);
    }

    /// Marks the chunk as disordered, before the record that goes back in time is committed.
    pub(crate) fn mark_disordered(&self) {
        self.flags.store(CHUNK_DISORDERED, Ordering::Relaxed);
    }

    /// Hands the chunk to the sealer.
    pub(crate) fn hand_over(&self) {
        self.state.store(CHUNK_FULL, Ordering::Release);
    }

    /// Whether the sealer has freed the chunk, or it was never used.
    pub(crate) fn is_free(&self) -> bool {
        self.state.load(Ordering::Acquire) == CHUNK_FREE
    }
}

/// Reads a chunk that a thread may be writing. Words that one call reads may be read in any order.
pub(crate) trait ChunkSource {
    /// Records as they are copied.
    type Payload;
    /// Reads the sequence number.
    fn sequence(&self) -> io::Result<u64>;
    /// Reads the state.
    fn state(&self) -> io::Result<u32>;
    /// Reads the commit word.
    fn committed(&self) -> io::Result<u32>;
    /// Reads the first `bytes` of the records.
    fn payload(&self, bytes: u32) -> io::Result<Self::Payload>;
    /// Reads what else the header says; `sequence` is given.
    fn contents(&self, sequence: u64) -> io::Result<Contents>;
}

/// Which chunks a reader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Those that hold records.
    Any,
    /// Those that wait for a sealer.
    Full,
}

/// A consistent copy of a chunk.
pub(crate) struct ChunkCopy<P> {
    pub(crate) contents: Contents,
    pub(crate) is_full: bool,
    pub(crate) payload: P,
}

/// Copies a chunk; `None` if it holds nothing that is not stored elsewhere, or is not wanted.
pub(crate) fn copy<S: ChunkSource>(source: &S, wanted: Wanted) -> io::Result<Option<ChunkCopy<S::Payload>>> {
    for _ in 0..MAX_COPIES {
        // Words are read one by one, because the system promises no order within one read of a file, and
        // with fences, because it promises none between two.
        let sequence = source.sequence()?;
        if sequence == NO_SEQUENCE {
            return Ok(None);
        }
        fence(Ordering::Acquire);
        // After the sequence number, or it could be that of the contents before.
        let is_full = match source.state()? {
            CHUNK_FREE => return Ok(None),
            CHUNK_WRITING if wanted == Wanted::Full => return Ok(None),
            state @ (CHUNK_WRITING | CHUNK_FULL) => state == CHUNK_FULL,
            _ => {
                let text = "a chunk is in a state that does not exist";
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
        };
        fence(Ordering::Acquire);
        // After the state: a full chunk's commit word is its last one.
        let committed = source.committed()?;
        fence(Ordering::Acquire);
        let payload = source.payload(committed)?;
        // After the commit word: the flag is set before the record that needs it is committed.
        let contents = source.contents(sequence)?;
        fence(Ordering::Acquire);
        if source.sequence()? == sequence {
            return Ok(Some(ChunkCopy { contents, is_full, payload }));
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "a chunk changes faster than it can be read"))
}

/// Orders what the sealer read before its store of [`CHUNK_FREE`], which follows.
pub(crate) fn before_free() {
    fence(Ordering::Release);
}

/// Whether a thread may write into a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It may, until it calls [`Gate::leave`].
    Entered,
    /// It is in the middle of a record: this is a signal handler.
    Nested,
    /// The recording has ended.
    Ended,
}

/// The words of a lane that other threads than its own look at. All zeros belong to no recording.
#[repr(C)]
pub(crate) struct Gate {
    /// Recording that the lane belongs to.
    pub(crate) generation: AtomicU32,
    /// Set while a record is being written.
    pub(crate) busy: AtomicBool,
    /// Set while no thread holds the lane.
    pub(crate) vacant: AtomicBool,
}

impl Gate {
    /// Begins a record if the lane's recording is the one that `recording` returns.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) fn enter(&self, recording: impl FnOnce() -> u32) -> Entry {
        if self.busy.load(Ordering::Relaxed) {
            return Entry::Nested;
        }
        // A signal handler of this thread sees the flag set before anything else changes.
        self.busy.store(true, Ordering::Relaxed);
        light_barrier();
        if self.generation.load(Ordering::Relaxed) == recording() {
            Entry::Entered
        } else {
            self.leave();
            Entry::Ended
        }
    }

    /// Ends a record.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) fn leave(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// Whether no record is being written. What was written before is visible then.
    pub(crate) fn is_idle(&self) -> bool {
        !self.busy.load(Ordering::Acquire)
    }

    /// Leaves the lane to the next thread.
    pub(crate) fn vacate(&self) {
        self.vacant.store(true, Ordering::Release);
    }

    /// Takes the lane if no thread holds it.
    pub(crate) fn try_take(&self) -> bool {
        self.vacant.load(Ordering::Relaxed) && self.vacant.swap(false, Ordering::Acquire)
    }
}

/// The recording that goes on, as threads see it.
pub(crate) struct Current<S> {
    /// Number of the recording, or [`OFF`].
    pub(crate) generation: AtomicU32,
    /// Its session or the last one; null before the first.
    pub(crate) session: AtomicPtr<S>,
}

impl<S> Current<S> {
    /// Returns the number of the recording, for a thread that has been in touch with its session before.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Returns the number of the recording. Unless it is [`OFF`], [`session`](Self::session) returns the
    /// session of this recording or a later one from now on.
    pub(crate) fn first_generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the session that is recording, or the last one.
    pub(crate) fn session(&self) -> *mut S {
        self.session.load(Ordering::Acquire)
    }

    /// Begins recording `generation` into `session`.
    pub(crate) fn install(&self, session: *mut S, generation: u32) {
        self.session.store(session, Ordering::Release);
        self.generation.store(generation, Ordering::Release);
    }

    /// Ends the recording: a thread sees that when it enters its lane, or its lane is seen busy from now on.
    ///
    /// A thread marks its lane busy and then reads the generation; this changes the generation, and the
    /// lanes are read afterwards. The barriers in between make each side see at least one of the other's
    /// stores. A fence on the recording path would do the same at ten times its cost.
    pub(crate) fn end(&self) {
        self.generation.store(OFF, Ordering::Relaxed);
        heavy_barrier();
    }
}
