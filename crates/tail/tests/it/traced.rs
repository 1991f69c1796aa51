//! Calls recorded by the short way come out as they went in, in order and at about the time they happened.

use floodmark_event::{CallAction, StringId};
use floodmark_tail::clock::monotonic_ns;
use floodmark_tail::record::{Decoder, Record};
use floodmark_tail::{Call, RecordProps, Recorder, Stamp, TracedCall, When, calibrate, ticks};
use proptest::prelude::*;

use crate::tailing::{TestTrace, chunks_of};

/// A thread that there is not.
const OTHER: u64 = 1 << 40;
/// By how much a time from the tick counter may be off, at worst, on a machine that is busy with other things.
const SLACK_NS: u64 = 1_000_000;

#[derive(Clone, Debug)]
enum Step {
    Call { action: usize, code: u32, line: u32, rss_pages: u32 },
    CallOfOther { code: u32, rss_pages: u32 },
    Mark { name: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let number = || (any::<u32>(), 0u32..32).prop_map(|(number, shift)| number >> shift);
    let pages = || prop_oneof![4 => 5000u32..5003, 1 => any::<u32>()];
    prop_oneof![
        8 => (0usize..8, number(), number(), pages())
            .prop_map(|(action, code, line, rss_pages)| Step::Call { action, code: code >> 3, line, rss_pages }),
        1 => (0u32..9, pages()).prop_map(|(code, rss_pages)| Step::CallOfOther { code, rss_pages }),
        1 => (0u32..9).prop_map(|name| Step::Mark { name }),
    ]
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Call { call: Call, is_other: bool },
    Mark { name: u32 },
}

fn record(recorder: &Recorder, step: &Step) -> Said {
    match *step {
        Step::Call { action, code, line, rss_pages } => {
            let action = CallAction::ALL[action];
            recorder.traced_call(&TracedCall { action, code, line, rss_pages, ticks: ticks() });
            let rss_bytes = Some(u64::from(rss_pages) * 4096);
            Said::Call { call: Call { action, code, line, rss_bytes }, is_other: false }
        }
        Step::CallOfOther { code, rss_pages } => {
            let rss_bytes = Some(u64::from(rss_pages) * 4096);
            let call = Call { action: CallAction::Call, code, line: 1, rss_bytes };
            recorder.call_at(&call, Stamp::on_thread(OTHER, When::Now));
            Said::Call { call, is_other: true }
        }
        Step::Mark { name } => {
            recorder.mark(StringId(name));
            Said::Mark { name }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn traced_calls_come_back(steps in proptest::collection::vec(step(), 1..300), is_reserved in any::<bool>()) {
        calibrate();
        let folder = TestTrace::new("traced");
        let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
        if is_reserved {
            recorder.reserve_names();
            recorder.reserve_lane();
        }
        let before = monotonic_ns() - SLACK_NS;
        // Often enough to fill more chunks than a lane has.
        let expected: Vec<Said> =
            steps.iter().cycle().take(100_000).map(|step| record(&recorder, step)).collect();
        recorder.stop();
        let after = monotonic_ns() + SLACK_NS;
        let mut found = Vec::new();
        let mut latest = before;
        for chunk in chunks_of(&folder.path, &mut Vec::new()).values().filter(|chunk| chunk.lane != 0) {
            let mut decoder = Decoder::new(chunk.base_time_ns);
            while let Some(record) = decoder.next(&chunk.payload).expect("sound records") {
                let (time, said) = match record {
                    Record::Call { time_ns, thread, call } => (time_ns, Said::Call { call, is_other: thread == OTHER }),
                    Record::Mark { time_ns, name, .. } => (time_ns, Said::Mark { name: name.0 }),
                    record => panic!("{record:?}"),
                };
                assert!((before..=after).contains(&time), "{before} {time} {after}");
                assert!(time >= latest || chunk.is_disordered);
                latest = latest.max(time);
                found.push(said);
            }
            assert_eq!(decoder.skipped, 0);
        }
        assert_eq!(found.len(), expected.len());
        assert!(found == expected, "the first that differs: {:?}", found.iter().zip(&expected).find(|(a, b)| a != b));
    }
}

/// A lane goes on in the middle of a chunk when its thread has ended and another one takes it.
#[test]
fn calls_of_threads_that_share_a_lane_have_their_own_resident_size() {
    calibrate();
    let folder = TestTrace::new("shared-lane");
    let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
    let sizes = [[5000, 5001], [5001, 5001], [4000, 7000]];
    for pages in &sizes {
        let record = || {
            for rss_pages in *pages {
                let (action, ticks) = (CallAction::Call, ticks());
                recorder.traced_call(&TracedCall { action, code: 1, line: 1, rss_pages, ticks });
            }
        };
        std::thread::scope(|scope| scope.spawn(record).join()).expect("does not panic");
    }
    recorder.stop();
    let chunks = chunks_of(&folder.path, &mut Vec::new());
    let mut chunks = chunks.values().filter(|chunk| chunk.lane != 0);
    let (chunk, others) = (chunks.next().expect("a chunk"), chunks.count());
    assert_eq!(others, 0, "the threads share a lane");
    let mut decoder = Decoder::new(chunk.base_time_ns);
    let mut found = Vec::new();
    while let Some(record) = decoder.next(&chunk.payload).expect("sound records") {
        if let Record::Call { call, .. } = record {
            found.push((call.rss_bytes.expect("a size") / 4096) as u32);
        }
    }
    assert_eq!(found, sizes.concat());
}
