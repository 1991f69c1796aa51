//! Weights, flame graphs and comparisons agree with adding up blocks by hand.

use std::collections::BTreeMap;

use floodmark_analyze::{
    Diff, DiffEvents, DiffParts, DiffSide, Direction, Flame, FlameOf, FrameChoice, GroupBy, LeaksFold,
    LeaksOptions, OriginTotalsFold, PathRules, Presence, SplitBy, StatsFold, Totals, WatermarkFold,
    WatermarkOptions,
};
use floodmark_event::Event;
use floodmark_event::Filter;
use floodmark_event::units::Instant;
use proptest::prelude::*;

use crate::random::{events, filter, fold, oracle, tables};

type Sums = BTreeMap<(u32, u32), Totals>;

fn origin(event: &Event) -> (u32, u32) {
    if event.stack.0 == 0 { (0, event.name.0) } else { (event.stack.0, 0) }
}

fn add(sums: &mut Sums, event: &Event) {
    sums.entry(origin(event)).or_default().add(Totals { bytes: event.bytes, blocks: 1 });
}

fn side(events: &[Event], filter: &Filter, by: GroupBy) -> DiffSide {
    let watermark = WatermarkOptions { group_by: vec![by], ..WatermarkOptions::default() };
    let folds = (
        StatsFold::default(),
        OriginTotalsFold::new(None, SplitBy::Nothing),
        WatermarkFold::new(watermark),
        LeaksFold::new(LeaksOptions::default()),
    );
    let (stats, weights, watermark, leaks) = fold(events, filter, 5, folds);
    let tables = tables();
    let parts =
        DiffParts { stats: &stats, weights: &weights, watermark: &watermark, leaks: &leaks, tables: &tables };
    DiffSide { events: Some(DiffEvents::new(parts, by, &PathRules::default())), ..DiffSide::default() }
}

