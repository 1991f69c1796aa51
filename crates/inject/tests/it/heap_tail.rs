//! What a recording of the heap left, read straight from its rings and segments.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;

use floodmark_event::tables::Frame;
use floodmark_event::{Action, Event, Kind};
use floodmark_tail::gpu::{GPU_NOTE, GpuNote};
use floodmark_tail::heap::{HEAP_NOTE, HeapNote};
use floodmark_tail::reader::RingReader;
use floodmark_tail::record::{Decoder, Record};
use floodmark_tail::segment;

/// What one process recorded.
#[derive(Default)]
pub(crate) struct HeapTail {
    pub(crate) pid: u32,
    pub(crate) command: String,
    /// All events in the order of time; at the same time frees go first.
    pub(crate) events: Vec<Event>,
    pub(crate) strings: HashMap<u32, String>,
    pub(crate) frames: HashMap<u32, Frame>,
    /// Parent and frame of each stack.
    pub(crate) stacks: HashMap<u32, (u32, u32)>,
    pub(crate) losses: u64,
    /// Number of chunks that are marked because time goes back in them, and of all.
    pub(crate) disordered: usize,
    pub(crate) chunks: usize,
    /// UUIDs of devices, by number.
    pub(crate) devices: BTreeMap<i32, u32>,
    /// Names of scopes, by number.
    pub(crate) scopes: BTreeMap<u32, u32>,
    /// Number of samples.
    pub(crate) samples: usize,
}

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveBlock {
    pub(crate) bytes: u64,
    pub(crate) stack: u32,
}

