//! Logs that are not as they should be: empty, appended, with absurd sizes, with blocks that hold nothing; and
//! the options of `memory_logger`.

use crate::cli_test::CliTest;

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

#[test]
fn rules_are_not_checked_on_a_log_without_events() {
    let test = CliTest::new();
    test.write("empty.csv", HEADER);
    let ran = test.run(&["check", "empty.csv", "--max-peak", "1GiB"]);
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    assert!(
        ran.stderr.contains("empty.csv contains no events, so the rules cannot be checked"),
        "{}",
        ran.stderr
    );
    assert_eq!(test.run(&["check", "empty.csv", "--no-losses"]).code, 0, "this rule needs no events");
}

#[test]
fn a_log_with_cr_alone_is_checked() {
    let test = CliTest::new();
    let log = test.read("golden.csv").replace('\n', "\r");
    test.write("mac.csv", log);
    assert_eq!(test.run(&["check", "mac.csv", "--max-peak", "3500"]).code, 0);
    let ran = test.run(&["check", "mac.csv", "--max-peak", "3499"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("its lines end in CR alone"), "{}", ran.stdout);
    assert_eq!(test.run(&["check", "mac.csv", "--no-losses"]).code, 0, "a remark is no loss");
}

#[test]
fn null_blocks_are_no_leaks() {
    let test = CliTest::new();
    let rows = "1,10:00:00.000001,allocate,(nil),0,0\n1,10:00:00.000002,allocate,(nil),64,0\n";
    test.write("nil.csv", format!("{HEADER}{rows}"));
    let leaks = test.run(&["leaks", "nil.csv", "--json"]).json();
    assert_eq!((&leaks["leaked_blocks"], &leaks["leaked_bytes"]), (&0.into(), &0.into()));
    assert_eq!(test.run(&["check", "nil.csv", "--max-leaked-blocks", "0"]).code, 0);
}

#[test]
fn sums_beyond_64_bits_are_said_to_be_inexact() {
    let test = CliTest::new();
    let row = |time: u32, pointer: u32| {
        format!("1,10:00:00.{time:06},allocate,{pointer:#x},18000000000000000000,0\n")
    };
    test.write("huge.csv", format!("{HEADER}{}{}", row(1, 16), row(2, 32)));
    let ran = test.run(&["stats", "huge.csv"]).ok();
    assert!(ran.stdout.contains("note: the bytes add up to more than 2^64"), "{}", ran.stdout);
    assert_eq!(test.run(&["stats", "huge.csv", "--json"]).json()["caveats"]["sums_saturated"], true);
    let exact = test.run(&["stats", "golden.csv", "--json"]).json();
    assert_eq!(exact["caveats"]["sums_saturated"], serde_json::Value::Null);
}

#[test]
fn appended_runs_are_processes_and_said_to_be() {
    let test = CliTest::new();
    let log = test.read("golden.csv");
    test.write("twice.csv", [log.as_str(), log.as_str()].concat());
    let ran = test.run(&["stats", "twice.csv"]).ok();
    assert!(ran.stdout.contains("note: it holds 2 runs"), "{}", ran.stdout);
    for process in ["1", "2"] {
        let stats = test.run(&["stats", "twice.csv", "--process", process, "--json"]).json();
        assert_eq!((&stats["peak_bytes"], &stats["live_bytes"]), (&3500.into(), &756.into()));
        assert_eq!(stats["replaced_blocks"], 0);
    }
    // The remark outlives an import.
    test.run(&["import", "twice.csv", "-o", "twice.flood", "--quiet"]);
    let ran = test.run(&["stats", "twice.flood"]).ok();
    assert!(ran.stdout.contains("note: it holds 2 runs"), "{}", ran.stdout);
}

#[test]
fn the_median_of_lifetimes_says_that_it_is_approximate() {
    let test = CliTest::new();
    let ran = test.run(&["lifetimes", "golden.csv"]).ok();
    assert!(ran.stdout.contains("half of them within about "), "{}", ran.stdout);
}

#[test]
fn what_is_enough_comes_with_the_command_that_shows_it() {
    let test = CliTest::new();
    let args =
        ["replay", "golden.csv", "--simulate", "1MiB", "--what-if", "--repeat", "1", "--thread", "101,202"];
    let found = test.run(&[&args[..], &["--json"]].concat()).json();
    let text: Vec<String> = test
        .run(&args)
        .ok()
        .stdout
        .split_whitespace()
        .filter(|word| *word != "\\")
        .map(str::to_owned)
        .collect();
    let text = text.join(" ");
    let enough = found["what_if"].as_array().unwrap();
    assert!(!enough.is_empty());
    for enough in enough.iter().filter(|enough| !enough["enough_bytes"].is_null()) {
        let command = enough["command"].as_str().unwrap();
        assert!(text.contains(command), "{command} is not in\n{text}");
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        let proof = test.run(&[&words[..], &["--json"]].concat()).json();
        assert_eq!(proof["resources"].as_array().unwrap().len(), 1, "{command}");
        assert_eq!(proof["memory"]["bytes"], enough["enough_bytes"], "{command}");
    }
}

#[test]
fn memory_logger_takes_prefixes_of_options_and_runs_pbs_jobs_on_this_host() {
    let test = CliTest::new();
    let ran = test.run(&["memory_logger", "--run", "true", "--pbs", "--out", "job.log", "--repeat", "0.05"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("--pbs records on this host only"), "{}", ran.stderr);
    assert!(test.path("job.flood").is_dir());
    let ran = test.run(&["memory_logger", "--rea", "job.log"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}
