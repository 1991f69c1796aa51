//! A log small enough to follow by hand, and its answers.
//!
//! It has everything that is often got wrong: a failure, a free nobody saw allocated, a zero-size
//! pair at the null address, an address that comes back, and a free by another thread.

use floodmark_analyze::{
    GroupBy, Leaks, LeaksFold, LeaksOptions, Lifetimes, LifetimesFold, Pass, Stats, StatsFold, Usage,
    UsageFold, UsageMode, Verdict, Watermark, WatermarkFold, WatermarkOptions,
};
use floodmark_event::Filter;
use floodmark_event::units::Instant;
use floodmark_event::{Action, Event, EventBatch, Kind, ProcessId, Tables};

/// 10:00:00 of a log without dates.
const TEN_NS: i64 = 36_000_000_000_000;

fn golden() -> EventBatch {
    use Action::{Alloc, Failure, Free};
    let rows = [
        (101, 1, Alloc, 0x7f00_0000_0000, 1000, 0),
        (101, 2, Alloc, 0x7f00_0000_0400, 2000, 1),
        (202, 3, Alloc, 0x7f00_0000_0c00, 500, 0x55_d0c0),
        (101, 4, Free, 0x7f00_0000_0000, 1000, 0),
        (202, 5, Failure, 0, 1_099_511_627_776, 0x55_d0c0),
        (101, 6, Alloc, 0x7f00_0000_0000, 256, 0),
        (202, 7, Free, 0x7f00_0000_0400, 2000, 1),
        (101, 8, Alloc, 0, 0, 0),
        (101, 9, Free, 0, 0, 0),
        (101, 10, Free, 0x7f00_000f_ff00, 64, 0),
    ];
    let mut batch = EventBatch::new();
    for (thread, micros, action, address, bytes, stream) in rows {
        batch.push(&Event {
            time_ns: TEN_NS + micros * 1000,
            process: ProcessId(1),
            thread,
            action,
            address,
            bytes,
            device: 0,
            stream,
            kind: Kind::Device,
            ..Event::default()
        });
    }
    batch
}

fn analyse(filter: &Filter, watermark: WatermarkOptions) -> (Stats, Watermark, Usage, Leaks, Lifetimes) {
    let folds = (
        StatsFold::default(),
        WatermarkFold::new(watermark),
        UsageFold::new(UsageMode::Exact),
        LeaksFold::new(LeaksOptions::default()),
        LifetimesFold::default(),
    );
    let mut pass = Pass::new(filter, folds);
    pass.update(&golden());
    pass.finish(&Tables::default())
}

fn all() -> (Stats, Watermark, Usage, Leaks, Lifetimes) {
    analyse(&Filter::default(), WatermarkOptions::default())
}

#[test]
fn counters_of_the_golden_log_are_known() {
    let (stats, ..) = all();
    assert_eq!((stats.events, stats.kinds.as_slice()), (10, &[Kind::Device][..]));
    assert_eq!((stats.allocations, stats.frees, stats.failures, stats.unmatched_frees), (5, 3, 1, 1));
    assert_eq!((stats.total_bytes, stats.live_bytes, stats.live_blocks), (3756, 756, 2));
    assert_eq!((stats.peak_bytes, stats.peak_time_ns, stats.peak_blocks), (3500, Some(TEN_NS + 3000), 3));
    assert_eq!((stats.address_reuses, stats.cross_thread_frees, stats.zero_size), (1, 1, 1));
    assert!(stats.address_reuses_exact && stats.peak_exact);
    assert_eq!((stats.failed_bytes, stats.largest_failure_bytes), (1 << 40, 1 << 40));
    assert_eq!((stats.size_mismatches, stats.replaced_blocks, stats.null_frees), (0, 0, 0));
    assert_eq!((stats.first_time_ns, stats.last_time_ns), (Some(TEN_NS + 1000), Some(TEN_NS + 10_000)));
    let size = stats.size;
    assert_eq!((size.count, size.mean, size.min, size.max), (5, Some(751.2), Some(0), Some(2000)));
    assert_eq!((size.p25, size.p50, size.p75), (Some(256.0), Some(500.0), Some(1000.0)));
    assert_eq!(stats.ledgers.len(), 1);
    assert_eq!((stats.ledgers[0].peak_bytes, stats.ledgers[0].live_bytes), (3500, 756));
    assert!(stats.others.is_empty());
}

