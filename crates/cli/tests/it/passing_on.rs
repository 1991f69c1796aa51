//! What a command writes arrives: all of it, once, whatever happens to us.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use floodmark_event::OutputStream;
use floodmark_testkit::{wait_for_exit, wait_until};
use serde_json::{Value, json};

use crate::cli_test::CliTest;
use crate::running::{info, json_of, send, wait_until_sampled, written};

/// The numbers from 1, a line each, as `seq` writes them.
fn numbers(last: u32) -> Vec<u8> {
    (1..=last).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

/// Starts the command in a process group of its own, with its output to be read.
fn start(test: &CliTest, args: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut command = test.command(args);
    let mut child = command.stdout(Stdio::piped()).process_group(0).spawn().unwrap();
    let output = BufReader::with_capacity(1024, child.stdout.take().unwrap());
    (child, output)
}

/// A field of a process's `status`; none when it is gone.
fn status(pid: &str, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"))?;
    Some(line.to_owned())
}

/// Whether a signal that was sent to a process has not been delivered yet.
fn is_pending(pid: &str, signal: i32) -> bool {
    let pending = status(pid, "ShdPnd").unwrap();
    u64::from_str_radix(&pending, 16).unwrap() & 1 << (signal - 1) != 0
}

/// Waits until a recorder whose command has ended sleeps because its reader does not read.
fn wait_until_only_output_is_left(pid: &str) {
    // The thread that adds up shared memory is the last one to end before the recorder waits for its output.
    let is_adding_up = || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let names = threads.map(|thread| fs::read_to_string(thread.path().join("comm")).unwrap_or_default());
        names.into_iter().any(|name| name == "floodmark-total\n")
    };
    let is_asleep = || status(pid, "State").is_some_and(|state| state.starts_with('S'));
    wait_until("the recorder to wait for its reader", || !is_adding_up() && is_asleep());
}

/// Kills us in the middle of a command's output, with options of ours; checks what came and what is kept.
fn kill_amid_output(options: &[&str]) {
    let test = CliTest::new();
    // It waits in between, so that there is a moment at which everything it wrote is on its way.
    let script = "echo $$; seq 1 300000; while [ ! -e go ]; do sleep 0.01; done; seq 1 20000; seq 1 100 >&2; \
                  echo finished > finished";
    let args = [&["run", "-q", "-o", "k.flood"][..], options, &["--", "sh", "-c", script]].concat();
    let mut command = test.command(&args);
    let errors = File::create(test.path("errors")).unwrap();
    let mut child = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
    let mut output = BufReader::with_capacity(1024, child.stdout.take().unwrap());
    let mut pid = String::new();
    output.read_line(&mut pid).unwrap();
    wait_until_sampled(&test, "k.flood");
    let mut begin = vec![0; 300_000];
    output.read_exact(&mut begin).unwrap();
    child.kill().unwrap();
    assert_eq!(wait_for_exit(&mut child, "the killed recorder").signal(), Some(9));
    wait_until("the command to be untraced", || {
        status(pid.trim(), "TracerPid").is_some_and(|tracer| tracer == "0")
    });
    test.write("go", "");
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    assert!(test.path("finished").exists(), "it ended by itself");
    let first = numbers(300_000);
    let expected = [&first[..], &numbers(20_000)].concat();
    begin.append(&mut rest);
    assert!(begin == expected, "{} of {} bytes, or others", begin.len(), expected.len());
    assert_eq!(fs::read(test.path("errors")).unwrap(), numbers(100));
    // What had been passed on by then was recorded before.
    let found = info(&test, "k.flood");
    assert_eq!((&found["live"], &found["run"]["exit_status"]), (&json!(false), &Value::Null));
    let kept = written(&test, "k.flood", OutputStream::Stdout);
    let whole = [pid.as_bytes(), &first[..]].concat();
    assert!(whole.starts_with(&kept) && kept.len() >= 300_000, "{} bytes are kept", kept.len());
}

#[test]
fn a_command_outlives_us_and_its_output_arrives_whole() {
    kill_amid_output(&[]);
}

#[test]
fn nobody_stays_stopped_when_we_are_killed_while_taking_stacks() {
    kill_amid_output(&["--stacks", "--stack-interval", "1ms", "--stack-time", "100%"]);
}

