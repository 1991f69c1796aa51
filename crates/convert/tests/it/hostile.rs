//! Logs that somebody or something has damaged.

use std::io::{self, Read};

use floodmark_convert::rmm::Reader;
use floodmark_event::{EventBatch, Tables};
use floodmark_store::{Error, Source};

use crate::logs::{Pieces, error, events, gaps, lenient, log, read_to_end, strict};

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";
const ROW: &str = "1,10:00:00.000001,allocate,0x7f0000000000,1000,0\n";

#[test]
fn the_first_malformed_line_is_an_error_that_says_where_and_why() {
    let (events, losses, error) = read_to_end(&*log("malformed.csv"), &strict());
    assert_eq!(events.len(), 2, "rows before it are handed out");
    assert!(losses.is_empty());
    assert_eq!(error.as_deref(), Some("log.csv:line 4: Size is '5o0', not a whole number below 2^64"));
}

#[test]
fn nothing_follows_an_error() {
    let log = log("malformed.csv");
    let mut reader = Reader::open(&*log, "log.csv", &strict()).expect("a header");
    let mut batch = EventBatch::new();
    assert!(reader.next(&mut batch).is_ok_and(|more| more));
    assert!(matches!(reader.next(&mut batch), Err(Error::Malformed { .. })));
    assert!(reader.next(&mut batch).is_ok_and(|more| !more) && batch.is_empty());
}

#[test]
fn malformed_lines_are_counted_when_asked_to() {
    let (events, losses, error) = read_to_end(&*log("malformed.csv"), &lenient());
    assert_eq!((events.len(), error), (8, None));
    assert_eq!(gaps(&losses), [(2, "malformed lines skipped")]);
}

#[test]
fn every_sort_of_bad_field_is_malformed() {
    for bad in [
        "1,10:00:00.000001,allocate,0x7f0000000000,18446744073709551616,0",
        "1,10:00:00.000001,allocate,0x7f0000000000,-1,0",
        "1,10:00:00.000001,allocate,0x7f0000000000,1e3,0",
        "1,10:00:00.000001,allocate,0x7f0000000000,,0",
        "1,10:00:00.000001,allocate,0x10000000000000000,1,0",
        "1,10:00:00.000001,allocate,0x7f00000000g0,1,0",
        "1,10:00:00.000001,allocate,(null),1,0",
        "1,10:00:00.000001,allocate,0x,1,0",
        "1,10:00:00.000001,allocat,0x7f0000000000,1,0",
        "1,10:00:00.000001,Allocate,0x7f0000000000,1,0",
        "1,10:00:00.000001,allocate  failure,(nil),1,0",
        "1,24:00:00.000001,allocate,0x7f0000000000,1,0",
        "1,10:00:00.0000012345,allocate,0x7f0000000000,1,0",
        "1,99999999999.000001,allocate,0x7f0000000000,1,0",
        "99999999999999999999,10:00:00.000001,allocate,0x7f0000000000,1,0",
        "1,10:00:00.000001,allocate,0x7f0000000000,1,abc",
        "1,10:00:00.000001,allocate,0x7f0000000000,1",
        "1,10:00:00.000001,allocate,0x7f0000000000,1,0,0",
        "1,10:00:00.000001,allocate,0x7f00\x000000000,1,0",
        "1,10:00:00.000001,allocate,0x7f0000000000,1\0,0",
        "\0\0\0\0\0\0\0\0\0\0\0\0",
        ",,,,,",
        "\"",
    ] {
        let text = format!("{HEADER}{ROW}{bad}\n{ROW}");
        let message = error(text.as_bytes(), &strict());
        assert!(message.starts_with("log.csv:line 3: "), "{bad}: {message}");
        assert!(message.chars().all(|c| !c.is_control()), "{bad}: {message}");
        let (events, losses, _) = read_to_end(text.as_bytes(), &lenient());
        assert_eq!((events.len(), gaps(&losses)), (2, vec![(1, "malformed lines skipped")]), "{bad}");
    }
}

#[test]
fn bytes_that_are_no_text_are_quoted_harmlessly() {
    let text = [HEADER.as_bytes(), b"1,10:00:00.000001,\xff\x1b[2J\x80,0x7f,1,0\n"].concat();
    assert_eq!(
        error(&*text, &strict()),
        r"log.csv:line 2: Action is '\xff\x1b[2J\x80', not one of allocate, free, deallocate and allocate failure"
    );
}

