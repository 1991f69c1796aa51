//! Threads at once: it ends, and everything balances.

use std::sync::mpsc;
use std::time::Duration;

use floodmark_event::{Action, Event};
use floodmark_replay::Backing;
use floodmark_replay::result::Played;
use floodmark_replay::{Choice, Error, Lineup, LineupProps, Order, Run, RunProps, Script};

use crate::events::{eight_threads, event, in_time, script, workload};

const AT_ONCE: RunProps = RunProps { order: Order::Concurrent, speed: None, repeats: 2 };
/// Far longer than any of this takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Plays with a watchdog: waiting for ever is a failure, not a test that hangs.
fn play(script: Script, bytes: u64, choice: Choice) -> Played {
    let (give, take) = mpsc::channel();
    let work = move || {
        let lineup = Lineup::open(LineupProps::on(Backing::Simulated { bytes })).unwrap();
        let _ = give.send(Run::new(&script, AT_ONCE).play(&lineup, choice, &|_| None, &mut |_| {}).unwrap());
    };
    std::thread::Builder::new().name("watched".into()).spawn(work).unwrap();
    take.recv_timeout(PATIENCE).expect("the play ends")
}

#[test]
fn eight_threads_that_free_each_others_blocks_come_to_an_end() {
    let script = workload(eight_threads(20_000));
    let summary = *script.summary();
    let available = Lineup::open(LineupProps::on(Backing::Simulated { bytes: 1 })).unwrap().available();
    for choice in available {
        let played = play(script.clone(), 64 << 30, choice);
        assert_eq!(played.failures, 0, "{choice:?}: {:?}", played.first_failures);
        assert_eq!(
            (played.allocate.count, played.free.count),
            (summary.allocations, summary.frees),
            "{choice:?}"
        );
    }
}

#[test]
fn every_block_can_be_freed_by_another_thread() {
    // A ring: thread n frees what thread n - 1 allocated, so everybody waits for somebody.
    let mut events: Vec<Event> = Vec::new();
    for round in 0..500u64 {
        for thread in 0..8u64 {
            events.push(event(Action::Alloc, (round * 8 + thread + 1) << 12, 1024, thread, thread * 0x40));
        }
        for thread in 0..8u64 {
            let before = (thread + 7) % 8;
            events.push(event(Action::Free, (round * 8 + before + 1) << 12, 1024, thread, thread * 0x40));
        }
    }
    let played = play(script(&in_time(events)), 1 << 30, Choice::Cuda);
    assert_eq!((played.failures, played.allocate.count, played.free.count), (0, 4000, 4000));
}

#[test]
fn frees_of_what_failed_do_not_wait_for_ever() {
    let mut events = Vec::new();
    for at in 1..200u64 {
        events.push(event(Action::Alloc, at << 12, 4096, 1, 0));
        events.push(event(Action::Free, at << 12, 4096, 2, 0));
    }
    // No room at all: every allocation fails, every free finds nothing.
    let played = play(script(&in_time(events)), 256, Choice::Cuda);
    assert_eq!((played.failures, played.free.count, played.first_failures.len()), (199, 0, 5));
    assert_eq!(played.first_failures[0].event, 1);
}

#[test]
fn more_threads_than_a_machine_should_start_are_refused() {
    let events: Vec<Event> = (1..2000u64).map(|at| event(Action::Alloc, at << 12, 1, at, 0)).collect();
    let script = script(&in_time(events));
    let lineup = Lineup::open(LineupProps::on(Backing::Simulated { bytes: 1 << 30 })).unwrap();
    let error = Run::new(&script, AT_ONCE).play(&lineup, Choice::Cuda, &|_| None, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Threads { threads: 1999, most: 1024 }), "{error}");
}
