//! Merging the passes over parts of a trace gives the pass over the whole.

use floodmark_analyze::{
    Leaks, LeaksFold, LeaksOptions, Lifetimes, LifetimesFold, LifetimesOptions, Pass, Stats, StatsFold,
};
use floodmark_event::Filter;
use floodmark_event::{Event, ProcessId};
use proptest::prelude::*;

use crate::random::{batch, events, filter, tables};

type Folds = (StatsFold, LeaksFold, LifetimesFold);

fn pass(events: &[Event], filter: &Filter) -> Pass<Folds> {
    let folds = (
        StatsFold::default(),
        LeaksFold::new(LeaksOptions::default()),
        LifetimesFold::new(LifetimesOptions { threshold_ns: 50, ..LifetimesOptions::default() }),
    );
    let mut pass = Pass::new(filter, folds);
    pass.update(&batch(events));
    pass
}

/// Checks what is only a bound in `merged` and copies it from `whole`, so that the rest can be compared.
fn settle_bounds(merged: &mut Stats, whole: &Stats) -> Result<(), TestCaseError> {
    if !merged.peak_exact {
        prop_assert!(merged.peak_bytes >= whole.peak_bytes && merged.most_blocks >= whole.most_blocks);
        prop_assert_eq!(merged.peak_time_ns, None);
        merged.peak_exact = true;
        merged.peak_bytes = whole.peak_bytes;
        merged.peak_time_ns = whole.peak_time_ns;
        merged.peak_blocks = whole.peak_blocks;
        merged.most_blocks = whole.most_blocks;
    }
    for (other, exact) in merged.others.iter_mut().zip(&whole.others) {
        prop_assert!(other.peak_bytes >= exact.peak_bytes);
        if other.peak_time_ns.is_none() {
            (other.peak_bytes, other.peak_time_ns) = (exact.peak_bytes, exact.peak_time_ns);
        }
    }
    for (ledger, exact) in merged.ledgers.iter_mut().zip(&whole.ledgers) {
        if !ledger.peak_exact {
            prop_assert!(ledger.peak_bytes >= exact.peak_bytes);
            *ledger = exact.clone();
        }
    }
    Ok(())
}

fn check(merged: (Stats, Leaks, Lifetimes), whole: (Stats, Leaks, Lifetimes)) -> Result<(), TestCaseError> {
    let (mut stats, mut leaks, lifetimes) = merged;
    let (whole_stats, mut whole_leaks, whole_lifetimes) = whole;
    settle_bounds(&mut stats, &whole_stats)?;
    prop_assert_eq!(stats, whole_stats);
    prop_assert_eq!(lifetimes, whole_lifetimes);
    // Which of two equals is older nobody knows of parts.
    for leaks in [&mut leaks, &mut whole_leaks] {
        let excluded = leaks.excluded.iter_mut().map(|excluded| &mut excluded.listed);
        for blocks in [&mut leaks.blocks, &mut leaks.static_blocks].into_iter().chain(excluded) {
            blocks.sort_by_key(|leak| format!("{leak:?}"));
        }
    }
    leaks.others.clear();
    whole_leaks.others.clear();
    prop_assert_eq!(leaks, whole_leaks);
    Ok(())
}

proptest! {
    #[test]
    fn two_processes_merge_into_the_whole(mut events in events(), filter in filter()) {
        // A window after the start would mean another instant in each part; times must not go back,
        // because a part may end at an event before that at which the whole does.
        let filter = Filter { from_ns: None, to_ns: None, ..filter };
        events.sort_by_key(|event| event.time_ns);
        let of = |process| -> Vec<Event> {
            events.iter().filter(|event| event.process == ProcessId(process)).copied().collect()
        };
        let mut merged = pass(&of(1), &filter);
        merged.merge(pass(&of(2), &filter));
        merged.update(&batch(&events));
        check(merged.finish(&tables()), pass(&events, &filter).finish(&tables()))?;
    }

    #[test]
    fn threads_merge_into_the_whole(mut events in events(), filter in filter()) {
        events.sort_by_key(|event| event.time_ns);
        let of = |threads: &[u64]| pass(&events, &Filter { threads: Some(threads.to_vec()), ..filter.clone() });
        let mut merged = of(&[1]);
        merged.merge(of(&[2, 3]));
        let whole = Filter { threads: None, ..filter.clone() };
        check(merged.finish(&tables()), pass(&events, &whole).finish(&tables()))?;
    }

    #[test]
    fn a_ledger_that_is_in_one_part_only_keeps_its_exact_peak(events in events()) {
        let of = |process: u32| {
            let processes = Some(vec![ProcessId(process)]);
            pass(&events, &Filter { processes, ..Filter::default() })
        };
        let mut merged = of(1);
        merged.merge(of(2));
        let (stats, ..) = merged.finish(&tables());
        prop_assert_eq!(stats.ledgers, pass(&events, &Filter::default()).finish(&tables()).0.ledgers);
    }
}