#[test]
fn a_long_line_is_one_malformed_line_and_its_message_is_short() {
    // Within what is held in memory, and beyond.
    for len in [100_000, 3 << 20] {
        let text = [HEADER, ROW, &"9".repeat(len), "\n", ROW].concat();
        let message = error(text.as_bytes(), &strict());
        assert!(message.starts_with("log.csv:line 3: ") && message.len() < 200, "{message}");
        let (events, losses, error) = read_to_end(text.as_bytes(), &lenient());
        assert_eq!((events.len(), error), (2, None));
        assert_eq!(gaps(&losses), [(1, "malformed lines skipped")]);
        // Without its end it is a line that was cut off.
        let unended = [HEADER, ROW, &"9".repeat(len)].concat();
        let (events, losses, error) = read_to_end(unended.as_bytes(), &strict());
        assert_eq!((events.len(), error), (1, None));
        assert_eq!(gaps(&losses), [(1, "the last line is cut off")]);
    }
}

#[test]
fn a_long_line_is_judged_alike_however_it_arrives() {
    for len in [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 20) + 2] {
        let text = [HEADER, ROW, &" ".repeat(len), "\n", ROW].concat();
        let whole = read_to_end(text.as_bytes(), &strict());
        for size in [60_000, 262_143] {
            assert_eq!(read_to_end(Pieces::new(text.as_bytes(), vec![size]), &strict()), whole, "{len}");
        }
        assert_eq!(whole.2.is_some(), len > 1 << 20, "blank lines are fine up to the limit");
    }
}

#[test]
fn a_long_header_is_refused_however_it_arrives() {
    for (len, end) in [((1 << 20) + 1, "\n"), ((1 << 20) + 1, ""), (3 << 20, "\n"), (3 << 20, "")] {
        let header = ["Action,Pointer,Size,", &"x".repeat(len - 20), end].concat();
        for size in [60_000, 262_144] {
            let message = error(Pieces::new(header.as_bytes(), vec![size]), &strict());
            assert!(message.contains("longer than"), "{message}");
        }
        assert!(error(header.as_bytes(), &strict()).contains("longer than"));
    }
}

#[test]
fn a_long_line_that_can_be_read_is_read() {
    let text = format!("Action,Pointer,Size,Why\nallocate,0x10,7,{}\n", "w".repeat(100_000));
    assert_eq!(events(text.as_bytes()).len(), 1);
}

#[test]
fn zeros_at_the_end_of_a_file_are_a_line_cut_off() {
    let text = [HEADER.as_bytes(), ROW.as_bytes(), &[0; 4096]].concat();
    let (events, losses, error) = read_to_end(&*text, &strict());
    assert_eq!((events.len(), error), (1, None));
    assert_eq!(gaps(&losses), [(1, "the last line is cut off")]);
}

#[test]
fn an_input_that_fails_is_an_error_after_the_rows_before() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("unplugged"))
        }
    }
    let text = [HEADER, ROW, ROW].concat();
    let (events, _, error) = read_to_end(text.as_bytes().chain(Failing), &lenient());
    assert_eq!((events.len(), error.as_deref()), (2, Some("reading log.csv")));
    assert!(Reader::open(Failing, "log.csv", &strict()).is_err());
}

#[test]
fn times_near_the_end_of_time_do_not_wrap() {
    let rows = "1,9223372036.854775,free,0x1,1,0\n1,9223372036.854776,free,0x1,1,0\n";
    let text = format!("{HEADER}{rows}");
    let (events, _, error) = read_to_end(text.as_bytes(), &strict());
    assert_eq!(events.len(), 1);
    assert!(error.is_some_and(|text| text.contains("Time is '9223372036.854776'")));
}

#[test]
fn a_batch_keeps_nothing_of_what_it_held() {
    // A batch that another source has filled, with columns in other forms.
    let mut batch = EventBatch::new();
    let other = floodmark_event::Event { stack: floodmark_event::StackId(7), ..Default::default() };
    for index in 0..3 {
        batch.push(&floodmark_event::Event { thread: index, scope: index, ..other });
    }
    let log = log("golden.csv");
    let mut reader = Reader::open(&*log, "log.csv", &strict()).expect("a header");
    assert!(reader.next(&mut batch).is_ok_and(|more| more));
    assert_eq!(batch.events().collect::<Vec<_>>(), events(&*log));
    assert_eq!(reader.tables().counts(), Tables::default().counts());
}
