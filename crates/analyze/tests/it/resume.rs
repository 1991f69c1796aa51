//! Going on from what was kept finds what reading everything finds.

use floodmark_analyze::{
    Pass, SnapshotOptions, SnapshotPass, Snapshots, Tracker, Usage, UsageFold, UsageMode,
};
use floodmark_event::Event;
use floodmark_event::Filter;
use floodmark_event::units::Instant;
use proptest::prelude::*;

use crate::random::{batch, events, filter, tables};

/// Events up to a row, tracked in pieces and kept once in between.
fn kept(events: &[Event], filter: &Filter, cut: usize) -> floodmark_analyze::KeptLive {
    let mut tracker = Tracker::new(filter);
    tracker.update(&batch(&events[..cut / 2]));
    let mut tracker = Tracker::resume(filter, &tracker.keep());
    tracker.update(&batch(&events[cut / 2..cut]));
    tracker.keep()
}

fn usage(mut pass: Pass<UsageFold>, events: &[Event]) -> Usage {
    for chunk in events.chunks(7) {
        pass.update(&batch(chunk));
    }
    pass.finish(&tables())
}

fn snapshots(mut pass: SnapshotPass, events: &[Event]) -> Snapshots {
    for chunk in events.chunks(7) {
        pass.update(&batch(chunk));
    }
    pass.finish(&tables())
}

/// The rows that may be read before, if the first that counts is at `time_ns` or, with `later`, after it.
fn rows_before(events: &[Event], time_ns: i64, later: i64) -> usize {
    events.iter().position(|event| event.time_ns >= time_ns + later).unwrap_or(events.len())
}

proptest! {
    #[test]
    fn a_window_is_the_same_wherever_reading_began(
        events in events(),
        filter in filter(),
        from in 990i64..2200,
        length in 0i64..600,
        share in 0usize..=100,
    ) {
        let window =
            Filter { from_ns: Some(Instant::At(from)), to_ns: Some(Instant::At(from + length)), ..filter.clone() };
        let cut = rows_before(&events, from, 0) * share / 100;
        for points in [16, 4000] {
            let fold = UsageFold::new(UsageMode::Reduced(points));
            let whole = usage(Pass::new(&window, fold.clone()), &events);
            let kept = kept(&events, &filter, cut);
            let resumed = usage(Pass::resume(&window, fold, &kept), &events[cut..]);
            prop_assert_eq!(resumed, whole);
        }
    }

    #[test]
    fn an_instant_is_the_same_wherever_reading_began(
        events in events(),
        filter in filter(),
        times in proptest::collection::vec(990i64..2200, 1..4),
        blocks in proptest::option::of(1usize..5),
        share in 0usize..=100,
    ) {
        let options = || SnapshotOptions { blocks, ..SnapshotOptions::default() };
        let first_ns = events.first().map_or(0, |event| event.time_ns);
        let end = filter.to_ns.map(|to| match to {
            Instant::At(time_ns) => time_ns,
            Instant::AfterStart(ns) => first_ns + ns as i64,
        });
        let earliest = times.iter().copied().chain(end).min().unwrap_or(0);
        let cut = rows_before(&events, earliest, 1) * share / 100;
        let kept = kept(&events, &filter, cut);
        prop_assert_eq!(filter.to_ns.filter(|_| cut > 0).and_then(|to| kept.time_ns(to)), end.filter(|_| cut > 0));
        for tally in [0, 1, 2] {
            let whole = snapshots(SnapshotPass::at(&filter, tally, times.clone(), options(), None), &events);
            let resumed = SnapshotPass::at(&filter, tally, times.clone(), options(), Some(&kept));
            prop_assert_eq!(snapshots(resumed, &events[cut..]), whole);
        }
    }
}
