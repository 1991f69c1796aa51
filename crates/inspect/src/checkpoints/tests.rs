//! Looks from checkpoints say what looks from the beginning say.

use floodmark_analyze::{
    Pass, ScopePaths, SnapshotOptions, SnapshotPass, Snapshots, Usage, UsageFold, UsageMode,
};
use floodmark_event::tables::Frame;
use floodmark_event::{Action, Event, Kind, ProcessId, StackId, StringId};
use floodmark_store::{Losses, Overwrite, Run, Sealer, Source as _, TraceWriter};
use floodmark_tail::{self as tail, AllocDomain, RecordProps, Recorder};
use floodmark_testkit::TempDir;
use proptest::prelude::*;

use super::*;
use crate::OpenProps;
use crate::input::Input;
use crate::zoom::{self, Window, Zoom};

/// As many checkpoints as there can be: batches of merged runs are short.
const DENSE: Limits = Limits { every: 1, bytes: 1 << 20, count: 64 };

fn usage(checkpoints: &mut Checkpoints, window: Window, wanted: StillWanted<'_>) -> Option<Usage> {
    let (path, filter) = (checkpoints.path.clone(), checkpoints.filter.clone());
    let input = Input::open(&path, &OpenProps::default()).unwrap();
    zoom::usage(Zoom { input: &input, filter: &filter, checkpoints }, window, wanted).unwrap()
}

fn snapshots(checkpoints: &mut Checkpoints, times: &[i64]) -> Option<Snapshots> {
    let (path, filter) = (checkpoints.path.clone(), checkpoints.filter.clone());
    let input = Input::open(&path, &OpenProps::default()).unwrap();
    let zoom = Zoom { input: &input, filter: &filter, checkpoints };
    zoom::snapshots(zoom, (tally(&filter), times.to_vec()), ScopePaths::default(), &|| true).unwrap()
}

/// Reads all events from the beginning, plainly.
fn each_batch(path: &Path, mut visit: impl FnMut(&EventBatch)) -> Tables {
    let mut scan = Trace::open(path).unwrap().scan(&ScanProps::default()).unwrap();
    let mut batch = EventBatch::new();
    while scan.next(&mut batch).unwrap() {
        visit(&batch);
    }
    scan.tables().clone()
}

fn plain_usage(path: &Path, filter: &Filter, window: Window) -> Usage {
    let (from_ns, to_ns) = (Some(Until::At(window.from_ns)), Some(Until::At(window.to_ns)));
    let filter = Filter { from_ns, to_ns, ..filter.clone() };
    let mut pass = Pass::new(&filter, UsageFold::new(UsageMode::Reduced(window.points)));
    let tables = each_batch(path, |batch| pass.update(batch));
    pass.finish(&tables)
}

/// The sum of the kinds that were chosen, or that of device memory.
fn tally(filter: &Filter) -> u8 {
    if filter.kinds.is_some() { 0 } else { Kind::Device as u8 }
}

fn plain_snapshots(path: &Path, filter: &Filter, times: &[i64]) -> Snapshots {
    let options = SnapshotOptions { blocks: Some(1000), ..SnapshotOptions::default() };
    let mut pass = SnapshotPass::at(filter, tally(filter), times.to_vec(), options, None);
    let tables = each_batch(path, |batch| pass.update(batch));
    pass.finish(&tables)
}

/// Compares looks at ranges and instants with plain reading.
fn compare(checkpoints: &mut Checkpoints, looks: &[(i64, i64)]) {
    let (path, filter) = (checkpoints.path.clone(), checkpoints.filter.clone());
    for (from_ns, length) in looks {
        let window = Window { from_ns: *from_ns, to_ns: from_ns + length, points: 64 };
        let found = usage(checkpoints, window, &|| true);
        assert_eq!(found, Some(plain_usage(&path, &filter, window)), "{window:?}");
        let times = [*from_ns, from_ns + length];
        assert_eq!(
            snapshots(checkpoints, &times),
            Some(plain_snapshots(&path, &filter, &times)),
            "{times:?}"
        );
    }
}

