//! Scans merge runs of parts as a stable sort would, whatever is filtered, and read only what they need.

use std::fs;
use std::path::Path;

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{Event, EventBatch, OutputRow, OutputStream, ProcessId, Tables};
use floodmark_store::{
    Error, Losses, Manifest, Overwrite, Projection, Run, ScanProps, Source as _, Table, Trace, TraceWriter,
};
use proptest::prelude::*;

use floodmark_testkit::TempDir;

use crate::traces::{rows, write};

/// A row of output that says which one it is.
fn output(time_ns: i64, process: u32, number: usize) -> OutputRow {
    let bytes = number.to_le_bytes().to_vec();
    OutputRow { time_ns, process: ProcessId(process), stream: OutputStream::Stdout, bytes }
}

/// Runs, each of several parts.
type Runs = Vec<Vec<Vec<OutputRow>>>;

/// Runs of rows in which clocks go back now and then, and meet.
fn runs() -> impl Strategy<Value = Runs> {
    let step = prop_oneof![1 => -40i64..0, 3 => Just(0), 6 => 1i64..30];
    // Some parts have rows of one process, which the manifest says.
    let part = (proptest::option::of(1u32..4), proptest::collection::vec((step, 1u32..4), 1..200));
    let run = (0i64..2_000, proptest::collection::vec(part, 1..4));
    proptest::collection::vec(run, 1..6).prop_map(|runs| {
        let mut number = 0;
        let mut rows = |time_ns: &mut i64, (only, part): (Option<u32>, Vec<(i64, u32)>)| -> Vec<OutputRow> {
            let row = |(step, process)| {
                *time_ns += step;
                number += 1;
                output(*time_ns, only.unwrap_or(process), number)
            };
            part.into_iter().map(row).collect()
        };
        runs.into_iter()
            .map(|(mut time_ns, parts)| parts.into_iter().map(|part| rows(&mut time_ns, part)).collect())
            .collect()
    })
}

/// Writes parts of which those of a run follow one another.
fn write_runs(path: &Path, runs: &Runs) {
    let mut writer = TraceWriter::create(path, Run::default(), Overwrite::Yes).expect("creates");
    for (number, part) in runs.iter().flatten().enumerate() {
        if number > 0 {
            writer.next_sequence().expect("next sequence");
        }
        writer.write_rows(part, &Tables::default()).expect("writes");
    }
    let mut manifest = writer.finish(&Tables::default(), &Losses::default()).expect("finishes");
    let orders = runs.iter().zip(0..).flat_map(|(parts, order)| parts.iter().map(move |_| order));
    let parts = manifest.parts.iter_mut().filter(|part| part.table == Table::Output.name());
    parts.zip(orders).for_each(|(part, order)| part.order = order);
    manifest.save(path).expect("saves");
}

/// All rows in the order that FORMAT.md gives them: a row sorts at the latest time its run has had, at
/// equal times in the order of the runs.
fn stable_merge(runs: &Runs) -> Vec<OutputRow> {
    let mut all = Vec::new();
    for (index, parts) in runs.iter().enumerate() {
        let mut latest_ns = i64::MIN;
        for row in parts.iter().flatten() {
            latest_ns = latest_ns.max(row.time_ns);
            all.push((latest_ns, index, row.clone()));
        }
    }
    all.sort_by_key(|(sorts_ns, index, _)| (*sorts_ns, *index));
    all.into_iter().map(|(.., row)| row).collect()
}

/// Numbers of the rows that record batches have.
fn numbers_of_records(path: &Path, props: &ScanProps) -> Vec<usize> {
    use arrow_array::cast::AsArray as _;
    let trace = Trace::open(path).expect("opens");
    let records = trace.record_batches(Table::Output, &Projection::columns(["bytes"]), props).expect("reads");
    let number = |bytes: Option<&[u8]>| {
        usize::from_le_bytes(bytes.expect("no nulls").try_into().expect("eight bytes"))
    };
    let batch = |records: floodmark_store::Result<arrow_array::RecordBatch>| {
        let records = records.expect("reads");
        assert_eq!(records.num_columns(), 1);
        records.column(0).as_binary::<i32>().iter().map(number).collect::<Vec<_>>()
    };
    records.flat_map(batch).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_runs_merge_as_a_stable_sort_would_whatever_is_filtered(
        runs in runs(),
        processes in proptest::option::of(proptest::collection::vec(1u32..5, 0..3)),
        window in (proptest::option::of(0i64..4_000), proptest::option::of(0i64..6_000)),
    ) {
        let folder = TempDir::new("merge-runs");
        let trace = folder.join("a.flood");
        write_runs(&trace, &runs);
        let expected = stable_merge(&runs);
        prop_assert_eq!(&rows::<OutputRow>(&trace, &ScanProps::default()), &expected);
        let processes = processes.map(|ids| ids.into_iter().map(ProcessId).collect::<Vec<_>>());
        let (from_ns, to_ns) = window;
        let props = ScanProps { processes: processes.clone(), from_ns, to_ns, ..ScanProps::default() };
        let wanted = |row: &&OutputRow| {
            processes.as_ref().is_none_or(|ids| ids.contains(&row.process))
                && from_ns.is_none_or(|from| row.time_ns >= from)
                && to_ns.is_none_or(|to| row.time_ns <= to)
        };
        let expected: Vec<OutputRow> = expected.iter().filter(wanted).cloned().collect();
        prop_assert_eq!(&rows::<OutputRow>(&trace, &props), &expected);
        // And so do record batches.
        let numbers: Vec<usize> =
            expected.iter().map(|row| usize::from_le_bytes(row.bytes[..].try_into().unwrap())).collect();
        prop_assert_eq!(numbers_of_records(&trace, &props), numbers);
    }
}

