//! Times that go back: whatever a recorder gives, readers get rows in the order of time.

use std::path::Path;

use floodmark_event::{
    CallAction, CallRow, EventBatch, Metric, SampleRow, ScopeAction, ScopeRow, StackId, SubjectId,
};
use floodmark_store::{Run, ScanProps, Sealer, Source as _, Trace};
use floodmark_tail::clock::monotonic_ns;
use floodmark_tail::{AllocDomain, Call, RangeId, RecordProps, Recorder, Stamp, When};
use proptest::prelude::*;

use crate::traces::rows;
use floodmark_testkit::TempDir;

/// One record, at an offset to the start in nanoseconds.
#[derive(Clone, Debug)]
enum Step {
    Alloc { at: i64, thread: Option<u64> },
    Free { at: i64 },
    Range { begin: i64, end: i64 },
    Call { at: i64 },
    Sample { at: i64 },
    Seal,
}

/// Rows that must come back. Events by time and number, ranges likewise, calls by time.
#[derive(Debug, Default)]
struct Expected {
    events: Vec<(u64, u64, Option<u64>)>,
    scopes: Vec<(u64, ScopeAction, u32)>,
    calls: Vec<(u64, u32)>,
    samples: Vec<(u64, u64)>,
}

fn offset() -> impl Strategy<Value = i64> {
    // Near one another, so that many are equal, and far apart.
    prop_oneof![3 => 0i64..200, 2 => -1_000_000i64..1_000_000, 1 => -1_000_000_000i64..1_000_000_000]
}

fn step() -> impl Strategy<Value = Step> {
    let thread = prop_oneof![Just(None), (1u64 << 40..(1 << 40) + 3).prop_map(Some)];
    prop_oneof![
        12 => (offset(), thread).prop_map(|(at, thread)| Step::Alloc { at, thread }),
        6 => offset().prop_map(|at| Step::Free { at }),
        3 => (offset(), offset()).prop_map(|(begin, end)| Step::Range { begin, end }),
        6 => offset().prop_map(|at| Step::Call { at }),
        3 => offset().prop_map(|at| Step::Sample { at }),
        1 => Just(Step::Seal),
    ]
}

/// Records the steps, each as often as `repeat` says, a little later every time. Returns, for each sealing,
/// what was recorded since the one before.
fn record(
    recorder: &Recorder,
    sealer: &mut Sealer,
    steps: &[Step],
    repeat: u64,
    start: u64,
) -> Vec<Expected> {
    let mut sealings = vec![Expected::default()];
    let (mut number, mut ranges) = (0u64, 0u32);
    let domain = AllocDomain::default();
    for round in 0..repeat {
        let time = |at: &i64| start.wrapping_add_signed(*at) + round * 300;
        for step in steps {
            number += 1;
            let expected = sealings.last_mut().expect("one at least");
            match step {
                Step::Alloc { at, thread } => {
                    let stamp = Stamp { when: When::At(time(at)), thread: *thread };
                    recorder.alloc_at(number, 1, &domain, StackId(0), stamp);
                    expected.events.push((time(at), number, *thread));
                }
                Step::Free { at } => {
                    recorder.free_at(number, 1, &domain, When::At(time(at)));
                    expected.events.push((time(at), number, None));
                }
                Step::Range { begin, end } => {
                    ranges += 1;
                    let name = recorder.intern("range");
                    assert_eq!(recorder.begin_range_at(name, When::At(time(begin))), RangeId(ranges));
                    recorder.end_range_at(RangeId(ranges), When::At(time(end)));
                    expected.scopes.push((time(begin), ScopeAction::Begin, ranges));
                    expected.scopes.push((time(end), ScopeAction::End, ranges));
                }
                Step::Call { at } => {
                    let line = number as u32;
                    let call = Call { action: CallAction::Call, code: 0, line, rss_bytes: None };
                    recorder.call_at(&call, When::At(time(at)));
                    expected.calls.push((time(at), line));
                }
                Step::Sample { at } => {
                    recorder.sample(SubjectId(1), Metric::Rss, number, When::At(time(at)));
                    expected.samples.push((time(at), number));
                }
                // Sealed once, whatever the number of repetitions.
                Step::Seal if round == repeat / 2 => {
                    sealer.seal().expect("seals");
                    sealings.push(Expected::default());
                }
                Step::Seal => {}
            }
        }
    }
    sealings
}

