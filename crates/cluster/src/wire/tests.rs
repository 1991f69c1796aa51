use floodmark_store::{ReceivedTail, Run, Sealer, TailSource as _};
use floodmark_tail::record::{Control, ProcessHeader};
use floodmark_tail::segment::{CONTROL_LANE, Frame};
use floodmark_tail::stream::{StreamItem, control_frame};
use proptest::prelude::*;

use super::*;

fn messages() -> Vec<Message> {
    let hello = Hello {
        version: "0.1.0".into(),
        job: "abc".into(),
        variables: vec![("PBS_JOBID".into(), "7.server".into())],
        hosts: vec!["a".into(), "é".into()],
        position: u64::MAX,
        exact_peaks: true,
        recorder_boot: [7; 16],
        silence_ns: 5,
        stacks: vec![1, u64::MAX],
        ..Hello::default()
    };
    let welcome = Welcome { host: "a".into(), pid: 9, position: 3, is_resumed: true, ..Welcome::default() };
    vec![
        Message::Hello(Box::new(hello)),
        Message::Welcome(Box::new(welcome)),
        Message::Ready,
        Message::Ping { number: 3 },
        Message::Pong { number: 3, utc_ns: -5 },
        Message::Data { position: 10, bytes: b"FLWM\n\0".to_vec() },
        Message::Ack { position: 16 },
        Message::Stop,
        Message::Ended { position: 16 },
        Message::Bye,
        Message::Failed { text: "no space".into() },
    ]
}

#[test]
fn messages_read_back_in_pieces_of_any_length() {
    let all: Vec<u8> = messages().iter().flat_map(Message::encode).collect();
    for piece in [1, 7, 23, 24, 25, 4096] {
        let mut decoder = Decoder::default();
        let mut read = Vec::new();
        decoder.push(b"Welcome to node7!\nFLW");
        for bytes in all.chunks(piece) {
            decoder.push(bytes);
            while let Some(message) = decoder.next_message().expect("messages") {
                read.push(message);
            }
        }
        assert_eq!(read, messages(), "{piece}");
        assert_eq!(decoder.greeting(), "Welcome to node7!\nFLW");
    }
}

#[test]
fn damage_is_noticed_wherever_it_is() {
    let bytes = Message::Data { position: 1, bytes: vec![9; 40] }.encode();
    // The line feed at the end belongs to no message.
    for at in 0..bytes.len() - 1 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        let mut decoder = Decoder { has_begun: true, ..Decoder::default() };
        decoder.push(&damaged);
        // A longer length waits for bytes that never come; anything else is an error.
        let is_longer = (8..12).contains(&at);
        let found = decoder.next_message();
        assert!(found.is_err() || (is_longer && matches!(found, Ok(None))), "{at}: {found:?}");
    }
}

#[test]
fn a_stream_of_something_else_is_refused() {
    let mut decoder = Decoder::default();
    decoder.push(&vec![b'x'; MAX_GREETING_BYTES + 10]);
    assert!(decoder.next_message().is_err());
    let mut decoder = Decoder::default();
    decoder.push(&Message::Ready.encode());
    assert_eq!(decoder.next_message().expect("a message"), Some(Message::Ready));
    decoder.push(b"oops");
    assert!(decoder.next_message().is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_messages_or_an_error(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..8), begun: bool) {
        let mut decoder = Decoder { has_begun: begun, ..Decoder::default() };
        for piece in pieces {
            decoder.push(&piece);
            while let Ok(Some(_)) = decoder.next_message() {}
        }
    }
}

