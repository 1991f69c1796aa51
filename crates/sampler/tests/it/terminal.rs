//! At a terminal.

use std::process::{Command, Stdio};

use crate::programs::WatchTest;

/// Types at a terminal where a watcher runs `script`.
fn at_terminal(name: &str, options: &[&str], keys: [&str; 2], script: &str) -> (String, WatchTest) {
    let test = WatchTest::new(name);
    let mut command = Command::new(test.compile("keys.c"));
    command.args(keys).arg(env!("CARGO_BIN_EXE_floodmark-watch"));
    command.arg(format!("report={}", test.join("report").display()));
    command.arg(format!("streams={}", test.join("streams").display()));
    command.args(options).args(["--", "sh", "-c", script]).stdin(Stdio::null());
    let output = command.output().expect("it runs");
    (String::from_utf8_lossy(&output.stdout).into_owned(), test)
}

#[test]
fn a_terminal_of_its_own_looks_like_ours() {
    let script = "test -t 0 && test -t 1 && test -t 2 && stty size && tty && echo ready && read line && echo got $line";
    let (said, test) = at_terminal("own", &["terminal"], ["ready", "word\r"], script);
    assert!(said.contains("33 77\r\n"), "{said}");
    assert!(said.contains("got word\r\n"), "{said}");
    assert!(said.contains("modes during: other, after: same\n"), "raw, and back again: {said}");
    assert!(said.contains("exit 0\n"), "{said}");
    let recorded = std::fs::read_to_string(test.join("streams.terminal")).unwrap();
    assert!(said.contains(&recorded), "{recorded:?}");
    assert!(recorded.ends_with("got word\r\n"));
}

#[test]
fn keys_mean_what_they_mean_at_the_commands_terminal() {
    let script = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.02; done";
    let (said, _) = at_terminal("keys", &["terminal"], ["ready", "^C"], script);
    assert!(said.contains("caught") && said.contains("exit 7\n"), "{said}");
    assert!(said.contains("after: same\n"), "{said}");
}

#[test]
fn the_terminal_is_restored_however_the_command_ends() {
    let script = "echo ready; read line; kill -KILL $$";
    let (said, _) = at_terminal("killed", &["terminal"], ["ready", "\r"], script);
    assert!(said.contains("killed by 9\n"), "{said}");
    assert!(said.contains("modes during: other, after: same\n"), "{said}");
    let (said, _) = at_terminal("refused", &["terminal"], ["cannot", ""], "exit 0");
    assert!(said.contains("after: same\n"), "{said}");
}

#[test]
fn a_key_reaches_the_command_once_and_not_through_us() {
    // With the terminal left alone the command gets Ctrl-C from it, as we do; it must not get it twice.
    let script = "count=0; trap 'count=$((count+1))' INT; echo ready; \
                  for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; done; echo count $count";
    for options in [&[][..], &["pipes"]] {
        let (said, _) = at_terminal("once", options, ["ready", "^C"], script);
        assert!(said.contains("count 1\r\n"), "{said}");
        assert!(said.contains("exit 0\n"), "{said}");
    }
}

#[test]
fn job_control_works() {
    // A shell with job control, watched, stops and continues a child of its own.
    let script = "set -m; sleep 0.3 & echo ready; kill -STOP %1; jobs; kill -CONT %1; wait; echo done";
    let (said, _) = at_terminal("jobs", &[], ["never", ""], script);
    assert!(said.contains("done"), "{said}");
    assert!(said.contains("modes during: unknown, after: same\n"), "{said}");
}