/// Events of a process, one every `processes` steps.
fn interleaved(process: u32, processes: u32, events: u64) -> Vec<Event> {
    let event = |number: u64| Event {
        time_ns: 1_000 + (number * u64::from(processes) + u64::from(process)) as i64,
        process: ProcessId(process),
        address: u64::from(process) << 32 | number,
        bytes: number % 7,
        ..Event::default()
    };
    (0..events).map(event).collect()
}

#[test]
fn batches_of_processes_that_ran_at_the_same_time_are_full() {
    const EVENTS: u64 = 20_000;
    let folder = TempDir::new("merge-full");
    let path = folder.join("a.flood");
    let sequences: Vec<Vec<Event>> = (1..=8).map(|process| interleaved(process, 8, EVENTS)).collect();
    write(&path, &sequences, &Tables::default());
    let mut expected: Vec<Event> = sequences.concat();
    expected.sort_by_key(|event| event.time_ns);
    let mut scan = Trace::open(&path).expect("opens").scan(&ScanProps::default()).expect("scans");
    let (mut batch, mut found, mut batches) = (EventBatch::new(), Vec::new(), Vec::new());
    while scan.next(&mut batch).expect("reads") {
        found.extend(batch.events());
        batches.push(batch.len());
    }
    assert!(found == expected);
    let last = batches.pop();
    assert!(batches.iter().all(|rows| *rows == BATCH_ROWS), "{batches:?}");
    assert_eq!(last, Some(160_000 % BATCH_ROWS));
}

#[test]
fn rows_before_a_part_that_cannot_be_read_are_handed_out_before_the_error() {
    let folder = TempDir::new("merge-damaged");
    let path = folder.join("a.flood");
    let part = |times: std::ops::Range<i64>, process| -> Vec<OutputRow> {
        times.map(|time_ns| output(time_ns, process, time_ns as usize)).collect()
    };
    let runs = vec![vec![part(0..500, 1), part(500..1_000, 1)], vec![part(100..900, 2)]];
    write_runs(&path, &runs);
    let damaged = path.join("output/part-000002.parquet");
    let bytes = fs::read(&damaged).expect("reads");
    fs::write(&damaged, &bytes[..bytes.len() / 2]).expect("writes");
    let mut scan =
        Trace::open(&path).expect("opens").rows::<OutputRow>(&ScanProps::default()).expect("scans");
    let (mut rows, mut found) = (Vec::new(), Vec::new());
    let error = loop {
        match scan.next(&mut rows) {
            Ok(true) => found.append(&mut rows),
            Ok(false) => panic!("the damage went unnoticed"),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, Error::Corrupt { path, .. } if *path == damaged), "{error}");
    // Everything up to the last row of the damaged run that could be read.
    let is_before = |row: &OutputRow| row.time_ns < 499 || (row.time_ns == 499 && row.process.0 == 1);
    let expected: Vec<OutputRow> = stable_merge(&runs).into_iter().filter(is_before).collect();
    assert_eq!(found, expected);
    // It does not go away, and nothing comes twice.
    assert!(scan.next(&mut rows).is_err());
}

#[test]
fn scans_open_only_parts_that_can_have_what_is_wanted() {
    let folder = TempDir::new("prune");
    let path = folder.join("a.flood");
    let sequences: Vec<Vec<Event>> = (1..=4)
        .map(|process| {
            let mut events = interleaved(process, 4, 1_000);
            // The fourth runs later.
            events.iter_mut().filter(|_| process == 4).for_each(|event| event.time_ns += 1_000_000);
            events
        })
        .collect();
    write(&path, &sequences, &Tables::default());
    let read = |props: &ScanProps| {
        let trace = Trace::open(&path).expect("opens");
        let mut scan = trace.scan(props).expect("scans");
        let (mut batch, mut rows) = (EventBatch::new(), 0);
        while scan.next(&mut batch).expect("reads") {
            rows += batch.len();
        }
        assert_eq!(scan.progress().done, scan.progress().total.expect("is known"));
        (rows, trace.opens(Table::Event))
    };
    let of = |ids: &[u32]| Some(ids.iter().copied().map(ProcessId).collect::<Vec<_>>());
    assert_eq!(read(&ScanProps::default()), (4_000, 4));
    assert_eq!(read(&ScanProps { processes: of(&[2]), ..ScanProps::default() }), (1_000, 1));
    assert_eq!(read(&ScanProps { processes: of(&[1, 4, 9]), ..ScanProps::default() }), (2_000, 2));
    assert_eq!(read(&ScanProps { processes: of(&[5]), ..ScanProps::default() }), (0, 0));
    let late = ScanProps { from_ns: Some(1_000_000), ..ScanProps::default() };
    assert_eq!(read(&late), (1_000, 1));
    assert_eq!(read(&ScanProps { processes: of(&[1]), ..late }), (0, 0));
    // A manifest of an earlier version does not say whose rows are where.
    let mut manifest = Manifest::load(&path).expect("loads").expect("is there");
    manifest.parts.iter_mut().for_each(|part| part.processes = None);
    manifest.save(&path).expect("saves");
    assert_eq!(read(&ScanProps { processes: of(&[2]), ..ScanProps::default() }).1, 4);
}
