//! Reading on from where another scan stood is reading on.

use std::path::Path;

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{Event, EventBatch, StackId};
use floodmark_store::{Run, Scan, ScanCursor, ScanProps, Sealer, Source as _, Trace};
use floodmark_tail::{AllocDomain, RecordProps, Recorder};
use floodmark_testkit::TempDir;
use proptest::prelude::*;

use crate::traces::{event, meaning, tables, write};

type Meaning = (Event, String, String, Vec<String>);

/// Reads all of a scan, and where it stood before each batch.
fn stand_and_read(mut scan: Scan) -> (Vec<Meaning>, Vec<ScanCursor>) {
    let (mut events, mut positions) = (Vec::new(), Vec::new());
    let mut batch = EventBatch::new();
    loop {
        positions.extend(scan.position());
        if !scan.next(&mut batch).expect("reads") {
            return (events, positions);
        }
        events.extend(batch.events().map(|event| meaning(&event, scan.tables())));
    }
}

fn whole(trace: &Path) -> (Vec<Meaning>, Vec<ScanCursor>) {
    stand_and_read(Trace::open(trace).expect("opens").scan(&ScanProps::default()).expect("scans"))
}

/// The events from a position on; none if it does not fit.
fn rest(trace: &Path, position: &ScanCursor) -> Option<(Vec<Meaning>, Vec<ScanCursor>)> {
    let trace = Trace::open(trace).expect("opens");
    Some(stand_and_read(trace.scan_from(&ScanProps::default(), position).expect("scans")?))
}

/// Sequences in which clocks go back now and then, and meet.
fn sequences() -> impl Strategy<Value = Vec<Vec<Event>>> {
    let steps = prop_oneof![1 => Just(-7i64), 3 => Just(0), 6 => 1i64..30];
    let sequence = (0i64..200, proptest::collection::vec(steps, 1..120));
    proptest::collection::vec(sequence, 1..5).prop_map(|sequences| {
        let mut number = 0;
        let mut row = |time_ns: &mut i64, step: i64| {
            *time_ns += step;
            number += 1;
            Event { time_ns: *time_ns, address: number << 8, ..event(number) }
        };
        sequences
            .into_iter()
            .map(|(mut time_ns, steps)| steps.into_iter().map(|step| row(&mut time_ns, step)).collect())
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_is_merged_goes_on_where_it_stood(sequences in sequences()) {
        let folder = TempDir::new("resume");
        let trace = folder.join("a.flood");
        write(&trace, &sequences, &tables());
        let (events, positions) = whole(&trace);
        for position in positions.iter().step_by(positions.len().div_ceil(6)) {
            let before = usize::try_from(position.events()).unwrap();
            let (rest, further) = rest(&trace, position).expect("nothing came since");
            prop_assert!(rest == events[before..]);
            // And who goes on stands where the other stood.
            prop_assert_eq!(further.first(), Some(position));
            prop_assert_eq!(further.last().map(ScanCursor::events), Some(events.len() as u64));
        }
    }

    #[test]
    fn runs_that_came_since_are_read_too_or_nobody_goes_on(sequences in sequences(), known in 1usize..4) {
        let folder = TempDir::new("resume-more");
        let (before, after) = (folder.join("before.flood"), folder.join("after.flood"));
        let known = known.min(sequences.len());
        write(&before, &sequences[..known], &tables());
        write(&after, &sequences, &tables());
        let (events, _) = whole(&after);
        let (read, positions) = whole(&before);
        for position in positions.iter().step_by(positions.len().div_ceil(6)) {
            let Some((rest, _)) = rest(&after, position) else {
                // Only what is earlier than something that was read is a reason.
                let read = &read[..position.events() as usize];
                let latest = read.iter().map(|(event, ..)| event.time_ns).max().expect("something was read");
                let is_late = |event: &Event| event.time_ns < latest;
                prop_assert!(sequences[known..].iter().flatten().any(is_late));
                continue;
            };
            prop_assert!(rest == events[position.events() as usize..]);
        }
    }
}

#[test]
fn positions_within_row_groups_and_parts_are_found() {
    let folder = TempDir::new("resume-large");
    let trace = folder.join("a.flood");
    let rows = (1 << 20) + 5 * BATCH_ROWS as u64 / 2;
    let late: Vec<Event> = (0..1000).map(|number| event(number * 1000)).collect();
    write(&trace, &[(0..rows).map(event).collect(), late], &tables());
    let (events, positions) = whole(&trace);
    assert_eq!(events.len() as u64, rows + 1000);
    for position in positions.iter().step_by(positions.len() / 4).chain(positions.last()) {
        let (rest, _) = rest(&trace, position).expect("nothing came since");
        let expected = &events[position.events() as usize..];
        let differs = rest.iter().zip(expected).position(|(one, other)| one != other);
        assert_eq!((differs, rest.len()), (None, expected.len()), "{position:?}");
    }
    let narrowed = ScanProps { to_ns: Some(event(5).time_ns), ..ScanProps::default() };
    let trace = Trace::open(&trace).expect("opens");
    assert!(trace.scan_from(&narrowed, &positions[1]).expect("opens").is_none());
    let mut scan = trace.scan(&narrowed).expect("scans");
    scan.next(&mut EventBatch::new()).expect("reads");
    assert_eq!(scan.position(), None);
}

#[test]
fn what_is_sealed_meanwhile_comes_once() {
    let folder = TempDir::new("resume-growing");
    let path = folder.join("a.flood");
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    let mut sealer = Sealer::open(&path, Run::default()).expect("seals");
    let mut positions: Vec<ScanCursor> = Vec::new();
    let mut events = 0;
    for round in 0..6u64 {
        // More than one batch, on two threads.
        for thread in 0..2u64 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for number in 0..15_000u64 {
                        let address = (round << 40) + (thread << 32) + number + 1;
                        recorder.alloc(address, number, &AllocDomain::default(), StackId(0));
                    }
                });
            });
            events += 15_000;
        }
        let (now, more) = whole(&path);
        assert_eq!(now.len(), events);
        for position in &positions {
            let (rest, _) = rest(&path, position).expect("nothing is late here");
            assert!(rest == now[position.events() as usize..], "round {round}, from {}", position.events());
        }
        let sealed = Trace::open(&path).expect("opens").manifest().rows_of(floodmark_store::Table::Event);
        assert!(more.iter().all(|position| position.events() <= sealed), "a position in the tail");
        positions.extend(more);
        // Sometimes what is in the tail stays there.
        if round % 2 == 0 {
            sealer.seal().expect("seals");
        }
    }
    recorder.stop();
    sealer.finish().expect("seals the rest");
    let (now, _) = whole(&path);
    for position in &positions {
        assert!(rest(&path, position).expect("nothing was late").0 == now[position.events() as usize..]);
    }
    assert!(positions.iter().any(|position| position.events() >= 60_000));
}
