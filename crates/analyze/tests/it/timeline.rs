//! Timelines that are reduced or streamed keep what matters.

use floodmark_analyze::usage::index::{IndexedWindow, UsageIndexFold};
use floodmark_analyze::{
    DomainSeriesFold, Pass, SpaceSeriesFold, StatsFold, UsageFold, UsageMode, UsagePoint, UsageStream,
};
use floodmark_event::Event;
use floodmark_event::Filter;
use floodmark_event::units::Instant;
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

/// Compares a window that is answered from an index, or from its own rows, with one that is read from the beginning.
fn check_index(
    events: &[Event],
    (from_ns, to_ns): (i64, i64),
    limits: (usize, usize),
) -> Result<(), TestCaseError> {
    let (fine, limit) = limits;
    let Some(index) = fold(events, &Filter::default(), 7, UsageIndexFold::limited(fine)) else {
        return Ok(());
    };
    let filter =
        Filter { from_ns: Some(Instant::At(from_ns)), to_ns: Some(Instant::At(to_ns)), ..Filter::default() };
    let exact = fold(events, &filter, 1000, UsageFold::new(UsageMode::Exact));
    let reduced = fold(events, &filter, 1000, UsageFold::new(UsageMode::Reduced(limit)));
    let found = match index.window(from_ns, to_ns, limit) {
        IndexedWindow::Known(found) => found,
        IndexedWindow::Read { from_ns: read_ns, live_bytes } => {
            if !index.is_plain() {
                return Ok(());
            }
            prop_assert!(read_ns <= from_ns);
            let own: Vec<Event> =
                events.iter().filter(|event| (read_ns..=to_ns).contains(&event.time_ns)).copied().collect();
            let mut rows = index.rows(from_ns, live_bytes, limit);
            for chunk in own.chunks(5) {
                rows.update(&batch(chunk));
            }
            let found = rows.finish(to_ns);
            prop_assert_eq!(&found.points, &reduced.points);
            prop_assert_eq!(found.interval_ns, reduced.interval_ns);
            found
        }
    };
    if found.exact {
        prop_assert_eq!(&found.points, &exact.points);
        prop_assert_eq!((found.peak_bytes, found.live_bytes), (exact.peak_bytes, exact.live_bytes));
        return Ok(());
    }
    if found.points == reduced.points {
        return Ok(());
    }
    // The first interval of the index may lie in the window in part; it is left out.
    let Some(begin) = found.points.first() else { return Ok(()) };
    let last_before = |time_ns: i64| exact.points.iter().rev().find(|point| point.time_ns < time_ns);
    for (at, point) in found.points.iter().enumerate() {
        let is_carried =
            at == 0 && last_before(point.time_ns).is_some_and(|last| last.live_bytes == point.live_bytes);
        prop_assert!(is_carried || exact.points.contains(point), "{:?} is made up", point);
    }
    let width_ns = found.interval_ns.unwrap();
    // What was live at the beginning counts for both.
    let later = exact.points.iter().filter(|point| point.time_ns >= begin.time_ns && *point != begin);
    let all: Vec<UsagePoint> = std::iter::once(begin).chain(later).copied().collect();
    let kept = |from: i64| {
        let inside = move |point: &&UsagePoint| (from..from + width_ns as i64).contains(&point.time_ns);
        let found: Vec<u64> = found.points.iter().filter(inside).map(|point| point.live_bytes).collect();
        let all: Vec<u64> = all.iter().filter(inside).map(|point| point.live_bytes).collect();
        (found, all)
    };
    // Intervals of the answer begin at multiples of their width after the first change of all.
    let origin_ns = events.iter().find(|event| event.bytes > 0).map_or(0, |event| event.time_ns);
    let first = origin_ns + (begin.time_ns - origin_ns).div_euclid(width_ns as i64) * width_ns as i64;
    for from in (first..=to_ns).step_by(width_ns as usize) {
        // Of the last interval only a part may lie in the window.
        if from < begin.time_ns || from + width_ns as i64 > to_ns {
            continue;
        }
        let (found, all) = kept(from);
        prop_assert_eq!(found.iter().max(), all.iter().max());
        prop_assert_eq!(found.iter().min(), all.iter().min());
        prop_assert_eq!(found.last(), all.last());
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_window_of_an_index_is_that_of_all_events(
        seed in any::<u64>(), live in 1..200usize, fine in 200..4000usize, limit in 16..200usize,
        from in 0.0..1.0f64, share in 0.0..1.0f64,
    ) {
        let props = WorkloadProps { seed, live, events: 3000, ..WorkloadProps::default() };
        let events: Vec<Event> = Workload::new(props).events().collect();
        let (first, last) = (events[0].time_ns, events[events.len() - 1].time_ns);
        let from_ns = first + ((last - first) as f64 * from) as i64;
        let to_ns = from_ns + ((last - from_ns) as f64 * share) as i64;
        check_index(&events, (from_ns, to_ns), (fine, limit))?;
    }

    #[test]
    fn an_index_of_odd_events_is_right_or_says_that_rows_are_not_enough(
        mut events in events(), from in 0..500i64, length in 0..500i64,
    ) {
        events.sort_by_key(|event| event.time_ns);
        check_index(&events, (1000 + from, 1000 + from + length), (16, 16))?;
        check_index(&events, (1000 + from, 1000 + from + length), (1000, 1000))?;
    }

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
