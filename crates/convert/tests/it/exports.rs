//! Profiles and traces for other tools: what is written follows the rules of its format and comes back.

use std::io::Read as _;
use std::path::Path;

use floodmark_convert::chrome::ChromeWriter;
use floodmark_convert::{OpenProps, StackTotals, pprof, speedscope};
use floodmark_event::tables::Frame;
use floodmark_event::{Event, ProcessId, ScopeAction, ScopeRow, StackId, StringId, Tables};
use proptest::prelude::*;
use serde_json::Value;

use crate::snapshots::drain;

const HOSTILE: &str = "evil\u{1b}[31m\u{202e}\0\n</script>\"';";

/// The same without what acts.
const CLEANED: &str = "evil [31m   </script>\"';";

/// Frames by number, the last of them hostile.
fn tables(stacks: &[Vec<u8>]) -> (Tables, Vec<StackId>) {
    let mut tables = Tables::default();
    let ids = stacks
        .iter()
        .map(|path| {
            path.iter().fold(StackId(0), |parent, number| {
                let (name, file) = match number {
                    // Nothing is known of it but its address.
                    0 => (String::new(), String::new()),
                    4 => (HOSTILE.to_owned(), "4.py".to_owned()),
                    number => (format!("f{number}"), format!("{number}.py")),
                };
                let frame = Frame {
                    function: tables.intern(&name),
                    file: tables.intern(&file),
                    line: u32::from(*number),
                    module: tables.intern(if *number % 2 == 0 { "lib.so" } else { "" }),
                    address: u64::from(*number) << 12,
                };
                let frame = tables.intern_frame(frame);
                tables.intern_stack(parent, frame)
            })
        })
        .collect();
    (tables, ids)
}

fn weighed(stack: StackId, bytes: u64) -> StackTotals {
    let steps = if stack.0 == 0 { vec!["thread 7".to_owned(), HOSTILE.to_owned()] } else { Vec::new() };
    StackTotals { stack, steps, held: [bytes, 1], left: [bytes / 2, 1], allocated: [bytes * 3, 3] }
}

