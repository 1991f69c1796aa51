//! Everything that a command becomes is in the table.

use std::process::{Command, Stdio};

use floodmark_testkit::{wait_for_exit, wait_until};

use crate::programs::{Report, WatchTest};

const COUNT: usize = 200;

fn quick(options: &[&str]) -> Report {
    let test = WatchTest::new(&format!("quick{}", options.len()));
    let family = test.compile("family.c");
    let quick = test.join("quick.c");
    std::fs::write(&quick, "int main(void) { return 9; }").expect("a file");
    let program = test.join("quick_one");
    assert!(Command::new("cc").arg("-o").args([&program, &quick]).status().expect("cc runs").success());
    test.watch(options, &[&family, &"quick", &COUNT.to_string(), &program])
}

#[test]
fn two_hundred_children_that_live_for_a_moment_are_all_in_the_table() {
    let report = quick(&[]);
    let processes = report.processes();
    if !report.has_process_events() {
        return;
    }
    assert_eq!(processes.len(), COUNT + 1, "{:?}", report.notes);
    let root = processes[0].id;
    for child in &processes[1..] {
        assert_eq!((child.parent, child.status), (root, Some(9 << 8)), "{child:?}");
    }
    // A name is known unless the process was gone before we looked.
    let named = report.named("quick_one").len();
    let unnamed = report.named("family").len() - 1;
    assert_eq!(named + unnamed, COUNT);
    assert!(named > 0);
    assert_eq!((report.figure("missed"), report.figure("seen")), (0, COUNT as u64 + 1));
}

#[test]
fn without_help_of_the_kernel_what_lives_long_enough_is_found() {
    let report = quick(&["scan"]);
    let accounted = report.figure("seen") + report.figure("missed") + report.figure("vanished");
    assert!(accounted > COUNT as u64, "nothing is hidden: {report:?}");
    let test = WatchTest::new("scan");
    let family = test.compile("family.c");
    let report = test.watch(&["scan"], &[&family, &"sleepers", &"30", &"1"]);
    assert_eq!(report.processes().len(), 31);
    let is_limited = report.notes.iter().any(|note| note.contains("reports no process events"));
    assert!(!is_limited, "looking was asked for: {:?}", report.notes);
    let root = report.processes()[0].id;
    assert!(report.processes()[1..].iter().all(|child| child.parent == root && child.ended));
}

#[test]
fn daemons_stay_in_the_tree_and_we_learn_how_they_ended() {
    for options in [&[][..], &["scan"]] {
        let test = WatchTest::new("daemon");
        let family = test.compile("family.c");
        let report = test.watch(options, &[&family, &"daemon", &"7"]);
        let last = report.processes().into_iter().find(|process| process.status == Some(7 << 8));
        let last = last.unwrap_or_else(|| panic!("the daemon is there: {report:?}"));
        assert!(last.peak.is_some(), "{last:?}");
        assert!(report.figure("duration_ns") > 200_000_000, "its end was waited for");
        assert_eq!(report.figure("left"), 0);
        if options.is_empty() && report.has_process_events() {
            assert_eq!(report.processes().len(), 3, "{report:?}");
            assert_eq!(report.figure("missed"), 0);
        }
    }
}

#[test]
fn programs_that_replace_themselves_are_the_same_process() {
    let test = WatchTest::new("exec");
    let report = test.watch(&[], &[&"sh", &"-c", &"sleep 0.1; exec sleep 0.2"]);
    let first = report.subjects.iter().find(|seen| seen.kind == "process").unwrap();
    let all: Vec<_> = report.subjects.iter().filter(|seen| seen.number == first.number).collect();
    assert_eq!(all.len(), 2, "{report:?}");
    assert_eq!((all[0].name.as_str(), all[1].name.as_str()), ("\"sh\"", "\"sleep\""));
    assert!(!all[0].ended && all[1].ended, "it ended once");
}

#[test]
fn a_process_goes_on_without_its_first_thread() {
    for options in [&["samples"][..], &["samples", "scan"]] {
        let test = WatchTest::new("thread");
        let family = test.compile("family.c");
        let report = test.watch(options, &[&family, &"thread"]);
        let root = &report.processes()[0];
        assert_eq!(root.status, Some(5 << 8));
        let highest = report.series(root.id, "rss").into_iter().map(|(_, rss)| rss).max();
        assert!(highest > Some(64 << 20), "{highest:?} {options:?}");
    }
}

#[test]
fn a_process_that_runs_already_is_watched_with_its_descendants() {
    let test = WatchTest::new("attach");
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 0.6 & sleep 0.5; exit 4"]).stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    // Both are there before the watcher is.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    wait_until("two children", || std::fs::read_to_string(&children).unwrap().split(' ').count() == 3);
    let attach = format!("attach={}", child.id());
    let mut watcher = test.watcher(&[&attach]);
    let watcher = watcher.spawn().unwrap();
    assert_eq!(wait_for_exit(&mut child, "the command").code(), Some(4), "it does not notice");
    watcher.wait_with_output().unwrap();
    let report = test.report();
    assert_eq!((report.processes().len(), report.named("sleep").len()), (3, 2), "{report:?}");
    let root = &report.processes()[0];
    assert!(report.processes()[1..].iter().all(|process| process.parent == root.id && process.ended));
    if report.has_process_events() {
        assert_eq!(root.status, Some(4 << 8), "the kernel told");
        assert_eq!(report.figure("exit"), 4);
    }
}

#[test]
fn children_of_our_own_are_left_to_whoever_started_them() {
    let test = WatchTest::new("own");
    let report = test.watch(&["children"], &[&"sh", &"-c", &"(sleep 0.3 &); sleep 0.1; exit 6"]);
    // The watcher would have ended with another code if it had lost one of its own.
    assert_eq!(report.figure("exit"), 6);
    if report.has_process_events() {
        assert_eq!((report.figure("missed"), report.named("sleep").len()), (0, 2), "{report:?}");
    }
}

#[test]
fn nobody_can_be_watched_who_is_not_there() {
    let test = WatchTest::new("nobody");
    let output = test.watcher(&["attach=2147483647"]).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no process 2147483647"));
}

#[test]
fn a_watcher_can_be_watched() {
    let test = WatchTest::new("nested");
    let inner = env!("CARGO_BIN_EXE_floodmark-watch");
    let report = test.watch(&[], &[&inner, &"--", &"sh", &"-c", &"sleep 0.1; (sleep 0.2 &); exit 6"]);
    assert_eq!(report.figure("exit"), 6);
    assert_eq!(report.named("sleep").len(), 2, "{report:?}");
}
