//! Every dialect of the log, against the golden one.

use std::collections::HashMap;
use std::io;

use floodmark_convert::rmm::{ReadProps, Reader};
use floodmark_event::units::{Date, NS_PER_DAY, NS_PER_S};
use floodmark_event::{Action, Event, Kind, ProcessId};
use floodmark_store::Source;

use crate::logs::{Pieces, drain, error, events, gaps, lenient, log, read_to_end, strict};

const TEN_O_CLOCK_NS: i64 = 36_000 * NS_PER_S;
const EPOCH_NS: i64 = 1_634_567_890 * NS_PER_S;

/// The golden log, as it must be read.
fn golden() -> Vec<Event> {
    let rows = [
        (101, Action::Alloc, 0x7f00_0000_0000, 1000, 0),
        (101, Action::Alloc, 0x7f00_0000_0400, 2000, 1),
        (202, Action::Alloc, 0x7f00_0000_0c00, 500, 0x55_d0c0),
        (101, Action::Free, 0x7f00_0000_0000, 1000, 0),
        (202, Action::Failure, 0, 1 << 40, 0x55_d0c0),
        (101, Action::Alloc, 0x7f00_0000_0000, 256, 0),
        (202, Action::Free, 0x7f00_0000_0400, 2000, 1),
        (101, Action::Alloc, 0, 0, 0),
        (101, Action::Free, 0, 0, 0),
        (101, Action::Free, 0x7f00_000f_ff00, 64, 0),
    ];
    let mut time_ns = TEN_O_CLOCK_NS;
    let mut event = |(thread, action, address, bytes, stream)| {
        time_ns += 1000;
        Event {
            time_ns,
            process: ProcessId(1),
            thread,
            action,
            address,
            bytes,
            device: 0,
            stream,
            kind: Kind::Device,
            ..Event::default()
        }
    };
    rows.map(&mut event).to_vec()
}

fn golden_at(start_ns: i64) -> Vec<Event> {
    golden().into_iter().map(|e| Event { time_ns: e.time_ns - TEN_O_CLOCK_NS + start_ns, ..e }).collect()
}

#[test]
fn the_golden_log_reads_as_it_is_written() {
    assert_eq!(events(&*log("golden.csv")), golden());
}

#[test]
fn the_golden_log_gives_the_answers_its_readme_states() {
    let (mut live, mut live_bytes, mut peak, mut total, mut unknown) = (HashMap::new(), 0, 0, 0, 0);
    for event in events(&*log("golden.csv")) {
        match event.action {
            Action::Alloc => {
                live.insert(event.address, event.bytes);
                live_bytes += event.bytes;
                total += event.bytes;
                peak = peak.max(live_bytes);
            }
            Action::Free => match live.remove(&event.address) {
                Some(bytes) => live_bytes -= bytes,
                None => unknown += event.bytes,
            },
            Action::Failure => assert_eq!((event.bytes, event.stream), (1 << 40, 0x55_d0c0)),
        }
    }
    assert_eq!((live.len(), live_bytes, peak, total, unknown), (2, 756, 3500, 3756, 64));
}

#[test]
fn dialects_of_the_golden_log_read_the_same() {
    for name in [
        "deallocate.csv",
        "colon.csv",
        "crlf.csv",
        "bom.csv",
        "blank_lines.csv",
        "quoted.csv",
        "reordered.csv",
        "extra_columns.csv",
        "bare_pointers.csv",
    ] {
        assert_eq!(events(&*log(name)), golden(), "{name}");
    }
}

#[test]
fn epoch_times_are_instants() {
    assert_eq!(events(&*log("epoch.csv")), golden_at(EPOCH_NS));
    let documented = events(&*log("documented.csv"));
    assert_eq!(documented[2].thread, 140_573_312_345_857);
    assert_eq!(documented.iter().map(|e| e.time_ns).min(), Some(EPOCH_NS + 1000));
}

#[test]
fn a_log_without_threads_has_thread_0() {
    let expected: Vec<_> = golden().into_iter().map(|e| Event { thread: 0, ..e }).collect();
    assert_eq!(events(&*log("no_thread.csv")), expected);
}