#[test]
fn output_that_is_appended_to_a_file_survives_us_too() {
    let test = CliTest::new();
    test.write("log", "before\n");
    let script = "seq 1 1000; echo begun > begun; while [ ! -e go ]; do sleep 0.01; done; seq 1 1000; \
                  echo finished > finished";
    let log = File::options().append(true).open(test.path("log")).unwrap();
    let mut command = test.command(&["run", "-q", "-o", "a.flood", "sh", "-c", script]);
    let mut child = command.stdout(log).spawn().unwrap();
    wait_until("the command to begin", || test.path("begun").exists());
    let expected = [b"before\n", &numbers(1000)[..], &numbers(1000)].concat();
    wait_until("the first output", || test.read("log").len() > 7 + numbers(999).len());
    child.kill().unwrap();
    wait_for_exit(&mut child, "the killed recorder");
    test.write("go", "");
    wait_until("the rest of the output", || {
        test.path("finished").exists() && test.read("log").len() >= expected.len()
    });
    assert!(test.read("log").into_bytes() == expected);
}

#[test]
fn a_command_on_a_terminal_of_its_own_outlives_us() {
    let test = CliTest::new();
    let script = "echo ready; while [ ! -e go ]; do sleep 0.01; done; echo last; echo finished > finished";
    let (mut child, mut output) = start(&test, &["run", "-q", "--pty", "-o", "t.flood", "sh", "-c", script]);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    child.kill().unwrap();
    wait_for_exit(&mut child, "the killed recorder");
    test.write("go", "");
    output.read_to_string(&mut line).unwrap();
    assert_eq!(line, "ready\r\nlast\r\n");
    wait_until("the command to finish", || test.path("finished").exists());
}

#[test]
fn one_key_that_ends_the_command_does_not_cost_its_last_lines() {
    let test = CliTest::new();
    let script = "trap 'seq 1 200; exit 3' INT; echo $$; head -c 100000 /dev/zero; : > filled; \
                  while :; do sleep 0.01; done";
    let (mut child, mut output) = start(&test, &["run", "-q", "-o", "i.flood", "sh", "-c", script]);
    let mut pid = String::new();
    output.read_line(&mut pid).unwrap();
    wait_until("the pipes to be filled", || test.path("filled").exists());
    // We sleep through the command's end, as on a busy machine, and wake up to signal and end at once.
    let own = child.id().to_string();
    send("-STOP", &own);
    wait_until("the recorder to be stopped", || {
        status(&own, "State").is_some_and(|state| state.starts_with('T'))
    });
    send("-INT", &format!("-{own}"));
    wait_until("the command to end", || {
        status(pid.trim(), "State").is_none_or(|state| state.starts_with('Z'))
    });
    send("-CONT", &own);
    // Nothing is read before the recorder waits for its reader.
    wait_until("the command to be reaped", || status(pid.trim(), "State").is_none());
    wait_until_only_output_is_left(&own);
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    assert_eq!(wait_for_exit(&mut child, "the recorder").code(), Some(3));
    assert!(rest == [vec![0; 100_000], numbers(200)].concat(), "{} bytes arrived", rest.len());
}

#[test]
fn a_second_signal_gives_a_reader_up_that_does_not_read() {
    let test = CliTest::new();
    // The command can end, since what nobody reads yet fits into pipes.
    let script = "head -c 100000 /dev/zero; echo $$ > number; mv number pid";
    let (mut child, output) = start(&test, &["run", "-q", "-o", "s.flood", "sh", "-c", script]);
    let own = child.id().to_string();
    wait_until("the command to be reaped", || {
        test.path("pid").exists() && status(test.read("pid").trim(), "State").is_none()
    });
    wait_until_only_output_is_left(&own);
    send("-TERM", &own);
    // The kernel merges a second signal with one that is still pending.
    wait_until("the first signal to be delivered", || !is_pending(&own, libc::SIGTERM));
    wait_until_only_output_is_left(&own);
    assert_eq!(child.try_wait().unwrap(), None, "one is not enough");
    send("-TERM", &own);
    assert_eq!(wait_for_exit(&mut child, "the recorder").code(), Some(0));
    drop(output);
    assert_eq!(written(&test, "s.flood", OutputStream::Stdout).len(), 100_000, "it is recorded all the same");
}

