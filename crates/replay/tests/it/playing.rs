//! Plays in the order of the log: what they find, and that they find the same every time.

use std::fs::File;
use std::path::Path;

use floodmark_event::{Action, EventBatch, Filter};
use floodmark_replay::Backing;
use floodmark_replay::result::{Played, Spread, Took};
use floodmark_replay::{
    Choice, Lineup, LineupProps, Order, Pace, ReadProps, Reading, Run, RunProps, Script, choose,
};
use floodmark_store::Source as _;

use crate::events::{eight_threads, event, in_time, read, script, workload};

const IN_ORDER: RunProps = RunProps { order: Order::Log, speed: None, repeats: 2 };

fn simulated(bytes: u64) -> Lineup {
    Lineup::open(LineupProps::on(Backing::Simulated { bytes })).unwrap()
}

fn play(script: &Script, lineup: &Lineup, choice: Choice) -> Played {
    Run::new(script, IN_ORDER).play(lineup, choice, &|_| None, &mut |_| {}).unwrap()
}

/// All but times.
fn without_times(played: &Played) -> Played {
    let took = |took: &Took| Took { count: took.count, ..Took::default() };
    Played {
        allocate: took(&played.allocate),
        free: took(&played.free),
        calls_ns: Spread::default(),
        elapsed_ns: Spread::default(),
        ..played.clone()
    }
}

/// The first rows that RMM wrote on an H200.
fn h200() -> Script {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/rmm/rmm_26.10_h200_head.csv");
    let file = File::open(&path).unwrap();
    let props = floodmark_convert::rmm::ReadProps::default();
    let mut log = floodmark_convert::rmm::Reader::open(file, &path, &props).unwrap();
    let mut reading = Reading::new(&ReadProps::default());
    let mut batch = EventBatch::new();
    while log.next(&mut batch).unwrap() {
        assert!(reading.update(&batch).unwrap().is_continue());
    }
    choose(reading.finish().unwrap()).unwrap().0
}

#[test]
fn every_play_of_a_log_finds_the_same() {
    for script in [h200(), workload(eight_threads(20_000))] {
        let lineup = simulated(64 << 30);
        for choice in lineup.available() {
            let first = without_times(&play(&script, &lineup, choice));
            assert_eq!(first.failures, 0, "{choice:?}: {:?}", first.first_failures);
            assert_eq!(first.peak_live_bytes, script.summary().peak_live_bytes, "{choice:?}");
            assert!(first.peak_reserved_bytes >= first.peak_live_bytes, "{choice:?}");
            assert_eq!(first.allocate.count, script.summary().allocations, "{choice:?}");
            assert_eq!(first.free.count, script.summary().frees, "{choice:?}");
            for _ in 0..2 {
                assert_eq!(without_times(&play(&script, &lineup, choice)), first, "{choice:?}");
            }
        }
    }
}

#[test]
fn nothing_is_left_when_a_play_is_over() {
    let script = workload(eight_threads(5_000));
    assert!(script.summary().live_blocks > 0, "some blocks leak");
    // A device that is just large enough for one play at a time would not do for what a play leaves.
    let lineup = simulated(script.summary().peak_rounded_bytes * 2);
    let played = play(&script, &lineup, Choice::Cuda);
    assert_eq!((played.failures, played.allocate.count), (0, script.summary().allocations));
}

#[test]
fn a_request_that_does_not_fit_is_named_and_the_rest_is_played() {
    use Action::{Alloc, Failure, Free};
    let script = script(&in_time([
        event(Alloc, 0x1000, 1000, 1, 0),
        event(Alloc, 0x2000, 1 << 30, 1, 0),
        event(Failure, 0, 1 << 40, 1, 0),
        event(Failure, 0, 256, 1, 0),
        event(Free, 0x2000, 1 << 30, 1, 0),
        event(Alloc, 0x3000, 500, 1, 0),
        event(Free, 0x1000, 1000, 1, 0),
    ]));
    let places = |event: u64| Some(format!("line {}", event + 2));
    let run = Run::new(&script, IN_ORDER);
    let played = run.play(&simulated(1 << 20), Choice::Cuda, &places, &mut |_| {}).unwrap();
    assert_eq!((played.failures, played.would_fit, played.failed_again), (1, 1, 1));
    assert_eq!((played.allocate.count, played.free.count), (3, 1), "the free of what failed is passed over");
    assert_eq!(played.peak_live_bytes, 1500);
    let [failure] = played.first_failures.as_slice() else { panic!("one failure") };
    assert_eq!((failure.event, failure.place.as_deref()), (2, Some("line 3")));
    assert_eq!(
        (failure.request_bytes, failure.live_bytes, failure.cause.as_str()),
        (1 << 30, 1000, "too_large")
    );
    assert_eq!(failure.largest_free_bytes, Some((1 << 20) - 1024));
    assert!(failure.message.contains("cannot allocate 1.00 GiB"), "{}", failure.message);
}

