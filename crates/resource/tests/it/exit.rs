//! What adaptors buffer or have to say is not lost when the process exits or forks. The current resource of a
//! device is never dropped, so each case is a process of its own.
#![expect(unsafe_code, reason = "forks, as the programs that allocate do")]

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use floodmark_event::NO_DEVICE;
use floodmark_resource::adaptor::tracking::{OnDrop, Tracking, TrackingProps};
use floodmark_resource::current::{current, set_current};
use floodmark_resource::{CsvLogging, Flush, Host, Resource as _, Stream, debug_log};
use floodmark_testkit::TempDir;

/// Names the case that a started process is to run, and its log.
const CASE: &str = "FLOODMARK_TEST_EXIT";

fn allocate(bytes: u64) {
    current(NO_DEVICE).expect("there is one").allocate(bytes, 16, Stream::DEFAULT).expect("allocates");
}

#[test]
#[ignore = "is started by another test"]
#[expect(clippy::exit, reason = "exiting is what is tested")]
fn process_that_exits() {
    let Ok(case) = std::env::var(CASE) else { return };
    let (case, file) = case.split_once(':').expect("a case and a file");
    if case == "tracking" {
        debug_log::install().expect("is the first");
        let props = TrackingProps { on_drop: OnDrop::Report, ..TrackingProps::default() };
        set_current(NO_DEVICE, Arc::new(Tracking::with_props(Host::new(), props)));
    } else {
        let logging = CsvLogging::create(Host::new(), file, Flush::Buffered).expect("creates");
        set_current(NO_DEVICE, Arc::new(logging));
    }
    allocate(100);
    allocate(200);
    match case {
        "exit" => std::process::exit(0),
        "fork" => {
            // SAFETY: the child allocates and exits; this test's other thread only waits.
            let child = unsafe { libc::fork() };
            allocate(300);
            if child == 0 {
                std::process::exit(0);
            }
            // SAFETY: waits for the child made above.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            allocate(400);
        }
        _ => {}
    }
}

fn run(case: &str, file: &Path) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "exit::process_that_exits", "--ignored", "--test-threads=1"]);
    command.env(CASE, format!("{case}:{}", file.display())).env("FLOODMARK_DEBUG_LOG_FILE", file);
    let output = command.output().expect("runs");
    assert!(output.status.success(), "{output:?}");
    output
}

/// The sizes that a log lists, after its header.
fn sizes(file: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(file).expect("reads");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("Thread,Time,Action,Pointer,Size,Stream"), "{text}");
    lines.map(|line| line.split(',').nth(4).expect("a size").parse().expect("a number")).collect()
}

#[test]
fn a_log_is_complete_at_the_end_of_main_and_at_exit() {
    let folder = TempDir::new("log-exit");
    for case in ["return", "exit"] {
        let file = folder.join(format!("{case}.csv"));
        run(case, &file);
        assert_eq!(sizes(&file), [100, 200], "{case}");
    }
}

#[test]
fn a_fork_loses_and_doubles_no_line() {
    let folder = TempDir::new("log-fork");
    let file = folder.join("fork.csv");
    run("fork", &file);
    let mut found = sizes(&file);
    assert_eq!(found[..2], [100, 200], "what came before the fork comes first");
    found.sort_unstable();
    assert_eq!(found, [100, 200, 300, 300, 400]);
}

#[test]
fn live_blocks_are_reported_at_exit() {
    let folder = TempDir::new("tracking-exit");
    let file = folder.join("debug.log");
    run("tracking", &file);
    let text = std::fs::read_to_string(&file).expect("reads");
    assert_eq!(text.matches("tracking ends with 2 live blocks, 300 B").count(), 1, "{text}");
}