proptest! {
    #[test]
    fn origins_weigh_what_their_blocks_do(events in events(), filter in filter(), at in proptest::option::of(900..1700i64)) {
        let weights = fold(&events, &filter, 7, OriginTotalsFold::new(at.map(Instant::At), SplitBy::Nothing));
        let oracle = oracle(&events, &filter);
        let (_, peak_time_ns, peak) = oracle.peak();
        let marked_blocks = at.map_or(peak, |at| oracle.blocks_at(at));
        let (mut marked, mut end) = (Sums::new(), Sums::new());
        for life in &marked_blocks {
            add(&mut marked, &life.alloc);
        }
        for life in &oracle.live() {
            add(&mut end, &life.alloc);
        }
        let found = |weight: fn(&floodmark_analyze::OriginRow) -> Totals| {
            let mut sums = Sums::new();
            for row in weights.rows.iter().filter(|row| weight(row).blocks > 0) {
                sums.entry((row.origin.stack.0, row.origin.name.0)).or_default().add(weight(row));
            }
            sums
        };
        prop_assert_eq!(found(|row| row.marked), marked);
        prop_assert_eq!(found(|row| row.end), end);
        let allocated = Totals::sum(weights.rows.iter().map(|row| row.allocated));
        let stats = fold(&events, &filter, 3, StatsFold::default());
        prop_assert_eq!(allocated, Totals { bytes: stats.total_bytes, blocks: stats.allocations });
        if !events.is_empty() {
            prop_assert_eq!(weights.marked_time_ns, at.or(peak_time_ns));
        }
    }

    #[test]
    fn a_flame_graph_adds_up_at_every_call_whatever_it_shows(
        events in events(),
        filter in filter(),
        of in proptest::sample::select(vec![FlameOf::Marked, FlameOf::End, FlameOf::Allocated, FlameOf::Count]),
        frames in proptest::sample::select(vec![FrameChoice::All, FrameChoice::Folded]),
        direction in proptest::sample::select(vec![Direction::FromCaller, Direction::FromCallee]),
    ) {
        let weights = fold(&events, &filter, 7, OriginTotalsFold::default());
        let rules = PathRules { frames, ..PathRules::default() };
        let flame = Flame::of_weights(&weights, &tables(), &rules, of, direction);
        let mut below: Vec<Totals> = flame.nodes.iter().map(|node| node.own).collect();
        for (at, node) in flame.nodes.iter().enumerate().rev() {
            prop_assert_eq!(below[at], node.weight);
            prop_assert!(node.weight.blocks > 0);
            if let Some(parent) = node.parent {
                prop_assert!((parent as usize) < at);
                below[parent as usize].add(node.weight);
            }
        }
        let roots = flame.nodes.iter().filter(|node| node.parent.is_none());
        prop_assert_eq!(Totals::sum(roots.map(|node| node.weight)), flame.total);
    }

    #[test]
    fn a_run_compared_with_itself_has_not_changed(
        events in events(), filter in filter(), by in proptest::sample::select(GroupBy::ALL.to_vec())
    ) {
        let side = side(&events, &filter, by);
        let diff = Diff::new(&side, &side, by);
        prop_assert!(diff.is_empty(), "{diff:?}");
        prop_assert!(diff.figures.iter().all(|figure| figure.change == Some(0) || figure.before.is_none()));
    }

    #[test]
    fn changes_of_groups_add_up_to_the_change_of_the_peak_and_turn_around(
        first in events(), second in events(), filter in filter(), by in proptest::sample::select(GroupBy::ALL.to_vec())
    ) {
        let (first, second) = (side(&first, &filter, by), side(&second, &filter, by));
        let (forth, back) = (Diff::new(&first, &second, by), Diff::new(&second, &first, by));
        let peak = forth.figure(floodmark_analyze::Figure::PeakBytes).unwrap();
        let sum: i64 = forth.groups.iter().map(|group| group.change_bytes).sum();
        prop_assert_eq!(Some(sum), peak.change);
        prop_assert_eq!(forth.groups.len(), back.groups.len());
        prop_assert_eq!(forth.groups_unchanged, back.groups_unchanged);
        let turned: i64 = back.groups.iter().map(|group| group.change_bytes).sum();
        prop_assert_eq!(sum, -turned);
        let count = |diff: &Diff, presence| diff.groups.iter().filter(|group| group.presence == presence).count();
        prop_assert_eq!(count(&forth, Presence::New), count(&back, Presence::Gone));
        for pair in forth.groups.windows(2) {
            prop_assert!(pair[0].change_bytes.unsigned_abs() >= pair[1].change_bytes.unsigned_abs());
        }
        for node in &forth.nodes {
            prop_assert!(node.most_bytes >= node.before.bytes.max(node.after.bytes));
            prop_assert!(node.most_bytes <= node.before.bytes + node.after.bytes);
        }
    }
}

#[test]
fn stack_samples_are_counted_by_process_and_from_either_end() {
    use floodmark_analyze::StackCounts;
    use floodmark_event::{StackId, StackReason, StackSampleRow};
    let sample = |subject, stack| StackSampleRow {
        time_ns: 0,
        subject,
        thread: 1,
        stack: StackId(stack),
        reason: StackReason::Interval,
        pause_ns: 0,
    };
    let mut counts = StackCounts::default();
    for row in [sample(1, 1), sample(1, 1), sample(1, 2), sample(1, 0)] {
        counts.add(&row);
    }
    let rules = PathRules { frames: FrameChoice::All, ..PathRules::default() };
    let alone = counts.flame(&tables(), &rules, Direction::FromCaller);
    assert_eq!(
        (alone.total.blocks, alone.of),
        (3, FlameOf::Samples),
        "a sample without a stack says nothing"
    );
    counts.add(&sample(2, 1));
    let several = counts.flame(&tables(), &rules, Direction::FromCaller);
    for flame in [&several, &counts.flame(&tables(), &rules, Direction::FromCallee)] {
        let roots: Vec<_> = flame.nodes.iter().filter(|node| node.parent.is_none()).collect();
        assert!(roots.len() == 1 && roots[0].text == "process" && roots[0].weight.blocks == 4);
    }
    let mut paths = Vec::new();
    several
        .each_path(|path, value| {
            paths.push((path.len(), value));
            Ok::<(), ()>(())
        })
        .unwrap();
    assert_eq!(paths.iter().map(|(_, value)| value).sum::<u64>(), 4);
}
