//! What functions gained, by the fold and by following every call naively.

use std::collections::HashMap;

use floodmark_analyze::{CallOrder, Calls, CallsFold, CallsOptions, Direction, Recorded};
use floodmark_event::tables::Frame;
use floodmark_event::{CallAction, CallRow, ProcessId, StackId, StackReason, StackSampleRow, Tables};
use proptest::prelude::*;

/// Tables with functions `f1`, `f2` ...; frame numbers are those of the names.
fn tables(count: u32) -> Tables {
    let mut tables = Tables::default();
    for number in 1..=count {
        let function = tables.intern(&format!("f{number}"));
        let file = tables.intern("x.py");
        assert_eq!(
            tables.intern_frame(Frame { function, file, line: number * 10, ..Frame::default() }),
            number
        );
    }
    tables
}

fn row(time: i64, thread: u64, action: CallAction, code: u32, rss: u64) -> CallRow {
    let rss_bytes = Some(rss);
    CallRow {
        time_ns: time * 1000,
        process: ProcessId(1),
        thread,
        action,
        code,
        line: code * 10 + 1,
        rss_bytes,
    }
}

fn calls(rows: &[CallRow], count: u32) -> Calls {
    let mut fold = CallsFold::default();
    fold.push(rows);
    fold.finish(&tables(count), &CallsOptions { order: CallOrder::Own, limit: None })
}

fn function<'a>(calls: &'a Calls, name: &str) -> &'a floodmark_analyze::TracedFunction {
    calls.functions.iter().find(|function| function.function == name).expect("traced")
}

#[test]
fn a_change_belongs_to_the_function_that_ran_before_the_event() {
    use CallAction::{CCall, CReturn, Call, Return};
    let rows = [
        row(0, 7, Call, 1, 1000),
        // f1 gained 500 before it called f2, f2 300 in the native f3 and 200 itself.
        row(1, 7, Call, 2, 1500),
        row(2, 7, CCall, 3, 1500),
        row(3, 7, CReturn, 3, 1800),
        row(4, 7, Return, 2, 2000),
        // What f2 held went when f1 forgot it.
        row(5, 7, Return, 1, 1600),
    ];
    let calls = calls(&rows, 3);
    assert_eq!((calls.gained_bytes, calls.released_bytes), (1000, 400));
    assert_eq!((calls.first_rss_bytes, calls.last_rss_bytes, calls.peak_rss_bytes), (1000, 1600, 2000));
    assert_eq!((calls.calls, calls.native_calls, calls.unbalanced), (2, 1, 0));
    let figures = |name| {
        let function = function(&calls, name);
        (function.own_bytes, function.cumulative_bytes, function.calls)
    };
    assert_eq!(figures("f1"), (100, 600, 1));
    assert_eq!(figures("f2"), (200, 500, 1));
    assert_eq!(figures("f3"), (300, 300, 1));
    let step = calls.largest_step.as_ref().expect("grew");
    assert_eq!((step.function.as_str(), step.bytes), ("f1", 500));
    let lines: Vec<_> =
        calls.lines.iter().map(|line| (line.function.as_str(), line.line, line.gained_bytes)).collect();
    assert_eq!(lines[1], ("f2 → f3", 31, 300));
}

#[test]
fn recursion_counts_once_and_gaps_end_what_is_known() {
    use CallAction::{Call, Return};
    let mut rows =
        vec![row(0, 7, Call, 1, 0), row(1, 7, Call, 1, 10), row(2, 7, Call, 1, 20), row(3, 7, Return, 1, 50)];
    let recursive = calls(&rows, 2);
    assert_eq!(function(&recursive, "f1").cumulative_bytes, 50);
    assert_eq!(recursive.unbalanced, 2);
    // Events are missing, then f2 returns: f1 is not its caller any more.
    rows.push(CallRow { code: 0, rss_bytes: None, ..row(4, 7, Return, 0, 0) });
    rows.push(row(5, 7, Return, 2, 150));
    let cut = calls(&rows, 2);
    assert_eq!(
        (cut.gaps, function(&cut, "f2").own_bytes, function(&cut, "f1").cumulative_bytes),
        (1, 100, 50)
    );
    let mut fold = CallsFold::default();
    fold.push(&rows);
    let flame = fold.flame(&tables(2), Direction::FromCaller);
    assert_eq!(flame.total.bytes, 150);
    assert_eq!(flame.nodes.iter().filter(|node| node.parent.is_none()).count(), 2);
}

#[test]
fn where_only_changes_are_recorded_each_stands_alone_or_with_the_one_before() {
    use CallAction::{CCall, CReturn, Call, Return};
    let rows = [
        row(0, 7, Call, 1, 1000),
        // Alone: what called it is not known.
        row(1, 7, Return, 2, 1500),
        row(2, 7, CReturn, 3, 1800),
        // With the event before it.
        row(3, 7, CCall, 4, 1800),
        row(4, 7, CReturn, 4, 2000),
    ];
    let mut fold = CallsFold::new(Recorded::Changes);
    fold.push(&rows);
    let calls = fold.finish(&tables(4), &CallsOptions { order: CallOrder::Own, limit: None });
    let figures = |name| {
        let function = function(&calls, name);
        (function.own_bytes, function.cumulative_bytes)
    };
    assert_eq!(
        (figures("f1"), figures("f2"), figures("f3"), figures("f4")),
        ((0, 0), (500, 500), (300, 300), (200, 200))
    );
    assert_eq!((calls.gained_bytes, calls.unbalanced), (1000, 0));
}

