//! Partial results of any division of a job, merged in any order, give the answers of one pass over everything.

use floodmark_analyze::{
    Caveats, CaveatsFold, Cut, Fold, GroupBy, Growth, GrowthFold, GrowthOptions, HeldBlocks, HeldFold,
    JobProcesses, Layer, LayersFold, Leaks, LeaksFold, LeaksOptions, Lifetimes, LifetimesFold,
    LifetimesOptions, LookFold, Partial, PartialData, PartialError, PartialOptions, PartialSource, Pass,
    RankMap, SearchFor, Stats, StatsFold, Watermark, WatermarkFold, WatermarkOptions, partial_fold,
};
use floodmark_event::tables::Process;
use floodmark_event::units::Instant;
use floodmark_event::{Event, Filter, ProcessId, Tables};
use proptest::prelude::*;

use crate::random::{batch, events, filter, tables};

const KEY: &str = "job.flood";
const PROCESSES: u32 = 5;

/// All answers.
#[derive(Debug, PartialEq)]
struct Answers {
    stats: Stats,
    layers: Vec<Layer>,
    leaks: Leaks,
    lifetimes: Lifetimes,
    growth: Growth,
    caveats: Caveats,
    watermark: Watermark,
    at: Watermark,
    processes: JobProcesses,
    map: Option<RankMap>,
}

fn lifetimes() -> LifetimesOptions {
    LifetimesOptions { threshold_ns: 50, ..LifetimesOptions::default() }
}

fn growth(filter: &Filter) -> GrowthOptions {
    let ends_ns: Vec<i64> = (0..40).map(|at| 1_000 + at * 20).collect();
    GrowthOptions {
        per: "step".into(),
        warm_up: 2,
        ends_ns: (1..=PROCESSES).map(|process| (ProcessId(process), ends_ns.clone())).collect(),
        window: (filter.from_ns, filter.to_ns),
        ..GrowthOptions::default()
    }
}

fn watermark(at: Option<i64>) -> WatermarkOptions {
    WatermarkOptions {
        at: at.map(Instant::At),
        group_by: GroupBy::ALL.to_vec(),
        ..WatermarkOptions::default()
    }
}

fn named_tables() -> Tables {
    let mut tables = tables();
    let process =
        |id| Process { id: ProcessId(id), pid: 100 + id, host: "node".into(), ..Process::default() };
    tables.processes = (1..=PROCESSES).map(process).collect();
    tables
}

/// Runs a fold over events in one go.
fn run<F: Fold>(events: &[Event], filter: &Filter, fold: F) -> Pass<F> {
    let mut pass = Pass::new(filter, fold);
    pass.update(&batch(events));
    pass
}

fn whole(events: &[Event], filter: &Filter, at_ns: i64) -> Answers {
    let folds = (
        (StatsFold::default(), LayersFold::default()),
        (LeaksFold::new(LeaksOptions::default()), LifetimesFold::new(lifetimes())),
        GrowthFold::new(growth(filter)),
        CaveatsFold::default(),
        (WatermarkFold::new(watermark(None)), WatermarkFold::new(watermark(Some(at_ns)))),
    );
    let ((stats, layers), (leaks, lifetimes), growth, caveats, (watermark, at)) =
        run(events, filter, folds).finish(&named_tables());
    let events_read = events.len() as u64;
    // Several kinds may be live, and the figures cover one: known when all was read.
    let one_part = Partial::of(partial(events, filter, KEY)).unwrap().numbered();
    Answers {
        processes: one_part.processes_compared(Some(2)),
        map: one_part.process_map(),
        stats,
        layers,
        leaks,
        lifetimes,
        growth,
        caveats: Caveats { events_read, ..caveats },
        watermark,
        at,
    }
}

fn partial(events: &[Event], filter: &Filter, key: &str) -> PartialData {
    let growth = Some(growth(filter));
    let options = PartialOptions { leaks: LeaksOptions::default(), lifetimes: lifetimes(), growth };
    let pass = run(events, filter, partial_fold(options));
    let (tables, events_read) = (&named_tables(), events.len() as u64);
    Partial::new(pass, PartialSource { key, filter, tables, events_read }).data()
}

