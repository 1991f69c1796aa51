//! What is live at an instant agrees with a watermark at that time, however few instants are kept.

use std::collections::BTreeMap;

use floodmark_analyze::{
    BlockInfo, Breakdown, Cuts, GroupBy, Held, HolderGroup, Pass, ScopePaths, SnapshotOptions, SnapshotPass,
    Snapshots, UsageFold, UsageMode, Watermark, WatermarkFold, WatermarkOptions,
};
use floodmark_event::Filter;
use floodmark_event::units::Instant;
use floodmark_event::{Action, Event, StackId};
use proptest::prelude::*;

use crate::random::{batch, events, filter, fold, tables};

fn snapshots(events: &[Event], filter: &Filter, rows: usize, options: SnapshotOptions) -> Snapshots {
    let mut first = Pass::new(filter, UsageFold::new(UsageMode::Reduced(20_000)));
    first.update(&batch(events));
    let usage = first.finish(&tables());
    let mut pass = SnapshotPass::new(filter, Cuts::choose(&usage, &first), options);
    for chunk in events.chunks(rows) {
        pass.update(&batch(chunk));
    }
    pass.finish(&tables())
}

fn snapshots_of(events: &[Event], filter: &Filter, rows: usize) -> Snapshots {
    snapshots(events, filter, rows, SnapshotOptions { blocks: None, ..SnapshotOptions::default() })
}

fn in_order(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by_key(|event| event.time_ns);
    events
}

fn watermark(events: &[Event], filter: &Filter, at: Option<Instant>) -> Watermark {
    let group_by = vec![GroupBy::Site, GroupBy::Stack];
    let options = WatermarkOptions { at, group_by, ..WatermarkOptions::default() };
    fold(events, filter, 9, WatermarkFold::new(options))
}

/// The blocks of an instant as a reader of the result finds them.
fn listed(snapshots: &Snapshots, at: usize) -> Vec<BlockInfo> {
    let mut blocks: Vec<&BlockInfo> =
        snapshots.blocks.iter().filter(|seen| seen.live.contains(&at)).map(|seen| &seen.block).collect();
    // They come in order of age, which decides between equals of one time and address.
    blocks.sort_by_key(|block| (std::cmp::Reverse(block.bytes), block.time_ns, block.address));
    blocks.truncate(snapshots.blocks_limit.unwrap_or(usize::MAX));
    blocks.into_iter().cloned().collect()
}

fn sites(snapshots: &Snapshots, at: usize) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for group in &snapshots.groups {
        let held = group.at(at);
        let sum = sums.entry(group.site.clone()).or_default();
        *sum = (sum.0 + held.bytes, sum.1 + held.blocks);
    }
    sums.retain(|_, sum| sum.1 > 0);
    sums
}

fn agree(snapshots: &Snapshots, events: &[Event], filter: &Filter) {
    for (at, snapshot) in snapshots.snapshots.iter().enumerate() {
        let is_peak = snapshots.peak == Some(at);
        let wanted = watermark(events, filter, (!is_peak).then_some(Instant::At(snapshot.time_ns)));
        assert_eq!(
            (snapshot.bytes, snapshot.blocks),
            (wanted.reported_bytes, wanted.reported_blocks),
            "{at}"
        );
        let limit = snapshots.blocks_limit.unwrap_or(usize::MAX).min(wanted.blocks.len());
        assert_eq!(listed(snapshots, at), wanted.blocks[..limit], "{at}");
        let groups: BTreeMap<String, (u64, u64)> = wanted.groups[0]
            .groups
            .iter()
            .map(|group| (group.key.clone(), (group.bytes, group.blocks)))
            .collect();
        assert_eq!(sites(snapshots, at), groups, "{at}");
        for breakdown in &snapshots.breakdowns {
            let held = breakdown.bands.iter().map(|band| held_at(&band.held, at));
            let sums = held.fold((0, 0), |sum, held| (sum.0 + held.bytes, sum.1 + held.blocks));
            assert_eq!(sums, (snapshot.bytes, snapshot.blocks), "{at} by {}", breakdown.by.name());
        }
    }
    for breakdown in &snapshots.breakdowns {
        without_each(snapshots, breakdown);
    }
}

