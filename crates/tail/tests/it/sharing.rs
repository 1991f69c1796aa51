//! Chunks shared by threads, readers and the end of a recording, on the machine at hand. These tests meet few orders
//! of memory accesses; `tests/loom.rs` checks all that the memory model allows.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use floodmark_event::StackId;
use floodmark_tail::reader::{Chunk, ReadAt, RingReader};
use floodmark_tail::record::{Decoder, Record};
use floodmark_tail::{self as tail, AllocDomain, RecordProps, Recorder};

use crate::tailing::{Tail, TestTrace, global_turn};

/// Events that the thread records while its chunk is read.
const EVENTS: u64 = 400_000;

fn ring_of(folder: &TestTrace) -> PathBuf {
    let rings = std::fs::read_dir(folder.path.join("segments")).expect("segments");
    let mut rings = rings.map(|entry| entry.expect("an entry").path());
    rings.find(|path| path.extension().is_some_and(|is| is == "ring")).expect("a ring")
}

fn addresses(chunk: &Chunk) -> Vec<u64> {
    let mut decoder = Decoder::new(chunk.base_time_ns);
    let mut addresses = Vec::new();
    while let Some(record) = decoder.next(&chunk.payload).expect("sound records") {
        if let Record::Event(event) = record {
            addresses.push(event.address);
        }
    }
    addresses
}

/// A ring that changes from the first bytes to the second after a number of reads.
struct Changing<'a> {
    bytes: [&'a [u8]; 2],
    reads_left: Cell<usize>,
}

impl ReadAt for Changing<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let is_changed = self.reads_left.get() == 0;
        self.reads_left.set(self.reads_left.get().saturating_sub(1));
        self.bytes[usize::from(is_changed)].read_at(offset, buffer)
    }

    fn byte_len(&self) -> io::Result<u64> {
        self.bytes[0].byte_len()
    }
}

#[test]
fn a_chunk_that_begins_anew_while_it_is_copied_is_copied_again() {
    let folder = TestTrace::new("sharing-anew");
    let props = RecordProps { shared_memory_bytes: 0, ..RecordProps::new(&folder.path) };
    let recorder = Recorder::start(props).expect("starts");
    let ring = ring_of(&folder);
    // Long enough for the second bytes to be those of a later sequence number, with fewer records.
    let images = [0..15_000, 15_000..100_000].map(|range: Range<u64>| {
        range.for_each(|address| recorder.alloc(address, 1, &AllocDomain::default(), StackId(0)));
        std::fs::read(&ring).expect("a ring")
    });
    recorder.stop();
    let copies = |bytes: &[u8]| RingReader::new(bytes).expect("a ring").chunks().expect("chunks").0;
    let [before, after] = images
        .each_ref()
        .map(|image| copies(image).into_iter().find(|chunk| chunk.lane == 1).expect("the thread's chunk"));
    assert_ne!(before.sequence, after.sequence);
    let index = (0..8).find(|index| {
        let chunk = RingReader::new(&images[0][..]).expect("a ring").chunk(*index, false);
        chunk.is_ok_and(|chunk| chunk.as_ref() == Some(&before))
    });
    let mut seen = [false; 2];
    for reads in 1..12 {
        let bytes = Changing { bytes: images.each_ref().map(Vec::as_slice), reads_left: Cell::new(reads) };
        let reader = RingReader::new(bytes).expect("a ring");
        let copy = reader.chunk(index.expect("the chunk"), false).expect("a copy").expect("records");
        assert!(copy == before || copy == after, "one or the other after {reads} reads");
        seen[usize::from(copy == after)] = true;
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn a_reader_of_a_chunk_that_is_written_sees_a_prefix_of_it() {
    let folder = TestTrace::new("sharing-prefix");
    // One chunk, which the thread appends to a file and begins again all the time.
    let props = RecordProps { shared_memory_bytes: 0, ..RecordProps::new(&folder.path) };
    let recorder = Recorder::start(props).expect("starts");
    let reader = RingReader::new(File::open(ring_of(&folder)).expect("a ring")).expect("a ring");
    let is_done = AtomicBool::new(false);
    let mut seen: BTreeMap<(u32, u64), Vec<u64>> = BTreeMap::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for address in 0..EVENTS {
                recorder.alloc(address, 1, &AllocDomain::default(), StackId(0));
            }
            is_done.store(true, Ordering::Release);
        });
        while !is_done.load(Ordering::Acquire) {
            let (chunks, damaged) = reader.chunks().expect("chunks");
            assert_eq!(damaged, 0);
            for chunk in chunks.iter().filter(|chunk| chunk.lane != 0) {
                let before = seen.entry((chunk.lane, chunk.sequence)).or_default();
                let now = addresses(chunk);
                assert!(now.starts_with(before), "records of a chunk changed or went away");
                *before = now;
            }
        }
    });
    recorder.stop();
    let tail = Tail::read(&folder.path);
    let all: Vec<u64> = tail.lanes.values().flatten().map(|event| event.address).collect();
    assert_eq!(all, (0..EVENTS).collect::<Vec<_>>());
    let copies = seen.values().filter(|copy| !copy.is_empty());
    assert!(copies.clone().count() > 0, "the reader saw something");
    for copy in copies {
        assert_eq!(*copy, (copy[0]..).take(copy.len()).collect::<Vec<_>>(), "records of one chunk");
    }
}

#[test]
fn a_recording_ends_with_all_that_threads_had_recorded() {
    const THREADS: usize = 3;
    let _turn = global_turn();
    for round in 0..20 {
        let folder = TestTrace::new("sharing-end");
        let recorder = Recorder::start_global(RecordProps::new(&folder.path)).expect("starts");
        let recorded: [AtomicU64; THREADS] = std::array::from_fn(|_| AtomicU64::new(0));
        let (barrier, is_done) = (Barrier::new(THREADS + 1), AtomicBool::new(false));
        let at_the_end = std::thread::scope(|scope| {
            for (thread, count) in recorded.iter().enumerate() {
                let (barrier, is_done) = (&barrier, &is_done);
                scope.spawn(move || {
                    barrier.wait();
                    let mut address = 0;
                    while !is_done.load(Ordering::Relaxed) {
                        tail::alloc((thread as u64) << 32 | address, 1, &AllocDomain::default(), StackId(0));
                        address += 1;
                        count.store(address, Ordering::Release);
                    }
                });
            }
            barrier.wait();
            while recorded.iter().any(|count| count.load(Ordering::Acquire) < 50 * round) {
                std::thread::yield_now();
            }
            let at_the_end = recorded.each_ref().map(|count| count.load(Ordering::Acquire));
            recorder.stop();
            is_done.store(true, Ordering::Relaxed);
            at_the_end
        });
        let left = Tail::read(&folder.path);
        for (thread, at_least) in (0u64..).zip(at_the_end) {
            let mine = |address: &u64| *address >> 32 == thread;
            let events = left.lanes.values().flatten();
            let addresses: Vec<u64> = events.map(|event| event.address).filter(mine).collect();
            assert!(addresses.len() as u64 >= at_least, "recorded before the end");
            assert_eq!(addresses, (thread << 32..).take(addresses.len()).collect::<Vec<_>>(), "without gaps");
        }
    }
}