proptest! {
    #[test]
    fn only_complete_messages_are_sound(garbage in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..2000) {
        let sound: Vec<u8> = messages().iter().flat_map(Message::encode).collect();
        prop_assert!(sound_length(&garbage) <= garbage.len());
        // What comes behind the messages, or misses of the last one, does not count.
        let both = [sound.clone(), b"x".to_vec(), garbage].concat();
        prop_assert_eq!(sound_length(&both), sound.len());
        let cut = cut.min(sound.len());
        let length = sound_length(&sound[..cut]);
        let mut decoder = Decoder::default();
        decoder.push(&sound[..length]);
        while decoder.next_message().expect("sound messages").is_some() {}
        prop_assert!(length <= cut);
    }
}

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Fills up to a length with numbers, of which half are small: lengths that may fit.
    fn fill(&mut self, bytes: &mut Vec<u8>, length: usize) {
        while bytes.len() < length {
            let word = if self.next().is_multiple_of(2) { self.next() } else { self.next() % 16 };
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// Payloads with a sound head and checksum, so that every one gets to the decoding of its fields.
fn sound_garbage(count: u64) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut bytes = Vec::new();
    for _ in 0..count {
        bytes.clear();
        bytes.resize(HEAD_BYTES, 0);
        let length = HEAD_BYTES + (random.next() % 96) as usize;
        random.fill(&mut bytes, length);
        let length = (bytes.len() - HEAD_BYTES) as u32;
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = (random.next() % 24) as u8;
        bytes[5] = PROTOCOL;
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        let sum = checksum(checksum(0, &bytes[..16]), &bytes[HEAD_BYTES..]);
        bytes[16..24].copy_from_slice(&sum.to_le_bytes());
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        while let Ok(Some(_)) = decoder.next_message() {}
    }
}

/// Frames whose heads and checksums are sound and whose records are not, as a hostile agent could send them: through the
/// message, the reader of frames and the decoder of records, and some of them into a trace.
fn sound_frames_of_garbage(count: u64) {
    /// Every this many frames, those since the last time go into the trace.
    const STORED: u64 = 100;
    let folder = tempfile::tempdir().expect("a directory");
    let mut sealer = Sealer::open(&folder.path().join("t.flood"), Run::default()).expect("a trace");
    let mut random = Random(0x0123_4567_89ab_cdef);
    let process = |random: &mut Random| {
        let stem = format!("p-{}", random.next() % 8);
        control_frame(&Control::Process(Box::new(ProcessHeader { stem, ..ProcessHeader::default() })))
    };
    let mut stored = Vec::new();
    for number in 0..count {
        let mut payload = Vec::new();
        let length = (random.next() % 160) as usize;
        random.fill(&mut payload, length);
        let word = random.next();
        let is_control = word.is_multiple_of(4);
        let frame = Frame {
            lane: if is_control { CONTROL_LANE } else { (word >> 2) as u32 % 5 },
            sequence: (word >> 8) % 64,
            base_time_ns: if word & 16 == 0 { random.next() } else { word >> 32 },
            utc_offset_ns: if word & 32 == 0 { random.next() as i64 } else { 0 },
            is_open: word & 64 != 0,
            is_disordered: word & 128 != 0,
            payload: &payload,
        };
        let bytes = [process(&mut random), frame.head().to_vec(), payload.clone()].concat();
        let mut decoder = Decoder::default();
        decoder.push(&Message::Data { position: number, bytes }.encode());
        let Ok(Some(Message::Data { bytes, .. })) = decoder.next_message() else { panic!("a sound message") };
        let mut tail = ReceivedTail::new(&bytes[..]);
        while let Ok(Some(item)) = tail.next() {
            if let StreamItem::Chunk(chunk) = &item.item {
                let mut records = floodmark_tail::record::Decoder::new(chunk.base_time_ns);
                while let Ok(Some(_)) = records.next(&chunk.payload) {}
            }
        }
        stored.extend_from_slice(&bytes);
        if number % STORED == STORED - 1 {
            // It may be refused, and must not be more than that.
            let _ = sealer.accept(&mut ReceivedTail::new(&stored[..]));
            stored.clear();
        }
        if number % (1000 * STORED) == 1000 * STORED - 1 {
            let _ = sealer.seal();
        }
    }
    let _ = sealer.finish();
}

#[test]
fn garbage_in_sound_messages_and_frames_crashes_nothing() {
    sound_garbage(200_000);
    sound_frames_of_garbage(20_000);
}

#[test]
#[ignore = "takes minutes: ten million messages and ten million frames"]
fn ten_million_messages_and_frames_of_garbage_crash_nothing() {
    sound_garbage(10_000_000);
    sound_frames_of_garbage(10_000_000);
}