/// All rows in the order in which a reader of the whole trace gets them: each sealing sorted, the sealings
/// merged by time.
fn merged<T: Clone>(
    sealings: &[Expected],
    of: impl Fn(&Expected) -> &Vec<T>,
    time: impl Fn(&T) -> u64,
) -> Vec<T> {
    let mut all: Vec<(u64, usize, T)> = Vec::new();
    for (sealing, expected) in sealings.iter().enumerate() {
        all.extend(of(expected).iter().map(|row| (time(row), sealing, row.clone())));
    }
    // Stable: at equal times of one sealing in the order of recording.
    all.sort_by_key(|(time, sealing, _)| (*time, *sealing));
    all.into_iter().map(|(_, _, row)| row).collect()
}

/// Compares what a reader gets with what was recorded.
fn check(path: &Path, sealings: &[Expected], start: u64, live: bool) -> Result<(), TestCaseError> {
    let trace = Trace::open(path).expect("opens");
    prop_assert_eq!(trace.is_live(), live);
    let offset_ns = trace.manifest().clocks[0].utc_offset_ns();
    let utc = |time: u64| time as i64 + offset_ns;

    let expected = merged(sealings, |of| &of.events, |row| row.0);
    let expected: Vec<_> =
        expected.iter().map(|(time, number, thread)| (utc(*time), *number, *thread)).collect();
    let mut scan = trace.scan(&ScanProps::default()).expect("scans");
    let (mut batch, mut found) = (EventBatch::new(), Vec::new());
    let other = |thread: u64| if thread < 1 << 40 { None } else { Some(thread) };
    while scan.next(&mut batch).expect("reads") {
        found.extend(batch.events().map(|event| (event.time_ns, event.address, other(event.thread))));
    }
    prop_assert_eq!(found, expected);

    let expected = merged(sealings, |of| &of.scopes, |row| row.0);
    let expected: Vec<_> =
        expected.iter().map(|(time, action, scope)| (utc(*time), *action, *scope)).collect();
    let found = rows::<ScopeRow>(path, &ScanProps::default());
    let found: Vec<_> = found.iter().map(|row| (row.time_ns, row.action, row.scope as u32)).collect();
    prop_assert_eq!(&found, &expected);
    // From an instant on: nothing is missed because its chunk began before.
    let from_ns = utc(start);
    let later = rows::<ScopeRow>(path, &ScanProps { from_ns: Some(from_ns), ..ScanProps::default() });
    prop_assert_eq!(later.len(), expected.iter().filter(|(time_ns, ..)| *time_ns >= from_ns).count());

    // Calls have whole microseconds. Where sealings meet within one, that is all the order there is.
    let microseconds = |time: u64| utc(time).div_euclid(1000) * 1000;
    let mut expected = merged(sealings, |of| &of.calls, |row| row.0);
    if sealings.len() > 1 {
        expected.sort_by_key(|(time, line)| (microseconds(*time), *line));
    }
    let expected: Vec<_> = expected.iter().map(|(time, line)| (microseconds(*time), *line)).collect();
    let found = rows::<CallRow>(path, &ScanProps::default());
    let mut found: Vec<_> = found.iter().map(|row| (row.time_ns, row.line)).collect();
    if sealings.len() > 1 {
        prop_assert!(found.is_sorted_by_key(|(time_ns, _)| *time_ns));
        found.sort_unstable();
    }
    prop_assert_eq!(found, expected);

    // What a sampler recorded keeps its order.
    if sealings.len() == 1 {
        let expected: Vec<u64> = sealings[0].samples.iter().map(|(_, number)| *number).collect();
        let found = rows::<SampleRow>(path, &ScanProps::default());
        prop_assert_eq!(found.iter().map(|row| row.value).collect::<Vec<_>>(), expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn rows_come_in_the_order_of_their_times(
        steps in proptest::collection::vec(step(), 1..120),
        repeat in prop_oneof![3 => 1u64..4, 1 => 100u64..400],
    ) {
        let folder = TempDir::new("disorder");
        let path = folder.join("a.flood");
        let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
        let mut sealer = Sealer::open(&path, Run::default()).expect("seals");
        sealer.seal().expect("seals");
        let start = monotonic_ns();
        let sealings = record(&recorder, &mut sealer, &steps, repeat, start);
        check(&path, &sealings, start, true)?;
        recorder.stop();
        sealer.finish().expect("seals");
        check(&path, &sealings, start, false)?;
    }
}
