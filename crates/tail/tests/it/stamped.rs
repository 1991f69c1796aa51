//! Times and threads that are given, ranges that do not nest, calls and devices come out as they went in.
#![expect(
    unsafe_code,
    reason = "forks, as the programs we record do, and keeps a lane, as injected code does"
)]

use std::collections::BTreeMap;

use floodmark_event::{Action, CallAction, Metric, StackId, StringId, SubjectId};
use floodmark_tail::clock::monotonic_ns;
use floodmark_tail::record::{Decoder, Record};
use floodmark_tail::{
    AllocDomain, BlockEvent, Call, RangeId, RecordProps, Recorder, Stamp, When, calibrate, event_on, global,
    is_nearly_full, make_room_on, ticks,
};
use proptest::prelude::*;

use crate::tailing::{TestTrace as Folder, chunks_of};

/// One call of the recorder.
#[derive(Clone, Debug)]
enum Step {
    Alloc {
        address: u64,
        stream: u64,
    },
    AllocAt {
        address: u64,
        stream: u64,
        time: u64,
        thread: Option<u64>,
    },
    FreeAt {
        address: u64,
        time: u64,
        thread: Option<u64>,
    },
    Mark {
        name: u32,
        time: Option<u64>,
    },
    Enter {
        name: u32,
        time: Option<u64>,
    },
    Exit {
        time: Option<u64>,
    },
    Begin {
        name: u32,
        time: Option<u64>,
        thread: Option<u64>,
    },
    End {
        time: Option<u64>,
        thread: Option<u64>,
    },
    Call {
        action: usize,
        code: u32,
        line: u32,
        rss_pages: Option<u64>,
        time: Option<u64>,
        thread: Option<u64>,
    },
    Sample {
        time: u64,
    },
}

/// What a record says, without its time. Threads are `None` for the recording one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Event { action: Action, address: u64, stream: u64, thread: Option<u64>, scope: u32 },
    Mark { name: u32 },
    Enter { scope: u32, parent: u32, name: u32 },
    Exit { scope: u32 },
    Begin { range: u32, name: u32, thread: Option<u64> },
    End { range: u32, thread: Option<u64> },
    Call { call: Call, thread: Option<u64> },
    Sample,
}

fn when(time: Option<u64>) -> When {
    time.map_or(When::Now, When::At)
}

fn stamp(time: Option<u64>, thread: Option<u64>) -> Stamp {
    Stamp { when: when(time), thread }
}

/// Records all steps; returns what must come back, with the time where it was given.
fn record(recorder: &Recorder, steps: &[Step]) -> Vec<(Option<u64>, Said)> {
    let mut expected = Vec::new();
    // Scopes that are open on this thread, the innermost last; what `enter_scope` returned with each.
    let mut open: Vec<(u32, u32)> = Vec::new();
    let mut ranges: Vec<RangeId> = Vec::new();
    let (mut scopes, mut rss) = (0, None);
    for step in steps {
        let scope = open.last().map_or(0, |(scope, _)| *scope);
        let domain = |stream| AllocDomain { stream, ..AllocDomain::default() };
        let event = |action, address, stream, thread: Option<u64>| {
            // Which scope another thread is in is not known.
            Said::Event { action, address, stream, thread, scope: if thread.is_some() { 0 } else { scope } }
        };
        let (time, said) = match step.clone() {
            Step::Alloc { address, stream } => {
                recorder.alloc(address, 1, &domain(stream), StackId(0));
                (None, event(Action::Alloc, address, stream, None))
            }
            Step::AllocAt { address, stream, time, thread } => {
                recorder.alloc_at(address, 1, &domain(stream), StackId(0), stamp(Some(time), thread));
                (Some(time), event(Action::Alloc, address, stream, thread))
            }
            Step::FreeAt { address, time, thread } => {
                recorder.free_at(address, 1, &domain(0), stamp(Some(time), thread));
                (Some(time), event(Action::Free, address, 0, thread))
            }
            Step::Mark { name, time } => {
                recorder.mark_at(StringId(name), when(time));
                (time, Said::Mark { name })
            }
            Step::Enter { name, time } => {
                let outer = recorder.enter_scope_at(StringId(name), when(time));
                assert_eq!(outer, scope);
                scopes += 1;
                open.push((scopes, outer));
                (time, Said::Enter { scope: scopes, parent: outer, name })
            }
            Step::Exit { time } => {
                let Some((scope, outer)) = open.pop() else { continue };
                recorder.exit_scope_at(outer, when(time));
                (time, Said::Exit { scope })
            }
            Step::Begin { name, time, thread } => {
                scopes += 1;
                let range = recorder.begin_range_at(StringId(name), stamp(time, thread));
                assert_eq!(range, RangeId(scopes));
                ranges.push(range);
                (time, Said::Begin { range: scopes, name, thread })
            }
            Step::End { time, thread } => {
                if ranges.is_empty() {
                    continue;
                }
                // The oldest first: ranges overlap.
                let range = ranges.remove(0);
                recorder.end_range_at(range, stamp(time, thread));
                (time, Said::End { range: range.0, thread })
            }
            Step::Call { action, code, line, rss_pages, time, thread } => {
                let rss_bytes = rss_pages.map(|pages| pages * 4096);
                let call = Call { action: CallAction::ALL[action], code, line, rss_bytes };
                recorder.call_at(&call, stamp(time, thread));
                rss = rss_bytes.or(rss);
                (time, Said::Call { call: Call { rss_bytes: rss, ..call }, thread })
            }
            Step::Sample { time } => {
                recorder.sample(SubjectId(1), Metric::Rss, time, When::At(time));
                (Some(time), Said::Sample)
            }
        };
        expected.push((time, said));
    }
    expected
}