/// Merges parts as a tree: `order` says which two are merged next.
fn merged(mut parts: Vec<PartialData>, order: &[prop::sample::Index]) -> Result<Partial, PartialError> {
    for index in order.iter().cycle() {
        if parts.len() < 2 {
            break;
        }
        let one = parts.swap_remove(index.index(parts.len()));
        let mut sum = Partial::of(one)?;
        let other = parts.swap_remove(index.index(parts.len()));
        sum.merge(&other)?;
        parts.push(sum.data());
    }
    Partial::of(parts.remove(0))
}

/// Answers from parts: first look, search, blocks at the peak.
fn from_parts(
    parts: &[(String, Vec<Event>)],
    filter: &Filter,
    order: &[prop::sample::Index],
    at_ns: i64,
) -> Answers {
    let data = parts.iter().map(|(key, events)| partial(events, filter, key)).collect();
    let mut sum = merged(data, order).unwrap();
    if let Some(mut search) = sum.search(SearchFor::Holders) {
        let bounds = sum.peak_bounds();
        loop {
            let ranges = search.next_ranges();
            if ranges.is_empty() {
                break;
            }
            let look = |(key, events): &(String, Vec<Event>)| {
                let mut pass = run(events, filter, LookFold::new(ranges.clone()));
                pass.finish(&named_tables());
                pass.fold().look(key)
            };
            let looks: Vec<_> = parts.iter().map(look).collect();
            search.take(&looks).unwrap();
        }
        let peaks = search.finish();
        let main = sum.main_tally();
        let found = peaks.bytes.iter().find(|(tally, _)| *tally == main).map(|(_, peak)| peak.clone());
        if let Some(found) = &found {
            assert!(bounds.0 <= found.bytes && found.bytes <= bounds.1, "{bounds:?} {found:?}");
        }
        sum.settle(peaks);
    }
    let tally = sum.main_tally();
    let held = |cut: Cut| -> Vec<HeldBlocks> {
        let one = |(key, events): &(String, Vec<Event>)| {
            let pass = run(events, filter, HeldFold::new(cut.clone(), key));
            HeldBlocks::new(pass, key, tally, &named_tables())
        };
        parts.iter().map(one).collect()
    };
    let mut sum = sum.numbered();
    let (stats, layers) = sum.stats();
    let at_peak = sum.peak_cut().map(held).unwrap_or_default();
    let watermark_at_peak = sum.watermark(&at_peak, None, &watermark(None)).unwrap();
    let cut = sum.cut_at(at_ns);
    let at = sum.watermark(&held(cut), Some(at_ns), &watermark(Some(at_ns))).unwrap();
    Answers {
        processes: sum.processes_compared(Some(2)),
        map: sum.process_map(),
        stats,
        layers,
        leaks: sum.leaks(LeaksOptions::default()),
        lifetimes: sum.lifetimes(lifetimes()),
        growth: sum.growth(GrowthOptions::default()).unwrap(),
        caveats: sum.caveats(),
        watermark: watermark_at_peak,
        at,
    }
}

/// Events of several processes in the one order that there is: by time, then by process.
fn in_order(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by_key(|event| (event.time_ns, event.process.0));
    events
}

fn job() -> impl Strategy<Value = Vec<Event>> {
    let processes = proptest::collection::vec(1..=PROCESSES, 60);
    (events(), processes).prop_map(|(mut events, processes)| {
        for (event, process) in events.iter_mut().zip(processes) {
            event.process = ProcessId(process);
        }
        in_order(events)
    })
}