impl HeapTail {
    /// Reads what all processes recorded into `trace`, in the order of their pids.
    pub(crate) fn read_all(trace: &Path) -> Vec<Self> {
        let mut processes: BTreeMap<String, Self> = BTreeMap::new();
        let mut chunks = BTreeMap::new();
        let entries = std::fs::read_dir(trace.join("segments")).expect("segments");
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let stem = name.split('.').next().expect("a stem").to_owned();
            if name.ends_with(".ring") {
                // A ring that leads nowhere: its process ended before it was made.
                let Ok(file) = File::open(&path) else { continue };
                let reader = RingReader::new(file).expect("a ring");
                let process = reader.process().expect("a process");
                let tail = processes.entry(stem.clone()).or_default();
                tail.pid = process.pid;
                tail.command = process.command;
                tail.losses = process.losses.iter().map(|(_, count)| count).sum();
                let (found, damaged) = reader.chunks().expect("chunks");
                assert_eq!(damaged, 0);
                for chunk in found {
                    let key = (stem.clone(), chunk.lane, chunk.sequence);
                    chunks.insert(key, (chunk.base_time_ns, chunk.is_disordered, chunk.payload));
                }
                if path.is_symlink() {
                    std::fs::remove_file(path.canonicalize().expect("a ring")).expect("a ring of this test");
                }
            } else {
                let bytes = std::fs::read(&path).expect("a segment");
                for frame in segment::frames(&bytes) {
                    let key = (stem.clone(), frame.lane, frame.sequence);
                    chunks.insert(key, (frame.base_time_ns, frame.is_disordered, frame.payload.to_vec()));
                }
            }
        }
        for ((stem, _, _), (base, is_disordered, payload)) in chunks {
            let process = processes.entry(stem).or_default();
            process.chunks += 1;
            process.disordered += usize::from(is_disordered);
            process.take(base, &payload);
        }
        let mut processes: Vec<Self> = processes.into_values().collect();
        for process in &mut processes {
            process.events.sort_by_key(|event| (event.time_ns, event.action != Action::Free));
        }
        processes.sort_by_key(|process| process.pid);
        processes
    }

    /// Reads the only process that recorded.
    #[track_caller]
    pub(crate) fn read(trace: &Path) -> Self {
        let mut processes = Self::read_all(trace);
        assert_eq!(processes.len(), 1, "processes");
        processes.remove(0)
    }

    fn take(&mut self, base_time_ns: u64, payload: &[u8]) {
        let mut decoder = Decoder::new(base_time_ns);
        while let Some(record) = decoder.next(payload).expect("sound records") {
            match record {
                Record::Event(event) => self.events.push(event),
                Record::String { id, text } => {
                    self.strings.insert(id.0, String::from_utf8_lossy(text).into_owned());
                }
                Record::Frame { id, frame } => {
                    self.frames.insert(id, frame);
                }
                Record::Stack { id, parent, frame } => {
                    self.stacks.insert(id.0, (parent.0, frame));
                }
                Record::Device { device, uuid } => {
                    self.devices.insert(device, uuid.0);
                }
                Record::EnterScope { scope, name, .. } => {
                    self.scopes.insert(scope, name.0);
                }
                Record::Sample { .. } => self.samples += 1,
                _ => {}
            }
        }
        assert_eq!(decoder.skipped, 0);
    }

    pub(crate) fn count(&self, action: Action, kind: Kind) -> usize {
        self.events.iter().filter(|event| event.action == action && event.kind == kind).count()
    }

    /// Blocks of a kind that are live at the end, by address, and the number of frees that ended none.
    pub(crate) fn live(&self, kind: Kind) -> (BTreeMap<u64, LiveBlock>, usize) {
        let (mut live, mut unknown) = (BTreeMap::new(), 0);
        for event in self.events.iter().filter(|event| event.kind == kind) {
            match event.action {
                Action::Alloc => {
                    let block = LiveBlock { bytes: event.bytes, stack: event.stack.0 };
                    let before = live.insert(event.address, block);
                    assert_eq!(before, None, "{:#x} is allocated twice", event.address);
                }
                Action::Free => unknown += usize::from(live.remove(&event.address).is_none()),
                Action::Failure => {}
            }
        }
        (live, unknown)
    }

    /// Blocks of a kind that are live at the end, found by device, resource and address as analyses do.
    #[track_caller]
    pub(crate) fn live_blocks(&self, kind: Kind) -> Vec<Event> {
        let mut live: BTreeMap<(i32, u32, u64), Event> = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.kind == kind) {
            let key = (event.device, event.resource.0, event.address);
            match event.action {
                Action::Alloc => {
                    let before = live.insert(key, *event);
                    assert_eq!(before, None, "{:#x} is allocated twice", event.address);
                }
                Action::Free => {
                    live.remove(&key);
                }
                Action::Failure => {}
            }
        }
        live.into_values().collect()
    }

    /// How the process says its CUDA memory was recorded: text, number and name.
    pub(crate) fn gpu_notes(&self) -> Vec<(GpuNote, u32, String)> {
        let text = |id: u32| self.strings.get(&id).map_or("", String::as_str);
        let notes = self.frames.values().filter(|frame| text(frame.function.0) == GPU_NOTE);
        let note = |note: &Frame| {
            let known = GpuNote::from_text(text(note.file.0)).expect("a note");
            (known, note.line, text(note.module.0).to_owned())
        };
        notes.map(note).collect()
    }

    /// Bytes of a kind that are live at the end.
    pub(crate) fn live_bytes(&self, kind: Kind) -> u64 {
        self.live(kind).0.values().map(|block| block.bytes).sum()
    }

    /// How the process says it was recorded.
    pub(crate) fn notes(&self) -> Vec<(HeapNote, u32)> {
        let text = |id: u32| self.strings.get(&id).map_or("", String::as_str);
        let notes = self.frames.values().filter(|frame| text(frame.function.0) == HEAP_NOTE);
        notes.map(|note| (HeapNote::from_text(text(note.file.0)).expect("a note"), note.line)).collect()
    }

    /// The frames of a stack, innermost first.
    pub(crate) fn frames_of(&self, mut stack: u32) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some((parent, frame)) = self.stacks.get(&stack) {
            frames.push(self.frames[frame]);
            stack = *parent;
        }
        frames
    }

    /// The module of the innermost frame of a stack.
    pub(crate) fn module_of(&self, stack: u32) -> &str {
        let frame = self.frames_of(stack).into_iter().next().unwrap_or_default();
        self.strings.get(&frame.module.0).map_or("", String::as_str)
    }
}