fn tables() -> Tables {
    let mut tables = Tables::default();
    for text in ["pool", "weights", "bias"] {
        tables.intern(text);
    }
    let function = tables.intern("main");
    let frame = tables.intern_frame(Frame { function, line: 3, ..Frame::default() });
    let outer = tables.intern_stack(StackId(0), frame);
    let inner = tables.intern_frame(Frame { function, line: 4, ..Frame::default() });
    tables.intern_stack(outer, inner);
    tables
}

fn write(path: &Path, sequences: &[Vec<Event>]) {
    let mut writer = TraceWriter::create(path, Run::default(), Overwrite::Yes).unwrap();
    for (number, events) in sequences.iter().enumerate() {
        if number > 0 {
            writer.next_sequence().unwrap();
        }
        let mut batch = EventBatch::new();
        for event in events {
            batch.push(event);
        }
        writer.write(&batch, &tables()).unwrap();
    }
    writer.finish(&tables(), &Losses::default()).unwrap();
}

/// Processes that each have a clock of their own, which goes back now and then.
fn sequences() -> impl Strategy<Value = Vec<Vec<Event>>> {
    let what = (prop_oneof![3 => Just(Action::Alloc), 2 => Just(Action::Free)], 0..9u64, 0..5000u64);
    let domain = (0..2i32, 0..2u32, 0..3u64, 1..4u64, 0..3u32, 0..4u32);
    let gap = prop_oneof![1 => Just(-15i64), 2 => Just(0), 8 => 1..30i64];
    let event = (what, domain, gap);
    let sequence = (0..300i64, proptest::collection::vec(event, 1..120));
    proptest::collection::vec(sequence, 1..5).prop_map(|sequences| {
        let mut all = Vec::new();
        for (process, (mut time_ns, rows)) in sequences.into_iter().enumerate() {
            let mut events = Vec::new();
            for ((action, address, bytes), domain, gap) in rows {
                let (device, resource, stream, thread, stack, name) = domain;
                time_ns += gap;
                events.push(Event {
                    time_ns,
                    process: ProcessId(process as u32 % 2 + 1),
                    action,
                    address: address << 8,
                    bytes,
                    device,
                    stream,
                    thread,
                    kind: Kind::Device,
                    resource: StringId(resource),
                    stack: StackId(stack),
                    name: StringId(name),
                    ..Event::default()
                });
            }
            all.push(events);
        }
        all
    })
}

fn some_of<T: Clone + std::fmt::Debug + 'static>(values: Vec<T>) -> impl Strategy<Value = Option<Vec<T>>> {
    proptest::option::weighted(0.3, proptest::sample::subsequence(values, 1..=1))
}

