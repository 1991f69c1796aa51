//! Output is recorded and passed on, byte for byte.

use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

use crate::programs::Folder;

fn random(folder: &Folder, bytes: u64) -> (std::path::PathBuf, Vec<u8>) {
    let path = folder.join("random");
    let mut data = Vec::new();
    let source = std::fs::File::open("/dev/urandom").expect("a source");
    source.take(bytes).read_to_end(&mut data).expect("random bytes");
    std::fs::write(&path, &data).expect("a file");
    (path, data)
}

#[test]
fn fifty_megabytes_reach_a_slow_reader_unchanged() {
    let folder = Folder::new("slow");
    let (path, data) = random(&folder, 50_000_000);
    let streams = format!("streams={}", folder.join("streams").display());
    let mut watcher = folder.watcher(&["pipes", "samples", &streams]);
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
    assert!(child.wait().unwrap().success());
    assert!(read == data, "{} of {} bytes, or others", read.len(), data.len());
    let recorded = std::fs::read(folder.join("streams.stdout")).unwrap();
    assert!(recorded == data, "{} bytes recorded", recorded.len());
    assert!(std::fs::read(folder.join("streams.stderr")).unwrap().is_empty());
    assert!(folder.report().figure("sweeps") > 10, "sampling went on");
}

#[test]
fn streams_are_kept_apart() {
    let folder = Folder::new("apart");
    let streams = format!("streams={}", folder.join("streams").display());
    let script = "printf one; printf two >&2; sleep 0.05; printf 'three\\nno end'";
    let mut watcher = folder.watcher(&["pipes", &streams]);
    let output = watcher.args(["sh", "-c", script]).output().unwrap();
    assert_eq!(output.stdout, b"onethree\nno end");
    assert_eq!(output.stderr, b"two");
    assert_eq!(std::fs::read(folder.join("streams.stdout")).unwrap(), output.stdout);
    assert_eq!(std::fs::read(folder.join("streams.stderr")).unwrap(), output.stderr);
}

#[test]
fn a_command_learns_that_nobody_reads_any_more() {
    let folder = Folder::new("closed");
    let mut watcher = folder.watcher(&["pipes"]);
    let mut child = watcher.args(["yes"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = child.stdout.take().unwrap();
    reader.read_exact(&mut [0; 100]).unwrap();
    drop(reader);
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(13), "{status}");
    let report = folder.report();
    assert!(report.notes.iter().any(|note| note.contains("closed by its reader")), "{:?}", report.notes);
}

#[test]
fn a_terminal_that_nobody_reads_is_hung_up() {
    let folder = Folder::new("hung");
    let mut watcher = folder.watcher(&["terminal"]);
    let mut child = watcher.args(["yes"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = child.stdout.take().unwrap();
    reader.read_exact(&mut [0; 100]).unwrap();
    drop(reader);
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(1), "{status}");
}

#[test]
fn what_was_written_before_the_end_is_not_lost() {
    let folder = Folder::new("end");
    let streams = format!("streams={}", folder.join("streams").display());
    // A daemon that outlives the command writes last.
    let script = "(sleep 0.2; head -c 300000 /dev/zero; echo last) & echo first";
    let mut watcher = folder.watcher(&["pipes", &streams]);
    let output = watcher.args(["sh", "-c", script]).output().unwrap();
    assert_eq!(output.stdout.len(), 6 + 300_000 + 5);
    assert!(output.stdout.ends_with(b"\0last\n"));
    assert_eq!(std::fs::read(folder.join("streams.stdout")).unwrap(), output.stdout);
}

#[test]
fn what_is_left_running_can_go_on_writing() {
    let folder = Folder::new("left");
    for births in ["looked", "children"] {
        let mut watcher = folder.watcher(&["pipes", "until-command", births]);
        // It writes when we are over.
        let script =
            "(while grep -q '^State:.[^Z]' /proc/$PPID/status 2>&-; do sleep 0.02; done; echo late) &
            echo first; exit 3";
        let output = watcher.args(["sh", "-c", script]).output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "first\nlate\n");
        let report = folder.report();
        assert!(report.figure("left") >= 1, "{report:?}");
    }
}

#[test]
fn whoever_keeps_the_output_is_no_process_of_the_command() {
    let folder = Folder::new("keeper");
    for births in [&["pipes"][..], &["pipes", "looked"], &["terminal"], &["terminal", "looked"]] {
        let report = folder.watch(births, &[&"sh", &"-c", &"sleep 0.2; exit 7"]);
        let names: Vec<_> = report.processes().into_iter().map(|process| process.name).collect();
        assert!(names.iter().all(|name| name == "\"sh\"" || name == "\"sleep\""), "{names:?}");
        assert_eq!((report.figure("missed"), report.figure("left"), report.figure("exit")), (0, 0, 7));
    }
}

#[test]
fn lines_that_match_are_marks() {
    let folder = Folder::new("marks");
    let script = "echo 'Nonlinear step 1'; printf 'Nonlinear' >&2; sleep 0.05; echo ' step 2' >&2; \
                  echo other; printf 'Nonlinear step 3'";
    let mut watcher = folder.watcher(&["pipes", "mark=Nonlinear step [0-9]+"]);
    assert!(watcher.args(["sh", "-c", script]).stdout(Stdio::null()).status().unwrap().success());
    let mut marks = folder.report().marks;
    marks.sort();
    assert_eq!(marks, ["\"Nonlinear step 1\"", "\"Nonlinear step 2\"", "\"Nonlinear step 3\""]);
}

#[test]
fn a_reader_that_is_stuck_does_not_stop_sampling_and_can_be_given_up() {
    let folder = Folder::new("stuck");
    let mut watcher = folder.watcher(&["pipes"]);
    let mut child =
        watcher.args(["head", "-c", "1000000", "/dev/zero"]).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    // The command still writes, because we do not read; it ends by the signal, and then so do we.
    let pid = child.id().to_string();
    for _ in 0..50 {
        std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(status.signal(), Some(15), "{status}");
            assert!(folder.report().figure("sweeps") > 5);
            return;
        }
    }
    child.kill().unwrap();
    panic!("it hangs");
}

#[test]
fn input_can_be_typed_into_a_watched_filter() {
    let folder = Folder::new("filter");
    let mut watcher = folder.watcher(&["pipes"]);
    let mut child = watcher.arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    for word in ["one", "two", "six"] {
        input.write_all(word.as_bytes()).unwrap();
        let mut back = [0; 3];
        output.read_exact(&mut back).unwrap();
        assert_eq!(back, word.as_bytes(), "passed on at once");
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}
