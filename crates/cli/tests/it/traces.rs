//! Traces: made from logs, described, followed, repaired.

use std::fs;

use insta::assert_snapshot;
use serde_json::json;

use crate::cli_test::{CliTest, without_sizes};

#[test]
fn importing_says_what_it_did_and_what_to_type_next() {
    let test = CliTest::new();
    let ran = test.run(&["import", "golden.csv"]);
    assert_snapshot!("import", without_sizes(&ran.seen()));
    let again = test.run(&["import", "golden.csv"]);
    assert_eq!(
        (again.code, again.stderr.as_str()),
        (2, "error: golden.flood exists already\nhint: choose another name or add --force\n")
    );
    assert_eq!(test.run(&["import", "golden.csv", "--force", "-q"]).stderr, "");
    let trace = test.run(&["import", "golden.flood"]);
    assert!(trace.stderr.starts_with("error: golden.flood is a trace already\nhint: "), "{}", trace.stderr);
}

#[test]
fn a_trace_gives_the_same_answers_as_its_log() {
    let test = CliTest::new();
    assert_eq!(test.run(&["import", "golden.csv", "-q"]).code, 0);
    for command in ["stats", "watermark", "usage", "leaks", "lifetimes", "read"] {
        let log = test.run(&[command, "golden.csv"]).ok().stdout;
        let trace = test.run(&[command, "golden.flood"]).ok().stdout;
        assert_eq!(trace.replace("golden.flood", "golden.csv"), log, "{command}");
    }
}

#[test]
fn logs_that_differ_only_in_the_device_are_one_process_and_others_their_own() {
    let test = CliTest::new();
    let import = ["import", "pair.dev0.csv", "pair.dev1.csv", "golden.csv", "-o", "all.flood", "--json"];
    let imported = test.run(&import).json();
    assert_eq!((&imported["events"], &imported["processes"]), (&json!(14), &json!(2)));
    let info = test.run(&["info", "all.flood", "--json"]).json();
    assert_eq!(info["processes"][1]["command"], "golden.csv");
    assert_eq!(info["run"]["imported_files"], json!(["pair.dev0.csv", "pair.dev1.csv", "golden.csv"]));
    assert_eq!(
        (&info["format"], &info["version"], &info["live"]),
        (&json!("trace"), &json!(3), &json!(false))
    );
    let pair = test.run(&["stats", "all.flood", "--process", "1", "--json"]).json();
    assert_eq!(pair["total_bytes"], 3584);
    let export = test.run(&["export", "all.flood", "-o", "out.csv"]);
    assert!(export.stderr.contains("hint: choose one, as in --process 1"), "{}", export.stderr);
}

#[test]
fn standard_input_can_be_imported_under_a_name() {
    let test = CliTest::new();
    let golden = test.read("golden.csv");
    assert_eq!(test.run_with_input(&["import", "-", "-o", "x.flood", "-q"], golden.as_bytes()).code, 0);
    assert_eq!(test.run(&["stats", "x.flood", "--json"]).json()["peak_bytes"], 3500);
}

#[test]
fn a_trace_describes_itself() {
    let test = CliTest::new();
    assert_eq!(test.run(&["import", "golden.csv", "-q"]).code, 0);
    let text = test.run(&["info", "golden.flood"]).ok().stdout;
    assert!(
        text.starts_with("golden.flood\ntrace, format 3, 10 events in 9.00 µs from 10:00:00.000001, "),
        "{text}"
    );
    assert!(text.contains("\n  imported from  RMM log (CSV)\n  files          golden.csv\n"), "{text}");
    assert!(text.contains("\n  event        1    10 "), "{text}");
}

#[test]
fn following_a_trace_that_has_ended_reads_it_to_its_end() {
    let test = CliTest::new();
    assert_eq!(test.run(&["import", "golden.csv", "-q"]).code, 0);
    let followed = test.run(&["read", "golden.flood", "--follow", "--csv"]).ok().stdout;
    assert_eq!(followed, test.run(&["read", "golden.csv", "--csv"]).ok().stdout);
}

#[test]
fn damage_is_named_and_repair_keeps_the_rest() {
    let test = CliTest::new();
    assert_eq!(test.run(&["import", "golden.csv", "-q"]).code, 0);
    let sound = test.run(&["repair", "golden.flood"]).ok().stdout;
    assert_eq!(sound, "golden.flood\nSound: nothing to repair, 10 events\n");
    let part = fs::read_dir(test.path("golden.flood/event")).unwrap().next().unwrap().unwrap().path();
    fs::write(&part, b"PAR1 not really PAR1").unwrap();
    let broken = test.run(&["stats", "golden.flood"]);
    assert_eq!((broken.code, broken.stdout.as_str()), (2, ""));
    assert!(broken.stderr.contains("hint: 'floodmark repair' keeps everything"), "{}", broken.stderr);
    let repaired = test.run(&["repair", "golden.flood", "--json"]).json();
    assert_eq!((&repaired["events"], &repaired["lost_events"]), (&json!(0), &json!(10)));
    let text = test.run(&["stats", "golden.flood"]).ok().stdout;
    assert!(text.contains("note: 10 were lost: "), "{text}");
    assert_eq!(test.run(&["check", "golden.flood", "--no-losses"]).code, 1);
}
