//! A log that is read on several cores is the log that is read in sequence, wherever its blocks end.

use std::fmt::Write as _;
use std::io::{self, Cursor, Read};

use floodmark_convert::rmm::{ParallelProps, ParallelReader, ReadProps, Reader};
use floodmark_event::EventBatch;
use floodmark_event::units::Date;
use floodmark_store::Source as _;
use proptest::prelude::*;

use crate::logs::{Outcome, folder, lenient, log, outcome, strict};
use crate::properties::messy_log;

/// Hands out the first bytes alone, so that blocks begin there.
struct SplitAt {
    bytes: Cursor<Vec<u8>>,
    at: u64,
}

impl Read for SplitAt {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let left = self.at.saturating_sub(self.bytes.position()) as usize;
        let len = if left == 0 { room.len() } else { left.min(room.len()) };
        self.bytes.read(&mut room[..len])
    }
}

fn in_sequence(bytes: &[u8], props: &ReadProps) -> Outcome {
    outcome(Reader::open(bytes, "log.csv", props))
}

fn in_parallel(bytes: &[u8], props: &ReadProps, at: usize, block_bytes: usize, threads: usize) -> Outcome {
    let input = SplitAt { bytes: Cursor::new(bytes.to_vec()), at: at as u64 };
    outcome(ParallelReader::open(input, "log.csv", props, &ParallelProps { threads, block_bytes }))
}

/// Rows that a thread parses by itself, around midnight and with times that run backwards.
fn plain_log() -> impl Strategy<Value = String> {
    let second = prop_oneof![0..3u32, 43_190..43_210u32, 86_390..86_400u32, 0..86_400u32];
    let row = (second, 0..1_000_000u32, any::<u32>(), 0..4u8);
    let odd = prop::option::weighted(
        0.02,
        prop_oneof![Just(""), Just("x"), Just("Thread,Time,Action,Pointer,Size,Stream")],
    );
    proptest::collection::vec((row, 1..6usize, odd), 0..60).prop_map(|rows| {
        let mut text = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
        for ((second, micros, number, act), repeat, odd) in rows {
            for step in 0..repeat {
                let (hour, minute) = (second / 3600, second / 60 % 60);
                let micros = (micros as usize + step) % 1_000_000;
                let act = ["allocate", "free", "allocate failure", "deallocate"][usize::from(act)];
                let _ = writeln!(
                    text,
                    "{},{hour:02}:{minute:02}:{:02}.{micros:06},{act},0x7f{number:010x},{number},0x0",
                    number % 7,
                    second % 60,
                );
            }
            if let Some(odd) = odd {
                let _ = writeln!(text, "{odd}");
            }
        }
        text
    })
}

fn assert_same(text: &str, split: prop::sample::Index, block_bytes: usize, threads: usize, cut: usize) {
    let bytes = &text.as_bytes()[..text.len() - cut.min(text.len())];
    let at = split.index(bytes.len() + 1);
    let dated = ReadProps { date: Date::parse("2026-07-01"), ..lenient() };
    for props in [strict(), lenient(), dated] {
        assert_eq!(
            in_parallel(bytes, &props, at, block_bytes, threads),
            in_sequence(bytes, &props),
            "{text}"
        );
    }
}

proptest! {
    #[test]
    fn any_split_of_a_messy_log_gives_the_same(
        text in messy_log(),
        split in any::<prop::sample::Index>(),
        block_bytes in 1..600usize,
        threads in 1..4usize,
        cut in prop_oneof![3 => Just(0usize), 1 => 1..40usize],
    ) {
        assert_same(&text, split, block_bytes, threads, cut);
    }

    #[test]
    fn any_split_of_a_log_of_rows_gives_the_same(
        text in plain_log(),
        split in any::<prop::sample::Index>(),
        block_bytes in 1..2000usize,
        threads in 1..4usize,
        cut in prop_oneof![3 => Just(0usize), 1 => 1..40usize],
    ) {
        assert_same(&text, split, block_bytes, threads, cut);
    }
}

#[test]
fn every_byte_of_a_log_may_be_the_end_of_a_block() {
    let text = log("epoch.csv");
    let text = &text[..text.len().min(600)];
    for block_bytes in 1..=text.len() {
        assert_eq!(in_parallel(text, &lenient(), block_bytes, block_bytes, 2), in_sequence(text, &lenient()));
    }
}

#[test]
fn every_fixture_reads_the_same_in_blocks() {
    for entry in std::fs::read_dir(folder()).expect("the fixtures") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        let bytes = log(&name);
        for props in [strict(), lenient()] {
            assert_eq!(in_parallel(&bytes, &props, 5000, 3000, 3), in_sequence(&bytes, &props), "{name}");
        }
    }
}

/// A line that is longer than a row can be is not held in memory, and what follows it is read.
#[test]
fn a_line_without_end_is_passed_over() {
    let row = "1,10:00:00.000001,allocate,0x7f0000000000,16,0\n";
    let mut text = format!("Thread,Time,Action,Pointer,Size,Stream\n{}", row.repeat(8000));
    text.push_str(&"x".repeat(3 << 20));
    text.push('\n');
    text.push_str(&row.repeat(8000));
    let found = in_parallel(text.as_bytes(), &lenient(), 1, 10_000, 2);
    assert_eq!(found, in_sequence(text.as_bytes(), &lenient()));
    assert_eq!(found.0.len(), 16_000);
}

/// Gives rows for ever.
struct Endless {
    given: usize,
}

impl Read for Endless {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let row = b"1,10:00:00.000001,allocate,0x7f0000000000,16,0\n";
        for byte in room.iter_mut() {
            *byte = row[self.given % row.len()];
            self.given += 1;
        }
        Ok(room.len())
    }
}

#[test]
fn threads_read_only_so_far_ahead_and_end_with_the_reader() {
    let input = Cursor::new(b"Thread,Time,Action,Pointer,Size,Stream\n".to_vec()).chain(Endless { given: 0 });
    let props = ParallelProps { threads: 3, block_bytes: 4700 };
    let mut reader = ParallelReader::open(input, "log.csv", &strict(), &props).expect("a header");
    let mut batch = EventBatch::new();
    for _ in 0..500 {
        assert!(reader.next(&mut batch).expect("a batch"));
    }
    drop(reader);
}
