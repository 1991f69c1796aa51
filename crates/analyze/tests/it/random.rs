//! Small random traces in which everything odd happens: addresses that come back, blocks replaced and
//! freed unseen, null blocks, equal and backward times, several processes, devices, kinds and threads.

use floodmark_analyze::{Fold, Pass};
use floodmark_event::Filter;
use floodmark_event::tables::Frame;
use floodmark_event::units::Instant;
use floodmark_event::{Action, Event, EventBatch, Kind, ProcessId, StackId, StringId, Tables, UNKNOWN_BYTES};
use floodmark_testkit::{Oracle, OracleFilter};
use proptest::prelude::*;

const START_NS: i64 = 1_000;

/// Mostly `usual`, sometimes one of `others`.
fn mostly<T: Clone + std::fmt::Debug + 'static>(usual: T, others: &[T]) -> impl Strategy<Value = T> + use<T> {
    prop_oneof![3 => Just(usual), 1 => proptest::sample::select(others.to_vec())]
}

fn event() -> impl Strategy<Value = Event> {
    let what = (
        prop_oneof![5 => Just(Action::Alloc), 5 => Just(Action::Free), 1 => Just(Action::Failure)],
        prop_oneof![1 => Just(0u64), 8 => (1..6u64).prop_map(|block| block << 8)],
        prop_oneof![1 => Just(0u64), 6 => 1..1000u64, 1 => Just(1 << 21), 1 => Just(UNKNOWN_BYTES)],
        prop_oneof![1 => Just(-2i64), 4 => Just(0), 6 => 1..40i64],
    );
    let place = (
        mostly(ProcessId(1), &[ProcessId(2)]),
        mostly(0i32, &[-1, 1]),
        mostly(StringId(0), &[StringId(1)]),
        mostly(Kind::Device, &[Kind::Unknown, Kind::Pinned, Kind::Managed, Kind::Static]),
    );
    let origin = (
        1..4u64,
        mostly(0u64, &[0x10, 0x20]),
        (0..5u32).prop_map(StackId),
        mostly(StringId(0), &[StringId(2), StringId(3)]),
    );
    (what, place, origin).prop_map(|((action, address, bytes, gap), place, (thread, stream, stack, name))| {
        let (process, device, resource, kind) = place;
        let bytes = if action == Action::Free || bytes != UNKNOWN_BYTES { bytes } else { 77 };
        let address = if action == Action::Failure { 0 } else { address };
        // The gap to the event before; events() turns it into a time.
        let time_ns = gap;
        Event {
            time_ns,
            process,
            thread,
            action,
            address,
            bytes,
            device,
            stream,
            kind,
            resource,
            scope: 0,
            stack,
            name,
        }
    })
}

/// A list of events, sometimes all of one kind that is not device memory.
pub(crate) fn events() -> impl Strategy<Value = Vec<Event>> {
    let list = proptest::collection::vec(event(), 0..60);
    (list, proptest::option::weighted(0.2, proptest::sample::select(Kind::ALL.to_vec()))).prop_map(
        |(mut events, kind)| {
            let mut time_ns = START_NS;
            for event in &mut events {
                time_ns += event.time_ns;
                event.time_ns = time_ns;
                event.kind = kind.filter(|_| event.kind == Kind::Device).unwrap_or(event.kind);
            }
            events
        },
    )
}

fn some_of<T: Clone + std::fmt::Debug + 'static>(values: Vec<T>) -> impl Strategy<Value = Option<Vec<T>>> {
    let most = values.len();
    proptest::option::weighted(0.25, proptest::sample::subsequence(values, 0..=most))
}

fn instant() -> impl Strategy<Value = Option<Instant>> {
    let instant = prop_oneof![
        (START_NS - 10..START_NS + 700).prop_map(Instant::At),
        (0..700u64).prop_map(Instant::AfterStart)
    ];
    proptest::option::weighted(0.25, instant)
}

/// A narrowing, often none.
pub(crate) fn filter() -> impl Strategy<Value = Filter> {
    let lists = (
        some_of(vec![-1, 0, 1]),
        some_of(vec![ProcessId(1), ProcessId(2)]),
        some_of(vec![1, 2, 3]),
        some_of(vec![0, 0x10, 0x20]),
        some_of(vec![Kind::Device, Kind::Unknown, Kind::Pinned, Kind::Managed, Kind::Static]),
    );
    (lists, instant(), instant()).prop_map(
        |((devices, processes, threads, streams, kinds), from_ns, to_ns)| Filter {
            origin_ns: None,
            devices,
            processes,
            threads,
            streams,
            kinds,
            from_ns,
            to_ns,
        },
    )
}

/// Follows events naively under the same narrowing.
pub(crate) fn oracle(events: &[Event], filter: &Filter) -> Oracle {
    let first_ns = events.first().map_or(0, |event| event.time_ns);
    let resolve = |instant: Instant| match instant {
        Instant::At(time_ns) => time_ns,
        Instant::AfterStart(after_ns) => first_ns + after_ns as i64,
    };
    let filter = OracleFilter {
        devices: filter.devices.clone(),
        processes: filter.processes.as_ref().map(|list| list.iter().map(|process| process.0).collect()),
        threads: filter.threads.clone(),
        streams: filter.streams.clone(),
        kinds: filter.kinds.clone(),
        from_ns: filter.from_ns.map(resolve),
        to_ns: filter.to_ns.map(resolve),
    };
    Oracle::new(events, &filter)
}

/// Strings 1 to 3 and stacks 1 to 4, of which 3 and 4 have the same site.
pub(crate) fn tables() -> Tables {
    let mut tables = Tables::default();
    for text in ["pool", "weights", "bias"] {
        tables.intern(text);
    }
    let mut frame = |function: &str, line| {
        let function = tables.intern(function);
        let file = tables.intern("app.py");
        tables.intern_frame(Frame { function, file, line, ..Frame::default() })
    };
    let frames = [frame("main", 1), frame("load", 2), frame("train", 3), frame("malloc", 4)];
    let main = tables.intern_stack(StackId(0), frames[0]);
    tables.intern_stack(main, frames[1]);
    let train = tables.intern_stack(main, frames[2]);
    tables.intern_stack(train, frames[3]);
    tables
}

/// One batch of all events.
pub(crate) fn batch(events: &[Event]) -> EventBatch {
    let mut batch = EventBatch::new();
    for event in events {
        batch.push(event);
    }
    batch
}

/// Runs a fold over events in batches of `rows`.
pub(crate) fn fold<F: Fold>(events: &[Event], filter: &Filter, rows: usize, fold: F) -> F::Output {
    let mut pass = Pass::new(filter, fold);
    for chunk in events.chunks(rows.max(1)) {
        pass.update(&batch(chunk));
    }
    pass.finish(&tables())
}