proptest! {
    #[test]
    fn a_profile_for_pprof_comes_back_with_its_stacks(
        paths in proptest::collection::vec(proptest::collection::vec(0..5u8, 0..6), 0..8),
        bytes in proptest::collection::vec(0..1u64 << 40, 8),
    ) {
        let (tables, ids) = tables(&paths);
        let stacks: Vec<_> = ids.iter().zip(&bytes).map(|(id, bytes)| weighed(*id, *bytes)).collect();
        let mut zipped = Vec::new();
        let props = pprof::ProfileProps { time_ns: Some(77), duration_ns: 5, comment: HOSTILE };
        pprof::write(&mut zipped, &props, &stacks, &tables).unwrap();
        let mut profile = Vec::new();
        flate2::read::GzDecoder::new(&zipped[..]).read_to_end(&mut profile).unwrap();
        prop_assert!(!profile.windows(2).any(|bytes| bytes == b"\x1b["));
        let read = drain(pprof::open(&profile[..], Path::new("p"), &OpenProps::default()).unwrap());
        prop_assert_eq!(read.events.len(), stacks.len());
        for (event, stack) in read.events.iter().zip(&stacks) {
            prop_assert_eq!((event.bytes, event.time_ns), (stack.held[0], 77));
            if stack.stack.0 != 0 {
                let texts = |tables: &Tables, stack| -> Vec<(String, String)> {
                    let module = |frame: Frame| tables.string(frame.module).to_owned();
                    let text = |frame: Frame| (tables.frame_text(&frame), module(frame));
                    tables.frames_of(stack).map(text).collect()
                };
                let mut original = texts(&tables, stack.stack);
                for (text, _) in &mut original {
                    *text = text.replace(HOSTILE, CLEANED);
                }
                prop_assert_eq!(texts(&read.tables, event.stack), original);
            }
        }
    }

    #[test]
    fn a_profile_for_speedscope_adds_up(
        paths in proptest::collection::vec(proptest::collection::vec(0..5u8, 0..6), 0..8),
        bytes in proptest::collection::vec(0..1u64 << 40, 8),
    ) {
        let (tables, ids) = tables(&paths);
        let stacks: Vec<_> = ids.iter().zip(&bytes).map(|(id, bytes)| weighed(*id, *bytes)).collect();
        let mut out = Vec::new();
        let names = speedscope::Names { file: HOSTILE, held: "live at the peak" };
        speedscope::write(&mut out, names, &stacks, &tables).unwrap();
        prop_assert!(!out.contains(&0x1b));
        let file: Value = serde_json::from_slice(&out).unwrap();
        prop_assert_eq!(file["name"].as_str(), Some(HOSTILE));
        let frames = file["shared"]["frames"].as_array().unwrap();
        prop_assert!(frames.iter().all(|frame| frame["name"].is_string()));
        let values: [fn(&StackTotals) -> u64; 3] = [|s| s.held[0], |s| s.left[0], |s| s.allocated[0]];
        for (number, of) in values.into_iter().enumerate() {
            let profile = &file["profiles"][number];
            let (samples, weights) = (profile["samples"].as_array().unwrap(), profile["weights"].as_array().unwrap());
            prop_assert_eq!(samples.len(), weights.len());
            let total: u64 = stacks.iter().map(of).sum();
            prop_assert_eq!(weights.iter().map(|weight| weight.as_u64().unwrap()).sum::<u64>(), total);
            prop_assert_eq!(profile["endValue"].as_u64(), Some(total));
            let indexes = samples.iter().flat_map(|sample| sample.as_array().unwrap());
            prop_assert!(indexes.into_iter().all(|at| (at.as_u64().unwrap() as usize) < frames.len()));
        }
    }

    /// Scopes entered and left in any order, on any thread, by any clock.
    #[test]
    fn scopes_have_their_times_and_those_of_a_thread_lie_within_one_another(
        steps in proptest::collection::vec((0..3u64, 0..6u64, any::<bool>(), 0..9i64), 0..40),
        goes_back in any::<bool>(),
    ) {
        let mut open = std::collections::BTreeMap::new();
        let (mut out, mut expected, mut unmatched, mut last_us) = (Vec::new(), Vec::new(), 0, 0);
        let mut writer = ChromeWriter::begin(&mut out, 1000).unwrap();
        for (at, (thread, scope, enters, back)) in steps.iter().enumerate() {
            let time_us = (at as i64 * 2 - if goes_back { *back } else { 0 }).max(0);
            let row = ScopeRow {
                time_ns: 1000 + time_us * 1000,
                process: ProcessId(1),
                thread: *thread,
                action: if *enters { ScopeAction::Enter } else { ScopeAction::Exit },
                scope: *scope,
                parent: 0,
                name: StringId(0),
            };
            writer.scope(9, &row, HOSTILE).unwrap();
            let left = open.remove(scope);
            if *enters || left.is_some() {
                last_us = last_us.max(time_us);
            } else {
                unmatched += 1;
            }
            expected.extend(left.map(|(thread, from)| (thread, from, time_us)));
            if *enters {
                open.insert(*scope, (*thread, time_us));
            }
        }
        expected.extend(open.into_values().map(|(thread, from)| (thread, from, last_us)));
        prop_assert_eq!(writer.finish(&Tables::default()).unwrap(), unmatched);
        let file: Value = serde_json::from_slice(&out).unwrap();
        let events = file["traceEvents"].as_array().unwrap();
        let us = |event: &Value, key: &str| event[key].as_f64().unwrap() as i64;
        let (mut nested, mut begun, mut found) = (Vec::new(), std::collections::BTreeMap::new(), Vec::new());
        for event in events {
            let (tid, from) = (event["tid"].as_u64().unwrap(), us(event, "ts"));
            let id = event["id2"]["local"].as_str().unwrap_or_default().to_owned();
            match event["ph"].as_str().unwrap() {
                "X" => {
                    nested.push((tid, from, from + us(event, "dur")));
                    found.push((tid, from, from + us(event, "dur")));
                }
                "b" => prop_assert!(begun.insert(id, from).is_none()),
                "e" => found.push((tid, begun.remove(&id).unwrap(), from)),
                other => panic!("{other}"),
            }
        }
        prop_assert!(begun.is_empty());
        for (at, (tid, from, to)) in nested.iter().enumerate() {
            prop_assert!(from <= to);
            for (other_tid, other_from, other_to) in &nested[..at] {
                let (inner, apart) = (from <= other_from && other_to <= to, other_to <= from || to <= other_from);
                let outer = other_from <= from && to <= other_to;
                prop_assert!(tid != other_tid || inner || apart || outer, "{nested:?}");
            }
        }
        prop_assert_eq!(found.len(), expected.len());
        if !goes_back {
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn a_trace_for_chrome_keeps_to_the_rules_of_its_format() {
    let (tables, ids) = tables(&[vec![1, 2, 4], vec![1, 3]]);
    let mut out = Vec::new();
    let mut writer = ChromeWriter::begin(&mut out, 1_000).unwrap();
    writer.process(7, HOSTILE).unwrap();
    writer.counter(7, "live device memory", 1_500, 4096).unwrap();
    let mark = ScopeRow {
        time_ns: 3_000,
        process: ProcessId(1),
        thread: 8,
        action: ScopeAction::Mark,
        scope: 0,
        parent: 0,
        name: StringId(0),
    };
    writer.scope(7, &mark, "epoch 1").unwrap();
    writer.scope(7, &ScopeRow { action: ScopeAction::Exit, scope: 99, ..mark }, "").unwrap();
    let event =
        Event { time_ns: 2_001, address: 0xabc, bytes: 64, stack: ids[0], thread: 8, ..Event::default() };
    writer.event(7, &event, &tables).unwrap();
    assert_eq!(writer.finish(&tables).unwrap(), 1, "a scope was left that had not been entered");
    let text = String::from_utf8(out).unwrap();
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    let file: Value = serde_json::from_str(&text).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    for event in events {
        assert!(event["ph"].is_string() && event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        assert!(event["ph"] == "M" || event["ts"].is_number(), "{event}");
    }
    assert_eq!(events[0]["args"]["name"], HOSTILE);
    assert_eq!((&events[1]["args"]["bytes"], &events[1]["ts"]), (&4096.into(), &0.5.into()));
    assert_eq!(
        (&events[2]["ph"], &events[2]["s"], &events[2]["name"]),
        (&"i".into(), &"p".into(), &"epoch 1".into())
    );
    // A stack leads from frame to frame up to one without a parent.
    let (frames, mut at, mut names) = (&file["stackFrames"], events[3]["sf"].to_string(), Vec::new());
    while let Some(frame) = frames.get(&at) {
        names.push(frame["name"].as_str().unwrap().to_owned());
        at = frame["parent"].as_str().unwrap_or("none").to_owned();
    }
    assert_eq!((names.len(), names[2].as_str()), (3, "f1 (1.py:1)"));
    assert_eq!(file["otherData"]["start_time_ns"], "1000");
}
