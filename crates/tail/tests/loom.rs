//! Models of how threads, the sealer and readers share chunks and lanes, checked by loom.
//!
//! `src/protocol.rs` is compiled here with loom's atomics. Each model runs it through every interleaving of
//! its threads (with at most `MAX_PREEMPTIONS` forced switches) and every value that a load may return under
//! the memory model. What loom cannot express:
//! - `membarrier`: both barriers are sequentially consistent fences here, which is what the pair amounts to;
//! - signals: a handler is a call in the middle of a record;
//! - reads of a file: they are relaxed loads, so that they may return values of different times;
//! - loads that are delayed past later stores: where that matters records are in cells, for which loom
//!   asks for an order by happens-before.
//!
//! Run with
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p floodmark-tail --release --test loom`.
//!
//! That a model can fail was checked by weakening `protocol.rs`, one place at a time; the comment of each
//! model names the changes that it found.
#![cfg(loom)]
#![expect(unsafe_code, reason = "accesses the cells in which loom looks for races")]

use std::io;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use protocol::{
    CHUNK_DISORDERED, CHUNK_FREE, CHUNK_FULL, ChunkHeader, ChunkSource, Contents, Current, Entry, Gate, OFF,
    Wanted, before_free, copy,
};

#[path = "../src/protocol.rs"]
mod protocol;

/// What `src/atomic.rs` is for the recorder.
mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

    pub(crate) fn light_barrier() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy_barrier() {
        fence(Ordering::SeqCst);
    }
}

const MAX_PREEMPTIONS: usize = 3;
const LANE: u32 = 7;
/// Records that fit a chunk of a model; each is one word.
const ROOM: usize = 2;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(MAX_PREEMPTIONS);
    builder.check(model);
}

fn new_header() -> ChunkHeader {
    ChunkHeader {
        state: AtomicU32::new(CHUNK_FREE),
        lane: AtomicU32::new(0),
        sequence: AtomicU64::new(0),
        committed: AtomicU32::new(0),
        flags: AtomicU32::new(0),
        base_time_ns: AtomicU64::new(0),
    }
}

fn new_gate(generation: u32) -> Gate {
    Gate {
        generation: AtomicU32::new(generation),
        busy: AtomicBool::new(false),
        vacant: AtomicBool::new(false),
    }
}

fn contents(sequence: u64) -> Contents {
    Contents { lane: LANE, sequence, base_time_ns: base_time(sequence), is_disordered: false }
}

fn base_time(sequence: u64) -> u64 {
    100 + sequence
}

/// The record at `index` of the contents `sequence`.
fn record(sequence: u64, index: usize) -> u32 {
    1000 + 10 * sequence as u32 + index as u32
}

fn records(sequence: u64, count: usize) -> Vec<u32> {
    (0..count).map(|index| record(sequence, index)).collect()
}

/// Where a model keeps a record of a chunk.
trait Cell {
    fn empty() -> Self;
    fn write(&self, record: u32);
    fn read(&self) -> u32;
}

impl Cell for AtomicU32 {
    fn empty() -> Self {
        Self::new(0)
    }

    fn write(&self, record: u32) {
        self.store(record, Ordering::Relaxed);
    }

    fn read(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }
}

impl Cell for UnsafeCell<u32> {
    fn empty() -> Self {
        Self::new(0)
    }

    fn write(&self, record: u32) {
        // SAFETY: loom checks that nothing else accesses the cell.
        self.with_mut(|cell| unsafe { *cell = record });
    }

    fn read(&self) -> u32 {
        // SAFETY: loom checks that nothing writes to the cell.
        self.with(|cell| unsafe { *cell })
    }
}

struct Chunk<C> {
    header: ChunkHeader,
    records: [C; ROOM],
}

/// A chunk that is read while it is written: its records may be read at any time.
type OpenChunk = Chunk<AtomicU32>;
/// A chunk that is read only when it is full: a read or write without an order is an error.
type ClosedChunk = Chunk<UnsafeCell<u32>>;

impl<C: Cell> Chunk<C> {
    fn new() -> Self {
        Self { header: new_header(), records: std::array::from_fn(|_| C::empty()) }
    }

    fn write(&self, sequence: u64, index: usize) {
        self.records[index].write(record(sequence, index));
        self.header.commit(index as u32 + 1);
    }
}

impl<C: Cell> ChunkSource for Chunk<C> {
    type Payload = Vec<u32>;

    fn sequence(&self) -> io::Result<u64> {
        Ok(self.header.sequence.load(Ordering::Relaxed))
    }

    fn state(&self) -> io::Result<u32> {
        Ok(self.header.state.load(Ordering::Relaxed))
    }

    fn committed(&self) -> io::Result<u32> {
        Ok(self.header.committed.load(Ordering::Relaxed))
    }

    fn contents(&self, sequence: u64) -> io::Result<Contents> {
        Ok(Contents {
            // Always the same here; loom would try the values before it too.
            lane: LANE,
            sequence,
            base_time_ns: self.header.base_time_ns.load(Ordering::Relaxed),
            is_disordered: self.header.flags.load(Ordering::Relaxed) & CHUNK_DISORDERED != 0,
        })
    }

    fn payload(&self, bytes: u32) -> io::Result<Vec<u32>> {
        Ok(self.records[..bytes as usize].iter().map(C::read).collect())
    }
}

/// Checks one copy of a chunk whose record 1 is always one that goes back in time.
fn check_copy(chunk: &OpenChunk) {
    let Some(copy) = copy(chunk, Wanted::Any).expect("a copy") else { return };
    let sequence = copy.contents.sequence;
    assert_eq!(copy.payload, records(sequence, copy.payload.len()), "a prefix of the chunk's records");
    assert_eq!(copy.contents.base_time_ns, base_time(sequence));
    assert!(copy.payload.len() < 2 || copy.contents.is_disordered, "the mark comes with its record");
    assert!(!copy.is_full || copy.payload.len() == ROOM, "a full chunk has all of its records");
}

/// A reader copies a chunk while its thread writes records, and begins new contents in the same chunk once
/// the earlier ones are in a segment file.
///
/// Found: relaxed `commit`; `begin` without all ones in the sequence number first, without the fence after it, or with
/// a relaxed store of the new number; `copy` without the last look at the number, without the fence before that or
/// before the records, or with flags read before the commit word; the mark set after the commit.
#[test]
fn a_reader_sees_whole_records_of_one_sequence() {
    check(|| {
        let chunk = Arc::new(OpenChunk::new());
        chunk.header.begin(&contents(0));
        let writer = {
            let chunk = Arc::clone(&chunk);
            thread::spawn(move || {
                chunk.write(0, 0);
                chunk.header.mark_disordered();
                chunk.write(0, 1);
                chunk.header.begin(&contents(1));
                chunk.write(1, 0);
            })
        };
        check_copy(&chunk);
        writer.join().expect("the writer");
    });
}

/// A reader that is not the sealer copies a chunk that is filled, freed and filled again.
///
/// Found: relaxed `hand_over`; `copy` with the state read before the sequence number or after the commit word, or
/// without the fences between them; most of what the model above finds.
#[test]
fn a_reader_sees_all_records_of_a_full_chunk() {
    check(|| {
        let chunk = Arc::new(OpenChunk::new());
        chunk.header.begin(&contents(0));
        chunk.header.mark_disordered();
        chunk.write(0, 0);
        chunk.write(0, 1);
        chunk.header.hand_over();
        let writer = {
            let chunk = Arc::clone(&chunk);
            thread::spawn(move || {
                chunk.header.state.store(CHUNK_FREE, Ordering::Release);
                assert!(chunk.header.is_free());
                chunk.header.begin(&contents(1));
                chunk.write(1, 0);
                chunk.header.mark_disordered();
                chunk.write(1, 1);
                chunk.header.hand_over();
            })
        };
        check_copy(&chunk);
        writer.join().expect("the writer");
    });
}

/// A thread fills the chunks of its lane in turn, the sealer copies and frees them. A chunk for which there is no
/// room is not begun, as when a lane counts events as lost.
///
/// Found: relaxed `hand_over` or `is_free`; no fence in `before_free`; `copy` with the commit word read before the
/// state.
#[test]
fn chunks_go_to_the_sealer_and_back_without_loss() {
    check(|| {
        let chunks = Arc::new([ClosedChunk::new(), ClosedChunk::new()]);
        let owner = {
            let chunks = Arc::clone(&chunks);
            thread::spawn(move || {
                let mut begun = 0;
                for _ in 0..3 {
                    let Some(chunk) = chunks.iter().find(|chunk| chunk.header.is_free()) else { continue };
                    chunk.header.begin(&contents(begun));
                    chunk.write(begun, 0);
                    chunk.write(begun, 1);
                    chunk.header.hand_over();
                    begun += 1;
                }
                begun
            })
        };
        let mut sealed = Vec::new();
        let mut seal = |times: usize| {
            for chunk in (0..times).flat_map(|_| chunks.iter()) {
                let Some(copy) = copy(chunk, Wanted::Full).expect("a copy") else { continue };
                sealed.push((copy.contents.sequence, copy.payload));
                before_free();
                chunk.header.state.store(CHUNK_FREE, Ordering::Relaxed);
            }
        };
        seal(1);
        let begun = owner.join().expect("the owner");
        seal(1);
        sealed.sort();
        let all: Vec<_> = (0..begun).map(|sequence| (sequence, records(sequence, ROOM))).collect();
        assert_eq!(sealed, all, "every chunk once, with its own records");
        assert!(chunks.iter().all(|chunk| chunk.header.state.load(Ordering::Relaxed) != CHUNK_FULL));
    });
}

/// A lane as the end of a recording sees it.
struct Lane {
    /// Whether the lane is in the session's table.
    is_made: AtomicBool,
    gate: Gate,
    chunk: ClosedChunk,
}

/// Records once; returns whether the record was committed.
fn record_once(lane: &Lane, current: &Current<u32>, index: usize) -> bool {
    match lane.gate.enter(|| current.generation()) {
        Entry::Entered => {}
        Entry::Ended => return false,
        Entry::Nested => panic!("a record outside of another is not nested"),
    }
    // A signal handler in the middle of a record.
    assert_eq!(lane.gate.enter(|| current.generation()), Entry::Nested);
    lane.chunk.write(0, index);
    lane.gate.leave();
    true
}

/// Two threads make lanes and record while the recording ends.
///
/// Found: relaxed `leave` or `is_idle`; no barrier in `enter` or in `end`; the generation read before the flag is set.
#[test]
fn the_end_of_a_recording_sees_every_committed_record() {
    const GENERATION: u32 = OFF + 1;
    check(|| {
        let current = Arc::new(Current::<u32> {
            generation: AtomicU32::new(GENERATION),
            session: AtomicPtr::new(std::ptr::null_mut()),
        });
        let lanes: Arc<[Lane; 2]> = Arc::new(std::array::from_fn(|_| Lane {
            is_made: AtomicBool::new(false),
            gate: new_gate(GENERATION),
            chunk: ClosedChunk::new(),
        }));
        let threads = [0, 1].map(|number| {
            let (current, lanes) = (Arc::clone(&current), Arc::clone(&lanes));
            thread::spawn(move || {
                let lane = &lanes[number];
                lane.is_made.store(true, Ordering::Release);
                // The first thread records twice: its flag is also read between two records.
                (0..2 - number).filter(|index| record_once(lane, &current, *index)).count()
            })
        });
        current.end();
        let seen = [0, 1].map(|number| {
            let lane = &lanes[number];
            if !lane.is_made.load(Ordering::Acquire) {
                return 0;
            }
            while !lane.gate.is_idle() {
                thread::yield_now();
            }
            let committed = lane.chunk.header.committed.load(Ordering::Relaxed);
            let payload = lane.chunk.payload(committed).expect("records");
            assert_eq!(payload, records(0, committed as usize));
            payload.len()
        });
        let committed = threads.map(|thread| thread.join().expect("a thread"));
        assert_eq!(seen, committed, "nothing is committed after the end");
    });
}

/// A thread ends and leaves its lane; two others want it, and the one that gets it goes on where it ended.
///
/// Found: relaxed `vacate` or `try_take`; `try_take` with a load and a store instead of a swap.
#[test]
fn a_lane_has_one_thread_at_a_time() {
    struct Left {
        gate: Gate,
        sequence: UnsafeCell<u64>,
    }
    impl Left {
        fn write(&self) -> u64 {
            // SAFETY: loom checks that nothing else accesses the cell.
            self.sequence.with_mut(|sequence| unsafe {
                *sequence += 1;
                *sequence
            })
        }
    }
    check(|| {
        let lane = Arc::new(Left { gate: new_gate(0), sequence: UnsafeCell::new(0) });
        let next = [0, 1].map(|_| {
            let lane = Arc::clone(&lane);
            thread::spawn(move || {
                lane.gate.try_take().then(|| {
                    let sequence = lane.write();
                    lane.gate.vacate();
                    sequence
                })
            })
        });
        assert_eq!(lane.write(), 1);
        lane.gate.vacate();
        let mut written: Vec<_> =
            next.map(|thread| thread.join().expect("a thread")).into_iter().flatten().collect();
        written.sort_unstable();
        assert_eq!(written, (2..).take(written.len()).collect::<Vec<u64>>());
    });
}

/// A thread that finds a recording going on finds its session.
///
/// Found: relaxed store of the generation in `install`, relaxed `first_generation`, the two stores exchanged.
#[test]
fn a_recording_that_goes_on_has_its_session() {
    struct Session(UnsafeCell<u32>);
    const GENERATION: u32 = OFF + 1;
    check(|| {
        let session = Arc::new(Session(UnsafeCell::new(0)));
        let current = Arc::new(Current::<Session> {
            generation: AtomicU32::new(OFF),
            session: AtomicPtr::new(std::ptr::null_mut()),
        });
        let starter = {
            let (session, current) = (Arc::clone(&session), Arc::clone(&current));
            thread::spawn(move || {
                // SAFETY: loom checks that nothing else accesses the cell.
                session.0.with_mut(|made| unsafe { *made = GENERATION });
                current.install(std::ptr::from_ref(&*session).cast_mut(), GENERATION);
            })
        };
        if current.first_generation() != OFF {
            assert!(!current.session().is_null());
            // SAFETY: the session was made by the thread above and lives to the end of the model; loom checks
            // that nothing writes to the cell.
            let made = unsafe { &*current.session() }.0.with(|made| unsafe { *made });
            assert_eq!(made, GENERATION);
        }
        starter.join().expect("the starter");
    });
}
