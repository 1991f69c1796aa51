//! Commands that are run where the system allows little.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use floodmark_tail::{KEPT_FOR, SHARED_MEMORY};
use floodmark_testkit::{wait_for_exit, wait_until};

use crate::cli_test::{CliTest, floodmark};
use crate::running::{is_sampled, send};

/// Bytes that the command writes: more than a pipe holds.
const OUTPUT_BYTES: u64 = 300_000;

/// Runs a command under `limit` that creates the file `started`, writes [`OUTPUT_BYTES`] and exits with 3.
/// Returns the exit code, the length of the output, whether the command was started, and stderr.
fn run_limited(test: &CliTest, limit: &str) -> (Option<i32>, u64, bool, String) {
    let started = test.path("started");
    let _ = fs::remove_file(&started);
    let script = format!("{limit}; exec \"$@\"");
    let command = format!("touch started; head -c {OUTPUT_BYTES} /dev/zero; exit 3");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh"]).arg(floodmark());
    shell.args(["run", "--force", "-o", "limited.flood", "--", "sh", "-c", &command]);
    shell.current_dir(test.path("")).stdin(Stdio::null());
    shell.stdout(File::create(test.path("out")).unwrap()).stderr(File::create(test.path("err")).unwrap());
    let mut shell = shell.spawn().unwrap();
    let status = wait_for_exit(&mut shell, limit);
    let length = fs::metadata(test.path("out")).unwrap().len();
    (status.code(), length, started.exists(), test.read("err"))
}

/// Asserts that a command either ran with all its output, or was refused before it started; returns whether
/// it ran.
fn assert_all_or_nothing(test: &CliTest, limit: &str) -> bool {
    let (code, length, is_started, err) = run_limited(test, limit);
    if is_started {
        assert_eq!((code, length), (Some(3), OUTPUT_BYTES), "{limit}: {err}");
    } else {
        assert_eq!((code, length), (Some(2), 0), "{limit}: {err}");
        assert!(err.contains("ulimit -"), "{limit}: the remedy is missing: {err}");
    }
    is_started
}

#[test]
fn with_few_descriptors_a_command_runs_with_all_its_output_or_not_at_all() {
    let test = CliTest::new();
    let ran: Vec<bool> = [14, 17, 19, 20, 21, 22, 23, 25, 30, 40, 64]
        .into_iter()
        .map(|count| assert_all_or_nothing(&test, &format!("ulimit -n {count}")))
        .collect();
    assert!(!ran[0] && ran[10], "{ran:?}");
}

#[test]
fn with_little_address_space_a_command_runs_with_all_its_output_or_not_at_all() {
    let test = CliTest::new();
    let ran: Vec<bool> = [300_000, 450_000, 500_000, 550_000, 2_000_000]
        .into_iter()
        .map(|kib| assert_all_or_nothing(&test, &format!("ulimit -v {kib}")))
        .collect();
    assert!(!ran[0] && ran[4], "{ran:?}");
}

