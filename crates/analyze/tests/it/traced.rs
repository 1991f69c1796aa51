//! What functions gained, by the fold and by following every call naively.

use std::collections::HashMap;

use floodmark_analyze::{CallNode, CallOrder, CallSite, Calls, CallsFold, CallsOptions, Direction, Recorded};
use floodmark_event::tables::Frame;
use floodmark_event::{CallAction, CallRow, ProcessId, StackId, StackReason, StackSampleRow, Tables};
use proptest::prelude::*;

const OPTIONS: CallsOptions =
    CallsOptions { order: CallOrder::Own, limit: None, tree_depth: 1000, tree_rows: None };

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
    calls_of(Recorded::Every, rows, count)
}

fn calls_of(recorded: Recorded, rows: &[CallRow], count: u32) -> Calls {
    let mut fold = CallsFold::new(recorded);
    fold.push(rows);
    fold.finish(&tables(count), &OPTIONS)
}

fn function<'a>(calls: &'a Calls, name: &str) -> &'a floodmark_analyze::TracedFunction {
    calls.functions.iter().find(|function| function.function == name).expect("traced")
}

/// What a function gained itself and with what it called.
fn figures(calls: &Calls, name: &str) -> (i64, i64) {
    let function = function(calls, name);
    (function.own_bytes, function.cumulative_bytes)
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
    assert_eq!(["f1", "f2", "f3"].map(|name| figures(&calls, name)), [(100, 600), (200, 500), (300, 300)]);
    assert!(calls.functions.iter().all(|function| function.calls == 1));
    let step = calls.largest_step.as_ref().expect("grew");
    assert_eq!((step.function.as_str(), step.bytes), ("f1", 500));
    let lines: Vec<_> =
        calls.lines.iter().map(|line| (line.function.as_str(), line.line, line.gained_bytes)).collect();
    assert_eq!(lines[1], ("f2 → f3", 31, 300));
    let sites: Vec<_> = calls.call_sites.iter().collect();
    let site = |caller: &str, line, function: &str, gained_bytes| CallSite {
        caller: caller.into(),
        file: "x.py".into(),
        line,
        function: function.into(),
        calls: 1,
        gained_bytes,
        released_bytes: 0,
        cumulative_bytes: gained_bytes.cast_signed(),
    };
    // The line is known of the call of a native function only.
    assert_eq!(sites, [&site("f1", 0, "f2", 500), &site("f2", 31, "f3", 300)]);
    let tree: Vec<_> = calls
        .tree
        .iter()
        .map(|node| {
            (node.depth, node.function.as_str(), node.calls, node.own_gained_bytes, node.gained_bytes)
        })
        .collect();
    assert_eq!(tree, [(0, "f1", 1, 500, 1000), (1, "f2", 1, 200, 500), (2, "f3", 1, 300, 300)]);
    assert_eq!(calls.tree.iter().map(|node| node.released_bytes).collect::<Vec<_>>(), [400, 0, 0]);
}

#[test]
fn trees_are_as_deep_and_wide_as_asked() {
    use CallAction::{Call, Return};
    let mut rows = vec![row(0, 7, Call, 1, 0)];
    let mut rss = 0;
    // f2 to f9 gain 200, 300 ... and call f10, which gains 1.
    for code in 2..=9u32 {
        rows.push(row(i64::from(code), 7, Call, code, rss));
        rss += u64::from(code) * 100;
        rows.push(row(i64::from(code), 7, Call, 10, rss));
        rss += 1;
        rows.push(row(i64::from(code), 7, Return, 10, rss));
        rows.push(row(i64::from(code), 7, Return, code, rss));
    }
    let tree = |tree_rows, tree_depth| {
        let mut fold = CallsFold::default();
        fold.push(&rows);
        let calls = fold.finish(&tables(10), &CallsOptions { tree_rows, tree_depth, ..OPTIONS });
        calls.tree.iter().map(|node| (node.function.clone(), node.omitted)).collect::<Vec<_>>()
    };
    let node = |name: &str, omitted| (name.to_owned(), omitted);
    assert_eq!(tree(None, 0), []);
    assert_eq!(tree(None, 1), [node("f1", 8)]);
    assert_eq!(tree(None, 3).len(), 1 + 8 * 2);
    assert_eq!(tree(Some(3), 3), [node("f1", 6), node("f9", 1), node("f8", 1)]);
}

