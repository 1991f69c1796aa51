//! A failed allocation explained, as people meet it.

use std::fmt::Write as _;

use insta::assert_snapshot;
use serde_json::json;

use crate::cli_test::CliTest;

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

/// Blocks of 1 MiB side by side, on two streams; every other one of the first stream is freed, then two requests fail:
/// one because free memory is fragmented, one because there is too little.
fn log() -> String {
    let mut log = HEADER.to_owned();
    let address = |at: u64| 0x7f00_0000_0000 + at * 0x10_0000;
    for at in 0..16 {
        let stream = if at < 12 { 0 } else { 0x20 };
        let _ = writeln!(log, "1,10:00:00.{:06},allocate,{:#x},1048576,{stream:#x}", at + 1, address(at));
    }
    for at in (0..12).step_by(2) {
        let _ = writeln!(log, "1,10:00:07.{:06},free,{:#x},1048576,0x0", at + 1, address(at));
    }
    log + "1,10:00:08.000000,allocate failure,(nil),4194304,0x0\n\
           1,10:00:09.000000,allocate failure,(nil),41943040,0x20\n\
           1,10:00:10.000000,free,0x7f0000100000,1048576,0x0\n"
}

#[test]
fn a_failure_is_explained() {
    let test = CliTest::new();
    test.write("log.csv", log());
    assert_snapshot!("oom_last", test.run(&["oom", "log.csv"]).seen());
    assert_snapshot!(
        "oom_first",
        test.run(&["oom", "log.csv", "--failure", "1", "--recent", "500ms"]).seen()
    );
    let result = test.run(&["oom", "log.csv", "--json"]).json();
    assert_eq!(result["schema"], "floodmark.oom/1");
    assert_eq!((&result["failures"], &result["failure"]["number"]), (&json!(2), &json!(2)));
    assert_eq!((&result["live_bytes"], &result["live_blocks"]), (&json!(10 << 20), &json!(10)));
    assert_eq!(result["free"]["cause"], "exhaustion");
    assert_eq!(result["free"]["missing_bytes"], json!(34 << 20));
    // Nothing was freed or allocated in the second before the first failure but the six blocks of a second before it.
    let first = test.run(&["oom", "log.csv", "--json", "--failure", "1", "--recent", "2s"]).json();
    assert_eq!(first["recent"]["before_bytes"], json!(16 << 20));
    assert_eq!(first["free"]["cause"], "fragmentation");
}

#[test]
fn a_log_without_failures_and_a_number_that_is_too_high_are_told() {
    let test = CliTest::new();
    test.write("log.csv", log());
    assert!(test.run(&["oom", "log.csv", "--failure", "3"]).stdout.contains("choose one from 1 to 2"));
    test.write("good.csv", format!("{HEADER}1,10:00:00.000001,allocate,0x7f0000000000,100,0\n"));
    assert!(test.run(&["oom", "good.csv"]).stdout.contains("No allocation failed"));
    let refused = test.run(&["oom", "-"]);
    assert!(refused.stderr.contains("reads its input twice"), "{}", refused.stderr);
}
