//! Traces of PyTorch's profiler, and memory profiles as JAX writes them.

use std::fs;
use std::path::Path;

use floodmark_convert::{EventsAndRows, Mode, OpenProps, kineto, pprof};
use floodmark_event::{Action, BEFORE_CAPTURE, Kind, Metric, NO_DEVICE, ScopeAction};
use proptest::prelude::*;

use crate::logs::gaps;
use crate::snapshots::{Read, drain, lenient};

type Open = fn(&[u8], &Path, &OpenProps) -> floodmark_store::Result<EventsAndRows>;
const KINETO: Open = |bytes, path, props| kineto::open(bytes, path, props);
const PPROF: Open = |bytes, path, props| pprof::open(bytes, path, props);

fn read(open: Open, bytes: &[u8]) -> Read {
    drain(open(bytes, Path::new("file"), &OpenProps::default()).expect("a good file"))
}

fn error(open: Open, bytes: &[u8]) -> String {
    open(bytes, Path::new("file"), &OpenProps::default()).err().expect("a bad file").to_string()
}

const TRACE: &str = r#"{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
  "traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 8, "ts": 10.0, "dur": 5, "args": {"Bytes": "no"}},
    {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, "tid": 8, "ts": 20.5,
     "args": {"Total Reserved": 2097152, "Total Allocated": 1536, "Bytes": 512, "Addr": 140000000001024, "Device Id": 0, "Device Type": 1}},
    {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, "tid": 8, "ts": 12.25,
     "args": {"Total Reserved": 2097152, "Total Allocated": 1024, "Bytes": 1024, "Addr": 140000000000000, "Device Id": 0, "Device Type": 1}},
    {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, "tid": 9, "ts": 21,
     "args": {"Total Reserved": 0, "Total Allocated": 64, "Bytes": 64, "Addr": 94000000000000, "Device Id": -1, "Device Type": 0}},
    {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, "tid": 8, "ts": 30,
     "args": {"Total Reserved": 2097152, "Total Allocated": 512, "Bytes": -1024, "Addr": 140000000000000, "Device Id": 0, "Device Type": 1}},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 7, "tid": 8, "ts": 11, "dur": 19},
    {"ph": "X", "cat": "user_annotation", "name": "forward", "pid": 7, "tid": 8, "ts": 12, "dur": 3},
    {"name": "process_name", "ph": "M", "ts": 0, "pid": 7, "args": "none"}, 17, null, [1, {}]
  ],
  "traceName": "trace.json", "displayTimeUnit": "ms", "baseTimeNanoseconds": 1794724185000000000
}"#;

#[test]
fn memory_of_a_profilers_trace_is_in_order_and_counts_from_its_base() {
    let read = read(KINETO, TRACE.as_bytes());
    let seen: Vec<_> = read.events.iter().map(|event| (event.time_ns, event.action, event.bytes)).collect();
    let base = 1_794_724_185_000_000_000;
    assert_eq!(
        seen,
        [
            (base + 12_250, Action::Alloc, 1024),
            (base + 20_500, Action::Alloc, 512),
            (base + 21_000, Action::Alloc, 64),
            (base + 30_000, Action::Free, 1024),
        ]
    );
    assert_eq!(read.level(Kind::Device, 0), (1536, 512));
    assert_eq!(read.level(Kind::Pageable, NO_DEVICE), (64, 64));
    assert_eq!(read.samples(Metric::Live), [1024, 1536, 64, 512]);
    assert_eq!(read.events[0].thread, 8);
    let enter = ScopeAction::Enter;
    let entered: Vec<_> = read.scopes().into_iter().filter(|(action, _)| *action == enter).collect();
    assert_eq!(entered, [(enter, "ProfilerStep#1"), (enter, "forward")]);
    assert!(read.losses.is_empty());
}

#[test]
fn a_profilers_trace_may_be_a_bare_list() {
    let list =
        &TRACE[TRACE.find("[\n").expect("the list")..TRACE.find(",\n  \"traceName\"").expect("its end")];
    assert_eq!(read(KINETO, list.as_bytes()).events.len(), 4);
}

