//! Scopes of statistics: threads, names, and who holds what.

use std::sync::{Arc, Barrier, mpsc};

use floodmark_resource::{Counters, Holder, NoScope, ScopeFigures, Simulated, Statistics};

use crate::blocks::{give, give_all, take, try_take};
use crate::statistics::counters;

fn statistics() -> Statistics<Simulated> {
    Statistics::new(Simulated::new(1 << 30))
}

#[test]
fn threads_never_swap_their_counters() {
    let statistics = statistics();
    let (entered, both) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            statistics.push();
            entered.wait();
            let block = take(&statistics, 1000);
            both.wait();
            let counted = statistics.pop();
            give(&statistics, block);
            counted
        });
        let second = scope.spawn(|| {
            entered.wait();
            statistics.push();
            let block = take(&statistics, 7);
            both.wait();
            let counted = statistics.pop();
            give(&statistics, block);
            counted
        });
        assert_eq!(first.join().unwrap(), Ok(counters((1000, 1000, 1000), (1, 1, 1))));
        assert_eq!(second.join().unwrap(), Ok(counters((7, 7, 7), (1, 1, 1))));
    });
    assert_eq!(statistics.pop(), Err(NoScope));
    assert_eq!(statistics.process_counters().bytes.total, 1007);
}

#[test]
fn a_block_is_charged_to_the_scope_of_its_allocation() {
    let statistics = statistics();
    let before = take(&statistics, 5000);
    let scope = statistics.scope("load");
    assert_eq!(scope.name(), "load");
    let (kept, freed_elsewhere) = (take(&statistics, 100), take(&statistics, 30));
    // Somebody else's block does not touch what is held.
    give(&statistics, before);
    let other = std::thread::scope(|threads| {
        let other = threads.spawn(|| {
            let scope = statistics.scope("other thread");
            give(&statistics, freed_elsewhere);
            let other = take(&statistics, 9);
            assert_eq!(
                scope.finish(),
                ScopeFigures {
                    relative: counters((-21, 0, 9), (0, 0, 1)),
                    held: counters((9, 9, 9), (1, 1, 1))
                }
            );
            other
        });
        other.join().unwrap()
    });
    let figures = scope.finish();
    assert_eq!(figures.relative, counters((130 - 5000, 130, 130), (1, 2, 2)));
    assert_eq!(figures.held, counters((100, 130, 130), (1, 2, 2)));
    assert_eq!(
        statistics.holders(10),
        [
            Holder { who: "load".into(), bytes: 100, blocks: 1 },
            Holder { who: "other thread".into(), bytes: 9, blocks: 1 }
        ]
    );
    assert_eq!(statistics.holders(1).len(), 1);
    give_all(&statistics, [kept, other]);
    assert_eq!(statistics.holders(10), []);
}

#[test]
fn an_outer_scope_holds_what_inner_ones_allocated() {
    let statistics = statistics();
    let outer = statistics.scope("outer");
    let first = take(&statistics, 100);
    statistics.push();
    let inner = statistics.scope("inner");
    let second = take(&statistics, 50);
    // While the inner one is open the outer one shrinks: its peak is from before.
    give(&statistics, first);
    let third = take(&statistics, 40);
    assert_eq!(inner.finish().held, counters((90, 90, 90), (2, 2, 2)));
    assert_eq!(statistics.pop(), Ok(counters((-10, 50, 90), (1, 1, 2))));
    give(&statistics, second);
    let figures = outer.finish();
    assert_eq!(figures.held, counters((40, 150, 190), (1, 2, 3)));
    assert_eq!(figures.relative, counters((40, 150, 190), (1, 2, 3)));
    give(&statistics, third);
}

#[test]
fn a_scope_closes_what_was_left_open_inside_it() {
    let statistics = statistics();
    let outer = statistics.scope("outer");
    let inner = statistics.scope("inner");
    statistics.push();
    let block = take(&statistics, 10);
    assert_eq!(outer.figures().relative, Counters::default());
    assert_eq!(outer.figures().held, counters((10, 10, 10), (1, 1, 1)));
    assert_eq!(outer.finish().relative, counters((10, 10, 10), (1, 1, 1)));
    assert_eq!(statistics.pop(), Err(NoScope));
    assert_eq!(inner.finish().relative, counters((10, 10, 10), (1, 1, 1)));
    assert_eq!(statistics.counters(), statistics.process_counters());
    give(&statistics, block);
}

