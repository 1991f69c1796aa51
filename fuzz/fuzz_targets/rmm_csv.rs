//! Reads any bytes as an RMM log, in both modes and in blocks of odd sizes, and writes what was read.
//!
//! Beyond not panicking: a strict reading is the beginning of a lenient one, blocks make no difference,
//! and what was written reads back as it was.

#![no_main]

use std::io::Read;

use floodmark_convert::Mode;
use floodmark_convert::rmm::{Dialect, ReadProps, Reader, Writer};
use floodmark_event::{Event, EventBatch};
use floodmark_store::Source;
use libfuzzer_sys::fuzz_target;

/// All events of a log, and whether it could be opened.
fn read(input: impl Read + Send, mode: Mode) -> (Vec<Event>, bool) {
    let mut events = Vec::new();
    let props = ReadProps { mode, ..ReadProps::default() };
    let Ok(mut reader) = Reader::open(input, "log.csv", &props) else { return (events, false) };
    let mut batch = EventBatch::new();
    while let Ok(true) = reader.next(&mut batch) {
        events.extend(batch.events());
    }
    (events, true)
}

/// Gives a few bytes at a time, more each time.
struct Growing<'a>(&'a [u8], usize);

impl Read for Growing<'_> {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        self.1 = (self.1 + 7) % 97 + 1;
        let len = self.1.min(room.len());
        self.0.read(&mut room[..len])
    }
}

fuzz_target!(|bytes: &[u8]| {
    let (lenient, is_open) = read(bytes, Mode::Lenient);
    let (strict, _) = read(bytes, Mode::Strict);
    assert!(lenient.starts_with(&strict));
    assert_eq!(read(Growing(bytes, 0), Mode::Lenient), (lenient.clone(), is_open));

    let mut written = Vec::new();
    let mut writer = Writer::new(&mut written, "log.csv", Dialect::RmmEpoch);
    let mut batch = EventBatch::new();
    for event in &lenient {
        batch.push(event);
    }
    writer.write(&batch).expect("memory takes everything");
    let losses = writer.finish().expect("memory takes everything");
    let (again, _) = read(&*written, Mode::Strict);
    assert_eq!(again.len(), lenient.len());
    // Sizes that stand for unknown ones and times below microseconds do not come back.
    let is_exact = |event: &Event| event.time_ns % 1000 == 0 && event.bytes != u64::MAX;
    if losses.is_empty() && lenient.iter().all(is_exact) {
        assert_eq!(again, lenient);
    }
});
