//! Signals reach the command.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use floodmark_testkit::{wait_for, wait_for_exit, wait_until};

use crate::programs::WatchTest;

fn kill(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().expect("kill runs").success());
}

/// A watched shell that has written its first line.
fn ready(
    test: &WatchTest,
    options: &[&str],
    script: &str,
) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut watcher = test.watcher(options);
    let mut child = watcher.args(["sh", "-c", script]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    (child, output, line)
}

#[test]
fn a_signal_to_us_alone_is_passed_on() {
    let test = WatchTest::new("passed");
    for (signal, code) in [("TERM", 5), ("HUP", 6), ("USR1", 7), ("USR2", 8), ("INT", 9), ("QUIT", 10)] {
        let script = format!("trap 'exit {code}' {signal}; echo ready; while :; do sleep 0.02; done");
        let (mut child, _output, _) = ready(&test, &[], &script);
        kill(&format!("-{signal}"), &child.id().to_string());
        assert_eq!(wait_for_exit(&mut child, "the watcher").code(), Some(code), "{signal}");
    }
}

#[test]
fn a_command_that_takes_no_notice_is_not_abandoned() {
    let test = WatchTest::new("deaf");
    let script = "trap '' TERM; echo ready; sleep 0.5; exit 3";
    let (mut child, _output, _) = ready(&test, &[], script);
    for _ in 0..3 {
        kill("-TERM", &child.id().to_string());
    }
    assert_eq!(wait_for_exit(&mut child, "the watcher").code(), Some(3));
}

#[test]
fn what_a_command_left_behind_is_left_alone_when_we_are_told_to_end() {
    let test = WatchTest::new("behind");
    let (mut child, _output, line) = ready(&test, &[], "sleep 20 & echo $!; exit 4");
    let left = line.trim();
    // Until the command is over a signal would be for it.
    let is_over = || {
        std::fs::read_to_string(format!("/proc/{left}/stat"))
            .unwrap()
            .contains(&format!(" S {} ", child.id()))
    };
    wait_until("the command to end", is_over);
    // The watcher may not have noticed the end yet, and then passes the signal on to nothing.
    let status = wait_for("the watcher to end", || {
        kill("-INT", &child.id().to_string());
        child.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(4));
    assert_eq!(test.report().figure("left"), 1);
    kill("-TERM", left);
}

#[test]
fn detaching_leaves_a_process_as_it_was() {
    let test = WatchTest::new("detach");
    let mut target = Command::new("sleep").arg("20").spawn().unwrap();
    let option = format!("attach={}", target.id());
    let mut watcher = test.watcher(&[&option, &test.ready()]).spawn().unwrap();
    test.wait_until_ready(&mut watcher);
    kill("-INT", &watcher.id().to_string());
    wait_for_exit(&mut watcher, "the watcher");
    assert!(target.try_wait().unwrap().is_none(), "it goes on");
    target.kill().unwrap();
    target.wait().unwrap();
    assert_eq!(test.report().figure("left"), 1);
}
