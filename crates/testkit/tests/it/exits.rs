//! Recordings of programs that stop, exit, crash, fork and lose files.

use floodmark_store::Manifest;
use floodmark_testkit::torture::check_thread;
use floodmark_testkit::{TempDir, wait_for_exit};

use crate::programs::{events_by_thread, lost, writer};

/// Runs a writer to its end and checks that its trace has everything.
fn run(name: &str, options: &[&str], expected: &[(u64, u64)]) {
    let folder = TempDir::new(name);
    let trace = folder.join("run.flood");
    assert!(wait_for_exit(&mut writer(&trace, options), "the writer").success());
    let threads = events_by_thread(&trace);
    let found: Vec<(u64, u64)> =
        threads.iter().map(|(number, events)| (*number, check_thread(*number, events))).collect();
    assert_eq!(found, expected);
    assert_eq!(lost(&trace), 0);
    let manifest = Manifest::load(&trace).expect("reads").expect("a manifest");
    let listed: u64 = manifest.parts_of("process").map(|part| part.rows).sum();
    assert_eq!(listed, manifest.processes.len() as u64, "every process is in the table");
    let left: Vec<_> = std::fs::read_dir(trace.join("segments")).expect("segments").flatten().collect();
    assert!(left.iter().all(|entry| entry.file_name() == "lock"), "the tail is sealed: {left:?}");
}

#[test]
fn a_recording_that_is_stopped_is_complete() {
    run("stopped", &["3", "50000", "--seal"], &[(1, 50_000), (2, 50_000), (3, 50_000)]);
    run("stopped-alone", &["3", "50000"], &[(1, 50_000), (2, 50_000), (3, 50_000)]);
}

#[test]
fn a_program_that_just_exits_leaves_a_complete_trace() {
    run("exit", &["2", "50000", "--exit", "plainly"], &[(1, 50_000), (2, 50_000)]);
    run("exit-seal", &["2", "50000", "--seal", "--exit", "plainly"], &[(1, 50_000), (2, 50_000)]);
    run("exit-now", &["2", "50000", "--exit", "immediately"], &[(1, 50_000), (2, 50_000)]);
}

#[test]
fn forked_children_have_their_own_processes_in_the_trace() {
    let expected = [(1, 20_000), (1000, 20_000), (1001, 20_000), (1002, 20_000)];
    run("fork", &["1", "20000", "--fork", "3"], &expected);
    run("fork-seal", &["1", "20000", "--fork", "3", "--seal"], &expected);
}

#[test]
fn forty_threads_have_forty_lanes() {
    let expected: Vec<(u64, u64)> = (1..=40).map(|thread| (thread, 20_000)).collect();
    run("forty", &["40", "20000", "--seal"], &expected);
}

#[test]
fn a_lost_segment_is_a_counted_gap_and_the_rest_is_read() {
    let folder = TempDir::new("lost-segment");
    let trace = folder.join("run.flood");
    // Long enough for several segment files of 16 MiB.
    let mut writer = writer(&trace, &["1", "6000000", "--exit", "immediately"]);
    assert!(wait_for_exit(&mut writer, "the writer").success());
    let mut segments: Vec<_> = std::fs::read_dir(trace.join("segments"))
        .expect("segments")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "seg"))
        .collect();
    segments.sort();
    assert!(segments.len() >= 2, "{segments:?}");
    std::fs::remove_file(&segments[0]).expect("removes");
    let events = events_by_thread(&trace).remove(&1).expect("events");
    assert!(events.len() > 1_000_000 && events.len() < 6_000_000, "{}", events.len());
    assert!(lost(&trace) > 100, "missing chunks are counted");
}
