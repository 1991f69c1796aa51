//! Commands that are run: untouched, recorded, summed up.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};

use floodmark_event::{OutputRow, OutputStream};
use floodmark_store::{ScanProps, Trace};
use floodmark_testkit::{wait_for_exit, wait_until};
use serde_json::{Value, json};

use crate::cli_test::{CliTest, Ran};
use crate::terminal::assert_fits;

const MIB: u64 = 1 << 20;

/// What was written to a stream, as the trace has it.
pub(crate) fn written(test: &CliTest, trace: &str, stream: OutputStream) -> Vec<u8> {
    let trace = Trace::open(&test.path(trace)).unwrap();
    let mut scan = trace.rows::<OutputRow>(&ScanProps::default()).unwrap();
    let (mut rows, mut bytes) = (Vec::new(), Vec::new());
    while scan.next(&mut rows).unwrap() {
        rows.iter().filter(|row| row.stream == stream).for_each(|row| bytes.extend_from_slice(&row.bytes));
    }
    bytes
}

pub(crate) fn json_of(test: &CliTest, name: &str) -> Value {
    serde_json::from_str(&test.read(name)).unwrap()
}

pub(crate) fn info(test: &CliTest, trace: &str) -> Value {
    test.run(&["info", trace, "--json"]).json()
}

/// Starts the command in a process group of its own and waits until what it runs says `ready`.
fn start_ready(test: &CliTest, args: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = test.command(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, output)
}

pub(crate) fn send(signal: &str, to: &str) {
    assert!(Command::new("kill").args([signal, "--", to]).status().unwrap().success());
}

/// Whether a trace that is being recorded has samples already.
pub(crate) fn is_sampled(test: &CliTest, trace: &str) -> bool {
    let ran = test.run(&["info", trace, "--json"]);
    let info: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    info["memory"]["peak_rss_bytes"].as_u64().is_some_and(|bytes| bytes > 0)
}

/// Waits until a trace that is being recorded has samples.
pub(crate) fn wait_until_sampled(test: &CliTest, trace: &str) {
    wait_until("the first sample", || is_sampled(test, trace));
}

#[test]
fn the_command_finds_its_trace_in_the_environment() {
    let test = CliTest::new();
    let script = r#"test -d "$FLOODMARK_TRACE/segments" && printf '%s' "$FLOODMARK_TRACE""#;
    let ran = test.run(&["run", "-q", "-o", "run.flood", "--", "sh", "-c", script]).ok();
    assert_eq!(std::path::Path::new(&ran.stdout), test.path("run.flood"));
}

