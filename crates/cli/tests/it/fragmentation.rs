//! Gaps between blocks, growth per iteration and what devices say, as people meet them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::json;

use crate::cli_test::CliTest;

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

/// A pool of 16 blocks of 1 MiB, of which every other one is freed, and a request that then fails.
fn strewn() -> String {
    let mut log = HEADER.to_owned();
    let address = |at: u64| 0x7f00_0000_0000 + at * 0x10_0000;
    for at in 0..16 {
        let _ = writeln!(log, "1,10:00:00.{:06},allocate,{:#x},1048576,0", at + 1, address(at));
    }
    for at in (0..16).step_by(2) {
        let _ = writeln!(log, "1,10:00:01.{:06},free,{:#x},1048576,0", at + 1, address(at));
    }
    log + "1,10:00:02.000000,allocate failure,(nil),4194304,0\n\
           1,10:00:02.500000,allocate failure,(nil),41943040,0\n\
           1,10:00:03.000000,free,0x7f0000100000,1048576,0\n"
}

#[test]
fn fragmentation_reads_well_and_tells_why_allocations_failed() {
    let test = CliTest::new();
    test.write("strewn.csv", strewn());
    let ran = test.run(&["fragmentation", "strewn.csv", "--request", "2MiB", "--at", "10:00:02"]);
    assert_snapshot!("fragmentation", ran.seen());
    for columns in ["80", "120"] {
        let mut command =
            test.command(&["fragmentation", "strewn.csv", "--request", "2MiB", "--at", "worst"]);
        let output = command.env("COLUMNS", columns).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let width: usize = columns.parse().unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    }
}

#[test]
fn fragmentation_of_a_real_log_is_exact_in_json() {
    let test = CliTest::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/rmm");
    fs::copy(fixtures.join("rmm_26.10_h200_head.csv"), test.path("h200.csv")).unwrap();
    let result = test.run(&["fragmentation", "h200.csv", "--json", "--at", "end"]).json();
    assert_eq!(result["schema"], "floodmark.fragmentation/1");
    assert_eq!((&result["overlapping_blocks"], &result["placeless_blocks"]), (&json!(0), &json!(0)));
    let address_space = &result["address_spaces"][0];
    assert_eq!(address_space["basis"], "inferred");
    let bytes = |at: &str, key: &str| address_space[at][key].as_u64().unwrap();
    for at in ["peak", "worst", "end"] {
        assert_eq!(bytes(at, "footprint_bytes"), bytes(at, "live_bytes") + bytes(at, "free_bytes"));
    }
    let stats = test.run(&["stats", "h200.csv", "--json"]).json();
    assert_eq!(address_space["peak"]["live_bytes"], stats["peak_bytes"]);
    assert_eq!(address_space["end"]["live_bytes"], stats["live_bytes"]);
    let whole: u64 =
        result["map"]["segments"].as_array().unwrap().iter().map(|s| s["bytes"].as_u64().unwrap()).sum();
    assert_eq!(whole, bytes("end", "footprint_bytes"));
}

#[test]
fn what_would_make_gaps_of_blocks_is_refused() {
    let test = CliTest::new();
    for option in ["--thread", "--stream"] {
        let ran = test.run(&["fragmentation", "golden.csv", option, "1"]);
        assert_eq!(ran.code, 2);
        assert!(
            ran.stderr.contains("would look like gaps") && ran.stderr.contains("hint:"),
            "{}",
            ran.stderr
        );
    }
    let twice = test.run_with_input(&["fragmentation", "-", "--at", "peak"], strewn().as_bytes());
    assert!(twice.stderr.contains("it cannot read standard input"), "{}", twice.stderr);
    assert_eq!(test.run_with_input(&["fragmentation", "-"], strewn().as_bytes()).code, 0);
}

#[test]
fn an_unknown_iteration_is_told_with_a_remedy() {
    let ran = CliTest::new().run(&["leaks", "golden.csv", "--per", "step"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("is called 'step'") && ran.stderr.contains("NVTX"), "{}", ran.stderr);
}

/// What nvidia-smi would have written while the golden log was.
fn smi(hour: u32) -> String {
    let mut log = "timestamp, index, memory.used [MiB]\n".to_owned();
    for tenth in 0..5 {
        let _ = writeln!(log, "2026/07/01 {hour:02}:00:00.{tenth}00, 0, {} MiB", 600 + tenth);
    }
    log
}

#[test]
fn usage_shows_what_the_device_says_and_what_is_left_over() {
    let test = CliTest::new();
    let mut log = HEADER.to_owned();
    for tenth in 0..4 {
        let _ = writeln!(
            log,
            "1,10:00:00.{tenth}50000,allocate,{:#x},104857600,0",
            0x7f00_0000_0000u64 + tenth * 0x1000_0000
        );
    }
    log += "1,10:00:00.500000,free,0x7f0000000000,104857600,0\n";
    test.write("log.csv", log);
    test.write("gpu.csv", smi(12));
    let zoned = ["usage", "log.csv", "--date", "2026-07-01", "--smi", "gpu.csv", "--utc-offset", "+02:00"];
    assert_snapshot!("usage_smi", test.run(&zoned).seen());
    let csv = test.run(&[&zoned[..], &["--csv"]].concat()).ok().stdout;
    let mib = 1 << 20;
    let second = csv.lines().nth(1).unwrap();
    assert!(second.ends_with(&format!(",0,{},0,{},{}", 100 * mib, 601 * mib, 501 * mib)), "{csv}");
    let result = test.run(&[&zoned[..], &["--json"]].concat()).json();
    let device = &result["overlay"]["devices"][0];
    assert_eq!(device["residual"]["max"], 501 * mib);
    assert_eq!(device["at_peak"]["tracked_bytes"], 400 * mib);
}

#[test]
fn samples_of_another_time_are_refused_until_aligned() {
    let test = CliTest::new();
    test.write("gpu.csv", smi(10));
    let apart = test.run(&["usage", "golden.csv", "--smi", "gpu.csv"]);
    assert_eq!(apart.code, 2);
    assert!(
        apart.stderr.contains("no sample falls into") && apart.stderr.contains("--align start"),
        "{}",
        apart.stderr
    );
    let aligned = test.run(&["usage", "golden.csv", "--smi", "gpu.csv", "--align", "start", "--json"]).json();
    assert_eq!(aligned["overlay"]["devices"][0]["points"].as_array().unwrap().len(), 1);
    let none = test.run(&["usage", "golden.csv", "--smi", "golden.csv"]);
    assert_eq!(none.code, 2);
}
