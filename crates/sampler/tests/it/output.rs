//! Output is recorded and passed on, byte for byte.

use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

use floodmark_testkit::{wait_for, wait_for_exit, wait_until};

use crate::programs::WatchTest;

fn random(test: &WatchTest, bytes: u64) -> (std::path::PathBuf, Vec<u8>) {
    let path = test.join("random");
    let mut data = Vec::new();
    let source = std::fs::File::open("/dev/urandom").expect("a source");
    source.take(bytes).read_to_end(&mut data).expect("random bytes");
    std::fs::write(&path, &data).expect("a file");
    (path, data)
}

#[test]
fn fifty_megabytes_reach_a_slow_reader_unchanged() {
    let test = WatchTest::new("slow");
    let (path, data) = random(&test, 50_000_000);
    let streams = format!("streams={}", test.join("streams").display());
    let mut watcher = test.watcher(&["pipes", "samples", &streams]);
    let mut child = watcher.arg("cat").arg(path).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = child.stdout.take().unwrap();
    let mut read = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        // Slow at first, so that everything between us and the command fills up.
        if read.len() < 2_000_000 {
            std::thread::sleep(Duration::from_millis(10));
        }
        match reader.read(&mut buffer).unwrap() {
            0 => break,
            length => read.extend_from_slice(&buffer[..length]),
        }
    }
    assert!(wait_for_exit(&mut child, "the watcher").success());
    assert!(read == data, "{} of {} bytes, or others", read.len(), data.len());
    let recorded = std::fs::read(test.join("streams.stdout")).unwrap();
    assert!(recorded == data, "{} bytes recorded", recorded.len());
    assert!(std::fs::read(test.join("streams.stderr")).unwrap().is_empty());
    assert!(test.report().figure("sweeps") > 10, "sampling went on");
}

#[test]
fn streams_are_kept_apart() {
    let test = WatchTest::new("apart");
    let streams = format!("streams={}", test.join("streams").display());
    let script = "printf one; printf two >&2; sleep 0.05; printf 'three\\nno end'";
    let mut watcher = test.watcher(&["pipes", &streams]);
    let output = watcher.args(["sh", "-c", script]).output().unwrap();
    assert_eq!(output.stdout, b"onethree\nno end");
    assert_eq!(output.stderr, b"two");
    assert_eq!(std::fs::read(test.join("streams.stdout")).unwrap(), output.stdout);
    assert_eq!(std::fs::read(test.join("streams.stderr")).unwrap(), output.stderr);
}

