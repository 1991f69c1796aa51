//! All adaptors on one another.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use floodmark_resource::{
    Address, Aligned, AllocError, Counters, CsvHandle, CsvLogging, FailureCallback, Flush, Limiting, Logging,
    Prefetch, Prefetcher, Requests, Resource, Result, Retry, Simulated, SimulatedOrder, Statistics,
    StatisticsHandle, Stream, ThreadSafe, find,
};

use crate::blocks::{Block, give, give_all, take, take_on, try_take};

type Below = Statistics<Simulated>;

fn below() -> Below {
    Statistics::new(Simulated::new(1 << 20))
}

/// Every adaptor, and a stack of all.
fn adapted() -> Vec<Box<dyn Resource>> {
    let give_up = |_: u64, _: &AllocError| Retry::GiveUp;
    let everything = FailureCallback::new(
        Prefetch::new(ThreadSafe::new(Logging::new(Limiting::new(below(), u64::MAX))), None),
        give_up,
    );
    vec![
        Box::new(Statistics::new(below())),
        Box::new(Limiting::new(below(), u64::MAX)),
        Box::new(FailureCallback::new(below(), give_up)),
        Box::new(Aligned::new(below(), 4096, 1 << 30).expect("a power of two")),
        Box::new(ThreadSafe::new(below())),
        Box::new(Prefetch::new(below(), None)),
        Box::new(Logging::new(below())),
        Box::new(CsvLogging::to_writers(below(), vec![Box::new(io::sink())], Flush::Buffered)),
        Box::new(Arc::new(below())),
        Box::new(Aligned::new(Statistics::new(everything), 256, 0).expect("a power of two")),
    ]
}

/// The lowest layer of statistics.
fn lowest(resource: &dyn Resource) -> (Counters, Requests) {
    let mut lowest = None;
    let mut layer = Some(resource);
    while let Some(here) = layer {
        lowest = find::<StatisticsHandle>(here).or(lowest);
        layer = here.upstream();
    }
    let handle = lowest.expect("there is one in every stack");
    (handle.process_counters(), handle.requests())
}

/// Does all sorts of things; returns where blocks were, and the errors.
fn work(resource: &dyn Resource) -> Vec<Result<Address>> {
    let mut answers = Vec::new();
    let mut live: Vec<Block> = Vec::new();
    for round in 0..400u64 {
        let bytes = round * 7919 % 9000;
        let block = try_take(resource, bytes);
        answers.push(block.clone().map(|block| block.address));
        live.extend(block);
        if round % 3 == 0 {
            give(resource, live.swap_remove(round as usize % live.len()));
        }
    }
    let error = resource.allocate(10, 3, Stream::DEFAULT);
    answers.push(error);
    live.push(take_on(resource, 100, Stream::foreign(0x100)));
    give_all(resource, live);
    answers
}

#[test]
fn an_adaptor_changes_nothing_of_what_is_below_it() {
    let plain = below();
    let expected = work(&plain);
    let figures = (plain.process_counters(), plain.requests());
    assert!(expected.iter().any(Result::is_err) && figures.0.bytes.peak > 0);
    for resource in adapted() {
        let name = resource.name();
        assert_eq!(work(&*resource), expected, "{name}");
        assert_eq!(lowest(&*resource), figures, "{name}");
    }
}

#[test]
fn an_adaptor_says_of_its_memory_what_the_one_below_says() {
    let mut names = Vec::new();
    for resource in adapted() {
        let block = take(&*resource, 1000);
        assert_eq!(resource.memory(), below().memory());
        assert_eq!(resource.served_by(), "simulated");
        assert_eq!(resource.room().live_bytes, 1024, "{}", resource.name());
        assert_eq!(resource.release(), 0);
        let device = find::<Simulated>(&*resource).expect("it is at the bottom");
        let stream = device.streams().create();
        let identity = resource.order().identity(stream.stream());
        assert_eq!(identity, device.order().identity(stream.stream()));
        assert!(resource.upstream().is_some());
        names.push(resource.name());
        give(&*resource, block);
    }
    let expected = [
        "statistics",
        "limiting",
        "failure_callback",
        "aligned",
        "thread_safe",
        "prefetch",
        "logging",
        "csv_logging",
        "statistics",
        "aligned",
    ];
    assert_eq!(names, expected);
}

#[test]
fn parts_are_found_through_each_other() {
    let csv = CsvLogging::to_writers(below(), vec![Box::new(io::sink())], Flush::Buffered);
    let stack: Arc<dyn Resource> = Arc::new(ThreadSafe::new(Limiting::new(csv, 1 << 20)));
    assert!(find::<CsvHandle>(&stack).is_some() && find::<StatisticsHandle>(&stack).is_some());
    assert!(find::<SimulatedOrder>(&stack).is_none());
}

/// Remembers what it was asked to bring, and fails for large blocks.
#[derive(Default)]
struct Bring(Mutex<Vec<(Address, u64, Stream)>>);

impl Prefetcher for Bring {
    fn prefetch(&self, address: Address, bytes: u64, stream: Stream) -> Result<()> {
        self.0.lock().expect("nobody panics").push((address, bytes, stream));
        if bytes < 1000 {
            return Ok(());
        }
        Err(AllocError::Device { act: "prefetching", message: "not managed".into() })
    }
}

#[test]
fn new_blocks_are_brought_and_failing_to_does_no_harm() {
    let bring = Arc::new(Bring::default());
    let resource = Prefetch::new(below(), Some(Arc::clone(&bring) as Arc<dyn Prefetcher>));
    let stream = Stream::foreign(0x40);
    let blocks = [take_on(&resource, 10, stream), take_on(&resource, 0, stream), take(&resource, 5000)];
    let asked = bring.0.lock().unwrap().clone();
    assert_eq!(asked, [(blocks[0].address, 10, stream), (blocks[2].address, 5000, Stream::DEFAULT)]);
    assert_eq!(resource.failures(), 1);
    assert!(try_take(&resource, 1 << 30).is_err());
    assert_eq!(bring.0.lock().unwrap().len(), 2);
    give_all(&resource, blocks);
}

#[test]
fn one_thread_at_a_time_is_inside() {
    let inside = Arc::new(AtomicU64::new(0));
    let enter = Arc::clone(&inside);
    let leave = Arc::clone(&inside);
    let next = AtomicU64::new(256);
    let alone = move |inside: &AtomicU64| {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
        std::thread::yield_now();
        assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
    };
    let resource = ThreadSafe::new(floodmark_resource::Callback::new(
        floodmark_resource::Memory::HOST,
        move |_, _| {
            alone(&enter);
            Ok(Address(next.fetch_add(256, Ordering::Relaxed)))
        },
        move |_, _, _| alone(&leave),
    ));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let block = take(&resource, 8);
                    give(&resource, block);
                }
            });
        }
    });
    assert_eq!(resource.room().live_blocks, 0);
}