#[test]
fn appended_logs_are_runs_of_their_own() {
    let run = |process, day| -> Vec<Event> {
        let rows = golden_at(day * NS_PER_DAY + TEN_O_CLOCK_NS).into_iter();
        rows.map(|event| Event { process: ProcessId(process), ..event }).collect()
    };
    let (events, losses, error) = read_to_end(&*log("concatenated.csv"), &strict());
    assert_eq!((events, error), ([run(1, 0), run(2, 0)].concat(), None));
    assert!(losses.is_empty(), "nothing is missing");
    let remark = losses.gaps[0].sentence();
    assert!(
        remark.starts_with("it holds 2 runs, one for each header (the second begins at line 12)"),
        "{remark}"
    );
    // Later ones may be in another dialect; a header without rows begins no run.
    let header = log("header_only.csv");
    let mixed =
        [log("golden.csv"), header.clone(), log("reordered.csv"), log("bom.csv"), log("crlf.csv"), header]
            .concat();
    let (events, ..) = read_to_end(&*mixed, &strict());
    assert_eq!(events, [run(1, 0), run(2, 0), run(3, 0), run(4, 0)].concat());
    // An appended run is later, by a day where its clock says otherwise.
    let earlier = String::from_utf8(log("golden.csv")).expect("text").replace(",10:00:", ",09:00:");
    let (events, losses, _) = read_to_end(&*[log("golden.csv"), earlier.into_bytes()].concat(), &strict());
    assert_eq!(events[10].time_ns, NS_PER_DAY + TEN_O_CLOCK_NS - 3600 * NS_PER_S + 1000);
    assert_eq!(losses.gaps.len(), 1, "its times do not run backwards");
}

#[test]
fn more_runs_than_any_log_has_share_the_last_process() {
    let text = "Action,Pointer,Size\nallocate,0x10,7\n".repeat(3000);
    let (events, ..) = read_to_end(text.as_bytes(), &strict());
    assert_eq!((events.len(), events[2999].process), (3000, ProcessId(1000)));
}

#[test]
fn lines_that_end_in_cr_alone_are_read_and_remarked_on() {
    let text = String::from_utf8(log("golden.csv")).expect("text").replace('\n', "\r").into_bytes();
    for sizes in [vec![text.len()], vec![1], vec![39], vec![7, 40]] {
        let (events, losses, error) = read_to_end(Pieces::new(&text, sizes), &strict());
        assert_eq!((events, error), (golden(), None));
        assert_eq!(gaps(&losses), [(0, "its lines end in CR alone, as old Mac programs write them")]);
    }
}

#[test]
fn a_clock_that_was_set_back_is_no_midnight_and_is_remarked_on() {
    let text = "Thread,Time,Action,Pointer,Size,Stream\n\
                1,20:00:00.000001,allocate,0x1,1,0\n\
                1,20:00:00.900000,allocate,0x2,1,0\n\
                1,17:30:00.000001,allocate,0x3,1,0\n\
                1,17:29:59.900001,allocate,0x4,1,0\n";
    let (events, losses, _) = read_to_end(text.as_bytes(), &strict());
    assert!(events.iter().all(|event| event.time_ns < NS_PER_DAY));
    assert!(losses.is_empty());
    let remark = losses.gaps[0].sentence();
    assert!(remark.starts_with("its times run backwards once, by up to "), "{remark}");
}

#[test]
fn a_cut_off_last_line_is_one_gap_and_no_error() {
    for props in [strict(), lenient()] {
        let (events, losses, error) = read_to_end(&*log("truncated.csv"), &props);
        assert_eq!((&events[..], error), (&golden()[..9], None));
        assert_eq!(gaps(&losses), [(1, "the last line is cut off")]);
    }
}

#[test]
fn a_last_field_without_an_end_may_be_cut_and_does_not_count() {
    let log = log("golden.csv");
    assert_eq!(events(&*[log.trim_ascii_end(), b"\r"].concat()), golden(), "half a CRLF is an end");
    let (events, losses, error) = read_to_end(log.trim_ascii_end(), &strict());
    assert_eq!((&events[..], error), (&golden()[..9], None));
    assert_eq!(gaps(&losses), [(1, "the last line is cut off")]);
    // 1024 looks whole when it is 10.
    let cut = "Action,Pointer,Size\nallocate,0x10,1024\nallocate,0x20,10";
    let (events, losses, _) = read_to_end(cut.as_bytes(), &strict());
    assert_eq!((events.len(), losses.gaps.len()), (1, 1));
}

#[test]
fn wherever_a_log_is_cut_nothing_before_the_cut_is_lost() {
    let log = log("golden.csv");
    for len in 39..log.len() {
        let (events, losses, error) = read_to_end(&log[..len], &strict());
        assert_eq!(error, None);
        let whole_lines = log[..len].split(|byte| *byte == b'\n').count() - 2;
        let is_between_lines = log[len - 1] == b'\n';
        assert_eq!(events[..whole_lines], golden()[..whole_lines]);
        // What is left of the last line is a row or a gap.
        let rest = events.len() - whole_lines + losses.gaps.len();
        assert_eq!(rest, usize::from(!is_between_lines), "cut at {len}");
    }
}

#[test]
fn nights_are_passed_with_threads_out_of_order() {
    let (events, ..) = read_to_end(&*log("midnight.csv"), &strict());
    let days: Vec<_> = events.iter().map(|e| e.time_ns.div_euclid(NS_PER_DAY)).collect();
    assert_eq!(days, [0, 0, 1, 0, 1, 1, 1, 1, 1]);
}

