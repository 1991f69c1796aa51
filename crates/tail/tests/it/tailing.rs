//! Reading what a recording left, straight from its files.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use floodmark_event::{Event, Metric, OutputStream, StackSeen, SubjectEnd, SubjectId};
use floodmark_tail::reader::{Chunk, RingProcess, RingReader};
use floodmark_tail::record::{Decoder, Record, SubjectEntry};
use floodmark_tail::segment;
use floodmark_testkit::TempDir;

/// Takes the turn to use the global recording, of which a process has one.
pub(crate) fn global_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A trace in a directory that is removed when dropped, with its rings.
pub(crate) struct TestTrace {
    pub(crate) path: PathBuf,
    _directory: TempDir,
}

impl TestTrace {
    pub(crate) fn new(name: &str) -> Self {
        let directory = TempDir::new(name);
        Self { path: directory.join("run.flood"), _directory: directory }
    }
}

/// Everything in a tail, by process (its ring's name) and lane, in order.
#[derive(Default)]
pub(crate) struct Tail {
    pub(crate) lanes: BTreeMap<(String, u32), Vec<Event>>,
    pub(crate) strings: BTreeMap<(String, u32), String>,
    pub(crate) stacks: BTreeMap<(String, u32), (u32, u32)>,
    pub(crate) scopes: Vec<(u32, u32)>,
    pub(crate) processes: Vec<RingProcess>,
    pub(crate) subjects: Vec<(String, u32, SubjectEntry)>,
    pub(crate) observed: BTreeMap<(String, u32), Vec<Observed>>,
    /// Committed bytes of all lanes but the one with definitions.
    pub(crate) bytes: usize,
}

/// The chunks of a tail, in order, by process (its ring's name), lane and sequence number.
pub(crate) fn chunks_of(
    trace: &Path,
    processes: &mut Vec<RingProcess>,
) -> BTreeMap<(String, u32, u64), Chunk> {
    let mut chunks = BTreeMap::new();
    let entries = std::fs::read_dir(trace.join("segments")).expect("segments");
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let stem = name.split('.').next().expect("a stem").to_owned();
        if name.ends_with(".ring") {
            let reader = RingReader::new(File::open(&path).expect("a ring")).expect("a ring");
            processes.push(reader.process().expect("a process"));
            let (found, damaged) = reader.chunks().expect("chunks");
            assert_eq!(damaged, 0);
            for chunk in found {
                chunks.insert((stem.clone(), chunk.lane, chunk.sequence), chunk);
            }
        } else if name.ends_with(".seg") {
            let bytes = std::fs::read(&path).expect("a segment");
            for frame in segment::frames(&bytes) {
                let chunk = Chunk {
                    lane: frame.lane,
                    sequence: frame.sequence,
                    base_time_ns: frame.base_time_ns,
                    full: true,
                    is_disordered: frame.is_disordered,
                    payload: frame.payload.to_vec(),
                };
                chunks.insert((stem.clone(), frame.lane, frame.sequence), chunk);
            }
        }
    }
    chunks
}

/// What a sampler recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    Ended(SubjectId, u64, SubjectEnd),
    Sample(u64, SubjectId, Metric, u64),
    Output(u64, OutputStream, Vec<u8>),
    Stack(u64, SubjectId, StackSeen),
}

impl Tail {
    pub(crate) fn read(trace: &Path) -> Self {
        let mut tail = Self::default();
        let mut next: BTreeMap<(String, u32), u64> = BTreeMap::new();
        for ((stem, lane, sequence), chunk) in chunks_of(trace, &mut tail.processes) {
            let expected = next.entry((stem.clone(), lane)).or_default();
            assert_eq!(sequence, *expected, "a chunk of lane {lane} is missing");
            *expected += 1;
            tail.decode(&stem, lane, chunk.base_time_ns, &chunk.payload);
        }
        tail
    }

    fn decode(&mut self, stem: &str, lane: u32, base: u64, payload: &[u8]) {
        let mut decoder = Decoder::new(base);
        self.bytes += if lane == 0 { 0 } else { payload.len() };
        let mut observed = Vec::new();
        while let Some(record) = decoder.next(payload).expect("sound records") {
            match record {
                Record::Event(event) => self.lanes.entry((stem.into(), lane)).or_default().push(event),
                Record::String { id, text } => {
                    let text = String::from_utf8(text.to_vec()).expect("text");
                    self.strings.insert((stem.into(), id.0), text);
                }
                Record::Stack { id, parent, frame } => {
                    self.stacks.insert((stem.into(), id.0), (parent.0, frame));
                }
                Record::EnterScope { scope, parent, .. } => self.scopes.push((scope, parent)),
                Record::Subject { id, entry } => self.subjects.push((stem.into(), id.0, entry)),
                Record::SubjectEnded { id, time_ns, end } => observed.push(Observed::Ended(id, time_ns, end)),
                Record::Sample { time_ns, subject, metric, value } => {
                    observed.push(Observed::Sample(time_ns, subject, metric, value));
                }
                Record::Output { time_ns, stream, bytes } => {
                    observed.push(Observed::Output(time_ns, stream, bytes.to_vec()));
                }
                Record::StackSample { time_ns, subject, seen } => {
                    observed.push(Observed::Stack(time_ns, subject, seen));
                }
                _ => {}
            }
        }
        assert_eq!(decoder.skipped, 0);
        if !observed.is_empty() {
            self.observed.entry((stem.into(), lane)).or_default().extend(observed);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.lanes.values().map(Vec::len).sum()
    }
}
