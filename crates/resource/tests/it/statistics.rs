//! Statistics of a process: what RMM's own tests expect of its adaptor, and threads.

use std::sync::{Arc, OnceLock};

use floodmark_resource::{
    Address, AllocError, Callback, Counter, Counters, Limiting, Memory, NoScope, Resource, Simulated,
    Statistics, StatisticsHandle, Stream, find,
};

use crate::blocks::{Block, MIB, give, give_all, take, try_take};

fn device() -> Simulated {
    Simulated::new(1 << 40)
}

fn counter((value, peak, total): (i64, i64, i64)) -> Counter {
    Counter { value, peak, total }
}

/// Current, peak and total, of bytes and of allocations.
pub(crate) fn counters(bytes: (i64, i64, i64), allocations: (i64, i64, i64)) -> Counters {
    Counters { bytes: counter(bytes), allocations: counter(allocations) }
}

fn many(resource: &dyn Resource, count: usize, bytes: u64) -> Vec<Block> {
    (0..count).map(|_| take(resource, bytes)).collect()
}

#[test]
fn nothing_done_is_nothing_counted() {
    let statistics = Statistics::new(device());
    assert_eq!(statistics.counters(), Counters::default());
    assert_eq!(statistics.process_counters(), Counters::default());
    assert!(find::<StatisticsHandle>(&device()).is_none());
}

#[test]
fn a_nested_context_counts_for_itself_and_then_for_the_outer_one() {
    let statistics = Statistics::new(device());
    let outer = take(&statistics, 20);
    assert_eq!(statistics.counters(), counters((20, 20, 20), (1, 1, 1)));
    statistics.push();
    let inner = take(&statistics, 10);
    assert_eq!(statistics.counters(), counters((10, 10, 10), (1, 1, 1)));
    assert_eq!(statistics.pop(), Ok(counters((10, 10, 10), (1, 1, 1))));
    assert_eq!(statistics.counters(), counters((30, 30, 30), (2, 2, 2)));
    give_all(&statistics, [outer, inner]);
    assert_eq!(statistics.upstream().map(Resource::room).unwrap().live_bytes, 0);
}

#[test]
fn two_adaptors_count_apart() {
    let lower = Arc::new(Statistics::new(device()));
    let mut blocks = many(&lower, 10, 1000);
    give_all(&lower, blocks.drain(..5));
    assert_eq!(lower.counters(), counters((5000, 10000, 10000), (5, 10, 10)));
    let upper = Statistics::new(Arc::clone(&lower));
    let more = many(&upper, 2, 1000);
    assert_eq!(upper.counters(), counters((2000, 2000, 2000), (2, 2, 2)));
    assert_eq!(lower.counters(), counters((7000, 10000, 12000), (7, 10, 12)));
    give_all(&lower, blocks);
    give_all(&upper, more);
    assert_eq!(upper.counters(), counters((0, 2000, 2000), (0, 2, 2)));
    assert_eq!(lower.counters(), counters((0, 10000, 12000), (0, 10, 12)));
}

#[test]
fn counters_stack() {
    let statistics = Statistics::new(device());
    let blocks = many(&statistics, 10, 10);
    assert_eq!(statistics.push(), counters((100, 100, 100), (10, 10, 10)));
    let first = take(&statistics, 10);
    assert_eq!(statistics.push(), counters((10, 10, 10), (1, 1, 1)));
    give(&statistics, first);
    assert_eq!(statistics.pop(), Ok(counters((-10, 0, 0), (-1, 0, 0))));
    let second = take(&statistics, 10);
    assert_eq!(statistics.push(), counters((10, 10, 20), (1, 1, 2)));
    let third = take(&statistics, 10);
    assert_eq!(statistics.pop(), Ok(counters((10, 10, 10), (1, 1, 1))));
    assert_eq!(statistics.pop(), Ok(counters((20, 20, 30), (2, 2, 3))));
    give_all(&statistics, [second, third]);
    assert_eq!(statistics.counters(), counters((100, 120, 130), (10, 12, 13)));
    give_all(&statistics, blocks);
    assert_eq!(statistics.pop(), Err(NoScope));
    assert_eq!(NoScope.to_string(), "cannot pop the last counter pair");
}

#[test]
fn a_scope_that_only_frees_is_negative() {
    let statistics = Statistics::new(device());
    let small = take(&statistics, 10);
    assert_eq!(statistics.counters(), counters((10, 10, 10), (1, 1, 1)));
    let large = take(&statistics, 20);
    assert_eq!(statistics.push(), counters((30, 30, 30), (2, 2, 2)));
    give(&statistics, small);
    assert_eq!(statistics.pop(), Ok(counters((-10, 0, 0), (-1, 0, 0))));
    give(&statistics, large);
    assert_eq!(statistics.counters(), counters((0, 30, 30), (0, 2, 2)));
}

#[test]
fn peaks_stay_when_all_is_freed() {
    const M: i64 = MIB as i64;
    let statistics = Statistics::new(device());
    let mut blocks = many(&statistics, 10, 10 * MIB);
    give_all(&statistics, blocks.drain(..5));
    assert_eq!(statistics.counters(), counters((50 * M, 100 * M, 100 * M), (5, 10, 10)));
    blocks.extend(many(&statistics, 10, 10 * MIB));
    give_all(&statistics, blocks);
    assert_eq!(statistics.counters(), counters((0, 150 * M, 200 * M), (0, 15, 20)));
}

