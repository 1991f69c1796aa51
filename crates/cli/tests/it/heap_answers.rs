//! Questions to heaps: files of other profilers, churn, and the ledger of a process.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cli_test::CliTest;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/heap").join(name)
}

fn json(test: &CliTest, command: &str, input: &str) -> Value {
    let ran = test.run(&[command, input, "--json"]).ok();
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn every_command_takes_files_of_heap_profilers() {
    let test = CliTest::new();
    for file in [
        "heaptrack.zst",
        "heaptrack.raw.gz",
        "memray_1.20.bin",
        "massif.out",
        "dhat.out",
        "jeprof.heap",
        "tcmalloc.heap",
    ] {
        let path = fixture(file);
        let path = path.to_str().unwrap();
        for command in [
            "info",
            "stats",
            "watermark",
            "usage",
            "leaks",
            "lifetimes",
            "churn",
            "flame",
            "read",
            "fragmentation",
        ] {
            let ran = test.run(&[command, path, "-q"]);
            assert_eq!(ran.code, 0, "{command} {file}: {}", ran.stderr);
            assert!(
                ran.stdout.lines().all(|line| line.chars().count() <= 100),
                "{command} {file}:\n{}",
                ran.stdout
            );
        }
        // What was imported answers as the file does.
        let trace = format!("{file}.flood");
        test.run(&["import", path, "-q", "-o", &trace]).ok();
        let (file, trace) = (json(&test, "stats", path), json(&test, "stats", &trace));
        for key in ["allocations", "total_bytes", "peak_bytes", "live_bytes"] {
            assert_eq!(file[key], trace[key], "{path}: {key}");
        }
    }
}

#[test]
fn churn_counts_what_heaptrack_counts() {
    let test = CliTest::new();
    let path = fixture("heaptrack.zst");
    let churn = json(&test, "churn", path.to_str().unwrap());
    // calls to allocation functions: 464, temporary memory allocations: 410
    assert_eq!((&churn["allocations"], &churn["temporary"]), (&464.into(), &410.into()));
    let site = &churn["sites"].as_array().unwrap().iter().find(|site| site["allocations"] == 400).unwrap();
    assert!(site["site"].as_str().unwrap().starts_with("count_words"), "{site}");
    assert_eq!(site["temporary"], 400);
    assert_eq!(churn["waste_at_peak"]["allocators"], serde_json::json!(["malloc"]));
    let memray = fixture("memray_1.20.bin");
    let churn = json(&test, "churn", memray.to_str().unwrap());
    assert_eq!(churn["has_reallocs"], true);
    assert!(churn["longest_chain"]["steps"].as_u64().unwrap() > 10, "{}", churn["longest_chain"]);
}

#[test]
fn a_ledger_adds_up_to_the_resident_memory_at_the_peak() {
    let test = CliTest::new();
    let script = "import time; x = bytearray(60_000_000); time.sleep(0.5)";
    test.run(&["run", "-q", "-o", "run.flood", "--", "python3", "-c", script]).ok();
    let ledger = json(&test, "ledger", "run.flood");
    let items = ledger["items"].as_array().unwrap();
    let sum: i64 = items.iter().map(|item| item["bytes"].as_i64().unwrap()).sum();
    let peak = ledger["peak_rss_bytes"].as_i64().unwrap();
    assert_eq!(sum, peak);
    assert!(peak > 60_000_000, "{ledger:#}");
    let of = |class: &str| -> i64 {
        let own = items.iter().filter(|item| item["class"] == class);
        own.map(|item| item["bytes"].as_i64().unwrap()).sum()
    };
    assert!(of("anonymous") >= 60_000_000, "{ledger:#}");
    assert!(of("stack") > 0 && of("heap") > 0, "{ledger:#}");
    assert!(of("residual").abs() < peak / 10, "{ledger:#}");
    let is_interpreter = |item: &Value| item["name"].as_str().is_some_and(|name| name.contains("python"));
    assert!(items.iter().any(|item| item["class"] == "file" && is_interpreter(item)), "{ledger:#}");
    let text = test.run(&["ledger", "run.flood"]).ok().stdout;
    assert!(text.contains("sum: resident memory") && text.contains("no heap was recorded"), "{text}");
    let other = test.run(&["ledger", "run.flood", "--pid", "1"]);
    assert!(
        other.code == 2 && other.stderr.contains("no samples of the resident memory of process 1"),
        "{}",
        other.stderr
    );
    let none = test.run(&["ledger", "golden.csv"]);
    assert!(none.code == 2 && none.stderr.contains("floodmark run"), "{}", none.stderr);
}

#[test]
fn a_ledger_has_the_heap_of_the_program_that_runs() {
    let test = CliTest::new();
    let script = "import time; x = bytearray(60_000_000); time.sleep(0.5)";
    // The shell replaces itself: two programs record under one PID, and what the first had is gone.
    let words =
        ["run", "-q", "--heap", "-o", "run.flood", "--", "sh", "-c", "exec python3 -c \"$0\"", script];
    test.run(&words).ok();
    let ledger = json(&test, "ledger", "run.flood");
    assert!(ledger["live_heap_bytes"].as_u64().unwrap() > 60_000_000, "{ledger:#}");
    // The recorder marks what realloc returned.
    assert_eq!(json(&test, "churn", "run.flood")["has_reallocs"], true);
}
