//! Reading what a recording left, straight from its files.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use floodmark_event::Event;
use floodmark_tail::reader::RingReader;
use floodmark_tail::record::{Decoder, Record};
use floodmark_tail::segment;

/// Times below this were given by the programs; what the clock reads is larger.
const GIVEN_TIMES_NS: u64 = 1_000_000;

/// The records of a trace. Their bytes are leaked: the traces of these tests are small.
pub(crate) struct Tail {
    /// Records of each lane of each process in order, with the times that the clock gave set to 0.
    pub(crate) lanes: BTreeMap<(String, u32), Vec<Record<'static>>>,
    /// Lanes in which times go back.
    pub(crate) disordered: Vec<u32>,
    /// PID of each ring, by stem.
    pub(crate) processes: BTreeMap<String, u32>,
    /// Losses of all rings.
    pub(crate) losses: u64,
}

impl Tail {
    pub(crate) fn read(trace: &Path) -> Self {
        let mut tail =
            Self { lanes: BTreeMap::new(), disordered: Vec::new(), processes: BTreeMap::new(), losses: 0 };
        let mut chunks = BTreeMap::new();
        let entries = std::fs::read_dir(trace.join("segments")).expect("segments");
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let stem = name.split('.').next().expect("a stem").to_owned();
            if name.ends_with(".ring") {
                assert!(!path.is_symlink(), "the records of {} are still in shared memory", path.display());
                let reader = RingReader::new(File::open(&path).expect("a ring")).expect("a ring");
                let process = reader.process().expect("a process");
                tail.processes.insert(stem.clone(), process.pid);
                tail.losses += process.losses.iter().map(|(_, count)| count).sum::<u64>();
                let (found, damaged) = reader.chunks().expect("chunks");
                assert_eq!(damaged, 0);
                for chunk in found {
                    let key = (stem.clone(), chunk.lane, chunk.sequence);
                    chunks.insert(key, (chunk.base_time_ns, chunk.is_disordered, chunk.payload));
                }
            } else {
                let bytes = std::fs::read(&path).expect("a segment");
                for frame in segment::frames(&bytes) {
                    let key = (stem.clone(), frame.lane, frame.sequence);
                    chunks.insert(key, (frame.base_time_ns, frame.is_disordered, frame.payload.to_vec()));
                }
            }
        }
        for ((stem, lane, _), (base, is_disordered, payload)) in chunks {
            if is_disordered {
                tail.disordered.push(lane);
            }
            let payload: &'static [u8] = payload.leak();
            let mut decoder = Decoder::new(base);
            let records = tail.lanes.entry((stem, lane)).or_default();
            while let Some(record) = decoder.next(payload).expect("sound records") {
                if !matches!(record, Record::Control(_)) {
                    records.push(without_clock(record));
                }
            }
            assert_eq!(decoder.skipped, 0);
        }
        tail
    }

    /// Returns the definitions: strings, frames, stacks and devices.
    pub(crate) fn definitions(&self) -> Vec<Record<'static>> {
        let lanes = self.lanes.iter().filter(|((_, lane), _)| *lane == 0);
        lanes.flat_map(|(_, records)| records.clone()).collect()
    }

    /// Returns the records of each thread that recorded, one lane after the other.
    pub(crate) fn threads(&self) -> Vec<&Vec<Record<'static>>> {
        self.lanes.iter().filter(|((_, lane), _)| *lane != 0).map(|(_, records)| records).collect()
    }

    /// Returns all events.
    pub(crate) fn events(&self) -> Vec<Event> {
        let records = self.lanes.values().flatten();
        records
            .filter_map(|record| if let Record::Event(event) = record { Some(*event) } else { None })
            .collect()
    }

    /// Returns the strings in the order of their ids.
    pub(crate) fn strings(&self) -> Vec<String> {
        let text = |record| match record {
            Record::String { text, .. } => Some(String::from_utf8(text.to_vec()).expect("UTF-8")),
            _ => None,
        };
        self.definitions().into_iter().filter_map(text).collect()
    }
}

/// Sets the time of a record to 0 if it is one that the clock gave.
fn without_clock(mut record: Record<'static>) -> Record<'static> {
    let forget = |time_ns: &mut u64| {
        if *time_ns >= GIVEN_TIMES_NS {
            *time_ns = 0;
        }
    };
    match &mut record {
        Record::Event(event) if event.time_ns as u64 >= GIVEN_TIMES_NS => event.time_ns = 0,
        Record::EnterScope { time_ns, .. }
        | Record::ExitScope { time_ns, .. }
        | Record::Mark { time_ns, .. }
        | Record::BeginRange { time_ns, .. }
        | Record::EndRange { time_ns, .. }
        | Record::Call { time_ns, .. } => forget(time_ns),
        _ => {}
    }
    record
}