#[test]
fn what_imports_gain_belongs_to_the_function_that_imports() {
    use CallAction::{Call, Return};
    let mut tables = tables(3);
    let (function, file) = (tables.intern("_find_and_load"), tables.intern("<frozen importlib._bootstrap>"));
    let import = tables.intern_frame(Frame { function, file, ..Frame::default() });
    let rows = [
        row(0, 7, Call, 1, 0),
        row(1, 7, Call, import, 0),
        row(2, 7, Call, import, 10),
        row(3, 7, Call, 2, 30),
        row(4, 7, Return, 2, 70),
        row(5, 7, Return, import, 70),
        row(6, 7, Return, import, 70),
        row(7, 7, Call, 3, 75),
        row(8, 7, Return, 3, 75),
        row(9, 7, Return, 1, 75),
    ];
    let mut fold = CallsFold::default();
    fold.push(&rows);
    let calls = fold.finish(&tables, &OPTIONS);
    let tree: Vec<_> = calls
        .tree
        .iter()
        .map(|node| {
            (node.depth, node.function.as_str(), node.own_gained_bytes, node.gained_bytes, node.omitted)
        })
        .collect();
    assert_eq!(tree, [(0, "f1", 35, 75, 0), (1, "f2", 40, 40, 0)]);
}

#[test]
fn resident_memory_over_time_is_kept_in_few_periods() {
    use CallAction::{Call, Return};
    let rows = |count: i64| {
        let mut rows = vec![row(0, 7, Call, 1, 1000)];
        for time in 1..=count {
            // f2 gains one byte at a time; f1 gives all back at the end.
            rows.push(row(time * 10, 7, Call, 2, 1000 + time as u64 - 1));
            rows.push(row(time * 10 + 5, 7, Return, 2, 1000 + time as u64));
        }
        rows.push(row(count * 10 + 9, 7, Return, 1, 500));
        rows
    };
    for count in [1, 7, 100, 30_000] {
        let calls = calls(&rows(count), 2);
        let (points, periods) = (&calls.rss_points, &calls.periods);
        assert!(points.len() <= 120 && periods.len() <= 10, "{} {}", points.len(), periods.len());
        assert!(count < 100 || (points.len() >= 60 && periods.len() >= 8));
        assert_eq!(points.iter().map(|point| point.rss_bytes).max(), Some(1000 + count as u64));
        assert!(points.is_sorted_by_key(|point| point.time_ns));
        assert!(periods.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns));
        assert_eq!((periods[0].from_ns, Some(periods[periods.len() - 1].to_ns)), (0, calls.last_time_ns));
        assert_eq!(periods.iter().map(|period| period.gained_bytes).sum::<u64>(), calls.gained_bytes);
        assert_eq!(periods.iter().map(|period| period.released_bytes).sum::<u64>(), calls.released_bytes);
        assert!(
            periods.iter().flat_map(|period| &period.functions).all(|function| function.function == "f2")
        );
        let gained = periods.iter().flat_map(|period| &period.functions).map(|one| one.gained_bytes);
        assert_eq!(gained.sum::<u64>(), count as u64);
    }
}

#[test]
fn processes_count_while_they_are_seen() {
    use CallAction::{Call, Return};
    let of =
        |process, time, action, rss| CallRow { process: ProcessId(process), ..row(time, 7, action, 1, rss) };
    let rows = [
        of(1, 0, Call, 100),
        of(2, 10, Call, 40),
        of(2, 20, Return, 60),
        of(1, 40, Call, 110),
        of(3, 60, Return, 10),
    ];
    let calls = calls(&rows, 1);
    let at = |time: i64| {
        let next = calls.rss_points.partition_point(|point| point.time_ns <= time * 1000);
        calls.rss_points[next - 1].rss_bytes
    };
    assert_eq!([0, 5, 10, 15, 20, 21, 40, 50, 60].map(at), [100, 100, 140, 140, 160, 100, 110, 110, 120]);
    assert_eq!(calls.peak_rss_bytes, 110);
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
    let calls = calls_of(Recorded::Changes, &rows, 4);
    assert_eq!(
        ["f1", "f2", "f3", "f4"].map(|name| figures(&calls, name)),
        [(0, 0), (500, 500), (300, 300), (200, 200)]
    );
    assert_eq!((calls.gained_bytes, calls.unbalanced), (1000, 0));
}