/// All that `serve` can be narrowed by.
fn filter() -> impl Strategy<Value = Filter> {
    let instant = || proptest::option::weighted(0.2, (0..1500u64).prop_map(Until::AfterStart));
    let lists = (
        some_of(vec![0, 1]),
        some_of(vec![ProcessId(1), ProcessId(2)]),
        some_of(vec![1, 2, 3]),
        some_of(vec![0, 1, 2]),
    );
    (lists, proptest::bool::weighted(0.3), instant(), instant()).prop_map(
        |((devices, processes, threads, streams), has_kinds, from_ns, to_ns)| Filter {
            origin_ns: None,
            devices,
            processes,
            threads,
            streams,
            kinds: has_kinds.then(|| vec![Kind::Device]),
            from_ns,
            to_ns,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_look_is_the_same_from_wherever_it_starts(
        sequences in sequences(),
        filter in filter(),
        looks in proptest::collection::vec((-50..1900i64, 0..400i64), 4),
        count in 2usize..64,
    ) {
        let folder = TempDir::new("any");
        let path = folder.join("a.flood");
        write(&path, &sequences);
        let mut checkpoints = Checkpoints::limited(&path, &filter, Limits { count, ..DENSE });
        // Once while the walk is at its beginning, once when it is over.
        compare(&mut checkpoints, &looks[..2]);
        while checkpoints.is_walking() {
            checkpoints.turn();
        }
        prop_assert!(checkpoints.kept.len() <= count);
        compare(&mut checkpoints, &looks);
    }
}

#[test]
fn a_trace_that_grows_and_is_sealed_meanwhile_is_looked_at_the_same() {
    let folder = TempDir::new("growing");
    let path = folder.join("a.flood");
    let recorder = Recorder::start_global(RecordProps::new(&path)).unwrap();
    let mut sealer = Sealer::open(&path, Run::default()).unwrap();
    let filter = Filter::default();
    let mut checkpoints = Checkpoints::limited(&path, &filter, DENSE);
    for round in 0..4u64 {
        let domain = AllocDomain { device: 0, kind: Kind::Device, ..AllocDomain::default() };
        for number in 0..12_000u64 {
            let address = (1 + (number * 7919 + round) % 5000) << 8;
            if number % 3 == 2 {
                tail::free(address, 64, &domain);
            } else {
                tail::alloc(address, 64 + number % 100, &domain, StackId(0));
            }
        }
        // A look between, whatever was walked through.
        (checkpoints.polled, checkpoints.walk) = (None, None);
        let mut times = Vec::new();
        each_batch(&path, |batch| times.extend(batch.events().map(|event| event.time_ns)));
        assert_eq!(times.len() as u64, (round + 1) * 12_000);
        let at = |share: usize| times[(times.len() - 1) * share / 100];
        let looks = [10, 45, 70, 99].map(|share| (at(share), at(100) - at(95)));
        compare(&mut checkpoints, &looks);
        if round != 1 {
            sealer.seal().unwrap();
        }
    }
    assert!(!checkpoints.kept.is_empty(), "nothing was kept");
    recorder.stop();
    sealer.finish().unwrap();
    let mut last = 0;
    each_batch(&path, |batch| last = batch.time_ns.at(batch.len() - 1));
    compare(&mut checkpoints, &[(last - 1000, 1000)]);
}

/// A byte that stays, at the instant of its number.
fn allocation(number: u64) -> Event {
    Event {
        time_ns: number as i64,
        action: Action::Alloc,
        address: number << 8,
        bytes: 1,
        ..Event::default()
    }
}

#[test]
fn a_look_that_nobody_wants_ends_the_walk_that_it_began() {
    let folder = TempDir::new("dropped");
    let path = folder.join("a.flood");
    write(&path, &[(1..=40_000).map(allocation).collect()]);
    let mut checkpoints = Checkpoints::limited(&path, &Filter::default(), DENSE);
    let window = Window { from_ns: 39_000, to_ns: 39_500, points: 64 };
    let found = usage(&mut checkpoints, window, &|| false);
    assert_eq!((found, checkpoints.walked), (None, 8192), "a batch and no more");
    let found = usage(&mut checkpoints, window, &|| true);
    assert_eq!(found.map(|usage| usage.live_bytes), Some(39_500));
}

#[test]
fn checkpoints_take_no_more_memory_than_they_may() {
    let folder = TempDir::new("memory");
    let path = folder.join("a.flood");
    write(&path, &[(1..=200_000).map(allocation).collect()]);
    let filter = Filter::default();
    let bytes = 16 << 20;
    let mut checkpoints = Checkpoints::limited(&path, &filter, Limits { bytes, ..DENSE });
    while checkpoints.is_walking() {
        checkpoints.turn();
    }
    let taken: usize = checkpoints.kept.iter().map(|kept| kept.live.size_bytes()).sum();
    assert!(taken <= bytes && !checkpoints.kept.is_empty(), "{taken}");
    let largest = checkpoints.kept.iter().map(|kept| kept.live.size_bytes()).max();
    assert!(largest.is_some_and(|largest| largest <= bytes / 2), "{largest:?}");
    compare(&mut checkpoints, &[(150_000, 10)]);
}
