//! Both ways of parsing usual rows give the same.

use floodmark_event::EventBatch;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::{Reading, Usual, WINDOW};
use crate::rmm::rows::Rows;

/// A row of the second that the tests' parsers know, of a usual shape or nearly.
fn row() -> impl Strategy<Value = String> {
    let thread = prop_oneof![8 => 10_000..100_000_u64, 1 => any::<u64>()];
    let second = prop_oneof![20 => Just("12:34:56"), 1 => Just("12:34:57")];
    let decimals = prop_oneof![20 => Just(6_usize), 1 => 5..8_usize];
    let action = prop_oneof![10 => Just("allocate"), 10 => Just("free"), 1 => Just("deallocate"), 1 => Just("allocate failure")];
    let pointer = || {
        prop_oneof![
            15 => (0x1000_0000_0000..=0xffff_ffff_ffff_u64).prop_map(|address| format!("{address:#x}")),
            1 => any::<u64>().prop_map(|address| format!("{address:#x}")),
            1 => (0x1000_0000_0000..=0xffff_ffff_ffff_u64).prop_map(|address| format!("{address:#X}")),
        ]
    };
    let size = (0..18_u32, any::<u64>()).prop_map(|(digits, number)| number % 10_u64.pow(digits + 1));
    let stream = prop_oneof![6 => Just("0".to_owned()), 3 => Just("0x2".to_owned()), 6 => pointer()];
    let end = prop_oneof![30 => Just("\n"), 1 => Just("\r\n"), 1 => Just(" \n"), 1 => Just(",\n")];
    (thread, second, decimals, 0..1_000_000_u32, action, pointer(), size, stream, end).prop_map(
        |(thread, second, decimals, micros, action, address, size, stream, end)| {
            format!("{thread},{second}.{micros:0decimals$},{action},{address},{size},{stream}{end}")
        },
    )
}

/// Rows, with bytes at some places replaced.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => select(&b",:.0x9afAF/g\n\r"[..]), 1 => any::<u8>()];
    let damage = prop_oneof![1 => Just(vec![]), 2 => vec((any::<prop::sample::Index>(), byte), 0..4)];
    (vec(row(), 1..60), damage).prop_map(|(rows, damage)| {
        let mut text = rows.concat().into_bytes();
        for (index, byte) in damage {
            let at = index.index(text.len());
            text[at] = byte;
        }
        text
    })
}

/// Parses `text`, going over rows that are not usual; returns the rows as text, and where each stretch of them ended.
fn rows_of(
    text: &[u8],
    mut read: impl FnMut(&mut Usual, &[u8], usize, &mut Rows) -> usize,
) -> (String, Vec<usize>) {
    let lines_len = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let mut padded = text.to_vec();
    // What follows a text looks like digits, which must not become part of it.
    padded.resize(text.len() + WINDOW, b'0');
    let mut usual = Usual::new();
    usual.note_time(b"12:34:56.000000", 45_296_000_000_000);
    let (mut batch, mut rows) = (EventBatch::new(), Rows::default());
    rows.begin(&mut batch);
    let (mut at, mut stops) = (0, Vec::new());
    while at < lines_len {
        at += read(&mut usual, &padded[at..], lines_len - at, &mut rows);
        stops.push(at);
        // The line that is not usual.
        at += padded[at..].iter().position(|&byte| byte == b'\n').map_or(padded.len(), |end| end + 1);
    }
    rows.finish(&mut batch);
    (format!("{batch:?}"), stops)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn rows_read_many_bytes_at_a_time_are_those_read_one_by_one(text in text()) {
        let wide = rows_of(&text, |usual, text, len, rows| rows.fill(|rows| usual.read(text, len, rows)));
        let single = rows_of(&text, |usual, text, len, rows| {
            rows.fill(|mut rows| {
                let mut reading = Reading { count: 0, at: 0 };
                while usual.read_one(text, len, &mut rows, &mut reading) {}
                (reading.count, reading.at)
            })
        });
        prop_assert_eq!(wide, single);
    }
}
