//! Timelines that are reduced or streamed keep what matters.

use floodmark_analyze::{
    DomainSeriesFold, Pass, SpaceSeriesFold, StatsFold, UsageFold, UsageMode, UsagePoint, UsageStream,
};
use floodmark_event::Event;
use floodmark_event::Filter;
use floodmark_testkit::{Workload, WorkloadProps};
use proptest::prelude::*;

use crate::random::{batch, events, filter, fold};

/// Whether `part` occurs in `whole` in the same order.
fn is_subsequence(part: &[UsagePoint], whole: &[UsagePoint]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|point| rest.any(|other| other == point))
}

fn check_reduced(events: &[Event], filter: &Filter, limit: usize) -> Result<(), TestCaseError> {
    let exact = fold(events, filter, 1000, UsageFold::new(UsageMode::Exact));
    let reduced = fold(events, filter, 1000, UsageFold::new(UsageMode::Reduced(limit)));
    prop_assert!(reduced.points.len() <= limit.max(16));
    prop_assert_eq!(reduced.changes, exact.changes);
    prop_assert_eq!((reduced.peak_bytes, reduced.peak_time_ns), (exact.peak_bytes, exact.peak_time_ns));
    let Some(width_ns) = reduced.interval_ns else {
        prop_assert_eq!(reduced.points, exact.points);
        return Ok(());
    };
    prop_assert!(is_subsequence(&reduced.points, &exact.points));
    prop_assert_eq!(reduced.points.last(), exact.points.last());
    let peak = UsagePoint { time_ns: exact.peak_time_ns.unwrap(), live_bytes: exact.peak_bytes };
    prop_assert!(reduced.points.contains(&peak));
    let origin_ns = exact.points[0].time_ns;
    let interval = |point: &UsagePoint| (point.time_ns - origin_ns).max(0) as u64 / width_ns;
    if exact.points.is_sorted_by_key(|point| point.time_ns) {
        for chunk in exact.points.chunk_by(|a, b| interval(a) == interval(b)) {
            let kept: Vec<&UsagePoint> =
                reduced.points.iter().filter(|point| interval(point) == interval(&chunk[0])).collect();
            let extremes = |values: &mut dyn Iterator<Item = u64>| {
                values.fold((u64::MAX, 0), |(low, high), value| (value.min(low), value.max(high)))
            };
            prop_assert_eq!(
                extremes(&mut chunk.iter().map(|point| point.live_bytes)),
                extremes(&mut kept.iter().map(|point| point.live_bytes))
            );
            prop_assert_eq!(kept.last().copied(), chunk.last());
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_reduced_timeline_keeps_every_interval_s_extremes(events in events(), filter in filter()) {
        check_reduced(&events, &filter, 16)?;
    }

    #[test]
    fn a_long_timeline_keeps_them_too(seed in any::<u64>(), limit in 16..300usize, live in 1..200usize) {
        let props = WorkloadProps { seed, live, events: 3000, ..WorkloadProps::default() };
        let events: Vec<Event> = Workload::new(props).events().collect();
        check_reduced(&events, &Filter::default(), limit)?;
    }

    #[test]
    fn a_streamed_timeline_has_the_same_points_as_a_collected_one(
        mut events in events(), filter in filter(), is_sorted in any::<bool>(),
    ) {
        if is_sorted {
            events.sort_by_key(|event| event.time_ns);
        }
        let exact = fold(&events, &filter, 7, UsageFold::new(UsageMode::Exact));
        let mut streamed = Vec::new();
        let mut pass = Pass::new(&filter, UsageStream::new(&filter, |kind, point| streamed.push((kind, point))));
        for chunk in events.chunks(5) {
            pass.update(&batch(chunk));
        }
        pass.finish(&crate::random::tables());
        pass.fold_mut().flush();
        drop(pass);
        prop_assert!(!is_sorted || streamed.is_sorted_by_key(|(_, point)| point.time_ns));
        let of = |wanted| {
            streamed.iter().filter(move |(kind, _)| *kind == wanted).map(|(_, point)| *point).collect::<Vec<_>>()
        };
        let main = if filter.kinds.is_some() { None } else { Some(exact.kinds[0]) };
        let others = exact.others.iter().map(|series| (Some(series.kind), &series.points));
        for (kind, points) in [(main, &exact.points)].into_iter().chain(others) {
            let mut streamed = of(kind);
            if !is_sorted {
                // A late event of another kind may leave more points of one instant.
                streamed.retain(|point| points.contains(point));
            }
            prop_assert_eq!(&streamed, points);
        }
    }

    #[test]
    fn courses_reach_the_peak_however_coarse_the_clock(
        mut events in events(),
        filter in filter(),
        tick_ns in 1..1000i64,
    ) {
        for event in &mut events {
            event.time_ns = event.time_ns.div_euclid(tick_ns);
        }
        let folds = (StatsFold::default(), SpaceSeriesFold::new(100), DomainSeriesFold::new(100));
        let (stats, spaces, places) = fold(&events, &filter, 1000, folds);
        let highest = spaces.series.points.iter().max_by_key(|point| point.total.live_bytes);
        prop_assert_eq!(highest.map_or(0, |point| point.total.live_bytes), stats.peak_bytes);
        for point in &spaces.series.points {
            let sum = point.values.iter().fold(0u64, |sum, value| sum.saturating_add(*value));
            prop_assert_eq!(sum, point.total.live_bytes);
        }
        if let [place] = &places[..] {
            let highest = place.points.iter().map(|point| point.live_bytes).max();
            prop_assert_eq!(highest.unwrap_or(0), stats.peak_bytes);
        }
    }
}
