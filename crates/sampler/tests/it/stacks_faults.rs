//! Functions that took memory, found by their page faults.

use floodmark_testkit::wait_for_exit;

use crate::programs::{Report, User, WatchTest};
use crate::stacks::compile;

/// Runs the bursts under a watcher, which sweeps so rarely that the thread sleeps again whenever its stack is taken.
fn watch(user: User) -> Report {
    let test = WatchTest::new("bursts");
    let program = compile(&test, "bursts.c", "bursts", &[]);
    let options = ["interval=100ms", &test.ready(), "stacks=native"];
    let mut watcher = test.watcher_as(user, &options);
    let mut watcher = watcher.arg(program).arg(test.join("ready")).spawn().expect("the watcher starts");
    assert!(wait_for_exit(&mut watcher, "the watcher").success());
    test.report()
}

#[test]
fn the_function_that_took_memory_is_named_though_its_thread_sleeps_by_then() {
    for user in [User::Current, User::Unprivileged] {
        let report = watch(user);
        if let Some(why) = report.notes.iter().find(|note| note.contains("not sampled")) {
            // Where the kernel refuses, the reason and the remedy are all there can be.
            assert!(why.contains("CAP_PERFMON") || why.contains("ulimit"), "{why}");
            continue;
        }
        let of_worker =
            report.stacks.iter().filter(|(_, _, functions)| functions.iter().any(|name| name == "work"));
        let faulted = of_worker.filter(|(_, why, _)| why == "fault").collect::<Vec<_>>();
        assert!(!faulted.is_empty(), "{user:?}: {:?}", report.stacks);
        let is_burst = |names: &[String]| names.windows(3).any(|window| window == ["burst", "step", "work"]);
        assert!(
            faulted.iter().all(|(_, _, functions)| is_burst(functions)),
            "{user:?}: {faulted:?} {:?}",
            report.notes
        );
        let spins = |(_, why, functions): &&(u64, String, Vec<String>)| {
            why == "fault" && functions.iter().any(|name| name == "spin")
        };
        assert_eq!(report.stacks.iter().find(spins), None, "it takes no memory");
    }
}
