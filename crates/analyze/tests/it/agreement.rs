//! Every analysis agrees with its oracle, on random traces and under random narrowing.

use std::collections::BTreeMap;

use floodmark_analyze::churn::INTERVALS_MAX;
use floodmark_analyze::{
    ChurnFold, ChurnOptions, GroupBy, LeaksFold, LeaksOptions, LifetimesFold, LifetimesOptions, LiveHeapFold,
    StatsFold, UsageFold, UsageMode, Verdict, Watermark, WatermarkFold, WatermarkOptions,
};
use floodmark_event::NO_DEVICE;
use floodmark_event::units::Instant;
use floodmark_testkit::oracle::{Counts, Life};
use proptest::prelude::*;

use crate::random::{events, filter, fold, oracle, tables};

/// What tells a block from others: address, bytes, time, thread, device.
type Shape = (u64, u64, i64, u64, Option<i32>);

fn shapes(lives: &[Life]) -> Vec<Shape> {
    let device = |life: &Life| (life.alloc.device != NO_DEVICE).then_some(life.alloc.device);
    let shape = |life: &Life| {
        (life.alloc.address, life.alloc.bytes, life.alloc.time_ns, life.alloc.thread, device(life))
    };
    sorted(lives.iter().map(shape))
}

fn sorted<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.sort();
    values
}

fn reported(watermark: &Watermark) -> Vec<Shape> {
    sorted(watermark.blocks.iter().map(|b| (b.address, b.bytes, b.time_ns, b.thread, b.device)))
}

/// The interpolated quantile of sorted values.
fn quantile(sizes: &[u64], share: f64) -> Option<f64> {
    let position = (sizes.len().checked_sub(1)?) as f64 * share;
    let (below, above) = (sizes[position.floor() as usize] as f64, sizes[position.ceil() as usize] as f64);
    Some(below + (above - below) * position.fract())
}