/// Reads everything of the one lane that was written; checks that chunks in which time goes back say so.
fn read(folder: &Folder) -> Vec<(u64, Said)> {
    let chunks = chunks_of(&folder.path, &mut Vec::new());
    let own_threads: Vec<u64> = chunks
        .values()
        .filter(|chunk| chunk.lane != 0)
        .map(|chunk| {
            let payload = &chunk.payload;
            // The first record of a chunk is its thread.
            assert_eq!(payload[0], 2 << 2 | 3);
            let len = usize::from(payload[1]);
            payload[3..3 + len].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
        })
        .collect();
    let own = own_threads[0];
    assert!(own_threads.iter().all(|thread| *thread == own));
    let mut all = Vec::new();
    let mut latest = 0;
    for chunk in chunks.values().filter(|chunk| chunk.lane != 0) {
        let mut decoder = Decoder::new(chunk.base_time_ns);
        let other = |thread: u64| (thread != own).then_some(thread);
        let mut goes_back = false;
        while let Some(record) = decoder.next(&chunk.payload).expect("sound records") {
            let (time, said) = match record {
                Record::Event(event) => {
                    let said = Said::Event {
                        action: event.action,
                        address: event.address,
                        stream: event.stream,
                        thread: other(event.thread),
                        scope: event.scope as u32,
                    };
                    (event.time_ns as u64, said)
                }
                Record::Mark { time_ns, name, thread } => {
                    assert_eq!(thread, own);
                    (time_ns, Said::Mark { name: name.0 })
                }
                Record::EnterScope { time_ns, scope, parent, name, thread } => {
                    assert_eq!(thread, own);
                    (time_ns, Said::Enter { scope, parent, name: name.0 })
                }
                Record::ExitScope { time_ns, scope, thread } => {
                    assert_eq!(thread, own);
                    (time_ns, Said::Exit { scope })
                }
                Record::BeginRange { time_ns, scope, name, thread } => {
                    (time_ns, Said::Begin { range: scope, name: name.0, thread: other(thread) })
                }
                Record::EndRange { time_ns, scope, thread } => {
                    (time_ns, Said::End { range: scope, thread: other(thread) })
                }
                Record::Call { time_ns, thread, call } => {
                    (time_ns, Said::Call { call, thread: other(thread) })
                }
                Record::Sample { time_ns, .. } => (time_ns, Said::Sample),
                record => panic!("{record:?}"),
            };
            if said != Said::Sample {
                goes_back |= time < latest;
                latest = latest.max(time);
            }
            all.push((time, said));
        }
        assert!(!goes_back || chunk.is_disordered, "time goes back in a chunk that does not say so");
        assert_eq!(decoder.skipped, 0);
    }
    all
}

fn time() -> impl Strategy<Value = u64> {
    let now = monotonic_ns();
    prop_oneof![now - 1_000_000..now + 1_000_000, 1u64..1 << 62]
}