#[test]
fn pop_leaves_scopes_with_a_name_alone() {
    let statistics = statistics();
    let scope = statistics.scope("mine");
    assert_eq!(statistics.pop(), Err(NoScope));
    let block = take(&statistics, 1);
    drop(scope);
    assert_eq!(statistics.pop(), Err(NoScope));
    give(&statistics, block);
}

#[test]
fn a_scope_can_be_finished_on_another_thread() {
    let statistics = statistics();
    statistics.push();
    let scope = statistics.scope("sent");
    let block = take(&statistics, 10);
    let figures = std::thread::scope(|threads| threads.spawn(move || scope.finish()).join().unwrap());
    assert_eq!(figures.relative, counters((10, 10, 10), (1, 1, 1)));
    // It does not count any more, and what it counted is the outer scope's.
    let more = take(&statistics, 5);
    assert_eq!(statistics.pop(), Ok(counters((15, 15, 15), (2, 2, 2))));
    assert_eq!(statistics.pop(), Err(NoScope));
    give_all(&statistics, [block, more]);
}

#[test]
fn a_thread_that_ends_takes_its_scopes_with_it() {
    let statistics = statistics();
    let sent = std::thread::scope(|threads| {
        let thread = threads.spawn(|| {
            statistics.push();
            let scope = statistics.scope("left open");
            (scope, take(&statistics, 10))
        });
        thread.join().unwrap()
    });
    let (scope, block) = sent;
    assert_eq!(scope.finish().relative, counters((10, 10, 10), (1, 1, 1)));
    assert_eq!(statistics.pop(), Err(NoScope));
    give(&statistics, block);
}

#[test]
fn an_error_says_which_scopes_hold_memory() {
    let statistics = Statistics::new(Simulated::new(1024));
    let scope = statistics.scope("weights");
    let block = take(&statistics, 768);
    let error = try_take(&statistics, 512).unwrap_err();
    let holders = &error.out_of_memory().expect("there is no room").holders;
    assert_eq!(*holders, [Holder { who: "weights".into(), bytes: 768, blocks: 1 }]);
    drop(scope);
    give(&statistics, block);
    assert_eq!(try_take(&statistics, 2048).unwrap_err().out_of_memory().unwrap().holders, []);
}

#[test]
fn threads_with_scopes_free_each_others_blocks_and_all_is_accounted_for() {
    const ROUNDS: u64 = 3000;
    let statistics = Arc::new(statistics());
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| mpsc::channel()).unzip();
    let figures: Vec<ScopeFigures> = std::thread::scope(|threads| {
        let workers: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(number, receiver)| {
                let neighbour = senders[(number + 1) % 4].clone();
                let statistics = Arc::clone(&statistics);
                threads.spawn(move || {
                    let scope = statistics.scope(format!("worker {number}"));
                    for round in 0..ROUNDS {
                        statistics.push();
                        neighbour.send(take(&statistics, 1 + round % 100)).expect("the neighbour waits");
                        let own = take(&statistics, 64);
                        give(&statistics, own);
                        statistics.pop().expect("one was pushed");
                        if let Ok(block) = receiver.try_recv() {
                            give(&statistics, block);
                        }
                    }
                    drop(neighbour);
                    give_all(&*statistics, receiver);
                    scope.finish()
                })
            })
            .collect();
        drop(senders);
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let sent: i64 = (0..ROUNDS as i64).map(|round| 1 + round % 100).sum();
    for figures in &figures {
        assert_eq!(figures.relative.bytes.total, sent + 64 * ROUNDS as i64);
        assert_eq!(figures.held.bytes.total, sent + 64 * ROUNDS as i64);
        assert_eq!(figures.relative.bytes.value, 0);
        assert_eq!(figures.held.allocations.total, 2 * ROUNDS as i64);
    }
    let process = statistics.process_counters();
    assert_eq!((process.bytes.value, process.allocations.value), (0, 0));
    assert_eq!(process.bytes.total, 4 * (sent + 64 * ROUNDS as i64));
    assert_eq!(statistics.holders(10), []);
}