proptest! {
    #[test]
    fn statistics_agree_with_counting_naively(events in events(), filter in filter()) {
        let stats = fold(&events, &filter, 7, StatsFold::default());
        let oracle = oracle(&events, &filter);
        let counts = Counts {
            events: stats.events,
            first_time_ns: stats.first_time_ns,
            last_time_ns: stats.last_time_ns,
            allocations: stats.allocations,
            frees: stats.frees,
            failures: stats.failures,
            failed_bytes: stats.failed_bytes,
            largest_failure_bytes: stats.largest_failure_bytes,
            unmatched_frees: stats.unmatched_frees,
            null_frees: stats.null_frees,
            size_mismatches: stats.size_mismatches,
            replaced_blocks: stats.replaced_blocks,
            zero_size: stats.zero_size,
            address_reuses: stats.address_reuses,
            cross_thread_frees: stats.cross_thread_frees,
            carried_blocks: stats.carried_blocks,
            carried_bytes: stats.carried_bytes,
            total_bytes: stats.total_bytes,
            live_bytes: stats.live_bytes,
            live_blocks: stats.live_blocks,
            most_blocks: stats.most_blocks,
        };
        prop_assert_eq!(&stats.kinds, &oracle.main_kinds());
        prop_assert_eq!(counts, oracle.counts());
        let (peak_bytes, peak_time_ns, blocks) = oracle.peak();
        prop_assert_eq!((stats.peak_bytes, stats.peak_time_ns), (peak_bytes, peak_time_ns));
        prop_assert_eq!(stats.peak_blocks, blocks.len() as u64);
        prop_assert_eq!(
            stats.carried_blocks + stats.allocations - stats.frees - stats.replaced_blocks,
            stats.live_blocks
        );
        for other in &stats.others {
            let height = (other.peak_bytes, other.peak_time_ns, other.live_bytes);
            prop_assert_eq!(height, oracle.level_of(&[other.kind]));
        }
    }

    #[test]
    fn sizes_agree_with_sorting_them_all(events in events(), filter in filter()) {
        let stats = fold(&events, &filter, 7, StatsFold::default());
        let sizes = oracle(&events, &filter).sizes();
        let size = stats.size;
        prop_assert_eq!(size.count, sizes.len() as u64);
        prop_assert_eq!((size.min, size.max), (sizes.first().copied(), sizes.last().copied()));
        let close = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs().max(1.0),
            _ => a == b,
        };
        for (found, share) in
            [(size.p25, 0.25), (size.p50, 0.5), (size.p75, 0.75), (size.p95, 0.95), (size.p99, 0.99)]
        {
            prop_assert!(close(found, quantile(&sizes, share)), "{:?} {}", found, share);
        }
        let count = sizes.len() as f64;
        let mean = (count > 0.0).then(|| sizes.iter().sum::<u64>() as f64 / count);
        let std = mean.filter(|_| count > 1.0).map(|mean| {
            (sizes.iter().map(|size| (*size as f64 - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt()
        });
        prop_assert!(close(size.mean, mean) && close(size.std, std), "{:?} {:?}", size, std);
        prop_assert_eq!(stats.histogram.iter().map(|bar| bar.count).sum::<u64>(), size.count);
        prop_assert_eq!(stats.histogram.iter().map(|bar| bar.bytes).sum::<u64>(), stats.total_bytes);
        for bar in &stats.histogram {
            let inside = sizes.iter().filter(|size| (bar.from_bytes..bar.to_bytes).contains(size));
            prop_assert_eq!(bar.count, inside.count() as u64);
        }
    }

    #[test]
    fn ledgers_agree_with_looking_at_each_alone(events in events(), filter in filter()) {
        let stats = fold(&events, &filter, 7, StatsFold::default());
        let found: BTreeMap<_, _> = stats.ledgers.iter().map(|ledger| {
            let resource = u32::from(ledger.resource.is_some());
            let place = (ledger.process, ledger.device.unwrap_or(NO_DEVICE), ledger.kind, resource);
            (place, (ledger.peak_bytes, ledger.peak_time_ns, ledger.live_bytes))
        }).collect();
        prop_assert_eq!(found, oracle(&events, &filter).ledgers());
    }

    #[test]
    fn the_watermark_agrees_with_looking_at_every_instant(events in events(), filter in filter()) {
        let options = WatermarkOptions { group_by: GroupBy::ALL.to_vec(), ..WatermarkOptions::default() };
        let watermark = fold(&events, &filter, 7, WatermarkFold::new(options));
        let (peak_bytes, peak_time_ns, blocks) = oracle(&events, &filter).peak();
        prop_assert_eq!((watermark.peak_bytes, watermark.peak_time_ns), (peak_bytes, peak_time_ns));
        prop_assert_eq!(watermark.reported_bytes, peak_bytes);
        prop_assert_eq!(watermark.peak_blocks, blocks.len() as u64);
        prop_assert_eq!(reported(&watermark), shapes(&blocks));
        prop_assert!(watermark.blocks.is_sorted_by(|a, b| a.bytes >= b.bytes));
        for grouping in &watermark.groups {
            prop_assert_eq!(grouping.groups.iter().map(|group| group.bytes).sum::<u64>(), peak_bytes);
            prop_assert_eq!(grouping.groups.iter().map(|group| group.blocks).sum::<u64>(), blocks.len() as u64);
        }
        let of_thread = |thread: u64| blocks.iter().filter(move |life| life.alloc.thread == thread);
        let threads = watermark.groups.iter().find(|grouping| grouping.by == GroupBy::Thread).unwrap();
        for group in &threads.groups {
            let bytes: u64 = of_thread(group.key.parse().unwrap()).map(|life| life.alloc.bytes).sum();
            prop_assert_eq!(group.bytes, bytes);
        }
    }

    #[test]
    fn blocks_at_an_instant_agree_with_looking_then(events in events(), filter in filter(), at in 990..1700i64) {
        let options = WatermarkOptions { at: Some(Instant::At(at)), ..WatermarkOptions::default() };
        let watermark = fold(&events, &filter, 7, WatermarkFold::new(options));
        prop_assert_eq!(reported(&watermark), shapes(&oracle(&events, &filter).blocks_at(at)));
    }

    #[test]
    fn usage_agrees_with_adding_up_after_every_change(events in events(), filter in filter()) {
        let usage = fold(&events, &filter, 7, UsageFold::new(UsageMode::Exact));
        let oracle = oracle(&events, &filter);
        let points: Vec<_> = usage.points.iter().map(|point| (point.time_ns, point.live_bytes)).collect();
        prop_assert_eq!(points, oracle.timeline());
        prop_assert_eq!((usage.peak_bytes, usage.peak_time_ns), (oracle.peak().0, oracle.peak().1));
        prop_assert_eq!(usage.live_bytes, oracle.counts().live_bytes);
        prop_assert_eq!(usage.end_time_ns, oracle.end_ns());
        prop_assert_eq!(usage.changes, usage.points.len() as u64);
    }

    #[test]
    fn leaks_agree_with_what_never_ended(events in events(), filter in filter()) {
        let leaks = fold(&events, &filter, 7, LeaksFold::new(LeaksOptions::default()));
        let oracle = oracle(&events, &filter);
        // A null pointer holds nothing.
        let live: Vec<_> = oracle.leaks().into_iter().filter(|life| life.alloc.address != 0).collect();
        let end_ns = oracle.end_ns().unwrap_or(0);
        let found = sorted(leaks.blocks.iter().map(|leak| {
            let block = &leak.block;
            ((block.address, block.bytes, block.time_ns, block.thread, block.device), leak.age_ns)
        }));
        let expected = sorted(live.iter().map(|life| {
            (shapes(&[*life])[0], (end_ns - life.alloc.time_ns).max(0) as u64)
        }));
        prop_assert_eq!(found, expected);
        prop_assert_eq!(leaks.leaked_blocks, live.len() as u64);
        prop_assert_eq!(leaks.leaked_bytes, live.iter().map(|life| life.alloc.bytes).sum::<u64>());
        let statics = oracle.statics();
        prop_assert_eq!(leaks.static_count, statics.len() as u64);
        prop_assert_eq!(leaks.static_bytes, statics.iter().map(|life| life.alloc.bytes).sum::<u64>());
        // Stacks 3 and 4 share a site; here the numbers of both are added up.
        let tables = tables();
        let rules = floodmark_analyze::SiteRules::default();
        let mut sites: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for ((stack, name), (all, ended)) in oracle.by_origin() {
            let counts = sites.entry(rules.site(stack, name, &tables)).or_default();
            *counts = (counts.0 + all, counts.1 + ended);
        }
        for life in oracle.leaks().iter().filter(|life| life.alloc.address == 0) {
            let site = rules.site(life.alloc.stack, life.alloc.name, &tables);
            sites.entry(site).and_modify(|counts| counts.0 -= 1);
        }
        for group in &leaks.groups {
            let (all, ended) = sites[&group.site];
            prop_assert_eq!((group.allocated_blocks, group.freed_blocks), (all, ended));
            let is_leak = group.site != "(no stack)" && ended * 2 >= all;
            prop_assert_eq!(group.verdict == Verdict::Leak, is_leak);
        }
    }

    #[test]
    fn lifetimes_agree_with_sorting_them_all(events in events(), filter in filter(), threshold in 0..200u64) {
        let options = LifetimesOptions { threshold_ns: threshold, ..LifetimesOptions::default() };
        let lifetimes = fold(&events, &filter, 7, LifetimesFold::new(options));
        let oracle = oracle(&events, &filter);
        let mut all = oracle.lifetimes();
        all.sort_unstable_by_key(|(_, lifetime, _)| *lifetime);
        let churned: Vec<_> = all.iter().filter(|(_, lifetime, _)| *lifetime < threshold).collect();
        prop_assert_eq!(lifetimes.ended_blocks, all.len() as u64);
        prop_assert_eq!(lifetimes.live_blocks, oracle.live().len() as u64);
        prop_assert_eq!(lifetimes.churned_blocks, churned.len() as u64);
        prop_assert_eq!(lifetimes.churned_bytes, churned.iter().map(|(.., bytes)| bytes).sum::<u64>());
        if let Some(median) = lifetimes.median_ns {
            let exact = all[(all.len() - 1) / 2].1 as f64;
            prop_assert!((median as f64 - exact).abs() <= exact / 16.0, "{} {}", median, exact);
        }
        let mean = all.iter().map(|(_, lifetime, _)| *lifetime as f64).sum::<f64>() / all.len() as f64;
        prop_assert!(lifetimes.mean_ns.is_none_or(|found| (found - mean).abs() < 1e-6));
        prop_assert_eq!(lifetimes.mean_ns.is_none(), all.is_empty());
        let sum = |of: fn(&floodmark_analyze::LifetimeSite) -> u64| lifetimes.sites.iter().map(of).sum::<u64>();
        prop_assert_eq!(sum(|site| site.ended_blocks), lifetimes.ended_blocks);
        prop_assert_eq!(sum(|site| site.churned_bytes), lifetimes.churned_bytes);
        prop_assert_eq!(sum(|site| site.blocks), lifetimes.ended_blocks + lifetimes.live_blocks);
        for bar in &lifetimes.histogram {
            let inside = all.iter().filter(|(_, lifetime, _)| (bar.from_ns..bar.to_ns).contains(lifetime));
            prop_assert_eq!(bar.count, inside.count() as u64);
        }
        for (origin, ended) in count_by_site(&all.iter().map(|life| life.0).collect::<Vec<_>>()) {
            let site = lifetimes.sites.iter().find(|site| site.site == origin).unwrap();
            prop_assert_eq!(site.ended_blocks, ended);
        }
    }
}

proptest! {
    #[test]
    fn the_live_heap_agrees_with_looking_at_every_block(
        events in events(),
        filter in filter(),
        mut instants in proptest::collection::vec(900..2000i64, 0..8),
    ) {
        instants.sort_unstable();
        instants.dedup();
        let filter = floodmark_event::Filter { from_ns: None, to_ns: None, ..filter };
        let live = fold(&events, &filter, 7, LiveHeapFold::new(instants.clone()));
        let oracle = oracle(&events, &filter);
        prop_assert_eq!(live.len(), instants.len());
        for (instant, heap) in live {
            prop_assert_eq!(heap.brk_bytes + heap.mapped_bytes, oracle.live_bytes_at(instant));
        }
    }

    #[test]
    fn churn_agrees_with_looking_at_every_allocation(
        mut events in events(),
        filter in filter(),
        scale in proptest::sample::select(vec![1i64, 100, 1_000_000, 60_000_000_000]),
    ) {
        // Long traces have coarse intervals.
        for event in &mut events {
            event.time_ns = event.time_ns.saturating_mul(scale);
        }
        let filter = if scale == 1 { filter } else { floodmark_event::Filter { from_ns: None, to_ns: None, ..filter } };
        let churn = fold(&events, &filter, 7, ChurnFold::new(ChurnOptions::default()));
        let oracle = oracle(&events, &filter);
        let all = oracle.allocated();
        prop_assert_eq!(churn.total.allocations, all.len() as u64);
        prop_assert_eq!(churn.total.bytes, all.iter().map(|(.., bytes)| bytes).sum::<u64>());
        prop_assert_eq!((churn.total.temporary, churn.total.temporary_bytes), oracle.temporary());
        // The first interval begins with the first allocation of any kind.
        let first_ns = churn.intervals.first().map_or(0, |interval| interval.from_ns);
        prop_assert!(churn.intervals.len() <= INTERVALS_MAX);
        for (at, interval) in churn.intervals.iter().enumerate() {
            let is_inside = |time_ns: i64| {
                (time_ns - first_ns).max(0) as u64 / churn.interval_ns == at as u64
            };
            let inside: Vec<_> = all.iter().filter(|(_, time_ns, _)| is_inside(*time_ns)).collect();
            prop_assert_eq!(interval.allocations, inside.len() as u64);
            prop_assert_eq!(interval.bytes, inside.iter().map(|(.., bytes)| bytes).sum::<u64>());
        }
        if let Some(last) = churn.intervals.last() {
            prop_assert_eq!(last.cumulative_allocations, churn.total.allocations);
            prop_assert_eq!(last.cumulative_bytes, churn.total.bytes);
        }
        for site in &churn.sites {
            prop_assert_eq!(site.allocations_over_time.iter().sum::<u64>(), site.total.allocations);
            prop_assert_eq!(site.bytes_over_time.iter().sum::<u64>(), site.total.bytes);
            prop_assert_eq!(site.bytes_over_time.len(), churn.intervals.len());
        }
        for (origin, allocations) in count_by_site(&all.iter().map(|alloc| alloc.0).collect::<Vec<_>>()) {
            let site = churn.sites.iter().find(|site| site.site == origin).unwrap();
            prop_assert_eq!(site.total.allocations, allocations);
        }
    }
}

/// Numbers of blocks by the text of their site, where there is a site.
fn count_by_site(origins: &[(floodmark_event::StackId, floodmark_event::StringId)]) -> BTreeMap<String, u64> {
    let mut sites = BTreeMap::new();
    for (stack, name) in origins.iter().filter(|(stack, name)| stack.0 != 0 || name.0 != 0) {
        *sites.entry(floodmark_analyze::SiteRules::default().site(*stack, *name, &tables())).or_default() +=
            1;
    }
    sites
}