#[test]
fn a_change_before_a_function_begins_is_its_callers_though_that_has_no_name() {
    use CallAction::{CCall, CReturn, Call, Return};
    let rows = [
        row(0, 7, Call, 1, 1000),
        // f1 allocates and calls the native f2, then allocates and calls f3.
        row(1, 7, CCall, 2, 1500),
        row(2, 7, CReturn, 2, 1600),
        row(3, 7, Call, 3, 1900),
        row(4, 7, Return, 3, 1940),
    ];
    let calls = calls_of(Recorded::Changes, &rows, 3);
    assert_eq!(["f2", "f3"].map(|name| figures(&calls, name)), [(100, 100), (40, 40)]);
    let found = |name| {
        let function = function(&calls, name);
        (function.own_bytes, function.calls, function.is_native, function.file.as_str(), function.line)
    };
    // Rows of native functions have the caller's file and line, others their own.
    assert_eq!(found("caller of f2"), (500, 0, false, "x.py", 0));
    assert_eq!(found("caller of f3"), (300, 0, false, "", 0));
    let lines: Vec<_> = calls.lines.iter().map(|line| (line.function.as_str(), line.line)).collect();
    assert_eq!(lines, [("caller of f2", 21), ("caller of f3", 0), ("f2", 21), ("f3", 31)]);
    assert_eq!(calls.largest_step.as_ref().expect("grew").function, "caller of f2");
    assert_eq!(calls.tree.iter().map(|node| node.gained_bytes).sum::<u64>(), calls.gained_bytes);
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
    let calls = calls_of(Recorded::Changes, &rows, 4);
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
    let calls = fold.finish(&tables, &OPTIONS);
    let load = function(&calls, "load");
    assert_eq!((load.own_bytes, load.cumulative_bytes, load.line), (12288, 12288, 0));
    assert_eq!(figures(&calls, "main"), (-8192, 4096));
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
        // Calls and changes by the function that calls and the one that is called.
        let mut sites = HashMap::<(u32, u32), (u64, i64)>::new();
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
            let mut calls_around: Vec<(u32, u32)> = stack.windows(2).map(|pair| (pair[0], pair[1])).collect();
            calls_around.sort_unstable();
            calls_around.dedup();
            for site in calls_around {
                sites.entry(site).or_default().1 += change;
            }
            match call {
                Some(code) => {
                    rows.push(row(time as i64, *thread, CallAction::Call, *code, rss as u64));
                    sites.entry((*stack.last().expect("one"), *code)).or_default().0 += 1;
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
        let roots = calls.tree.iter().filter(|node| node.depth == 0);
        prop_assert_eq!(roots.map(|node| node.gained_bytes).sum::<u64>(), calls.gained_bytes);
        let own = |tree: &[CallNode]| tree.iter().map(|node| node.own_gained_bytes).sum::<u64>();
        prop_assert_eq!(own(&calls.tree), calls.gained_bytes);
        for found in &calls.call_sites {
            let code = |name: &str| name[1..].parse::<u32>().expect("a number");
            let site = sites[&(code(&found.caller), code(&found.function))];
            prop_assert_eq!((found.calls, found.cumulative_bytes), site);
        }
        let net = calls.gained_bytes as i64 - calls.released_bytes as i64;
        prop_assert_eq!(net, steps.iter().map(|(_, _, change)| change).sum::<i64>());
        prop_assert_eq!(calls.unbalanced, stacks.values().map(|stack| stack.len() as u64).sum::<u64>());
    }
}