#[test]
fn the_watermark_of_the_golden_log_is_held_by_three_blocks() {
    let group_by = vec![GroupBy::Thread, GroupBy::Stream, GroupBy::Site];
    let (_, watermark, ..) =
        analyse(&Filter::default(), WatermarkOptions { group_by, ..WatermarkOptions::default() });
    assert_eq!((watermark.peak_bytes, watermark.peak_time_ns), (3500, Some(TEN_NS + 3000)));
    let blocks: Vec<_> = watermark.blocks.iter().map(|b| (b.address, b.bytes, b.thread, b.stream)).collect();
    let expected = [
        (0x7f00_0000_0400, 2000, 101, 1),
        (0x7f00_0000_0000, 1000, 101, 0),
        (0x7f00_0000_0c00, 500, 202, 0x55_d0c0),
    ];
    assert_eq!(blocks, expected);
    let groups = |at: usize| {
        let groups = &watermark.groups[at].groups;
        groups.iter().map(|group| (group.key.as_str(), group.blocks, group.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(groups(0), [("101", 2, 3000), ("202", 1, 500)]);
    assert_eq!(groups(1), [("0x1", 1, 2000), ("0x0", 1, 1000), ("0x55d0c0", 1, 500)]);
    assert_eq!(groups(2), [("(no stack)", 3, 3500)]);
}

#[test]
fn usage_of_the_golden_log_has_six_changes() {
    let (_, _, usage, ..) = all();
    let points: Vec<_> = usage.points.iter().map(|p| ((p.time_ns - TEN_NS) / 1000, p.live_bytes)).collect();
    assert_eq!(points, [(1, 1000), (2, 3000), (3, 3500), (4, 2500), (6, 2756), (7, 756)]);
    assert!(usage.exact);
    assert_eq!((usage.peak_bytes, usage.live_bytes, usage.changes), (3500, 756, 6));
}

#[test]
fn two_blocks_of_the_golden_log_never_come_back() {
    let (_, _, _, leaks, _) = all();
    assert_eq!((leaks.leaked_bytes, leaks.leaked_blocks), (756, 2));
    let blocks: Vec<_> =
        leaks.blocks.iter().map(|b| (b.block.address, b.block.bytes, b.block.thread, b.age_ns)).collect();
    assert_eq!(blocks, [(0x7f00_0000_0c00, 500, 202, 7000), (0x7f00_0000_0000, 256, 101, 4000)]);
    // Without a stack nobody can say that the site normally frees.
    assert_eq!(leaks.groups[0].verdict, Verdict::Candidate);
}

#[test]
fn lifetimes_of_the_golden_log_are_all_short() {
    let (.., lifetimes) = all();
    assert_eq!((lifetimes.ended_blocks, lifetimes.live_blocks, lifetimes.churned_bytes), (3, 2, 3000));
    assert_eq!(lifetimes.mean_ns, Some(3000.0));
    let sites: Vec<&str> = lifetimes.sites.iter().map(|site| site.site.as_str()).collect();
    assert_eq!(
        sites,
        [
            "blocks from 1.00 KiB to below 2.00 KiB",
            "blocks from 512 B to below 1.00 KiB",
            "blocks from 256 B to below 512 B",
            "blocks of 0 B"
        ]
    );
}

#[test]
fn narrowing_to_a_thread_follows_its_blocks_whoever_frees_them() {
    let filter = Filter { threads: Some(vec![101]), ..Filter::default() };
    let (stats, ..) = analyse(&filter, WatermarkOptions::default());
    assert_eq!((stats.allocations, stats.frees, stats.failures, stats.unmatched_frees), (4, 3, 0, 1));
    assert_eq!((stats.peak_bytes, stats.live_bytes, stats.cross_thread_frees), (3000, 256, 1));
    let filter = Filter { streams: Some(vec![0x55_d0c0]), ..Filter::default() };
    let (stats, ..) = analyse(&filter, WatermarkOptions::default());
    assert_eq!((stats.allocations, stats.frees, stats.failures, stats.unmatched_frees), (1, 0, 1, 0));
}

#[test]
fn a_window_carries_in_what_was_live_before_it() {
    let filter = Filter {
        from_ns: Some(Instant::At(TEN_NS + 3500)),
        to_ns: Some(Instant::AfterStart(6000)),
        ..Filter::default()
    };
    let (stats, watermark, usage, leaks, _) = analyse(&filter, WatermarkOptions::default());
    assert_eq!((stats.carried_blocks, stats.carried_bytes), (3, 3500));
    assert_eq!((stats.allocations, stats.frees, stats.total_bytes), (1, 2, 256));
    assert_eq!((stats.peak_bytes, stats.peak_time_ns), (3500, Some(TEN_NS + 3500)));
    assert_eq!((watermark.blocks.len(), leaks.leaked_bytes), (3, 756));
    assert_eq!(leaks.end_time_ns, Some(TEN_NS + 7000));
    assert_eq!((usage.points[0].time_ns, usage.points[0].live_bytes), (TEN_NS + 3500, 3500));
}

#[test]
fn blocks_at_an_instant_can_be_asked_for_instead_of_the_peak() {
    let at = |at| {
        let options = WatermarkOptions { at: Some(at), ..WatermarkOptions::default() };
        let (_, watermark, ..) = analyse(&Filter::default(), options);
        (watermark.reported_blocks, watermark.reported_bytes, watermark.peak_bytes)
    };
    assert_eq!(at(Instant::At(TEN_NS + 2000)), (2, 3000, 3500));
    assert_eq!(at(Instant::AfterStart(3500)), (2, 2500, 3500));
    assert_eq!(at(Instant::At(TEN_NS + 6500)), (3, 2756, 3500));
    assert_eq!(at(Instant::At(TEN_NS * 2)), (2, 756, 3500));
    assert_eq!(at(Instant::At(0)), (0, 0, 3500));
}

#[test]
fn json_has_the_keys_others_rely_on() {
    let (stats, watermark, usage, leaks, lifetimes) = all();
    let stats = serde_json::to_value(&stats).unwrap();
    for key in
        ["allocations", "frees", "failures", "unmatched_frees", "total_bytes", "peak_bytes", "peak_time_ns"]
    {
        assert!(stats[key].is_number(), "{key}");
    }
    for key in ["count", "mean", "std", "min", "p25", "p50", "p75", "max"] {
        assert!(stats["size"][key].is_number(), "{key}");
    }
    assert_eq!((&stats["live_bytes"], &stats["live_blocks"]), (&756.into(), &2.into()));
    assert_eq!(stats["kinds"], serde_json::json!(["device"]));
    assert_eq!(
        stats["histogram"][1],
        serde_json::json!({"from_bytes": 256, "to_bytes": 512, "count": 2, "bytes": 756})
    );
    let block = &serde_json::to_value(&watermark).unwrap()["blocks"][2];
    assert_eq!(
        block,
        &serde_json::json!({
            "address": "0x7f0000000c00", "bytes": 500, "time_ns": TEN_NS + 3000, "thread": 202,
            "stream": "0x55d0c0", "device": 0, "kind": "device", "process": 1, "name": null,
            "resource": null, "scope": 0, "site": "(no stack)", "stack": [],
        })
    );
    let usage = serde_json::to_value(&usage).unwrap();
    assert_eq!(usage["points"][0], serde_json::json!({"time_ns": TEN_NS + 1000, "live_bytes": 1000}));
    let leaks = serde_json::to_value(&leaks).unwrap();
    assert_eq!((&leaks["leaked_bytes"], &leaks["leaked_blocks"]), (&756.into(), &2.into()));
    assert_eq!((&leaks["blocks"][0]["bytes"], &leaks["blocks"][0]["age_ns"]), (&500.into(), &7000.into()));
    assert_eq!(leaks["groups"][0]["verdict"], "candidate");
    assert_eq!(serde_json::to_value(&lifetimes).unwrap()["sites"][0]["churn"], 1.0);
}
