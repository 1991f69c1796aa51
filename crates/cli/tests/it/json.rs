//! The keys and figures that programs rely on.

use serde_json::{Value, json};

use crate::cli_test::CliTest;

fn answer(args: &[&str]) -> Value {
    CliTest::new().run(args).json()
}

fn assert_has(value: &Value, expected: &Value) {
    for (key, expected) in expected.as_object().unwrap() {
        assert_eq!(&value[key], expected, "{key}");
    }
}

/// What the golden log and its other spellings have in common.
fn assert_golden(stats: &Value) {
    assert_has(
        stats,
        &json!({
            "schema": "floodmark.stats/1", "allocations": 5, "frees": 3, "failures": 1, "unmatched_frees": 1,
            "total_bytes": 3756, "peak_bytes": 3500, "live_bytes": 756, "live_blocks": 2, "losses": [],
            "zero_size": 1, "address_reuses": 1,
        }),
    );
}

#[test]
fn stats_of_the_golden_log_are_exact() {
    let stats = answer(&["stats", "golden.csv", "--json"]);
    assert_golden(&stats);
    assert_has(
        &stats,
        &json!({
            "source": "golden.csv", "peak_time_ns": 36_000_000_003_000_i64, "failed_bytes": 1_099_511_627_776_u64,
            "cross_thread_frees": 1,
        }),
    );
    assert_has(
        &stats["size"],
        &json!({
            "count": 5, "mean": 751.2, "min": 0, "p25": 256.0, "p50": 500.0, "p75": 1000.0, "max": 2000,
        }),
    );
    assert!((stats["size"]["std"].as_f64().unwrap() - 789.624_721).abs() < 1e-5, "{}", stats["size"]["std"]);
    assert_has(
        &stats["caveats"],
        &json!({"unmatched_frees": 1, "unmatched_free_bytes": 64, "events_read": 10}),
    );
}

#[test]
fn every_spelling_of_the_golden_log_gives_the_same_answers() {
    for log in ["golden.csv", "epoch.csv", "colon.csv", "no_thread.csv", "crlf.csv"] {
        assert_golden(&answer(&["stats", log, "--json"]));
    }
    let epoch = answer(&["stats", "epoch.csv", "--json"]);
    assert_eq!(epoch["peak_time_ns"], 1_634_567_890_000_003_000_i64);
    let dated = answer(&["stats", "golden.csv", "--json", "--date", "2026-07-01"]);
    assert_eq!(dated["peak_time_ns"], 1_782_900_000_000_003_000_i64);
}

#[test]
fn days_go_on_after_midnight() {
    let stats = answer(&["stats", "midnight.csv", "--json"]);
    assert_has(&stats, &json!({"frees": 1, "unmatched_frees": 0, "live_bytes": 32, "peak_bytes": 64}));
    assert_eq!(
        stats["last_time_ns"].as_i64().unwrap() - stats["first_time_ns"].as_i64().unwrap(),
        300_000_000
    );
}

#[test]
fn blocks_carry_their_keys_in_watermark_and_leaks() {
    let watermark = answer(&["watermark", "golden.csv", "--json"]);
    assert_has(
        &watermark,
        &json!({
            "schema": "floodmark.watermark/1", "peak_bytes": 3500, "peak_time_ns": 36_000_000_003_000_i64,
            "reported_blocks": 3,
        }),
    );
    assert_has(
        &watermark["blocks"][2],
        &json!({
            "address": "0x7f0000000c00", "bytes": 500, "time_ns": 36_000_000_003_000_i64, "thread": 202,
            "stream": "0x55d0c0", "device": 0, "kind": "device", "stack": [],
        }),
    );
    let leaks = answer(&["leaks", "golden.csv", "--json"]);
    assert_has(&leaks, &json!({"schema": "floodmark.leaks/1", "leaked_bytes": 756, "leaked_blocks": 2}));
    assert_has(
        &leaks["blocks"][1],
        &json!({
            "address": "0x7f0000000000", "bytes": 256, "time_ns": 36_000_000_006_000_i64, "thread": 101,
            "stream": "0x0", "device": 0, "kind": "device", "stack": [], "age_ns": 4000,
        }),
    );
}

#[test]
fn usage_is_a_list_of_points() {
    let usage = answer(&["usage", "golden.csv", "--json"]);
    assert_eq!(usage["schema"], "floodmark.usage/1");
    assert_eq!(usage["points"][2], json!({"time_ns": 36_000_000_003_000_i64, "live_bytes": 3500}));
    assert_eq!(usage["points"].as_array().unwrap().len(), 6);
    assert_eq!(answer(&["usage", "golden.csv", "--json", "--exact"])["points"], usage["points"]);
}

#[test]
fn lists_are_whole_in_json_unless_rows_are_limited() {
    let test = CliTest::new();
    let row = |i: u32| format!("7,10:00:00.{i:06},allocate,{:#x},{},0\n", 0x1000 * (i + 1), i + 1);
    let rows: String = (0..40).map(row).collect();
    test.write("forty.csv", format!("Thread,Time,Action,Pointer,Size,Stream\n{rows}"));
    let all = test.run(&["leaks", "forty.csv", "--json"]).json();
    assert_eq!(all["blocks"].as_array().unwrap().len(), 40);
    let few = test.run(&["leaks", "forty.csv", "--json", "--limit", "3"]).json();
    assert_eq!((few["blocks"].as_array().unwrap().len(), &few["blocks_omitted"]), (3, &json!(37)));
    let text = test.run(&["leaks", "forty.csv", "--limit", "3"]).ok().stdout;
    assert!(text.contains("… and 37 more (--limit 0 shows all)"), "{text}");
}

#[test]
fn every_document_names_its_schema() {
    let test = CliTest::new();
    assert_eq!(test.run(&["import", "golden.csv", "--json"]).json()["schema"], "floodmark.import/1");
    for command in ["stats", "watermark", "usage", "leaks", "lifetimes", "info", "repair"] {
        let document = test.run(&[command, "golden.flood", "--json"]).json();
        assert_eq!(document["schema"], format!("floodmark.{command}/1"));
        assert_eq!(document["source"], "golden.flood");
        assert_eq!(document["losses"], json!([]));
    }
    assert_eq!(
        test.run(&["check", "golden.flood", "--max-peak", "1GiB", "--json"]).json()["schema"],
        "floodmark.check/1"
    );
    let line = test.run(&["read", "golden.flood", "--json", "--limit", "1"]).json();
    assert_eq!(line["schema"], "floodmark.event/1");
}