/// A window counts from the start of the job, which each part has to be told.
fn anchored(filter: Filter, events: &[Event]) -> Filter {
    Filter { origin_ns: events.first().map(|event| event.time_ns), ..filter }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_division_merged_in_any_order_equals_the_whole(
        events in job(),
        filter in filter(),
        of_process in proptest::collection::vec(0..4usize, PROCESSES as usize),
        order in proptest::collection::vec(any::<prop::sample::Index>(), 4),
        at_ns in 990..1_700i64,
    ) {
        let mut filter = anchored(filter, &events);
        // A window that ends before it begins is refused before anything is read.
        if filter.is_reversed() {
            filter.to_ns = None;
        }
        let part = |shard: usize| -> Vec<Event> {
            let is_own = |event: &&Event| of_process[event.process.0 as usize - 1] == shard;
            events.iter().filter(is_own).copied().collect()
        };
        let parts: Vec<(String, Vec<Event>)> = (0..4).map(|shard| (KEY.to_owned(), part(shard))).collect();
        let expected = whole(&events, &filter, at_ns);
        let found = from_parts(&parts, &filter, &order, at_ns);
        prop_assert_eq!(found, expected);
    }
}

proptest! {
    #[test]
    fn peaks_of_processes_are_those_of_each_process_alone(events in job(), filter in filter()) {
        let mut filter = anchored(filter, &events);
        if filter.is_reversed() {
            filter.to_ns = None;
        }
        let job = Partial::of(partial(&events, &filter, KEY)).unwrap().numbered();
        let found = job.processes_compared(None);
        let map = job.process_map();
        prop_assert_eq!(found.processes, found.process_list.len() as u64);
        for one in &found.process_list {
            let process = u32::try_from(one.process).unwrap();
            let alone = Filter {
                processes: Some(vec![ProcessId(process)]),
                kinds: Some(found.kinds.clone()),
                ..filter.clone()
            };
            let stats = run(&events, &alone, StatsFold::default()).finish(&named_tables());
            prop_assert_eq!(
                (one.peak_bytes, Some(one.peak_time_ns), one.live_bytes, one.allocations, one.total_bytes),
                (stats.peak_bytes, stats.peak_time_ns, stats.live_bytes, stats.allocations, stats.total_bytes)
            );
            prop_assert_eq!(one.pid, u64::from(100 + process));
            let map = map.as_ref().unwrap();
            let row = map.ranks.iter().position(|rank| *rank == one.process).unwrap();
            prop_assert_eq!(map.values[row].iter().flatten().max(), Some(&one.peak_bytes));
        }
    }
}

/// Hours, days and a clock that jumps by years: a row stays small, and divisions still agree.
#[test]
fn a_map_of_processes_that_last_differently_long_does_not_depend_on_the_division() {
    let event = |process: u32, time_ns: i64, address: u64| Event {
        time_ns,
        process: ProcessId(process),
        address,
        bytes: 16 + address,
        ..Event::default()
    };
    let mut events: Vec<Event> = (0..2_000).map(|at| event(1, 5 + at * 700_000, 1 + at as u64)).collect();
    events.extend((0..900).map(|at| event(2, 9 + at * 3_600_000_000_000, 1 + at as u64)));
    events.push(event(3, 0, 1));
    events.push(event(3, 30 * 365 * 86_400_000_000_000, 2));
    let filter = Filter::default();
    let events = in_order(events);
    let of = |process: u32| -> Vec<Event> {
        events.iter().filter(|event| event.process.0 == process).copied().collect()
    };
    let map = |parts: Vec<PartialData>| {
        let mut parts = parts.into_iter();
        let mut sum = Partial::of(parts.next().unwrap()).unwrap();
        parts.for_each(|part| sum.merge(&part).unwrap());
        sum.numbered()
    };
    let whole = map(vec![partial(&events, &filter, KEY)]);
    let parts = map([3, 1, 2].map(|process| partial(&of(process), &filter, KEY)).to_vec());
    assert_eq!(parts.process_map(), whole.process_map());
    assert_eq!(parts.processes_compared(None), whole.processes_compared(None));
    let map = whole.process_map().unwrap();
    assert_eq!(map.ranks, [1, 2, 3]);
    assert!((200..=512).contains(&map.columns()), "{}", map.columns());
}