#[test]
fn output_input_and_exit_code_are_those_of_the_command() {
    let test = CliTest::new();
    let ran = test.run(&["run", "-q", "-o", "a.flood", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (3, "out\n", "err\n"));
    assert_eq!(written(&test, "a.flood", OutputStream::Stdout), b"out\n");
    assert_eq!(written(&test, "a.flood", OutputStream::Stderr), b"err\n");
    assert_eq!(info(&test, "a.flood")["run"]["exit_status"], 3);
    let ran = test.run_with_input(&["run", "-q", "cat"], b"one\ntwo\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "one\ntwo\n"));
    assert_eq!(written(&test, "cat.flood", OutputStream::Stdout), b"one\ntwo\n");
}

#[test]
fn output_is_left_alone_when_asked_to() {
    let test = CliTest::new();
    let ran = test.run(&["run", "-q", "--no-output", "echo", "hello"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "hello\n"));
    assert!(written(&test, "echo.flood", OutputStream::Stdout).is_empty());
    let refused = test.run(&["run", "--no-output", "--mark", "x", "echo", "hello"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
}

#[test]
fn a_terminal_is_there_for_those_who_want_one() {
    let test = CliTest::new();
    let ran = test.run(&["run", "-q", "--pty", "sh", "-c", "test -t 1 && echo terminal"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "terminal\r\n"));
    assert_eq!(written(&test, "sh.flood", OutputStream::Terminal), b"terminal\r\n");
    assert_eq!(test.run(&["run", "-q", "sh", "-c", "test -t 1"]).code, 1);
}

#[test]
fn what_cannot_be_started_is_said_as_a_shell_does_and_leaves_nothing() {
    let test = CliTest::new();
    let ran = test.run(&["run", "--", "no-such-program"]);
    assert_eq!(ran.code, 127);
    assert!(ran.stderr.starts_with("error: no-such-program: command not found\nhint: "), "{}", ran.stderr);
    assert_eq!(test.run(&["run", "--", "./golden.csv"]).code, 126);
    assert_eq!(test.run(&["run"]).code, 2);
    assert_eq!(test.run(&["run", "--"]).code, 2);
    assert_eq!(test.run(&["run", "--mark", "(", "true"]).code, 2);
    assert_eq!(test.run(&["run", "--interval", "1ns", "true"]).code, 2);
    let ran = test.run(&["run", "--json", "no/such/folder.json", "touch", "started"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(!test.path("started").exists());
    assert_eq!(test.run(&["run", "-o", "no/such/run.flood", "touch", "started"]).code, 2);
    assert!(!test.path("started").exists());
    let traces = fs::read_dir(test.path(".")).unwrap().flatten();
    assert!(traces.into_iter().all(|entry| !entry.file_name().as_bytes().ends_with(b"flood")));
}

#[test]
fn a_signal_that_ends_the_command_ends_us_once_the_trace_is_complete() {
    let test = CliTest::new();
    for (name, number) in [("KILL", 9), ("TERM", 15), ("SEGV", 11)] {
        let trace = format!("{name}.flood");
        let args = ["run", "-o", &trace, "--json", "run.json", "sh", "-c", &format!("kill -{name} $$")];
        let output = test.command(&args).output().unwrap();
        assert_eq!(output.status.signal(), Some(number));
        assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("killed by SIG{name}")));
        let summary = json_of(&test, "run.json");
        assert_eq!(
            (&summary["exit_status"], &summary["signal"]),
            (&json!(128 + number), &json!(format!("SIG{name}")))
        );
        let info = info(&test, &trace);
        assert_eq!((&info["live"], &info["run"]["exit_status"]), (&json!(false), &json!(128 + number)));
    }
}

#[test]
fn options_after_the_command_are_its_own() {
    let test = CliTest::new();
    let echo = "echo \"$@\"";
    for args in [
        &["run", "-q", "--", "sh", "-c", echo, "sh", "-q", "--json", "x", "--", "-o", "y"][..],
        &["run", "-q", "sh", "-c", echo, "sh", "-q", "--json", "x", "--", "-o", "y"],
        &["run", "-q", "--run", "sh -c 'echo \"$@\"' sh -q \"--json\" x -- -o y"],
    ] {
        let ran = test.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "-q --json x -- -o y\n"), "{args:?}: {}", ran.stderr);
    }
    assert!(!test.path("x").exists() && !test.path("y").exists());
    let ran = test.run(&["run", "--run", "echo 'a"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("a quote (') is not closed"), "{}", ran.stderr);
    assert_eq!(test.run(&["run", "--run", "  "]).code, 2);
}

#[test]
fn traces_are_numbered_and_never_replaced_unasked() {
    let test = CliTest::new();
    for _ in 0..3 {
        test.run(&["run", "-q", "true"]).ok();
    }
    for name in ["true.flood", "true-2.flood", "true-3.flood"] {
        assert_eq!(info(&test, name)["run"]["command"], "true");
    }
    let refused = test.run(&["run", "-o", "true.flood", "touch", "started"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("true.flood exists already"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    assert!(!test.path("started").exists());
    assert_eq!(test.run(&["run", "-q", "-o", "true.flood", "--force", "no-such-program"]).code, 127);
    assert_eq!(info(&test, "true.flood")["run"]["command"], "true", "it is there as before");
    test.run(&["run", "-q", "-o", "true.flood", "--overwrite", "echo"]);
    assert_eq!(info(&test, "true.flood")["run"]["command"], "echo");
    fs::create_dir(test.path("folder")).unwrap();
    test.write("folder/mine", "precious");
    assert_eq!(test.run(&["run", "-o", "folder", "--overwrite", "true"]).code, 2);
    assert_eq!(test.read("folder/mine"), "precious");
    let hidden = fs::read_dir(test.path(".")).unwrap().flatten();
    assert!(hidden.into_iter().all(|entry| !entry.file_name().as_bytes().starts_with(b".")));
}

/// Two marks around a program that has 64 MiB for a while.
const PHASES: &str = "echo phase small; sleep 0.05; echo phase big; \
    dd if=/dev/zero of=/dev/null bs=64M count=4 2>/dev/null; echo phase end; sleep 0.05; exit 4";

#[test]
fn memory_is_known_by_process_and_by_phase() {
    let test = CliTest::new();
    let args = ["run", "-o", "p.flood", "--mark", "phase [a-z]+", "--json", "p.json", "sh", "-c", PHASES];
    let ran = test.run(&args);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, "phase small\nphase big\nphase end\n"));
    let run = json_of(&test, "p.json");
    assert_eq!(run["schema"], "floodmark.run/1");
    assert_eq!(run["exit_status"], 4);
    for key in ["duration_ns", "peak_rss_bytes", "peak_time_ns", "processes", "own_cpu_ns"] {
        assert!(run[key].as_u64().is_some_and(|value| value > 0), "{key}: {run}");
    }
    assert!(run.get("peak_pss_bytes").is_some());
    let peak = run["peak_rss_bytes"].as_u64().unwrap();
    assert!((64 * MIB..90 * MIB).contains(&peak), "{peak}");
    let names =
        run["phases"].as_array().unwrap().iter().map(|phase| phase["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names, [Value::Null, json!("phase small"), json!("phase big"), json!("phase end")]);
    assert_eq!(run["peak_phase"], 2);
    assert!(run["phases"][1]["peak_rss_bytes"].as_u64().unwrap() < 32 * MIB);
    assert!(run["phases"][2]["peak_rss_bytes"].as_u64().unwrap() >= 64 * MIB);
    let dd = run["process_list"].as_array().unwrap().iter().find(|process| process["name"] == "dd").unwrap();
    assert!((64 * MIB..80 * MIB).contains(&dd["peak_rss_bytes"].as_u64().unwrap()), "{dd}");
    assert_eq!(dd["wait_status"], 0);
    assert!(
        ran.stderr.contains("resident at") && ran.stderr.contains("in phase phase big"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("exit status 4"), "{}", ran.stderr);
    let next = "next: floodmark report p.flood  # an HTML page\n      \
                floodmark plot p.flood    # a chart in the terminal\n      \
                floodmark read p.flood    # every sample\n";
    assert!(ran.stderr.ends_with(next), "{}", ran.stderr);

    // The trace tells the same.
    let info = info(&test, "p.flood");
    assert_eq!(info["memory"]["peak_rss_bytes"], run["peak_rss_bytes"]);
    assert_eq!(info["memory"]["peak_time_ns"], run["peak_time_ns"]);
    let text = test.run(&["info", "p.flood"]).ok().stdout;
    assert!(text.contains("exit status    4") && text.contains("phase big"), "{text}");
}

#[test]
fn a_summary_fits_and_is_silent_when_asked() {
    let test = CliTest::new();
    for columns in [40, 60, 80, 120] {
        let long = "x".repeat(300);
        let script = format!("echo step 1; {PHASES}");
        let args = ["run", "--mark", "step|phase .*", "sh", "-c", &script, &long];
        let output = test.command(&args).env("COLUMNS", columns.to_string()).output().unwrap();
        assert_fits(&output.stderr, columns, "run");
    }
    let mut command = test.command(&["run", "sh", "-c", PHASES]);
    assert_fits(&command.env_remove("COLUMNS").output().unwrap().stderr, 80, "run without a terminal");
    assert_eq!(test.run(&["run", "--quiet", "true"]).ok().stdout, "");
}

#[test]
fn hostile_names_and_output_are_passed_on_and_shown_harmless() {
    let test = CliTest::new();
    let name = "evil\x1b[2J\u{202e}name";
    fs::copy("/bin/sh", test.path(name)).unwrap();
    let script = "printf 'mark \\033[31m\\000\\302\\2332J red\\n\\377\\376'";
    let args = ["run", "--mark", "mark .*", "-o", "e.flood", &format!("./{name}"), "-c", script];
    let output = test.command(&args).output().unwrap();
    assert_eq!(output.stdout, b"mark \x1b[31m\0\xc2\x9b2J red\n\xff\xfe");
    assert_eq!(written(&test, "e.flood", OutputStream::Stdout), output.stdout);
    let seen = String::from_utf8(output.stderr).unwrap();
    assert!(seen.contains("evil") && seen.contains("red"), "{seen}");
    assert!(seen.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}')), "{seen:?}");
    let text = test.run(&["info", "e.flood"]).ok().stdout;
    assert!(text.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}')), "{text:?}");
}

#[test]
fn fifty_megabytes_pass_unchanged_and_are_in_the_trace() {
    let test = CliTest::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let bytes: Vec<u8> = (0..50_000_000 / 8).flat_map(|_| next().to_le_bytes()).collect();
    test.write("data", &bytes);
    let output = test.command(&["run", "-q", "-o", "big.flood", "cat", "data"]).output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.stdout == bytes, "passed on unchanged");
    assert!(written(&test, "big.flood", OutputStream::Stdout) == bytes, "recorded unchanged");
}

#[test]
fn an_interrupt_reaches_the_command_and_leaves_a_complete_trace() {
    let test = CliTest::new();
    let script = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.02; done";
    let (mut child, _output) = start_ready(&test, &["run", "-o", "i.flood", "sh", "-c", script]);
    wait_until_sampled(&test, "i.flood");
    send("-INT", &format!("-{}", child.id()));
    assert_eq!(wait_for_exit(&mut child, "the recorder").code(), Some(7));
    let output = written(&test, "i.flood", OutputStream::Stdout);
    assert!(output.starts_with(b"ready\ncaught\n"), "{}", String::from_utf8_lossy(&output));
    let found = info(&test, "i.flood");
    assert_eq!((&found["live"], &found["run"]["exit_status"]), (&json!(false), &json!(7)));
    assert!(found["memory"]["peak_rss_bytes"].as_u64().unwrap() > 0);

    let (mut child, _output) =
        start_ready(&test, &["run", "-o", "j.flood", "sh", "-c", "echo ready; exec sleep 100"]);
    send("-INT", &format!("-{}", child.id()));
    assert_eq!(wait_for_exit(&mut child, "the recorder").signal(), Some(2));
    assert_eq!(info(&test, "j.flood")["run"]["exit_status"], 130);
}

#[test]
fn killing_us_leaves_a_trace_that_opens_and_a_command_that_runs_on() {
    let test = CliTest::new();
    let script = "echo begun > begun; while [ ! -e go ]; do sleep 0.01; done; echo finished > finished";
    let mut command = test.command(&["run", "--no-output", "-o", "k.flood", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the command to begin", || test.path("begun").exists());
    wait_until_sampled(&test, "k.flood");
    send("-KILL", &child.id().to_string());
    assert_eq!(wait_for_exit(&mut child, "the killed recorder").signal(), Some(9));
    let found = info(&test, "k.flood");
    assert_eq!((&found["live"], &found["run"]["exit_status"]), (&json!(false), &Value::Null));
    assert!(found["memory"]["peak_rss_bytes"].as_u64().unwrap() > 0);
    assert!(found["run"]["command"].as_str().unwrap().starts_with("sh -c "));
    assert!(!test.path("finished").exists());
    test.write("go", "");
    wait_until("the command to finish", || test.path("finished").exists());
}

#[test]
fn a_running_process_is_watched_for_a_while_and_left_alone() {
    let test = CliTest::new();
    let mut sleeper = Command::new("sleep").arg("100").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let ran = test.run(&["attach", &pid, "--for", "200ms", "--json", "a.json"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("still running after"), "{}", ran.stderr);
    let run = json_of(&test, "a.json");
    assert_eq!((&run["exit_status"], &run["command"]), (&Value::Null, &json!("sleep 100")));
    assert_eq!((&run["processes"], &run["left_processes"]), (&json!(1), &json!(1)));
    assert_eq!(sleeper.try_wait().unwrap(), None);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let gone = test.run(&["attach", &pid]);
    assert_eq!(gone.code, 2);
    assert!(gone.stderr.contains(&format!("there is no process {pid}")), "{}", gone.stderr);
}

#[test]
fn analyses_of_allocations_say_that_there_are_only_samples() {
    let test = CliTest::new();
    test.run(&["run", "-q", "-o", "s.flood", "true"]).ok();
    for args in [
        &["stats", "s.flood"][..],
        &["watermark", "s.flood", "--by", "site"],
        &["watermark", "s.flood", "--at", "+1s"],
        &["usage", "s.flood"],
        &["leaks", "s.flood"],
        &["lifetimes", "s.flood"],
        &["check", "s.flood", "--max-leak", "0"],
    ] {
        let ran = test.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ran.stderr.contains("contains process samples but no allocation events"), "{}", ran.stderr);
        assert!(ran.stderr.contains("floodmark info s.flood"), "{}", ran.stderr);
    }
}

fn memory_logger(test: &CliTest, args: &[&str]) -> Ran {
    test.run(&[&["memory_logger"], args].concat())
}

#[test]
fn what_called_the_script_goes_on() {
    let test = CliTest::new();
    let line = "sh -c 'echo \"solved it\"; exit 5' -i simple_diffusion.i";
    let ran = memory_logger(&test, &["--run", line, "--repeat-rate", "0.01", "--sample-delay", "0.25"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (5, "solved it\n"));
    let next = "next: floodmark memory_logger --read simple_diffusion_memory.flood\n";
    assert!(ran.stderr.ends_with(next), "{}", ran.stderr);
    // It replaces what was there, unless the command goes on where it ended.
    memory_logger(&test, &["--run", "sh -c 'echo again' -i simple_diffusion.i"]);
    assert_eq!(written(&test, "simple_diffusion_memory.flood", OutputStream::Stdout), b"again\n");
    memory_logger(&test, &["--run", "sh -c 'echo more' -i simple_diffusion.i --recover"]);
    assert_eq!(written(&test, "simple_diffusion_memory.flood", OutputStream::Stdout), b"again\nmore\n");
    assert_eq!(memory_logger(&test, &["--run", "true --recover", "--outfile", "none.log"]).code, 2);
    // A log that the script wrote is continued too, and stays as it is.
    let log = "1794724130.446520,52716,|step 0\n|,,vm,52716\r\n1794724130.9,61";
    fs::write(test.path("old.log"), log).unwrap();
    let ran = memory_logger(&test, &["--run", "sh -c 'echo more' --recover", "--outfile", "old.log"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(written(&test, "old.flood", OutputStream::Stdout), b"step 0\nmore\n");
    assert_eq!(test.read("old.log"), log);
    assert_eq!(memory_logger(&test, &["--run", "true", "--outfile", "here.log"]).code, 0);
    assert!(test.path("here.flood").exists());
    let plot =
        ["--plot", "here.log", "--legend", "upper left", "--rotate-text", "-30", "--move-text", "1", "-2"];
    let more = ["--trim-text", "9", "--no-color", "--darkmode", "--pbs-delay", "2.0"];
    let shown = memory_logger(&test, &[&plot[..], &more].concat());
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert_eq!(memory_logger(&test, &["--read", "here.log"]).code, 0, "the trace in place of the log");
}

#[test]
fn what_was_recorded_for_the_script_is_shown_as_the_script_does() {
    let test = CliTest::new();
    memory_logger(&test, &["--run", "sh -c 'echo solving; sleep 0.1'", "--outfile", "run.log"]);
    let shown = memory_logger(&test, &["--read", "run.log", "--stdout"]).ok().stdout;
    let (first, last) = (shown.lines().next().unwrap(), shown.lines().next_back().unwrap());
    assert!(
        first.starts_with("Date Stamp                 Memory Usage | Percent of MAX memory used: ( "),
        "{shown}"
    );
    assert_eq!(first, last);
    assert!(shown.contains("stdout | solving\n") && shown.contains("-| 100%\n"), "{shown}");
    let compact = test.run(&["read", "run.flood"]).ok().stdout;
    assert!(!compact.contains("Date Stamp"), "{compact}");
}

#[test]
fn what_the_script_does_and_we_do_not_is_refused_in_words() {
    let test = CliTest::new();
    for (args, words) in [
        (
            &["--call-back-host", "a", "1"][..],
            "--call-back-host is not supported: the agents of Floodmark open no connections",
        ),
        (&["--run", "~/bin/solver"], "'~/bin/solver' stands for no path here"),
        (&["--run", "true", "--pstack"], "--pstack needs a debugger"),
        (&["--run", "true", "--read", "x.log"], "cannot be used with"),
        (&[], "required"),
        (&["--read", "missing.log"], "missing.log"),
        (&["--plot", "x", "--legend", "middle"], "lower left"),
    ] {
        let ran = memory_logger(&test, args);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ran.stderr.contains(words), "{args:?}: {}", ran.stderr);
    }
}