#[test]
fn waiting_for_a_process_that_was_left_behind_is_said() {
    let test = CliTest::new();
    let mut command = test.command(&["run", "-o", "left.flood", "--", "sh", "-c", "sleep 60 & exit 3"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    assert!(line.contains("sleep (PID ") && line.contains("Ctrl-C"), "{line}");
    let pid = line.split("PID ").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
    send("-TERM", pid);
    assert_eq!(wait_for_exit(&mut child, "the recording").code(), Some(3));
}

/// Records a command and kills the recorder, and then the command.
fn kill_recording(test: &CliTest, name: &str) {
    let mut command = test.command(&["run", "-o", name, "--", "sh", "-c", "echo ready; sleep 60"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    wait_until("samples", || is_sampled(test, name));
    let sleeps = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    for pid in sleeps.split_ascii_whitespace() {
        send("-KILL", pid);
    }
}

#[test]
fn info_says_that_a_recording_was_not_completed() {
    let test = CliTest::new();
    kill_recording(&test, "killed.flood");
    let ran = test.run(&["info", "killed.flood"]);
    assert!(ran.stdout.contains("not completed: its recorder was killed"), "{}", ran.stdout);
    assert!(ran.stdout.contains("until the last sample"), "{}", ran.stdout);
    assert_eq!(test.run(&["info", "killed.flood", "--json"]).json()["unfinished"], true);
}

#[test]
fn rings_of_deleted_traces_are_removed_by_the_next_recording() {
    let test = CliTest::new();
    let record = || test.run(&["run", "-q", "--force", "-o", "next.flood", "--", "true"]).ok();
    // Kills a recording; returns its ring in shared memory, as old as rings are kept for.
    let killed = |name: &str| {
        kill_recording(&test, name);
        let links = fs::read_dir(test.path(name).join("segments")).unwrap().map(|link| link.unwrap().path());
        let rings: Vec<_> = links.filter_map(|link| fs::read_link(link).ok()).collect();
        assert!(rings.len() == 1 && rings[0].starts_with(SHARED_MEMORY), "{rings:?}");
        rings.into_iter().next().unwrap()
    };
    let age = |ring: &Path, age| {
        File::options().write(true).open(ring).unwrap().set_modified(SystemTime::now() - age).unwrap();
    };
    let ring = killed("deleted.flood");
    age(&ring, KEPT_FOR);
    record();
    assert!(ring.exists(), "the trace is there");
    fs::remove_dir_all(test.path("deleted.flood")).unwrap();
    age(&ring, KEPT_FOR.saturating_sub(Duration::from_mins(10)));
    record();
    assert!(ring.exists(), "the trace may have been moved");
    age(&ring, KEPT_FOR);
    record();
    assert!(!ring.exists());

    let ring = killed("before.flood");
    fs::rename(test.path("before.flood"), test.path("after.flood")).unwrap();
    age(&ring, KEPT_FOR);
    record();
    assert!(ring.exists(), "a trace beside it links to the ring");
    let info = test.run(&["info", "after.flood", "--json"]).json();
    assert_eq!(info["unfinished"], true);
    assert!(!ring.exists(), "opening a trace moves its records there");

    // A folder that is not there may be on a file system that is not mounted.
    fs::create_dir(test.path("folder")).unwrap();
    let ring = killed("folder/away.flood");
    fs::rename(test.path("folder"), test.path("elsewhere")).unwrap();
    age(&ring, KEPT_FOR);
    record();
    assert!(ring.exists());
    test.run(&["info", "elsewhere/away.flood"]).ok();
    assert!(!ring.exists());
}

#[test]
fn text_is_ascii_where_the_locale_is() {
    let test = CliTest::new();
    let memory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/psrecord/children.txt");
    let calls = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/pymemtrace/all.log");
    for (command, input) in [
        ("stats", "golden.csv"),
        ("usage", "golden.csv"),
        ("watermark", "golden.csv"),
        ("lifetimes", "golden.csv"),
        ("plot", "golden.csv"),
        ("read", memory),
        ("calls", calls),
        ("flame", calls),
    ] {
        let text = |locale: &str| {
            let output = test.command(&[command, input]).env("LC_ALL", locale).output().unwrap();
            assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        assert!(!text("C.UTF-8").is_ascii(), "{command}: there is something to replace");
        let plain = text("C");
        assert!(plain.is_ascii(), "{}", String::from_utf8_lossy(&plain));
    }
}

#[test]
fn a_command_finds_sigpipe_ignored_if_we_did() {
    let test = CliTest::new();
    let is_ignored = |before: &str| {
        let script = format!("{before} exec \"$@\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh"]).arg(floodmark());
        shell.args(["run", "-q", "-o", "signals.flood", "--", "grep", "SigIgn", "/proc/self/status"]);
        let output = shell.current_dir(test.path("")).output().unwrap();
        fs::remove_dir_all(test.path("signals.flood")).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mask = text.trim().strip_prefix("SigIgn:").map_or_else(|| panic!("{text}"), str::trim);
        // Signal 13 is SIGPIPE.
        u64::from_str_radix(mask, 16).unwrap() >> 12 & 1 == 1
    };
    assert!(is_ignored("trap '' PIPE;"));
    assert!(!is_ignored(""));
}