#[test]
fn a_damaged_profilers_trace_is_an_error_or_is_read_up_to_the_damage() {
    let cut = &TRACE.as_bytes()[..TRACE.find("user_annotation").expect("a range")];
    assert!(error(KINETO, cut).starts_with("file:line 14, column "), "{}", error(KINETO, cut));
    let read = drain(KINETO(cut, Path::new("file"), &lenient()).expect("lenient"));
    assert_eq!(read.events.len(), 4);
    let reason = "what follows the place where the file ends too early or is damaged";
    assert_eq!(gaps(&read.losses), [(0, reason)]);
    let odd = TRACE.replace("\"Bytes\": 512", "\"Bytes\": 1e300");
    assert_eq!(error(KINETO, odd.as_bytes()), "file:traceEvents: 1 [memory] events lack Addr, Bytes or ts");
    let none = br#"{"schemaVersion": 1, "traceEvents": []}"#;
    assert!(error(KINETO, none).contains("record with profile_memory=True"));
    let deep = ["{\"traceEvents\":[", &"[".repeat(100_000)].concat();
    assert!(error(KINETO, deep.as_bytes()).starts_with("file:line 1"));
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn message(field: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// A profile of two buffers and a program, as JAX would write it.
fn profile() -> Vec<u8> {
    let strings = [
        "",
        "allocations",
        "count",
        "space",
        "bytes",
        "kind",
        "buffer",
        "executable",
        "device",
        "cuda:1",
        "train",
        "/app/train.py",
        "load",
        "cuda:0",
    ];
    let sort = |kind, unit| message(1, &[number(1, kind), number(2, unit)].concat());
    let label = |key, text| message(3, &[number(1, key), number(2, text)].concat());
    let function = |id, name| message(5, &[number(1, id), number(2, name), number(4, 11)].concat());
    let line = |function, line| message(4, &[number(1, function), number(2, line)].concat());
    let mut bytes = [sort(1, 2), sort(3, 4)].concat();
    // Packed, packed and one by one.
    let values = |count, space| message(2, &[varint(count), varint(space)].concat());
    let both = message(1, &[varint(1), varint(2)].concat());
    bytes.extend(message(2, &[both.clone(), values(3, 3000), label(5, 6), label(8, 9)].concat()));
    bytes.extend(message(2, &[number(1, 2), values(1, 100), label(5, 6), label(8, 13)].concat()));
    bytes.extend(message(2, &[both, number(2, 1), number(2, 77), label(5, 7), label(8, 9)].concat()));
    bytes.extend(message(4, &[number(1, 1), line(1, 10)].concat()));
    bytes.extend(message(4, &[number(1, 2), line(2, 20)].concat()));
    bytes.extend([function(1, 10), function(2, 12)].concat());
    bytes.extend(strings.iter().flat_map(|text| message(6, text.as_bytes())));
    bytes.extend(number(9, 1_794_724_185_000_000_000));
    bytes
}

#[test]
fn a_memory_profile_is_the_live_set_of_one_instant() {
    let read = read(PPROF, &profile());
    assert!(read.events.iter().all(|event| event.time_ns == 1_794_724_185_000_000_000));
    assert_eq!(read.level(Kind::Device, 1), (3000, 3000));
    assert_eq!(read.level(Kind::Device, 0), (100, 100));
    assert_eq!(read.level(Kind::Static, 1), (77, 77));
    let stack = read.tables.stack_text(read.events[0].stack);
    assert_eq!(stack, ["train (/app/train.py:10)", "load (/app/train.py:20)"]);
    assert_eq!(read.scopes()[0], (ScopeAction::Enter, BEFORE_CAPTURE));
}

#[test]
fn a_damaged_memory_profile_is_an_error_that_says_where() {
    let bytes = profile();
    assert!(error(PPROF, &bytes[..bytes.len() - 3]).contains("the message ends in the middle of a field"));
    assert!(error(PPROF, b"\x0a\x02\x08\x05\x0f").starts_with("file:byte 4: there is no type 7 of fields"));
    let wrong = [&profile()[..], &message(2, &number(2, 5))].concat();
    assert!(error(PPROF, &wrong).ends_with("a sample has too few values"));
    let read = drain(PPROF(&wrong, Path::new("file"), &lenient()).expect("lenient"));
    assert_eq!(gaps(&read.losses), [(1, "malformed samples skipped")]);
    let cpu = profile().windows(5).position(|bytes| bytes == b"space").expect("a sort");
    let mut other = profile();
    other[cpu..cpu + 5].copy_from_slice(b"cputi");
    assert!(error(PPROF, &other).contains("it is a profile of 'allocations, cputi'"));
}

#[test]
fn a_profile_cannot_make_more_stacks_than_it_has_bytes_for() {
    // A location of many lines, called from another place by each of many samples.
    let line = |line| message(4, &[number(1, 1), number(2, line)].concat());
    let lines: Vec<u8> = (0..600).flat_map(line).collect();
    let mut bytes = profile();
    bytes.extend(message(4, &[number(1, 9), lines].concat()));
    let places = 10..5000_u64;
    for place in places.clone() {
        bytes.extend(message(4, &[number(1, place), line(place)].concat()));
        let called = message(1, &[varint(9), varint(place)].concat());
        bytes.extend(message(2, &[called, message(2, &[varint(1), varint(8)].concat())].concat()));
    }
    let read = read(PPROF, &bytes);
    assert_eq!(read.events.len(), 3 + places.count());
    let [(left_out, reason)] = gaps(&read.losses)[..] else { panic!("{:?}", read.losses) };
    assert!(left_out > 1000 && reason.starts_with("a stack was left out"), "{left_out} {reason}");
}

#[test]
fn every_seed_of_the_fuzzers_is_read_without_panic() {
    for (name, open) in [("kineto", KINETO), ("pprof", PPROF)] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let seeds: Vec<_> = fs::read_dir(folder).expect("the seeds").collect();
        assert!(!seeds.is_empty());
        for seed in seeds {
            check(open, &fs::read(seed.expect("an entry").path()).expect("a seed"));
        }
    }
}

fn check(open: Open, bytes: &[u8]) {
    for mode in [Mode::Strict, Mode::Lenient] {
        if let Ok(halves) = open(bytes, Path::new("file"), &OpenProps { mode, ..OpenProps::default() }) {
            drain(halves);
        }
    }
}

proptest! {
    #[test]
    fn damaged_profiles_are_read_or_refused(flips in proptest::collection::vec((any::<usize>(), 0u8..8), 1..6)) {
        for (open, mut bytes) in [(KINETO, TRACE.as_bytes().to_vec()), (PPROF, profile())] {
            for (at, bit) in &flips {
                let at = at % bytes.len();
                bytes[at] ^= 1 << bit;
            }
            check(open, &bytes);
        }
    }
}
