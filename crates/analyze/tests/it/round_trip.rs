//! Every result comes back from JSON as it was written.

use std::collections::BTreeMap;
use std::fmt::Debug;

use floodmark_analyze::budget::{Budget, BudgetFigure, Measured};
use floodmark_analyze::{
    CaveatsFold, DeviceSample, Diff, DiffEvents, DiffParts, DiffSide, Direction, FailuresFold, Flame,
    FlameOf, FragmentationFold, FragmentationOptions, GroupBy, GrowthFold, GrowthOptions, LayersFold,
    LeaksFold, LifetimesFold, MapAt, Mark, OriginTotalsFold, OverlayFold, OverlayOptions, PathRules, RunFold,
    RunSummary, SplitBy, StatsFold, UsageFold, UsageMode, WatermarkFold, WatermarkOptions,
};
use floodmark_event::units::Instant;
use floodmark_event::{Event, Filter, Metric, ProcessId, SampleRow, SubjectKind, SubjectRow};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::random::{events, filter, fold, tables};

/// Asserts that a value survives, and that its text can be read.
fn comes_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let json = serde_json::to_value(value).unwrap();
    assert_eq!(&serde_json::from_value::<T>(json).unwrap(), value);
    // Floating-point numbers may lose their last bit in text.
    serde_json::from_str::<T>(&serde_json::to_string(value).unwrap()).unwrap();
}

fn diff_of(events: &[Event], filter: &Filter) -> (DiffSide, floodmark_analyze::OriginTotals) {
    let watermark = WatermarkOptions { group_by: vec![GroupBy::Size], ..WatermarkOptions::default() };
    let folds = (
        StatsFold::default(),
        OriginTotalsFold::new(None, SplitBy::Nothing),
        WatermarkFold::new(watermark),
        LeaksFold::default(),
    );
    let (stats, weights, watermark, leaks) = fold(events, filter, 7, folds);
    let parts = DiffParts {
        stats: &stats,
        weights: &weights,
        watermark: &watermark,
        leaks: &leaks,
        tables: &tables(),
    };
    let events = DiffEvents::new(parts, GroupBy::Site, &PathRules::default());
    (DiffSide { events: Some(events), ..DiffSide::default() }, weights)
}

proptest! {
    #[test]
    fn results_of_events(events in events(), filter in filter()) {
        let first_ns = events.first().map_or(0, |event| event.time_ns);
        let groups = GroupBy::ALL.to_vec();
        let watermark = WatermarkOptions { group_by: groups, ..WatermarkOptions::default() };
        let gaps = FragmentationOptions { map: Some(MapAt::Time(Instant::AfterStart(200))), ..FragmentationOptions::default() };
        let ends: Vec<i64> = (0..5).map(|at| first_ns + at * 100).collect();
        let growth = GrowthOptions {
            ends_ns: BTreeMap::from([(ProcessId(1), ends)]),
            per: "step".into(),
            ..GrowthOptions::default()
        };
        let samples = (0..4).map(|at| DeviceSample { time_ns: first_ns + at * 90, device: 0, used_bytes: 4096 });
        let overlay = OverlayOptions { samples: samples.collect(), ..OverlayOptions::default() };
        let ((stats, watermark, usage, leaks), (lifetimes, fragmentation, growth), (overlay, layers, caveats, failures)) =
            fold(&events, &filter, 9, (
                (
                    StatsFold::default(),
                    WatermarkFold::new(watermark),
                    UsageFold::new(UsageMode::Exact),
                    LeaksFold::default(),
                ),
                (LifetimesFold::default(), FragmentationFold::new(gaps), GrowthFold::new(growth)),
                (OverlayFold::new(overlay), LayersFold::default(), CaveatsFold::default(), FailuresFold::default()),
            ));
        comes_back(&stats);
        comes_back(&watermark);
        comes_back(&usage);
        comes_back(&leaks);
        comes_back(&lifetimes);
        comes_back(&fragmentation);
        comes_back(&growth);
        comes_back(&overlay);
        comes_back(&layers);
        comes_back(&caveats);
        comes_back(&failures);
        let measured = Measured::new((Some(watermark), Some(leaks), Some(failures)), 3);
        for figure in [BudgetFigure::Peak, BudgetFigure::LeakedBlocks, BudgetFigure::LostEvents] {
            comes_back(&Budget::at_most("limit", figure, 100).check(&measured).unwrap());
        }
    }

    #[test]
    fn comparisons_and_flames(before in events(), after in events(), filter in filter()) {
        let ((first, weights), (second, _)) = (diff_of(&before, &filter), diff_of(&after, &filter));
        comes_back(&Diff::new(&first, &second, GroupBy::Site));
        for of in [FlameOf::Marked, FlameOf::End, FlameOf::Allocated, FlameOf::Count] {
            comes_back(&Flame::of_weights(&weights, &tables(), &PathRules::default(), of, Direction::FromCaller));
        }
    }

    #[test]
    fn results_of_samples(
        rows in proptest::collection::vec((0..30i64, 1..5u64, 1..25u8, 0..1000u64), 0..40), status in any::<Option<i32>>(),
    ) {
        let kinds = [SubjectKind::Job, SubjectKind::Process, SubjectKind::Device, SubjectKind::Cgroup];
        let subjects = (1..).zip(kinds).map(|(id, kind)| {
            let row = SubjectRow { start_ns: Some(1), wait_status: status, ..SubjectRow::new(id, kind, id, "name") };
            (id, row)
        });
        let mut run = RunFold::new(&subjects.collect(), vec![Mark { time_ns: 12, name: "phase".into() }]);
        let row = |&(time_ns, subject, metric, value): &(i64, u64, u8, u64)| {
            SampleRow { time_ns, subject, metric: Metric::from_number(metric).unwrap(), value }
        };
        run.update(&rows.iter().map(row).collect::<Vec<_>>());
        let memory = run.finish(None);
        comes_back(&memory);
        comes_back(&RunSummary { memory, exit_status: status, ..RunSummary::default() });
    }
}