#[test]
fn many_failures_are_all_counted_and_the_first_few_kept() {
    let events: Vec<_> = (1..100u64).map(|at| event(Action::Alloc, at << 20, 4096, 1, 0)).collect();
    let played = play(&script(&in_time(events)), &simulated(10 * 4096), Choice::Cuda);
    assert_eq!((played.failures, played.first_failures.len()), (89, 5));
    let events: Vec<u64> = played.first_failures.iter().map(|failure| failure.event).collect();
    assert_eq!(events, [11, 12, 13, 14, 15]);
}

#[test]
fn blocks_from_before_the_window_are_there_when_it_begins() {
    use Action::{Alloc, Free};
    let events = in_time([
        event(Alloc, 0x1000, 1000, 1, 0),
        event(Alloc, 0x2000, 2000, 1, 0),
        event(Free, 0x1000, 1000, 1, 0),
        event(Alloc, 0x3000, 500, 1, 0),
        event(Free, 0x2000, 2000, 1, 0),
    ]);
    let from = Some(floodmark_event::units::Instant::AfterStart(3000));
    let scripts = read(
        &events,
        &ReadProps { filter: Filter { from_ns: from, ..Filter::default() }, ..ReadProps::default() },
    );
    let played = play(&scripts[0], &simulated(1 << 20), Choice::Cuda);
    assert_eq!((scripts[0].summary().carried_blocks, played.peak_live_bytes), (1, 2500));
    assert_eq!((played.allocate.count, played.free.count), (1, 1), "what is carried is not timed");
}

#[test]
fn a_paced_play_takes_as_long_as_the_log() {
    use Action::{Alloc, Free};
    let mut events = in_time([event(Alloc, 0x1000, 1000, 1, 0), event(Free, 0x1000, 1000, 1, 0)]);
    events[1].time_ns = 20_000_000;
    let scripts = read(&events, &ReadProps { pace: Pace::Keep, ..ReadProps::default() });
    for order in [Order::Log, Order::Concurrent] {
        let run = Run::new(&scripts[0], RunProps { order, speed: Some(2.0), repeats: 1 });
        let played = run.play(&simulated(1 << 20), Choice::Cuda, &|_| None, &mut |_| {}).unwrap();
        // A lower bound holds on the busiest machine; waiting is not in the calls.
        assert!(played.elapsed_ns.least >= 10_000_000, "{played:?}");
        assert!(played.calls_ns.least < played.elapsed_ns.least, "{played:?}");
    }
}

#[test]
fn progress_adds_up_to_what_was_promised() {
    let script = workload(eight_threads(3_000));
    for order in [Order::Log, Order::Concurrent] {
        let run = Run::new(&script, RunProps { order, ..IN_ORDER });
        let mut done = 0;
        run.play(&simulated(1 << 40), Choice::Cuda, &|_| None, &mut |steps| done += steps).unwrap();
        assert_eq!(done, run.steps(), "{order:?}");
    }
}

#[test]
fn what_this_machine_lacks_is_said() {
    let lineup = simulated(1 << 30);
    let error = lineup.stage(Choice::Managed, &[0]).unwrap_err();
    assert!(error.to_string().starts_with("there is no resource managed here: it needs a GPU"), "{error}");
    assert!(!lineup.available().contains(&Choice::Managed));
    assert_eq!(Choice::from_name("cuda_async"), Some(Choice::CudaAsync));
    assert_eq!(Choice::from_name("paper"), None);
}