#[test]
fn events_before_changes_belong_to_their_own_thread() {
    use CallAction::{CCall, CReturn, Call, Return};
    let rows = [
        row(0, 7, Call, 1, 1000),
        row(1, 7, CCall, 4, 1000),
        // Another thread comes between the two.
        row(2, 8, Return, 2, 1500),
        row(3, 7, CReturn, 4, 1700),
    ];
    let mut fold = CallsFold::new(Recorded::Changes);
    fold.push(&rows);
    let calls = fold.finish(&tables(4), &CallsOptions { order: CallOrder::Own, limit: None });
    let own = |name| function(&calls, name).own_bytes;
    assert_eq!((own("f2"), own("f4"), function(&calls, "f1").cumulative_bytes), (500, 200, 0));
}

#[test]
fn stacks_of_code_that_touches_memory_are_booked_to_their_lines() {
    let mut tables = tables(1);
    let frame = |tables: &mut Tables, name: &str, line| {
        let (function, file) = (tables.intern(name), tables.intern("x.py"));
        tables.intern_frame(Frame { function, file, line, ..Frame::default() })
    };
    let main = frame(&mut tables, "main", 3);
    let outer = tables.intern_stack(StackId(0), main);
    let stacks = [5, 6].map(|line| {
        let load = frame(&mut tables, "load", line);
        tables.intern_stack(outer, load)
    });
    let mut fold = CallsFold::new(Recorded::Faults);
    for (time, stack, rss) in
        [(0, stacks[0], 4096), (1, stacks[0], 12288), (2, stacks[1], 16384), (3, outer, 8192)]
    {
        let row = StackSampleRow {
            time_ns: time,
            subject: 1 << 32 | 1,
            thread: 7,
            stack,
            reason: StackReason::Growth,
            pause_ns: 0,
        };
        fold.fault(&row, rss, &tables);
    }
    let calls = fold.finish(&tables, &CallsOptions { order: CallOrder::Own, limit: None });
    let load = function(&calls, "load");
    assert_eq!((load.own_bytes, load.cumulative_bytes, load.line), (12288, 12288, 0));
    assert_eq!(
        (function(&calls, "main").own_bytes, function(&calls, "main").cumulative_bytes),
        (-8192, 4096)
    );
    let lines: Vec<_> =
        calls.lines.iter().map(|line| (line.line, line.gained_bytes, line.released_bytes)).collect();
    assert_eq!(lines, [(5, 8192, 0), (6, 4096, 0), (3, 0, 8192)]);
    assert_eq!(Recorded::from_mark("call trace begins: mode=faults d_rss_trigger=1"), Some(Recorded::Faults));
    assert_eq!(Recorded::from_mark("call trace begins: mode=pairs x"), Some(Recorded::Changes));
    assert_eq!(Recorded::from_mark("begin"), None);
}

/// A step of a program: call a function, return from it, and by how much memory changes before that.
fn programs() -> impl Strategy<Value = Vec<(u64, Option<u32>, i64)>> {
    prop::collection::vec((0..3u64, prop::option::weighted(0.55, 1..6u32), -50..100i64), 0..200)
}

proptest! {
    #[test]
    fn balanced_calls_give_what_following_them_gives(steps in programs()) {
        let mut stacks: HashMap<u64, Vec<u32>> = HashMap::new();
        let (mut own, mut cumulative) = (HashMap::<u32, i64>::new(), HashMap::<u32, i64>::new());
        let (mut rows, mut rss) = (Vec::new(), 1_000_000i64);
        for (time, (thread, call, change)) in steps.iter().enumerate() {
            let stack = stacks.entry(*thread).or_default();
            // Threads have a function around everything, so every change has an owner.
            if stack.is_empty() {
                stack.push(6);
                rows.push(row(time as i64, *thread, CallAction::Call, 6, rss as u64));
            }
            rss += change;
            *own.entry(*stack.last().expect("one")).or_default() += change;
            let mut around = stack.clone();
            around.sort_unstable();
            around.dedup();
            for code in around {
                *cumulative.entry(code).or_default() += change;
            }
            match call {
                Some(code) => {
                    rows.push(row(time as i64, *thread, CallAction::Call, *code, rss as u64));
                    stack.push(*code);
                }
                None => {
                    let code = stack.pop().expect("one");
                    rows.push(row(time as i64, *thread, CallAction::Return, code, rss as u64));
                }
            }
        }
        let calls = calls(&rows, 6);
        for found in &calls.functions {
            let code: u32 = found.function[1..].parse().expect("a number");
            prop_assert_eq!(found.own_bytes, own.get(&code).copied().unwrap_or(0));
            prop_assert_eq!(found.cumulative_bytes, cumulative.get(&code).copied().unwrap_or(0));
        }
        let net = calls.gained_bytes as i64 - calls.released_bytes as i64;
        prop_assert_eq!(net, steps.iter().map(|(_, _, change)| change).sum::<i64>());
        prop_assert_eq!(calls.unbalanced, stacks.values().map(|stack| stack.len() as u64).sum::<u64>());
    }
}