fn held_at(held: &[Held], at: usize) -> Held {
    held.iter().rfind(|held| held.snapshot <= at).copied().unwrap_or_default()
}

/// Asserts that the peak without a band is the highest of what the others held.
fn without_each(snapshots: &Snapshots, breakdown: &Breakdown) {
    let totals: Vec<u64> = snapshots.snapshots.iter().map(|snapshot| snapshot.bytes).collect();
    for band in &breakdown.bands {
        let others = (0..totals.len()).map(|at| {
            let rest = breakdown.bands.iter().filter(|other| !std::ptr::eq(*other, band));
            rest.map(|other| held_at(&other.held, at).bytes).sum::<u64>()
        });
        assert_eq!(breakdown.peak_without(band, &totals), others.max().unwrap_or(0), "{}", band.name);
    }
}

/// Asserts that groups tell what was allocated between any instant and the next.
fn tells_arrivals(snapshots: &Snapshots, events: &[Event]) -> Result<(), TestCaseError> {
    let cumulative = |at: usize| {
        let latest = |group: &HolderGroup| {
            group.cumulative.iter().rfind(|cumulative| cumulative.snapshot <= at).copied()
        };
        let groups = snapshots.groups.iter().filter_map(latest);
        groups.fold((0, 0), |sum, cumulative| (sum.0 + cumulative.blocks, sum.1 + cumulative.bytes))
    };
    let allocated = |at: usize| {
        let counts = |event: &&Event| event.action == Action::Alloc && snapshots.kinds == [event.kind];
        let there =
            events.iter().filter(counts).filter(|event| event.time_ns <= snapshots.snapshots[at].time_ns);
        there.fold((0, 0), |sum, event| (sum.0 + 1, sum.1 + event.bytes))
    };
    // The peak may lie within an instant.
    let all: Vec<usize> = (0..snapshots.snapshots.len()).filter(|at| snapshots.peak != Some(*at)).collect();
    for (from, to) in all.iter().zip(all.iter().skip(1)) {
        let (was, is) = (cumulative(*from), cumulative(*to));
        let (before, after) = (allocated(*from), allocated(*to));
        prop_assert_eq!(
            (is.0 - was.0, is.1 - was.1),
            (after.0 - before.0, after.1 - before.1),
            "{} {}",
            from,
            to
        );
        let held = |at: usize| snapshots.snapshots[at].blocks;
        prop_assert!(held(*from) + is.0 - was.0 >= held(*to), "nothing stays that did not come");
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_instant_is_what_a_watermark_there_says(events in events(), filter in filter(), rows in 1..20usize) {
        let snapshots = snapshots_of(&events, &filter, rows);
        let peak = watermark(&events, &filter, None);
        let found = snapshots.peak.map(|at| snapshots.snapshots[at]);
        prop_assert_eq!(found.map(|snapshot| snapshot.bytes), peak.peak_time_ns.map(|_| peak.peak_bytes));
        prop_assert!(found.map(|snapshot| snapshot.time_ns) >= peak.peak_time_ns);
        // Of a clock that goes back "up to an instant" means nothing certain.
        let events = in_order(events);
        agree(&snapshots_of(&events, &filter, rows), &events, &filter);
    }

    #[test]
    fn instants_that_are_given_up_leave_the_others_right(events in events(), changes in 0..60usize, blocks in 1..4usize) {
        let options = SnapshotOptions { blocks: Some(blocks), changes, ..SnapshotOptions::default() };
        let (filter, events) = (Filter::default(), in_order(events));
        let all = snapshots(&events, &filter, 7, SnapshotOptions { blocks: Some(blocks), ..SnapshotOptions::default() });
        let fewer = snapshots(&events, &filter, 7, options);
        agree(&fewer, &events, &filter);
        prop_assert_eq!(fewer.peak.map(|at| fewer.snapshots[at].bytes), all.peak.map(|at| all.snapshots[at].bytes));
        prop_assert_eq!(fewer.snapshots.last().map(|last| last.time_ns), all.snapshots.last().map(|last| last.time_ns));
        prop_assert!(!fewer.exact || fewer.snapshots.len() == all.snapshots.len());
    }

    #[test]
    fn between_instants_that_are_exact_no_bytes_change(mut events in events(), after in 0..700u64) {
        // Of blocks without bytes a timeline does not speak, and a clock that goes back has no in-between.
        events.retain(|event| event.action != Action::Alloc || event.bytes > 0);
        let events = in_order(events);
        let snapshots = snapshots(&events, &Filter::default(), 8, SnapshotOptions { blocks: None, ..SnapshotOptions::default() });
        prop_assert!(snapshots.exact || events.is_empty());
        let Some(first) = events.first() else { return Ok(()) };
        let time_ns = first.time_ns + after as i64;
        let wanted = watermark(&events, &Filter::default(), Some(Instant::At(time_ns)));
        let at = snapshots.snapshots.partition_point(|snapshot| snapshot.time_ns <= time_ns);
        let found = at.checked_sub(1).map_or_else(Vec::new, |at| listed(&snapshots, at));
        prop_assert_eq!(found, wanted.blocks);
    }

    #[test]
    fn groups_beyond_the_limit_are_one_and_nothing_is_lost(events in events(), limit in 1..4usize) {
        let options = SnapshotOptions { groups: limit, blocks: None, ..SnapshotOptions::default() };
        let snapshots = snapshots(&events, &Filter::default(), 7, options);
        prop_assert!(snapshots.groups.len() <= limit);
        for (at, snapshot) in snapshots.snapshots.iter().enumerate() {
            let held = snapshots.groups.iter().map(|group| group.at(at)).fold((0, 0), |sum, held| (sum.0 + held.bytes, sum.1 + held.blocks));
            prop_assert_eq!(held, (snapshot.bytes, snapshot.blocks));
        }
        for seen in &snapshots.blocks {
            prop_assert!((seen.group as usize) < snapshots.groups.len());
        }
    }

    #[test]
    fn between_two_instants_came_what_was_allocated_there(
        events in events(), changes in 0..60usize, limit in 1..9usize, rows in 1..20usize
    ) {
        let events = in_order(events);
        let options = SnapshotOptions { blocks: Some(1), changes, groups: limit, ..SnapshotOptions::default() };
        let snapshots = snapshots(&events, &Filter::default(), rows, options);
        prop_assert!(snapshots.counts_cumulative || changes < events.len());
        if snapshots.counts_cumulative {
            tells_arrivals(&snapshots, &events)?;
        }
    }

    #[test]
    fn between_two_instants_that_are_asked_for_came_what_was_allocated_there(
        events in events(), mut times in proptest::collection::vec(990i64..2200, 2..5), tally in 0..3u8
    ) {
        let events = in_order(events);
        times.sort_unstable();
        let mut pass = SnapshotPass::at(&Filter::default(), tally, times, SnapshotOptions::default(), None);
        pass.update(&batch(&events));
        let snapshots = pass.finish(&tables());
        prop_assert!(snapshots.counts_cumulative);
        tells_arrivals(&snapshots, &events)?;
    }

    #[test]
    fn functions_hold_what_stacks_through_them_hold(events in events()) {
        let snapshots = snapshots(&events, &Filter::default(), 7, SnapshotOptions { blocks: None, ..SnapshotOptions::default() });
        let tables = tables();
        for profile in &snapshots.functions {
            let calls = |event: &Event| tables.frames_of(event.stack).any(|frame| tables.string(frame.function) == profile.function);
            let allocated = events.iter().filter(|event| {
                event.action == Action::Alloc && calls(event) && snapshots.kinds == [event.kind]
            });
            let (count, bytes) = allocated.fold((0, 0), |sum, event| (sum.0 + 1, sum.1 + event.bytes));
            prop_assert_eq!((profile.allocations, profile.allocated_bytes), (count, bytes), "{}", profile.function);
            let held = |at: usize| -> u64 {
                let blocks = snapshots.blocks.iter().filter(|seen| seen.live.contains(&at));
                blocks.filter(|seen| seen.block.stack.iter().any(|frame| frame.starts_with(&profile.function)))
                    .map(|seen| seen.block.bytes).sum()
            };
            let all: Vec<u64> = (0..snapshots.snapshots.len()).map(held).collect();
            prop_assert_eq!(profile.most_bytes, all.iter().copied().max().unwrap_or(0));
            prop_assert_eq!(profile.peak_bytes, snapshots.peak.map_or(0, |at| all[at]));
            prop_assert_eq!(profile.end_bytes, all.last().copied().unwrap_or(0));
        }
    }
}

proptest! {
    #[test]
    fn instants_never_go_back(events in events(), rows in 1..20usize) {
        let snapshots = snapshots_of(&events, &Filter::default(), rows);
        prop_assert!(snapshots.snapshots.is_sorted_by_key(|snapshot| snapshot.time_ns));
    }
}

#[test]
fn what_a_function_owns_is_what_has_it_as_its_site() {
    let event = |time_ns, address, stack| Event {
        time_ns,
        address,
        bytes: 64,
        stack: StackId(stack),
        ..Event::default()
    };
    // Of main, load; of main, train, malloc.
    let found = snapshots_of(&[event(1, 64, 2), event(2, 128, 4)], &Filter::default(), 9).functions;
    let mut owned: Vec<_> =
        found.iter().map(|one| (one.function.as_str(), one.peak_bytes, one.own_peak_bytes)).collect();
    owned.sort_unstable();
    assert_eq!(owned, [("load", 64, 64), ("main", 128, 0), ("train", 64, 64)]);
}

#[test]
fn a_block_carries_the_scopes_around_it() {
    let mut scopes = ScopePaths::default();
    scopes.add(7, 0, "epoch");
    scopes.add(8, 7, "step");
    let event = |time_ns, address, scope| Event { time_ns, address, bytes: 64, scope, ..Event::default() };
    let events = [event(1, 16, 8), event(2, 128, 0)];
    let snapshots =
        snapshots(&events, &Filter::default(), 9, SnapshotOptions { scopes, ..SnapshotOptions::default() });
    let mut scopes: Vec<_> = snapshots.groups.iter().map(|group| group.scope.join("/")).collect();
    scopes.sort();
    assert_eq!(scopes, ["", "epoch/step"]);
}

#[test]
fn addresses_are_taken_where_blocks_are() {
    let event =
        |time_ns, action, address, bytes| Event { time_ns, action, address, bytes, ..Event::default() };
    let mib = 1 << 20;
    let events = [
        event(1, Action::Alloc, mib, mib),
        event(2, Action::Alloc, 3 * mib, mib),
        event(3, Action::Free, mib, mib),
        event(4, Action::Alloc, 1 << 40, 2 * mib),
    ];
    let snapshots = snapshots(&events, &Filter::default(), 9, SnapshotOptions::default());
    let map = &snapshots.maps[0];
    let bands: Vec<_> = map.bands.iter().map(|band| (band.start, band.bytes)).collect();
    assert_eq!(bands, [(mib, 3 * mib), (1 << 40, 2 * mib)]);
    assert_eq!(map.taken.len(), map.cells * map.snapshots.len());
    let bytes = |at: usize| -> u64 {
        map.taken[at * map.cells..][..map.cells]
            .iter()
            .map(|part| u64::from(*part) * map.cell_bytes / 255)
            .sum()
    };
    assert_eq!((0..4).map(bytes).collect::<Vec<_>>(), [mib, 2 * mib, mib, 3 * mib]);
}
