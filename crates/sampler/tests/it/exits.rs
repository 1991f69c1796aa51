//! The end of a command reaches whoever waits for us, unchanged.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use floodmark_testkit::wait_for_exit;

use crate::programs::WatchTest;

#[test]
fn exit_codes_are_passed_on() {
    let test = WatchTest::new("codes");
    for code in [0, 1, 2, 42, 126, 127, 128, 255] {
        let status = test.watcher(&[]).args(["sh", "-c", &format!("exit {code}")]).status().unwrap();
        assert_eq!(status.code(), Some(code));
        let report = test.report();
        assert_eq!(report.figure("exit"), code as u64);
        assert_eq!(report.processes()[0].status, Some(code << 8));
    }
}

#[test]
fn a_signal_that_ended_the_command_ends_us() {
    let test = WatchTest::new("deaths");
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("INT", 2), ("PIPE", 13)] {
        let script = format!("ulimit -c 0; kill -{name} $$");
        let status = test.watcher(&[]).args(["sh", "-c", &script]).status().unwrap();
        assert_eq!(status.signal(), Some(number), "{name}");
        assert_eq!(test.report().figure("exit"), 128 + number as u64);
    }
}

#[test]
fn a_command_that_cannot_be_run_is_said_so_as_a_shell_would() {
    let test = WatchTest::new("refusals");
    let plain = test.join("plain");
    std::fs::write(&plain, "not a program").unwrap();
    let orphaned = test.join("orphaned");
    std::fs::write(&orphaned, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&orphaned, std::fs::Permissions::from_mode(0o755)).unwrap();
    let cases = [
        ("no-such-command-anywhere".into(), 127, "command not found"),
        (test.join("nothing"), 127, "command not found"),
        (plain, 126, "cannot be run: Permission denied"),
        ("/tmp".into(), 126, "cannot be run"),
        (orphaned, 126, "cannot be run: No such file"),
    ];
    for (program, code, words) in cases {
        let mut watcher = test.watcher(&[]);
        let output = watcher.arg(&program).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words) && said.contains(&*program.to_string_lossy()), "{said}");
    }
}

#[test]
fn watching_ends_when_the_whole_tree_has_ended() {
    let test = WatchTest::new("tree-end");
    let report = test.watch(&[], &[&"sh", &"-c", &"sleep 0.4 & exit 3"]);
    let sleeps = report.named("sleep");
    assert_eq!((sleeps.len(), sleeps[0].status), (1, Some(0)), "{report:?}");
    assert!(report.figure("duration_ns") >= 400_000_000);
    assert_eq!((report.figure("exit"), report.figure("left")), (3, 0));
}

#[test]
fn watching_can_end_with_the_command() {
    let test = WatchTest::new("command-end");
    let mut watcher = test.watcher(&["until-command"]);
    let mut child =
        watcher.args(["sh", "-c", "sleep 100 & echo $!; exit 3"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let status = wait_for_exit(&mut child, "the watcher");
    let pid: i32 = line.trim().parse().unwrap();
    assert_eq!(status.code(), Some(3));
    let is_there = std::fs::exists(format!("/proc/{pid}")).unwrap();
    assert!(std::process::Command::new("kill").arg(pid.to_string()).status().unwrap().success());
    assert!(is_there, "it goes on");
    assert_eq!(test.report().figure("left"), 1);
}