#[test]
fn freeing_through_the_inner_adaptor_makes_it_negative() {
    const M: i64 = MIB as i64;
    for through_inner in [false, true] {
        let outer = Arc::new(Statistics::new(device()));
        let below = many(&outer, 10, 10 * MIB);
        let inner = Statistics::new(Arc::clone(&outer));
        let above = many(&inner, 5, 10 * MIB);
        assert_eq!(outer.counters(), counters((150 * M, 150 * M, 150 * M), (15, 15, 15)));
        assert_eq!(inner.counters(), counters((50 * M, 50 * M, 50 * M), (5, 5, 5)));
        give_all(if through_inner { &inner } else { &outer }, below);
        give_all(&inner, above);
        assert_eq!(outer.counters(), counters((0, 150 * M, 150 * M), (0, 15, 15)));
        let (value, live) = if through_inner { (-100 * M, -10) } else { (0, 0) };
        assert_eq!(inner.counters(), counters((value, 50 * M, 50 * M), (live, 5, 5)));
    }
}

#[test]
fn nested_scopes_know_their_peaks() {
    const M: i64 = MIB as i64;
    let statistics = Statistics::new(device());
    let first = take(&statistics, 10 * MIB);
    statistics.push();
    let second = take(&statistics, 10 * MIB);
    statistics.push();
    let third = take(&statistics, 10 * MIB);
    give(&statistics, third);
    assert_eq!(statistics.pop(), Ok(counters((0, 10 * M, 10 * M), (0, 1, 1))));
    give(&statistics, first);
    assert_eq!(statistics.pop(), Ok(counters((0, 20 * M, 20 * M), (0, 2, 2))));
    assert_eq!(statistics.pop(), Err(NoScope));
    give(&statistics, second);
}

#[test]
fn the_process_is_exact_while_scopes_are_open() {
    let statistics = Statistics::new(device());
    let first = take(&statistics, 100);
    statistics.push();
    let second = take(&statistics, 50);
    assert_eq!(statistics.counters(), counters((50, 50, 50), (1, 1, 1)));
    assert_eq!(statistics.process_counters(), counters((150, 150, 150), (2, 2, 2)));
    give_all(&statistics, [first, second]);
    statistics.pop().expect("one was pushed");
    assert_eq!(statistics.process_counters(), counters((0, 150, 150), (0, 2, 2)));
}

#[test]
fn failures_count_apart() {
    let statistics = Statistics::new(Limiting::new(device(), 1024));
    let block = take(&statistics, 600);
    for bytes in [2000, 700] {
        assert!(try_take(&statistics, bytes).unwrap_err().is_out_of_memory());
    }
    assert!(matches!(statistics.allocate(1, 3, Stream::DEFAULT), Err(AllocError::Invalid { .. })));
    assert_eq!(statistics.counters(), counters((600, 600, 600), (1, 1, 1)));
    let requests = statistics.requests();
    assert_eq!((requests.largest_bytes, requests.failures, requests.largest_failed_bytes), (600, 3, 2000));
    give(&statistics, block);
}

#[test]
fn two_threads_count_together_and_blocks_of_no_bytes_count() {
    for bytes in [0, 256] {
        let statistics = Statistics::new(device());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let block = take(&statistics, bytes);
                    std::thread::yield_now();
                    give(&statistics, block);
                });
            }
        });
        let found = statistics.counters();
        assert_eq!((found.bytes.value, found.bytes.total), (0, 2 * bytes as i64));
        assert_eq!((found.allocations.value, found.allocations.total), (0, 2));
    }
}

#[test]
fn a_block_counts_after_it_was_handed_out_until_before_it_goes_back() {
    let below = Arc::new(OnceLock::<StatisticsHandle>::new());
    let (taken, given) = (Arc::clone(&below), Arc::clone(&below));
    let value = |handle: &OnceLock<StatisticsHandle>| {
        handle.get().expect("set below").process_counters().allocations.value
    };
    let statistics = Statistics::new(Callback::new(
        Memory::HOST,
        move |_, _| {
            assert_eq!(value(&taken), 0);
            Ok(Address(256))
        },
        move |_, _, _| assert_eq!(value(&given), 0),
    ));
    below.set(statistics.handle().clone()).expect("set once");
    let block = take(&statistics, 10);
    assert_eq!(value(&below), 1);
    give(&statistics, block);
}

/// Memory for one block: threads hand it to each other, and each has to have been counted out before
/// the next is counted in.
#[test]
fn a_block_that_changes_hands_is_never_counted_twice() {
    let statistics = Statistics::new(Simulated::new(256));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut served = 0;
                while served < 2000 {
                    match try_take(&statistics, 256) {
                        Ok(block) => {
                            give(&statistics, block);
                            served += 1;
                        }
                        Err(_) => std::thread::yield_now(),
                    }
                }
            });
        }
    });
    assert_eq!(statistics.counters(), counters((0, 256, 8000 * 256), (0, 1, 8000)));
}

#[test]
fn the_adaptor_is_found_wherever_it_is() {
    let stack: Arc<dyn Resource> = Arc::new(Limiting::new(
        Arc::new(Statistics::new(Limiting::new(device(), MIB))) as Arc<dyn Resource>,
        MIB,
    ));
    let block = take(&stack, 1000);
    let handle = find::<StatisticsHandle>(&stack).expect("it is in the stack").clone();
    assert_eq!(handle.counters(), counters((1000, 1000, 1000), (1, 1, 1)));
    give(&stack, block);
    drop(stack);
    assert_eq!(handle.process_counters(), counters((0, 1000, 1000), (0, 1, 1)));
}