fn thread() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![2 => Just(None), 1 => (1u64 << 40..(1 << 40) + 3).prop_map(Some)]
}

fn maybe<T: std::fmt::Debug + Clone>(some: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    prop_oneof![Just(None), some.prop_map(Some)]
}

fn step() -> impl Strategy<Value = Step> {
    let (address, stream, name) = (0u64..1 << 40, 0u64..3, 0u32..1000);
    prop_oneof![
        4 => (address.clone(), stream.clone()).prop_map(|(address, stream)| Step::Alloc { address, stream }),
        3 => (address.clone(), stream, time(), thread())
            .prop_map(|(address, stream, time, thread)| Step::AllocAt { address, stream, time, thread }),
        2 => (address, time(), thread()).prop_map(|(address, time, thread)| Step::FreeAt { address, time, thread }),
        1 => (name.clone(), maybe(time())).prop_map(|(name, time)| Step::Mark { name, time }),
        1 => (name.clone(), maybe(time())).prop_map(|(name, time)| Step::Enter { name, time }),
        1 => maybe(time()).prop_map(|time| Step::Exit { time }),
        1 => (name, maybe(time()), thread()).prop_map(|(name, time, thread)| Step::Begin { name, time, thread }),
        1 => (maybe(time()), thread()).prop_map(|(time, thread)| Step::End { time, thread }),
        4 => (0usize..8, any::<u32>(), any::<u32>(), maybe(0u64..1 << 50), maybe(time()), thread())
            .prop_map(|(action, code, line, rss_pages, time, thread)| Step::Call {
                action, code: code >> (line % 32), line, rss_pages, time, thread
            }),
        1 => time().prop_map(|time| Step::Sample { time }),
    ]
}

