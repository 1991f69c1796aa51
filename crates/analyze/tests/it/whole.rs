//! Results do not depend on how events come in, and nothing makes an analysis panic.

use floodmark_analyze::{
    GroupBy, LeaksFold, LeaksOptions, LifetimesFold, LifetimesOptions, Pass, StatsFold, UsageFold, UsageMode,
    WatermarkFold, WatermarkOptions,
};
use floodmark_event::Filter;
use floodmark_event::{Action, Event, Kind};
use floodmark_testkit::{Oracle, OracleFilter, SizeMix, Workload, WorkloadProps};
use proptest::prelude::*;

use crate::random::{batch, events, filter, fold, tables};

type Folds = (StatsFold, WatermarkFold, UsageFold, LeaksFold, LifetimesFold);

fn folds() -> Folds {
    (
        StatsFold::default(),
        WatermarkFold::new(WatermarkOptions {
            group_by: GroupBy::ALL.to_vec(),
            ..WatermarkOptions::default()
        }),
        UsageFold::new(UsageMode::Reduced(20)),
        LeaksFold::new(LeaksOptions::default()),
        LifetimesFold::new(LifetimesOptions::default()),
    )
}

proptest! {
    #[test]
    fn splitting_the_batches_differently_changes_nothing(
        events in events(), filter in filter(), rows in 1..20usize,
    ) {
        prop_assert_eq!(fold(&events, &filter, usize::MAX, folds()), fold(&events, &filter, rows, folds()));
    }

    #[test]
    fn looking_at_the_result_in_between_changes_nothing(events in events(), rows in 1..20usize) {
        let whole = fold(&events, &Filter::default(), usize::MAX, folds());
        let mut pass = Pass::new(&Filter::default(), folds());
        let mut last = pass.finish(&tables());
        for chunk in events.chunks(rows) {
            pass.update(&batch(chunk));
            last = pass.finish(&tables());
        }
        prop_assert_eq!(last, whole);
    }

    #[test]
    fn folds_find_alone_what_they_find_together(events in events(), filter in filter()) {
        let (stats, watermark, usage, leaks, lifetimes) = fold(&events, &filter, 9, folds());
        let (one, two, three, four, five) = folds();
        prop_assert_eq!(stats, fold(&events, &filter, 9, one));
        prop_assert_eq!(Some(watermark), fold(&events, &filter, 9, Some(two)));
        prop_assert_eq!(usage, fold(&events, &filter, 9, three));
        prop_assert_eq!(leaks, fold(&events, &filter, 9, (four,)).0);
        prop_assert_eq!(lifetimes, fold(&events, &filter, 9, five));
        prop_assert_eq!(None, fold(&events, &filter, 9, None::<StatsFold>));
    }

    #[test]
    fn absurd_sizes_and_times_give_absurd_figures_and_nothing_worse(
        rows in proptest::collection::vec((0..3usize, 0..4u64, any::<u64>(), any::<i64>()), 0..40),
        filter in filter(),
    ) {
        let events: Vec<Event> = rows.iter().map(|(action, address, bytes, time_ns)| Event {
            action: Action::ALL[*action],
            address: *address,
            bytes: *bytes,
            time_ns: *time_ns,
            kind: Kind::Device,
            ..Event::default()
        }).collect();
        let (stats, watermark, usage, leaks, lifetimes) = fold(&events, &filter, 3, folds());
        prop_assert!(stats.allocations + stats.frees + stats.failures <= events.len() as u64);
        prop_assert!(stats.live_bytes <= stats.peak_bytes);
        prop_assert_eq!((watermark.peak_bytes, usage.peak_bytes), (stats.peak_bytes, stats.peak_bytes));
        prop_assert_eq!(watermark.reported_blocks, watermark.blocks.len() as u64);
        prop_assert!(leaks.leaked_blocks <= stats.live_blocks && lifetimes.churned_blocks <= lifetimes.ended_blocks);
    }
}

#[test]
fn a_limit_shortens_lists_and_says_so() {
    let events: Vec<Event> =
        Workload::new(WorkloadProps { events: 4000, live: 200, stacks: 20, ..WorkloadProps::default() })
            .events()
            .collect();
    let limit = Some(10);
    let (watermark, leaks, lifetimes) = fold(
        &events,
        &Filter::default(),
        1000,
        (
            WatermarkFold::new(WatermarkOptions { limit, ..WatermarkOptions::default() }),
            LeaksFold::new(LeaksOptions { limit, ..LeaksOptions::default() }),
            LifetimesFold::new(LifetimesOptions { limit: Some(1), ..LifetimesOptions::default() }),
        ),
    );
    assert_eq!((watermark.blocks.len(), leaks.blocks.len(), lifetimes.sites.len()), (10, 10, 1));
    assert_eq!(watermark.blocks_omitted + 10, watermark.reported_blocks);
    assert_eq!(leaks.blocks_omitted + 10, leaks.leaked_blocks);
    assert!(leaks.groups.iter().map(|group| group.blocks).sum::<u64>() == leaks.leaked_blocks);
}

#[test]
fn a_longer_workload_agrees_with_the_oracle_too() {
    for sizes in [SizeMix::Steady, SizeMix::Random { max_bytes: 1 << 22 }] {
        let props = WorkloadProps {
            events: 6000,
            threads: 3,
            streams: 3,
            live: 150,
            sizes,
            leak_rate: 0.02,
            failure_rate: 0.01,
            unknown_free_rate: 0.01,
            stacks: 10,
            ..WorkloadProps::default()
        };
        let events: Vec<Event> = Workload::new(props).events().collect();
        let (stats, watermark, usage, leaks, _) = fold(&events, &Filter::default(), 777, folds());
        let oracle = Oracle::new(&events, &OracleFilter::default());
        let counts = oracle.counts();
        assert_eq!(
            (stats.allocations, stats.frees, stats.failures),
            (counts.allocations, counts.frees, counts.failures)
        );
        assert_eq!(
            (stats.unmatched_frees, stats.address_reuses),
            (counts.unmatched_frees, counts.address_reuses)
        );
        assert_eq!((stats.live_bytes, leaks.leaked_bytes), (counts.live_bytes, counts.live_bytes));
        let (peak_bytes, peak_time_ns, blocks) = oracle.peak();
        assert_eq!((watermark.peak_bytes, watermark.peak_time_ns), (peak_bytes, peak_time_ns));
        assert_eq!(watermark.blocks.len(), blocks.len());
        assert_eq!((usage.peak_bytes, usage.live_bytes), (peak_bytes, counts.live_bytes));
    }
}
