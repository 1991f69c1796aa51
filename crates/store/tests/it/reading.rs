//! Write, scan, filter, project, merge.

use floodmark_event::{Event, ProcessId, Tables};
use floodmark_store::{Error, Losses, Overwrite, Run, ScanProps, Trace, TraceWriter};
use floodmark_testkit::TempDir;
use proptest::prelude::*;

use crate::traces::{event, meaning, read, tables, write};

#[test]
fn everything_written_is_read_back() {
    let folder = TempDir::new("identity");
    let trace = folder.join("a.flood");
    let tables = tables();
    let events: Vec<Event> = (0..30_000).map(event).collect();
    write(&trace, std::slice::from_ref(&events), &tables);
    let expected: Vec<_> = events.iter().map(|event| meaning(event, &tables)).collect();
    assert_eq!(read(&trace, &ScanProps::default()), expected);
    let opened = Trace::open(&trace).expect("opens");
    assert!(!opened.is_live());
    let commands: Vec<_> =
        opened.manifest().processes.iter().map(|process| process.command.as_str()).collect();
    assert_eq!(commands, ["app 1", "app 2"]);
    assert_eq!(opened.manifest().run.start_ns, Some(events[0].time_ns));
}

#[test]
fn scans_narrow_by_time_process_and_column() {
    let folder = TempDir::new("narrow");
    let trace = folder.join("a.flood");
    let tables = tables();
    let events: Vec<Event> = (0..20_000).map(event).collect();
    write(&trace, std::slice::from_ref(&events), &tables);
    let (from, to) = (events[5_000].time_ns, events[15_000].time_ns);
    let props = ScanProps {
        from_ns: Some(from),
        to_ns: Some(to),
        processes: Some(vec![ProcessId(2)]),
        ..ScanProps::default()
    };
    let wanted = |event: &&Event| event.process == ProcessId(2) && (from..=to).contains(&event.time_ns);
    let expected: Vec<_> = events.iter().filter(wanted).map(|event| meaning(event, &tables)).collect();
    assert_eq!(read(&trace, &props), expected);
    let props = ScanProps { columns: Some(vec!["bytes"]), ..ScanProps::default() };
    let found = read(&trace, &props);
    let only =
        |(event, ..): &(Event, String, String, Vec<String>)| (event.time_ns, event.bytes, event.thread);
    assert!(found.iter().map(only).eq(events.iter().map(|event| (event.time_ns, event.bytes, 0))));
}

#[test]
fn sequences_merge_by_time_and_keep_their_own_order() {
    let folder = TempDir::new("merge");
    let trace = folder.join("a.flood");
    let at = |time_ns, address| Event { time_ns, address, process: ProcessId(1), ..Event::default() };
    // The second row of the first sequence is earlier than its first: logs do that.
    let first = vec![at(10, 1), at(9, 2), at(30, 3), at(31, 4)];
    let second = vec![at(5, 5), at(20, 6), at(30, 7), at(40, 8)];
    write(&trace, &[first, second], &Tables::default());
    let addresses: Vec<u64> =
        read(&trace, &ScanProps::default()).iter().map(|(event, ..)| event.address).collect();
    assert_eq!(addresses, [5, 1, 2, 6, 3, 7, 4, 8]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_sequences_merge_as_a_stable_sort_would(
        sequences in proptest::collection::vec(proptest::collection::vec(0i64..500, 0..300), 1..5)
    ) {
        let folder = TempDir::new("merge-any");
        let trace = folder.join("a.flood");
        let mut number = 0;
        let sequences: Vec<Vec<Event>> = sequences
            .into_iter()
            .map(|mut times| {
                times.sort_unstable();
                let event = |time_ns| { number += 1; Event { time_ns, address: number, ..Event::default() } };
                times.into_iter().map(event).collect()
            })
            .collect();
        write(&trace, &sequences, &Tables::default());
        let found: Vec<Event> = read(&trace, &ScanProps::default()).iter().map(|(event, ..)| *event).collect();
        prop_assert!(found.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
        prop_assert_eq!(found.len(), sequences.iter().map(Vec::len).sum::<usize>());
        for sequence in &sequences {
            let own: Vec<u64> = sequence.iter().map(|event| event.address).collect();
            let kept: Vec<u64> = found.iter().map(|event| event.address).filter(|a| own.contains(a)).collect();
            prop_assert_eq!(own, kept);
        }
    }
}

#[test]
fn a_trace_appears_whole_or_not_at_all() {
    let folder = TempDir::new("whole");
    let path = folder.join("a.flood");
    let writer = TraceWriter::create(&path, Run::default(), Overwrite::No).expect("creates");
    assert!(!path.exists());
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).expect("reads").count(), 0);
    write(&path, &[vec![event(1)]], &tables());
    let refused = TraceWriter::create(&path, Run::default(), Overwrite::No).err().expect("exists");
    assert!(matches!(refused, Error::Exists { .. }), "{refused}");
    // Nothing that is not a trace is replaced, even if asked to.
    let other = folder.join("precious");
    std::fs::create_dir(&other).expect("creates");
    let refused = TraceWriter::create(&other, Run::default(), Overwrite::Yes).err().expect("no trace");
    assert!(matches!(refused, Error::Exists { .. }), "{refused}");
}

#[test]
fn what_is_no_trace_is_told_from_what_is_not_there() {
    let folder = TempDir::new("none");
    let error = Trace::open(&folder.join("missing")).expect_err("is missing");
    assert!(matches!(&error, Error::Io { .. }), "{error}");
    let error = Trace::open(folder.path()).expect_err("is no trace");
    assert!(error.to_string().contains("no trace"), "{error}");
}

#[test]
fn losses_of_an_import_stay_with_the_trace() {
    let folder = TempDir::new("losses");
    let path = folder.join("a.flood");
    let mut losses = Losses::default();
    losses.add(3, "malformed lines skipped");
    let writer = TraceWriter::create(&path, Run::default(), Overwrite::No).expect("creates");
    writer.finish(&Tables::default(), &losses).expect("finishes");
    assert_eq!(Trace::open(&path).expect("opens").manifest().all_losses(), losses);
    assert!(read(&path, &ScanProps::default()).is_empty());
}
