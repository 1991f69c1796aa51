//! Reads any bytes as a ring, as a segment file and as the records of a chunk.
//!
//! Beyond not panicking: a shorter chunk decodes to the beginning of a longer one.

#![no_main]

use floodmark_tail::reader::RingReader;
use floodmark_tail::record::{Decoder, Record};
use floodmark_tail::segment;
use libfuzzer_sys::fuzz_target;

fn decode(base_time_ns: u64, payload: &[u8]) -> Vec<Record<'_>> {
    let mut decoder = Decoder::new(base_time_ns);
    let mut records = Vec::new();
    while let Ok(Some(record)) = decoder.next(payload) {
        records.push(record);
    }
    records
}

fuzz_target!(|bytes: &[u8]| {
    let records = decode(0, bytes);
    let half = decode(0, &bytes[..bytes.len() / 2]);
    assert!(records.starts_with(&half));
    for frame in segment::frames(bytes) {
        decode(frame.base_time_ns, frame.payload);
    }
    if let Ok(reader) = RingReader::new(bytes) {
        let _ = reader.process();
        if let Ok((chunks, _)) = reader.chunks() {
            for chunk in chunks {
                decode(chunk.base_time_ns, &chunk.payload);
            }
        }
    }
});
