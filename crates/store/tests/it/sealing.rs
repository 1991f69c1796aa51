//! Sealing writes the rows of large processes to parts of their own.

use std::path::Path;

use floodmark_event::{EventBatch, Metric, ProcessId, SampleRow, StackId, SubjectId};
use floodmark_store::manifest::Part;
use floodmark_store::{Manifest, ScanProps, Source as _, Table, Trace};
use floodmark_tail::{AllocDomain, RecordProps, Recorder, When};

use floodmark_testkit::TempDir;

use crate::traces::rows;

/// Records samples, then events; every recording is a process of its own. The times of samples are those
/// of all recordings in turn, long ago.
fn record(path: &Path, number: u64, rows: u64) -> Recorder {
    let recorder = Recorder::start(RecordProps::new(path)).expect("starts");
    for row in 0..rows {
        recorder.sample(SubjectId(1), Metric::Rss, row, When::At(1_000_000 + row * 10 + number));
    }
    for row in 0..rows {
        recorder.alloc((number << 40) + (row << 8), row, &AllocDomain::default(), StackId(0));
    }
    recorder
}

fn events(trace: &Trace, props: &ScanProps) -> Vec<(ProcessId, u64)> {
    let mut scan = trace.scan(props).expect("scans");
    let (mut batch, mut events) = (EventBatch::new(), Vec::new());
    while scan.next(&mut batch).expect("reads") {
        events.extend(batch.events().map(|event| (event.process, event.address)));
    }
    assert!(scan.losses().is_empty(), "{:?}", scan.losses());
    events
}

fn parts(manifest: &Manifest, table: Table) -> Vec<&Part> {
    manifest.parts_of(table.name()).collect()
}

#[test]
fn large_processes_get_parts_of_their_own_and_small_ones_share() {
    const ROWS: u64 = 120_000;
    let folder = TempDir::new("seal-groups");
    let path = folder.join("a.flood");
    // Processes 1, 2, 4 are large, 3 and 5 small.
    for (number, rows) in [(1, ROWS), (2, ROWS), (3, 50), (4, ROWS)] {
        record(&path, number, rows).stop();
    }
    let recorder = record(&path, 5, 70);
    let live = Trace::open(&path).expect("opens");
    assert!(live.is_live() && live.manifest().parts.is_empty());
    let everything = ScanProps::default();
    let (live_events, live_samples) = (events(&live, &everything), rows::<SampleRow>(&path, &everything));
    recorder.stop();
    let sealed = Trace::open(&path).expect("seals");
    let manifest = sealed.manifest();
    for table in [Table::Event, Table::Sample] {
        let parts = parts(manifest, table);
        let has = |part: &Part, id| part.processes.as_ref().is_some_and(|of| of.contains(ProcessId(id)));
        let mut processes: Vec<Vec<u32>> =
            parts.iter().map(|part| (0..9).filter(|id| has(part, *id)).collect()).collect();
        processes.sort();
        assert_eq!(processes, [vec![1], vec![2], vec![3, 5], vec![4]], "{}", table.name());
        let mut orders: Vec<u32> = parts.iter().map(|part| part.order).collect();
        orders.sort_unstable();
        orders.dedup();
        assert_eq!(orders.len(), 4);
    }
    // Nothing is lost, and the order is the same.
    assert!(events(&sealed, &everything) == live_events);
    assert_eq!(live_events.len() as u64, 3 * ROWS + 120);
    let samples = rows::<SampleRow>(&path, &everything);
    assert!(samples.is_sorted_by_key(|row| row.time_ns));
    assert!(samples == live_samples);
    // And a process is read from its own parts.
    for (id, count) in [(2, ROWS), (3, 50), (5, 70)] {
        let props = ScanProps { processes: Some(vec![ProcessId(id)]), ..ScanProps::default() };
        let before = sealed.opens(Table::Event);
        let found = events(&sealed, &props);
        assert!(found.iter().all(|(process, _)| process.0 == id));
        assert_eq!((found.len() as u64, sealed.opens(Table::Event) - before), (count, 1));
    }
}

#[test]
fn many_short_processes_share_a_part() {
    let folder = TempDir::new("seal-short");
    let path = folder.join("a.flood");
    for number in 0..40 {
        record(&path, number, 5).stop();
    }
    let trace = Trace::open(&path).expect("seals");
    assert_eq!(trace.manifest().processes.len(), 40);
    assert_eq!(parts(trace.manifest(), Table::Event).len(), 1);
    assert_eq!(parts(trace.manifest(), Table::Sample).len(), 1);
    assert_eq!(events(&trace, &ScanProps::default()).len(), 200);
    let props = ScanProps { processes: Some(vec![ProcessId(7)]), ..ScanProps::default() };
    assert_eq!(events(&trace, &props).len(), 5);
}