/// Checks that everything came back in order, with the time that was given or one between `before` and now.
fn compare(found: &[(u64, Said)], expected: &[(Option<u64>, Said)], before: u64) {
    let after = monotonic_ns();
    assert_eq!(found.len(), expected.len());
    let mut now = before;
    for ((time, said), (given, expected)) in found.iter().zip(expected) {
        assert_eq!(said, expected);
        if let Some(given) = given {
            assert_eq!(time, given, "{said:?}");
        } else {
            assert!((now..=after).contains(time), "{said:?}");
            now = *time;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_is_stamped_comes_back(steps in proptest::collection::vec(step(), 1..200), repeat in 1usize..4) {
        // Repeated often enough, it takes several chunks.
        let steps: Vec<Step> = steps.iter().cycle().take(steps.len() * repeat * repeat * 10).cloned().collect();
        let folder = Folder::new("stamped");
        let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
        let before = monotonic_ns();
        let expected = record(&recorder, &steps);
        recorder.stop();
        if !expected.is_empty() {
            compare(&read(&folder), &expected, before);
        }
    }
}

#[test]
fn samples_that_go_back_do_not_hide_that_an_event_does() {
    // Later than the beginning of the chunk.
    let start = monotonic_ns() + 1_000_000_000;
    for event_ns in [start + 1_000, start + 3_000] {
        let folder = Folder::new("behind_samples");
        let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
        let at = |time_ns| Stamp { when: When::At(time_ns), thread: None };
        recorder.alloc_at(1 << 12, 1, &AllocDomain::default(), StackId(0), at(start + 2_000));
        recorder.sample(SubjectId(1), Metric::Rss, 5, When::At(start - 7_000));
        recorder.sample(SubjectId(1), Metric::Rss, 6, When::At(start - 8_000));
        recorder.alloc_at(2 << 12, 1, &AllocDomain::default(), StackId(0), at(event_ns));
        recorder.stop();
        let chunks = chunks_of(&folder.path, &mut Vec::new());
        let is_disordered = chunks.values().any(|chunk| chunk.lane != 0 && chunk.is_disordered);
        let times: Vec<u64> = read(&folder).iter().map(|(time, _)| *time).collect();
        assert_eq!(times, [start + 2_000, start - 7_000, start - 8_000, event_ns]);
        assert_eq!(is_disordered, event_ns < start + 2_000);
    }
}

#[test]
fn ordinary_recordings_are_in_order() {
    let folder = Folder::new("ordered");
    let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
    for round in 0..100_000u64 {
        recorder.alloc(round << 32, round, &AllocDomain::default(), StackId(0));
    }
    recorder.stop();
    let chunks = chunks_of(&folder.path, &mut Vec::new());
    assert!(chunks.len() > 10);
    assert!(chunks.values().all(|chunk| !chunk.is_disordered));
}

#[test]
fn times_that_were_read_earlier_are_in_order() {
    let folder = Folder::new("read_earlier");
    let recorder = Recorder::start_global(RecordProps::new(&folder.path)).expect("starts");
    calibrate();
    let lane = global().thread_lane();
    let event = |action, address| BlockEvent { action, address, bytes: address, is_named: false };
    for round in 0..100_000u64 {
        // As `realloc` is recorded, which frees the block before it returns.
        // SAFETY: the lane is this thread's.
        unsafe {
            if is_nearly_full(lane) {
                make_room_on(lane);
            }
            let before = Some(ticks());
            assert!(event_on(
                lane,
                event(Action::Free, round << 32),
                &AllocDomain::default(),
                StackId(0),
                before
            ));
            assert!(event_on(
                lane,
                event(Action::Alloc, round << 33),
                &AllocDomain::default(),
                StackId(0),
                None
            ));
        }
    }
    recorder.stop();
    let chunks = chunks_of(&folder.path, &mut Vec::new());
    assert!(chunks.len() > 10);
    let disordered = chunks.values().filter(|chunk| chunk.is_disordered).count();
    assert_eq!(disordered, 0, "of {} chunks", chunks.len());
}

#[test]
fn calls_of_a_busy_program_take_few_bytes_of_the_tail() {
    let folder = Folder::new("calls");
    let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
    let (mut time, count) = (monotonic_ns(), 100_000u64);
    for round in 0..count {
        time += 100 + round % 50;
        let action = if round % 2 == 0 { CallAction::Call } else { CallAction::Return };
        let rss_bytes = Some((25_000 + round / 5000) * 4096);
        let call =
            Call { action, code: 1 + (round / 2 % 300) as u32, line: 10 + round as u32 % 90, rss_bytes };
        recorder.call_at(&call, When::At(time));
    }
    recorder.stop();
    let chunks = chunks_of(&folder.path, &mut Vec::new());
    let bytes: usize = chunks.values().filter(|chunk| chunk.lane != 0).map(|chunk| chunk.payload.len()).sum();
    let each = bytes as f64 / count as f64;
    assert!(each <= 7.1, "{each} bytes for a call");
}

/// Strings and devices that a process defined.
type Definitions = (Vec<String>, Vec<(i32, u32)>);

#[test]
fn devices_are_defined_once_and_again_in_a_forked_child() {
    let folder = Folder::new("devices");
    let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
    recorder.define_device(0, "GPU-aaaa");
    recorder.define_device(1, "GPU-bbbb");
    recorder.define_device(0, "GPU-aaaa");
    recorder.alloc(1, 1, &AllocDomain::default(), StackId(0));
    // SAFETY: the child only records and leaves without running anything of this test program.
    let child = unsafe { libc::fork() };
    if child == 0 {
        recorder.define_device(0, "GPU-bbbb");
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    recorder.stop();
    let mut processes: BTreeMap<String, Definitions> = BTreeMap::new();
    for ((stem, lane, _), chunk) in chunks_of(&folder.path, &mut Vec::new()) {
        let (strings, devices) = processes.entry(stem).or_default();
        let mut decoder = Decoder::new(chunk.base_time_ns);
        while let Some(record) = decoder.next(&chunk.payload).expect("sound records") {
            match record {
                Record::String { text, .. } => strings.push(String::from_utf8_lossy(text).into_owned()),
                Record::Device { device, uuid } => {
                    assert_eq!(lane, 0);
                    devices.push((device, uuid.0));
                }
                _ => {}
            }
        }
    }
    let mut found: Vec<_> = processes.into_values().collect();
    found.sort_by_key(|(_, devices)| devices.len());
    let names = vec!["GPU-aaaa".to_owned(), "GPU-bbbb".to_owned()];
    assert_eq!(found, [(names.clone(), vec![(0, 1), (1, 2)]), (names, vec![(0, 1), (1, 2), (0, 2)])]);
}
