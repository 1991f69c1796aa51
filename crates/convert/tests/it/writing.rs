//! Logs written, and read again.

use std::io::{self, Write};

use floodmark_convert::rmm::{Dialect, Writer};
use floodmark_event::{Action, Event, EventBatch, UNKNOWN_BYTES};
use floodmark_store::Losses;

use crate::logs::{events, gaps, log};

/// Writes `events` in batches as sources make them.
pub(crate) fn written(events: &[Event], dialect: Dialect) -> (Vec<u8>, Losses) {
    let mut output = Vec::new();
    let mut writer = Writer::new(&mut output, "out.csv", dialect);
    let mut batch = EventBatch::new();
    for some in events.chunks(1000) {
        batch.clear();
        for event in some {
            batch.push(event);
        }
        writer.write(&batch).expect("memory takes everything");
    }
    let losses = writer.finish().expect("memory takes everything");
    (output, losses)
}

fn text(events: &[Event], dialect: Dialect) -> String {
    String::from_utf8(written(events, dialect).0).expect("a log is text")
}

#[test]
fn logs_of_rmm_come_out_byte_for_byte_as_they_went_in() {
    for name in ["rmm_26.10_h200_head.csv", "golden.csv", "midnight.csv", "concatenated.csv", "pair.dev1.csv"]
    {
        let original = log(name);
        let (output, losses) = written(&events(&*original), Dialect::Rmm);
        assert!(losses.is_empty());
        let header_once =
            String::from_utf8_lossy(&original).replace("\nThread,Time,Action,Pointer,Size,Stream", "");
        assert!(output == header_once.as_bytes(), "{name} differs");
    }
}

#[test]
fn logs_as_documented_come_out_byte_for_byte_as_they_went_in() {
    let original = log("documented.csv");
    assert_eq!(written(&events(&*original), Dialect::RmmEpoch).0, original);
}

#[test]
fn a_log_written_and_read_again_has_the_same_events() {
    let before = events(&*log("rmm_26.10_h200_head.csv"));
    for dialect in [Dialect::Rmm, Dialect::RmmEpoch] {
        assert!(events(&*written(&before, dialect).0) == before);
    }
}

#[test]
fn rows_are_written_in_both_dialects() {
    let failure = Event {
        time_ns: 1_634_567_890_123_456_789,
        thread: u64::MAX,
        action: Action::Failure,
        bytes: 1 << 40,
        stream: 0xffff_ffff_ffff_fff0,
        ..Event::default()
    };
    let free = Event { action: Action::Free, address: 0xa, bytes: 0, time_ns: -1999, ..Event::default() };
    assert_eq!(
        text(&[failure, free], Dialect::Rmm),
        "Thread,Time,Action,Pointer,Size,Stream\n\
         18446744073709551615,14:38:10.123456,allocate failure,(nil),1099511627776,0xfffffffffffffff0\n\
         0,23:59:59.999998,free,0xa,0,0\n"
    );
    assert_eq!(
        text(&[failure, free], Dialect::RmmEpoch),
        "Thread,Time,Action,Pointer,Size,Stream\n\
         18446744073709551615,1634567890.123456,allocate failure,(nil),1099511627776,0xfffffffffffffff0\n\
         0,-0.000001,deallocate,0xa,0,0\n"
    );
}

#[test]
fn a_free_of_unknown_size_gets_the_size_of_its_block() {
    let alloc = |address, bytes| Event { address, bytes, ..Event::default() };
    let free = |address| Event { action: Action::Free, address, bytes: UNKNOWN_BYTES, ..Event::default() };
    let elsewhere = Event { device: 1, ..alloc(0x10, 99) };
    let rows =
        [alloc(0x10, 5), elsewhere, alloc(0x20, 6), free(0x10), free(0x10), free(0x20), free(0), free(0x30)];
    let (output, losses) = written(&rows, Dialect::Rmm);
    let sizes: Vec<_> = events(&*output).iter().map(|event| event.bytes).collect();
    assert_eq!(sizes, [5, 99, 6, 5, 0, 6, 0, 0]);
    assert_eq!(gaps(&losses), [(2, "a free of unknown size was written with size 0")]);
}

#[test]
fn an_output_that_fails_is_an_error_that_names_it() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let error = Writer::new(Full, "out.csv", Dialect::Rmm).finish().expect_err("no room");
    assert_eq!(error.to_string(), "writing out.csv");
    let mut writer = Writer::new(Full, "out.csv", Dialect::Rmm);
    let mut batch = EventBatch::new();
    (0..100_000).for_each(|_| batch.push(&Event::default()));
    assert!(writer.write(&batch).is_err());
}
