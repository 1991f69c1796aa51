//! The profiler: RMM's cases, and those in which RMM counts wrongly.

use std::sync::{Arc, Barrier};

use floodmark_resource::{MemoryRecord, OrderedBy, Profiled, ProfilerRecords, Simulated, Statistics};

use crate::blocks::{Block, give, give_all, take};

struct Program {
    statistics: Statistics<Simulated>,
    records: ProfilerRecords,
}

impl Program {
    fn new() -> Self {
        Self { statistics: Statistics::new(Simulated::new(1 << 30)), records: ProfilerRecords::default() }
    }

    fn profile(&self, name: &str) -> Profiled {
        self.records.profile(self.statistics.handle(), name)
    }

    fn take(&self, bytes: u64) -> Block {
        take(&self.statistics, bytes)
    }

    fn give(&self, block: Block) {
        give(&self.statistics, block);
    }

    /// Calls, peak and total of `name`.
    fn figures(&self, name: &str) -> Option<(u64, i64, i64)> {
        let MemoryRecord { calls, peak_bytes, total_bytes } = self.records.get(name)?;
        Some((calls, peak_bytes, total_bytes))
    }
}

#[test]
fn the_nested_example_reads_as_documented() {
    let program = Program::new();
    let empty = "Memory Profiling\n================\n\nNo data, maybe profiling wasn't enabled?";
    assert_eq!(program.records.report(OrderedBy::Peak), empty);
    {
        let _outer = program.profile("outer");
        program.take(1000);
        {
            let _inner = program.profile("inner");
            program.take(2000);
        }
        program.take(500);
    }
    let expected = "\
Memory Profiling
================

Legends:
  ncalls       - number of times the function or code block was called
  memory_peak  - peak memory allocated in function or code block (in bytes)
  memory_total - total memory allocated in function or code block (in bytes)

Ordered by: memory_peak

ncalls     memory_peak    memory_total  filename:lineno(function)
     1           3,500           3,500  outer
     1           2,000           2,000  inner";
    assert_eq!(program.records.report(OrderedBy::Peak), expected);
}

#[test]
fn functions_are_counted_as_in_the_tests_of_rmm() {
    let program = Program::new();
    let mut live = Vec::new();
    for _ in 0..2 {
        let _profiled = program.profile("f1");
        let (first, second) = (program.take(10), program.take(10));
        program.give(first);
        live.push(second);
    }
    assert_eq!(program.figures("f1"), Some((2, 20, 40)));
    for _ in 0..3 {
        let _profiled = program.profile("f2");
        let first = program.take(10);
        {
            let _profiled = program.profile("g2");
            live.push(program.take(10));
        }
        program.give(first);
    }
    assert_eq!(program.figures("f2"), Some((3, 20, 60)));
    assert_eq!(program.figures("g2"), Some((3, 10, 30)));
    {
        let _profiled = program.profile("b1 and b2");
        let blocks = [program.take(100), program.take(100)];
        let _nested = program.profile("del b1 and b2");
        give_all(&program.statistics, blocks);
    }
    assert_eq!(program.figures("b1 and b2"), Some((1, 200, 200)));
    assert_eq!(program.figures("del b1 and b2"), Some((1, 0, 0)));
    assert_eq!(program.figures("f3"), None);
    give_all(&program.statistics, live);
}

#[test]
fn recursion_counts_memory_once() {
    fn recurse(program: &Program, depth: u32) {
        let _profiled = program.profile("recurse");
        program.take(100);
        if depth > 1 {
            let _between = program.profile("between");
            recurse(program, depth - 1);
        }
    }
    let program = Program::new();
    recurse(&program, 4);
    assert_eq!(program.figures("recurse"), Some((4, 400, 400)));
    assert_eq!(program.figures("between"), Some((3, 300, 300)));
}

#[test]
fn the_same_name_in_other_records_is_another_block() {
    let (program, other) = (Program::new(), ProfilerRecords::default());
    {
        let _outer = program.profile("load");
        let _inner = other.profile(program.statistics.handle(), "load");
        program.take(10);
    }
    assert_eq!(program.figures("load"), Some((1, 10, 10)));
    assert_eq!(other.get("load"), program.records.get("load"));
    other.clear();
    assert_eq!(other.get("load"), None);
}

#[test]
fn giving_back_older_memory_hides_nothing() {
    let program = Program::new();
    let old = program.take(5000);
    {
        let _profiled = program.profile("replace");
        program.give(old);
        program.take(300);
    }
    assert_eq!(program.figures("replace"), Some((1, 300, 300)));
}

#[test]
fn threads_keep_their_own_figures() {
    let program = Program::new();
    let (entered, allocated) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|threads| {
        for (name, bytes) in [("a", 1000), ("b", 7)] {
            let (program, entered, allocated) = (&program, &entered, &allocated);
            threads.spawn(move || {
                let profiled = program.profile(name);
                entered.wait();
                let block = program.take(bytes);
                allocated.wait();
                drop(profiled);
                program.give(block);
            });
        }
    });
    assert_eq!(program.figures("a"), Some((1, 1000, 1000)));
    assert_eq!(program.figures("b"), Some((1, 7, 7)));
}

#[test]
fn tasks_that_take_turns_keep_their_own_figures() {
    let program = Program::new();
    let task = |name: &str| program.records.task(program.statistics.handle(), name);
    let outer = program.profile("loop");
    let (first, second) = (task("first"), task("second"));
    let block = {
        let _step = first.step();
        program.take(100)
    };
    {
        let _step = second.step();
        program.take(7);
    }
    program.take(1); // between two steps
    {
        let _step = first.step();
        program.give(block);
        program.take(60);
    }
    assert_eq!(program.figures("first"), None);
    drop((first, second, outer));
    assert_eq!(program.figures("first"), Some((1, 100, 160)));
    assert_eq!(program.figures("second"), Some((1, 7, 7)));
    assert_eq!(program.figures("loop"), Some((1, 108, 168)));
}

#[test]
fn a_task_inside_one_of_the_same_name_counts_as_a_call() {
    let program = Program::new();
    let task = || program.records.task(program.statistics.handle(), "fetch");
    let (outer, inner) = (task(), task());
    {
        let _outer = outer.step();
        program.take(10);
        let _inner = inner.step();
        program.take(20);
    }
    drop((inner, outer));
    assert_eq!(program.figures("fetch"), Some((2, 30, 30)));
}

#[test]
fn rows_are_ordered_by_any_column_and_ties_by_age() {
    let records = ProfilerRecords::default();
    let add = |name: &str, calls, peak_bytes, total_bytes| {
        records.add(&Arc::from(name), MemoryRecord { calls, peak_bytes, total_bytes });
    };
    add("one", 1, 5, 2_000_000);
    add("two", 1_000_000, 5, 7);
    add("three", 2, 9, 9);
    let names = |by| -> Vec<String> {
        let report = records.report(by);
        assert!(report.contains(&format!("\nOrdered by: {}\n", by.name())), "{report}");
        let rows = report.lines().skip_while(|line| !line.starts_with("ncalls "));
        rows.skip(1).filter_map(|line| line.split_whitespace().last().map(str::to_owned)).collect()
    };
    assert_eq!(names(OrderedBy::Peak), ["three", "one", "two"]);
    assert_eq!(names(OrderedBy::Total), ["one", "three", "two"]);
    assert_eq!(names(OrderedBy::Calls), ["two", "three", "one"]);
    // Wide numbers push the line to the right.
    assert!(records.report(OrderedBy::Peak).ends_with("\n1,000,000               5               7  two"));
}
