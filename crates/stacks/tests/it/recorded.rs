//! Stacks of a recording lead back to the frames they were made of, in each recording anew.

use std::alloc::{GlobalAlloc as _, Layout, System};
use std::collections::HashMap;
use std::fs::File;
use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};

use floodmark_event::tables::Frame;
use floodmark_event::{Action, Event, StackId};
use floodmark_stacks::{FrameName, RUST_RESOURCE, RecordedAllocator, Stack, recorded_stack};
use floodmark_tail::reader::RingReader;
use floodmark_tail::record::{Decoder, Record};
use floodmark_tail::{RecordProps, Recorder, intern, intern_frame, intern_stack};
use floodmark_testkit::TempDir;

use super::recurse;

/// There is one recording per process, so tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A trace in a temporary directory of its own.
struct Trace(TempDir);

impl Trace {
    fn new(name: &str) -> Self {
        Self(TempDir::new(name))
    }

    fn record(&self) -> Recorder {
        Recorder::start_global(RecordProps::new(self.0.join("run.flood"))).expect("nothing else records")
    }

    fn definitions(&self) -> Definitions {
        let mut definitions = Definitions::default();
        let entries = std::fs::read_dir(self.0.join("run.flood/segments")).expect("a recording was made");
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            let ring = RingReader::new(File::open(&path).expect("a ring")).expect("a ring");
            for chunk in ring.chunks().expect("chunks").0 {
                definitions.read(chunk.base_time_ns, &chunk.payload);
            }
        }
        definitions
    }
}

#[derive(Default)]
struct Definitions {
    strings: HashMap<u32, String>,
    frames: HashMap<u32, Frame>,
    stacks: HashMap<u32, (u32, u32)>,
    events: Vec<Event>,
}

impl Definitions {
    fn read(&mut self, base_time_ns: u64, payload: &[u8]) {
        let mut decoder = Decoder::new(base_time_ns);
        while let Some(record) = decoder.next(payload).expect("sound records") {
            match record {
                Record::String { id, text } => {
                    self.strings.insert(id.0, String::from_utf8_lossy(text).into_owned());
                }
                Record::Frame { id, frame } => {
                    self.frames.insert(id, frame);
                }
                Record::Stack { id, parent, frame } => {
                    self.stacks.insert(id.0, (parent.0, frame));
                }
                Record::Event(event) => self.events.push(event),
                _ => {}
            }
        }
    }

    /// Modules and addresses of a recorded stack, innermost first.
    fn frames(&self, stack: StackId) -> Vec<(String, u64)> {
        let mut at = stack.0;
        let mut frames = Vec::new();
        while at != 0 {
            let (parent, frame) = self.stacks[&at];
            let frame = self.frames[&frame];
            frames.push((self.strings[&frame.module.0].clone(), frame.address));
            at = parent;
        }
        frames
    }
}

/// Modules and addresses of a stack of this process, innermost first.
fn frames_of(stack: Stack) -> Vec<(String, u64)> {
    // Functions that were inlined are frames too, of the same address.
    let names: HashMap<u64, FrameName> = stack.names().into_iter().map(|name| (name.address, name)).collect();
    let frame = |address: &u64| {
        let FrameName { module, offset, .. } = &names[address];
        (module.as_ref().expect("a module").to_string_lossy().into_owned(), *offset)
    };
    stack.frames().iter().map(frame).collect()
}

/// The stack of the caller in the recording and in this process.
#[inline(never)]
fn both() -> (StackId, Stack) {
    (recorded_stack(), Stack::capture().expect("there is a stack"))
}

#[track_caller]
fn assert_same(definitions: &Definitions, (recorded, stack): (StackId, Stack)) {
    let (recorded, stack) = (definitions.frames(recorded), frames_of(stack));
    assert_eq!(recorded.len(), stack.len());
    // `both` was left at two different places.
    assert_eq!(recorded[1..], stack[1..]);
    assert_eq!(recorded[0].0, stack[0].0);
}

#[test]
fn recorded_stacks_are_those_of_the_process() {
    let _turn = turn();
    assert_eq!(recorded_stack(), StackId(0));
    let trace = Trace::new("recorded");
    let recorder = trace.record();
    let mut found = Vec::new();
    for depth in black_box(vec![0, 3, 7, 3]) {
        recurse(depth, &mut || found.push(both()));
    }
    assert_eq!(found[1], found[3]);
    found.push(std::thread::scope(|scope| scope.spawn(both).join().unwrap()));
    recorder.stop();
    assert_eq!(recorded_stack(), StackId(0));
    let definitions = trace.definitions();
    for both in found {
        assert_same(&definitions, both);
    }
}

#[test]
fn ids_of_one_recording_are_not_used_in_the_next() {
    let _turn = turn();
    for round in 0..4_u64 {
        let trace = Trace::new("again");
        let recorder = trace.record();
        // Ids of this recording are others than those of the one before, except every other time.
        for other in 0..round % 2 * 50 {
            let module = intern(&format!("other {other}"));
            let frame = intern_frame(&Frame { module, address: other, ..Frame::default() });
            intern_stack(StackId(0), frame);
        }
        let mut found = Vec::new();
        for depth in black_box(vec![0, 3, 7, 3]) {
            recurse(depth, &mut || found.push(both()));
        }
        recorder.stop();
        let definitions = trace.definitions();
        for both in found {
            assert_same(&definitions, both);
        }
    }
}

#[test]
#[expect(unsafe_code, reason = "calls an allocator")]
fn an_allocator_of_rust_records_what_it_does() {
    let _turn = turn();
    let allocator = RecordedAllocator::new(System);
    let layout = |bytes| Layout::from_size_align(bytes, 16).expect("a layout");
    for _ in 0..2 {
        let trace = Trace::new("allocator");
        let recorder = trace.record();
        // SAFETY: each block is given back once, with the layout that it has.
        let addresses = unsafe {
            let first = allocator.alloc(layout(100));
            let second = allocator.alloc_zeroed(layout(200));
            let third = allocator.realloc(first, layout(100), 100_000);
            allocator.dealloc(third, layout(100_000));
            [first.addr(), second.addr(), third.addr()]
        };
        recorder.stop();
        let definitions = trace.definitions();
        let expected = [
            (Action::Alloc, addresses[0], 100),
            (Action::Alloc, addresses[1], 200),
            (Action::Free, addresses[0], 100),
            (Action::Alloc, addresses[2], 100_000),
            (Action::Free, addresses[2], 100_000),
        ];
        let found =
            definitions.events.iter().map(|event| (event.action, event.address as usize, event.bytes));
        assert_eq!(found.collect::<Vec<_>>(), expected);
        for event in &definitions.events {
            assert_eq!(definitions.strings[&event.resource.0], RUST_RESOURCE);
            assert_eq!(event.stack != StackId(0), event.action == Action::Alloc);
        }
        // SAFETY: as above; nothing is recorded any more.
        unsafe { allocator.dealloc(std::ptr::with_exposed_provenance_mut(addresses[1]), layout(200)) };
    }
}
