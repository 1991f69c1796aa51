//! The least memory that is enough, and that it is.

use floodmark_event::Action;
use floodmark_replay::Backing;
use floodmark_replay::{Choice, Error, Lineup, LineupProps, Order, Run, RunProps, Script, search};

use crate::events::{eight_threads, event, in_time, script, workload};

const USUAL: LineupProps = LineupProps::on(Backing::Simulated { bytes: 1 << 30 });

/// Whether a log fits a resource that has all of so much memory from the beginning.
fn fits(script: &Script, choice: Choice, bytes: u64) -> bool {
    let lineup = Lineup::open(LineupProps {
        backing: Backing::Simulated { bytes },
        pool_initial_bytes: Some(bytes),
        pool_maximum_bytes: Some(bytes),
        arena_bytes: Some(bytes),
        ..USUAL
    })
    .unwrap();
    let run = Run::new(script, RunProps { order: Order::Log, speed: None, repeats: 1 });
    match run.play(&lineup, choice, &|_| None, &mut |_| {}) {
        Ok(played) => played.failures == 0,
        Err(Error::Stage { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_is_found_is_enough_and_one_step_less_is_not() {
    let script = workload(eight_threads(5_000));
    let peak = script.summary().peak_live_bytes;
    for choice in [Choice::Cuda, Choice::Pool, Choice::Arena, Choice::Binning] {
        let mut steps = 0;
        let found = search(&script, choice, &USUAL, &mut |done| steps += done).unwrap();
        let enough = found.enough_bytes.unwrap();
        assert!(enough >= peak, "{choice:?}: {found:?}");
        assert!(fits(&script, choice, enough), "{choice:?}: {found:?}");
        if let Some(too_little) = found.too_little_bytes {
            assert!(enough - too_little <= found.step_bytes, "{choice:?}: {found:?}");
            assert!(!fits(&script, choice, too_little), "{choice:?}: {found:?}");
        }
        assert!((found.overhead.unwrap() - (enough as f64 / peak as f64 - 1.0)).abs() < 1e-9);
        assert!(found.plays > 0 && steps > 0 && found.reason.is_none(), "{choice:?}: {found:?}");
    }
}

#[test]
fn a_log_without_holes_needs_no_more_than_its_peak() {
    let events: Vec<_> = (1..9u64).map(|at| event(Action::Alloc, at << 30, 1 << 20, 1, 0)).collect();
    let found = search(&script(&in_time(events)), Choice::Pool, &USUAL, &mut |_| {}).unwrap();
    assert_eq!((found.enough_bytes, found.too_little_bytes), (Some(8 << 20), None));
    assert_eq!((found.overhead, found.plays), (Some(0.0), 1));
}

#[test]
fn a_log_that_never_fits_says_why() {
    let events = in_time([event(Action::Alloc, 1 << 30, 2 << 20, 1, 0)]);
    let found = search(&script(&events), Choice::Fixed, &USUAL, &mut |_| {}).unwrap();
    assert_eq!(found.enough_bytes, None);
    assert!(
        found.reason.as_deref().is_some_and(|why| why.contains("hands out at most 1.00 MiB")),
        "{found:?}"
    );
}
