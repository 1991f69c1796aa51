//! Whatever is cut off or zeroed, a reader gets a prefix of each chunk and never panics.

use floodmark_event::{
    CallAction, Metric, OutputStream, StackId, StackReason, StackSeen, StringId, SubjectId,
};
use floodmark_tail::reader::RingReader;
use floodmark_tail::record::{Decoder, Record};
use floodmark_tail::segment;
use floodmark_tail::{AllocDomain, Call, RecordProps, Recorder, Stamp, When};
use proptest::prelude::*;

use crate::tailing::TestTrace as Folder;

/// Decodes as far as the bytes are sound.
fn decode(base: u64, payload: &[u8]) -> Vec<Record<'_>> {
    let mut decoder = Decoder::new(base);
    let mut records = Vec::new();
    while let Ok(Some(record)) = decoder.next(payload) {
        records.push(record);
    }
    records
}

/// The bytes of a ring with a few thousand events in it, and what a sampler records between them.
fn ring_bytes() -> Vec<u8> {
    let folder = Folder::new("damage");
    let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
    for round in 0..3000u64 {
        let domain = AllocDomain { stream: round % 5, ..AllocDomain::default() };
        recorder.alloc(round << 8, round, &domain, StackId(0));
        if round % 10 == 0 {
            let values =
                [(Metric::Rss, round << 12), (Metric::Threads, round), (Metric::CpuTime, round << 20)];
            recorder.samples(SubjectId(round as u32 % 7), &values, When::At(round));
            recorder.output(OutputStream::Stdout, b"something", When::Now);
            let (stack, reason) = (StackId(1), StackReason::Peak);
            let seen = StackSeen { thread: round, stack, reason, pause_ns: round };
            recorder.stack_sample(SubjectId(1), &seen, When::Now);
            recorder.alloc_at(round, 1, &domain, StackId(0), Stamp::on_thread(round, When::At(round)));
            let call = Call {
                action: CallAction::Return,
                code: round as u32,
                line: 3,
                rss_bytes: Some(round << 12),
            };
            recorder.call(&call);
            recorder.end_range(recorder.begin_range(StringId(1)));
        }
    }
    recorder.stop();
    let mut entries = std::fs::read_dir(folder.path.join("segments")).expect("segments");
    let ring = entries.find_map(|entry| {
        let path = entry.expect("an entry").path();
        (path.extension()? == "ring").then_some(path)
    });
    std::fs::read(ring.expect("a ring")).expect("reads")
}

#[test]
fn a_ring_cut_or_zeroed_anywhere_yields_prefixes() {
    let whole = ring_bytes();
    let reader = RingReader::new(whole.as_slice()).expect("a ring");
    let (chunks, _) = reader.chunks().expect("chunks");
    let chunk = chunks.iter().find(|chunk| chunk.payload.len() > 10_000).expect("a well-filled chunk");
    let records = decode(chunk.base_time_ns, &chunk.payload);
    assert_eq!(records.len(), 3000 + 300 * 9);
    for cut in (0..chunk.payload.len()).step_by(7) {
        let prefix = decode(chunk.base_time_ns, &chunk.payload[..cut]);
        assert_eq!(prefix, records[..prefix.len()], "cut at {cut}");
        let mut zeroed = chunk.payload.clone();
        zeroed[cut..].fill(0);
        let found = decode(chunk.base_time_ns, &zeroed);
        // Zeros read as events of nothing at the same time, or as the rest of a record they cut into; what
        // came before is unharmed.
        assert!(found.len() >= prefix.len());
        assert_eq!(found[..prefix.len()], records[..prefix.len()], "zeroed from {cut}");
    }
    for cut in (0..whole.len()).step_by(997) {
        if let Ok(reader) = RingReader::new(&whole[..cut]) {
            let _ = reader.process();
            let _ = reader.chunks();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), base in any::<u64>()) {
        decode(base, &bytes);
        let _ = segment::frames(&bytes).count();
        if let Ok(reader) = RingReader::new(bytes.as_slice()) {
            let _ = reader.chunks();
        }
    }

    #[test]
    fn flipping_a_byte_of_a_frame_is_noticed(payload in proptest::collection::vec(any::<u8>(), 0..300), at in any::<prop::sample::Index>(), with in 1u8..) {
        let frame = segment::Frame {
            lane: 3,
            sequence: 9,
            base_time_ns: 1,
            utc_offset_ns: 2,
            is_open: false,
            is_disordered: false,
            payload: &payload,
        };
        let mut bytes = frame.head().to_vec();
        bytes.extend_from_slice(&payload);
        prop_assert_eq!(segment::frames(&bytes).next(), Some(frame));
        let at = at.index(bytes.len());
        // Four bytes of the head are padding.
        if !(36..40).contains(&at) {
            bytes[at] ^= with;
            prop_assert_eq!(segment::frames(&bytes).next(), None);
        }
    }
}