#[test]
fn a_given_date_is_the_day_of_the_first_row() {
    let date = Date::parse("2026-07-01");
    let props = ReadProps { date, ..strict() };
    let (dated, ..) = read_to_end(&*log("golden.csv"), &props);
    assert_eq!(dated, golden_at(20_635 * NS_PER_DAY + TEN_O_CLOCK_NS));
    let (epoch, ..) = read_to_end(&*log("epoch.csv"), &props);
    assert_eq!(epoch, golden_at(EPOCH_NS), "an instant needs no date");
}

#[test]
fn a_log_that_lacks_a_free_keeps_all_its_rows() {
    let rows: Vec<_> = events(&*log("duplicate_allocate.csv")).iter().map(|e| (e.action, e.bytes)).collect();
    assert_eq!(rows, [(Action::Alloc, 1000), (Action::Alloc, 2000), (Action::Free, 2000)]);
}

#[test]
fn a_log_without_times_or_streams_reads_in_order() {
    let text = b"Action,Pointer,Size\nallocate,0x10,7\nfree,0x10,7\n";
    let rows: Vec<_> = events(&text[..]).iter().map(|e| (e.time_ns, e.bytes, e.stream)).collect();
    assert_eq!(rows, [(0, 7, 0), (0, 7, 0)]);
}

#[test]
fn the_device_comes_from_the_name_then_from_the_caller() {
    for (name, device, expected) in
        [("pair.dev1.csv", Some(7), 1), ("golden.csv", Some(7), 7), ("golden.csv", None, 0)]
    {
        let props = ReadProps { device, process: ProcessId(4), ..strict() };
        let mut reader = Reader::open(io::Cursor::new(log(name)), format!("some/folder.dev9/{name}"), &props)
            .expect("a log");
        let mut events = Vec::new();
        drain(&mut reader, &mut events).expect("good rows");
        assert!(events.iter().all(|e| e.device == expected && e.process == ProcessId(4)), "{name}");
        let processes = &reader.tables().processes;
        assert_eq!((processes.len(), processes[0].id, &*processes[0].command), (1, ProcessId(4), name));
    }
}

#[test]
fn a_log_of_only_a_header_has_no_events() {
    let header = log("header_only.csv");
    assert_eq!(events(&*header), []);
    assert_eq!(events(header.trim_ascii_end()), []);
}

#[test]
fn a_first_line_that_is_no_header_is_refused_in_words() {
    let text = error(&*log("legacy_12_columns.csv"), &strict());
    assert!(text.contains("log.csv is not recognized: it is the 12-column log that RMM wrote before 2020"));
    let text = error(&b"Thread,Time,Action,Stream\n1,2,3,4\n"[..], &lenient());
    assert!(text.contains("its header 'Thread,Time,Action,Stream' lacks Pointer and Size"), "{text}");
    let golden = log("golden.csv");
    let headless = golden.splitn(2, |byte| *byte == b'\n').last().unwrap_or_default();
    let text = error(headless, &lenient());
    assert!(text.contains("expected: Thread,Time,Action,Pointer,Size,Stream"), "{text}");
    assert!(error(&b""[..], &strict()).contains("it holds no line"));
    assert!(error(&b"\n\r\n"[..], &strict()).contains("it holds no line"));
}

#[test]
fn lines_are_whole_wherever_the_blocks_of_the_input_end() {
    for name in ["golden.csv", "crlf.csv", "truncated.csv", "malformed.csv", "extra_columns.csv"] {
        let log = log(name);
        let whole = read_to_end(&*log, &lenient());
        for at in 1..log.len() {
            assert_eq!(
                read_to_end(Pieces::new(&log, vec![at, log.len()]), &lenient()),
                whole,
                "{name} at {at}"
            );
        }
    }
}

#[test]
fn the_log_of_an_h200_reads_without_loss() {
    let events = events(&*log("rmm_26.10_h200_head.csv"));
    assert_eq!(events.len(), 8000);
    assert!(events.iter().all(|e| (e.thread, e.bytes, e.stream) == (687, 1024, 0x557f_c69e_af60)));
    assert_eq!(events.iter().filter(|e| e.action == Action::Alloc).count(), 4000);
    assert_eq!(events[7999].time_ns, 23_341 * NS_PER_S + 423_395_000);
}

#[test]
fn times_with_leading_zeros_are_told_apart() {
    let text = "Thread,Time,Action,Pointer,Size,Stream\n\
                1,00000000100000005.000001,free,0x1,1,0\n\
                1,00000000200000005.000001,free,0x1,1,0\n";
    let times: Vec<_> = events(text.as_bytes()).iter().map(|e| e.time_ns / NS_PER_S).collect();
    assert_eq!(times, [100_000_005, 200_000_005]);
}