#[test]
fn a_command_learns_that_nobody_reads_any_more() {
    let test = WatchTest::new("closed");
    let mut watcher = test.watcher(&["pipes"]);
    let mut child = watcher.args(["yes"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = child.stdout.take().unwrap();
    reader.read_exact(&mut [0; 100]).unwrap();
    drop(reader);
    let status = wait_for_exit(&mut child, "the watcher");
    assert_eq!(status.signal(), Some(13), "{status}");
    let report = test.report();
    assert!(report.notes.iter().any(|note| note.contains("closed by its reader")), "{:?}", report.notes);
}

#[test]
fn a_terminal_that_nobody_reads_is_hung_up() {
    let test = WatchTest::new("hung");
    let mut watcher = test.watcher(&["terminal"]);
    let mut child = watcher.args(["yes"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = child.stdout.take().unwrap();
    reader.read_exact(&mut [0; 100]).unwrap();
    drop(reader);
    let status = wait_for_exit(&mut child, "the watcher");
    assert_eq!(status.signal(), Some(1), "{status}");
}

#[test]
fn what_was_written_before_the_end_is_not_lost() {
    let test = WatchTest::new("end");
    let streams = format!("streams={}", test.join("streams").display());
    // A daemon that outlives the command writes last.
    let script = "(sleep 0.2; head -c 300000 /dev/zero; echo last) & echo first";
    let mut watcher = test.watcher(&["pipes", &streams]);
    let output = watcher.args(["sh", "-c", script]).output().unwrap();
    assert_eq!(output.stdout.len(), 6 + 300_000 + 5);
    assert!(output.stdout.ends_with(b"\0last\n"));
    assert_eq!(std::fs::read(test.join("streams.stdout")).unwrap(), output.stdout);
}

#[test]
fn what_is_left_running_can_go_on_writing() {
    let test = WatchTest::new("left");
    for births in ["scan", "children"] {
        let mut watcher = test.watcher(&["pipes", "until-command", births]);
        // It writes when we are over.
        let script =
            "(while grep -q '^State:.[^Z]' /proc/$PPID/status 2>&-; do sleep 0.02; done; echo late) &
            echo first; exit 3";
        let output = watcher.args(["sh", "-c", script]).output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "first\nlate\n");
        let report = test.report();
        assert!(report.figure("left") >= 1, "{report:?}");
    }
}

#[test]
fn whoever_keeps_the_output_is_no_process_of_the_command() {
    let test = WatchTest::new("keeper");
    for births in [&["pipes"][..], &["pipes", "scan"], &["terminal"], &["terminal", "scan"]] {
        let report = test.watch(births, &[&"sh", &"-c", &"sleep 0.2; exit 7"]);
        let names: Vec<_> = report.processes().into_iter().map(|process| process.name).collect();
        assert!(names.iter().all(|name| name == "\"sh\"" || name == "\"sleep\""), "{names:?}");
        assert_eq!((report.figure("missed"), report.figure("left"), report.figure("exit")), (0, 0, 7));
    }
}

#[test]
fn lines_that_match_are_marks() {
    let test = WatchTest::new("marks");
    let script = "echo 'Nonlinear step 1'; printf 'Nonlinear' >&2; sleep 0.05; echo ' step 2' >&2; \
                  echo other; printf 'Nonlinear step 3'";
    let mut watcher = test.watcher(&["pipes", "mark=Nonlinear step [0-9]+"]);
    assert!(watcher.args(["sh", "-c", script]).stdout(Stdio::null()).status().unwrap().success());
    let mut marks = test.report().marks;
    marks.sort();
    assert_eq!(marks, ["\"Nonlinear step 1\"", "\"Nonlinear step 2\"", "\"Nonlinear step 3\""]);
}

#[test]
fn a_reader_that_is_stuck_does_not_stop_sampling_and_can_be_given_up() {
    let test = WatchTest::new("stuck");
    let mut watcher = test.watcher(&["pipes", &test.count_sweeps()]);
    let pid = test.join("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec head -c 1000000 /dev/zero", pid.display());
    let mut child = watcher.args(["sh", "-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    // More than all pipes hold, and we do not read: the command blocks in writing.
    let blocked = format!("{} 0x1 ", libc::SYS_write);
    wait_until("the command to block", || {
        let pid = std::fs::read_to_string(&pid).unwrap_or_default();
        std::fs::read_to_string(format!("/proc/{}/syscall", pid.trim()))
            .is_ok_and(|call| call.starts_with(&blocked))
    });
    let sweeps = test.sweeps();
    wait_until("sampling to go on", || test.sweeps() >= sweeps + 5);
    // The signal ends the command; the next one, once that is noticed, gives our reader up.
    let watcher = child.id().to_string();
    let status = wait_for("the watcher to end", || {
        assert!(std::process::Command::new("kill").args(["-TERM", &watcher]).status().unwrap().success());
        child.try_wait().unwrap()
    });
    assert_eq!(status.signal(), Some(15), "{status}");
}

#[test]
fn input_can_be_typed_into_a_watched_filter() {
    let test = WatchTest::new("filter");
    let mut watcher = test.watcher(&["pipes"]);
    let mut child = watcher.arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    for word in ["one", "two", "six"] {
        input.write_all(word.as_bytes()).unwrap();
        let mut back = [0; 3];
        output.read_exact(&mut back).unwrap();
        assert_eq!(back, word.as_bytes(), "passed on at once");
    }
    drop(input);
    assert!(wait_for_exit(&mut child, "the watcher").success());
}