#[test]
fn a_quarter_of_a_gigabyte_passes_unchanged() {
    let test = CliTest::new();
    let sum = |program: &str, args: &[&str]| {
        let mut writer = Command::new(program);
        writer.args(args).current_dir(test.path(".")).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut writer = writer.spawn().unwrap();
        let sum = Command::new("sha256sum").stdin(writer.stdout.take().unwrap()).output().unwrap();
        assert!(writer.wait().unwrap().success());
        String::from_utf8(sum.stdout).unwrap()
    };
    let words = ["sh", "-c", "seq 1 40000000 | head -c 268435456"];
    let ours =
        sum(env!("CARGO_BIN_EXE_floodmark"), &[&["run", "-q", "-o", "b.flood", "--"], &words[..]].concat());
    assert_eq!(ours, sum(words[0], &words[1..]));
    let found = info(&test, "b.flood");
    assert_eq!(found["losses"], json!([]), "{found}");
    let kept = written(&test, "b.flood", OutputStream::Stdout);
    assert_eq!(kept.len(), 256 << 20);
    assert!(kept.starts_with(&numbers(1_000_000)));
}

#[test]
fn a_reader_that_has_enough_ends_the_command_as_it_would_without_us() {
    let test = CliTest::new();
    let mut command = test.command(&["run", "-o", "y.flood", "yes"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let head = Command::new("head").args(["-n", "1"]).stdin(child.stdout.take().unwrap()).output().unwrap();
    assert_eq!(head.stdout, b"y\n");
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(wait_for_exit(&mut child, "the recorder").signal(), Some(13));
    assert!(
        said.contains("killed by SIGPIPE") && said.contains("our stdout was closed by its reader"),
        "{said}"
    );
}

#[test]
fn without_standard_output_everything_else_is_as_usual() {
    let test = CliTest::new();
    for closed in [">&-", "2>&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"] {
        let script = format!(
            "exec \"$0\" run --json c.json -o c.flood --overwrite sh -c 'echo hello; exit 4' {closed}"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_floodmark")]).current_dir(test.path("."));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{closed}: {output:?}");
        assert_eq!(
            output.stdout,
            if closed.contains(" >&-") || closed.starts_with(">&-") { "" } else { "hello\n" }.as_bytes()
        );
        assert_eq!(json_of(&test, "c.json")["exit_status"], 4, "{closed}");
        assert_eq!(written(&test, "c.flood", OutputStream::Stdout), b"hello\n", "{closed}");
    }
}

/// Runs a script in a mount namespace of its own.
fn in_namespace(script: &str, folder: &Path) -> String {
    // Who we are: the owner of our own process folder.
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let flags: &[&str] = if is_root { &["-m"] } else { &["-U", "-r", "-m"] };
    let mut command = Command::new("unshare");
    command.args(flags).args(["sh", "-e", "-c", script]).current_dir(folder);
    command.env("FLOODMARK", env!("CARGO_BIN_EXE_floodmark")).env("COLUMNS", "200");
    let output =
        command.output().expect("unshare (Debian: util-linux) is needed to mount a small file system");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the script failed; mounting needs root or user namespaces:\n{said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_full_disk_costs_the_trace_and_not_the_command() {
    let test = CliTest::new();
    let mut random = Vec::new();
    File::open("/dev/urandom").unwrap().take(30_000_000).read_to_end(&mut random).unwrap();
    test.write("random", &random);
    fs::create_dir(test.path("small")).unwrap();
    let script = "mount -t tmpfs -o size=4m none small
        code=0
        $FLOODMARK run -o small/run.flood --json run.json -- sh -c 'cat random; exit 5' > out 2> said || code=$?
        echo $code
        $FLOODMARK info small/run.flood --json > info.json
        rm -f $(readlink small/run.flood/segments/*.ring)";
    assert_eq!(in_namespace(script, &test.path(".")), "5\n");
    assert!(fs::read(test.path("out")).unwrap() == random);
    let said = test.read("said");
    assert!(said.contains("No space left on device") && said.contains("lost: no space was left"), "{said}");
    assert!(said.contains("exit status 5"), "{said}");
    for found in [json_of(&test, "run.json"), json_of(&test, "info.json")] {
        let losses = found["losses"].as_array().unwrap();
        assert!(losses.iter().any(|loss| loss["count"].as_u64().unwrap() > 0), "{found}");
    }
    let run = json_of(&test, "run.json");
    assert_eq!(run["exit_status"], 5);
    assert!(run["peak_rss_bytes"].as_u64().unwrap() > 0, "{run}");
}
