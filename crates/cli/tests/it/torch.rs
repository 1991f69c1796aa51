//! Memory snapshots of PyTorch, from the file and through a trace.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::cli_test::CliTest;

const SNAPSHOT: &str = "snapshot_torch2.11.pickle.gz";

fn test_with_snapshot() -> CliTest {
    let test = CliTest::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/torch");
    fs::copy(fixtures.join(SNAPSHOT), test.path(SNAPSHOT)).unwrap();
    test
}

fn stats(test: &CliTest, input: &str) -> Value {
    serde_json::from_str(&test.run(&["stats", "--json", input]).ok().stdout).unwrap()
}

#[test]
fn a_snapshot_has_the_figures_that_pytorch_gave_from_the_file_and_through_a_trace() {
    let test = test_with_snapshot();
    assert_eq!(test.run(&["import", SNAPSHOT, "-o", "t.flood"]).code, 0);
    for input in [SNAPSHOT, "t.flood"] {
        let stats = stats(&test, input);
        assert_eq!(stats["peak_bytes"], 1_047_300_120u64, "{input}");
        assert_eq!(stats["live_bytes"], 301_420_548u64);
        let layer = &stats["layers"][0];
        assert_eq!(layer["reserved_peak_bytes"], 1_342_177_280u64);
        assert_eq!(layer["live_peak_bytes"], 1_047_300_120u64);
        assert_eq!(layer["reserved_bytes"], 1_342_177_280u64);
        assert_eq!(layer["whole_blocks"]["peak_bytes"], 1_054_117_376u64);
        assert_eq!(layer["whole_blocks"]["live_bytes"], 302_469_632u64);
        assert_eq!(layer["slack_peak_bytes"], 1_342_177_280u64 - 301_420_548);
        assert_eq!(stats["losses"], serde_json::json!([]));
        let text = test.run(&["stats", input]).ok().stdout;
        for figure in [
            "1,342,177,280 bytes",
            "1,054,117,376 bytes",
            "1,047,300,120 bytes",
            "302,469,632 bytes",
            "301,420,548 bytes",
        ] {
            assert!(text.contains(figure), "{figure}\n{text}");
        }
    }
    let mut file = stats(&test, SNAPSHOT);
    let mut trace = stats(&test, "t.flood");
    for report in [&mut file, &mut trace] {
        report["source"].take();
    }
    assert_eq!(file, trace);
}

#[test]
fn stacks_of_a_snapshot_lead_to_the_script_from_the_file_and_through_a_trace() {
    let test = test_with_snapshot();
    assert_eq!(test.run(&["import", SNAPSHOT, "-o", "t.flood"]).code, 0);
    let of = |input: &str| test.run(&["watermark", "--by", "stack", input]).ok().stdout;
    let (file, trace) = (of(SNAPSHOT), of("t.flood"));
    assert!(file.contains("torchwork.py"), "{file}");
    assert_eq!(file.replace(SNAPSHOT, "x"), trace.replace("t.flood", "x"));
}

#[test]
fn a_pickle_that_would_run_something_is_refused() {
    let test = CliTest::new();
    fs::write(test.path("evil.pickle"), b"\x80\x02}(X\x08\0\0\0segmentscos\nsystem\nU\x02lsRu.").unwrap();
    let ran = test.run(&["stats", "evil.pickle"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("evil.pickle:byte 17: GLOBAL: it would import 'os.system'"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("--lenient"), "there are no lines to skip\n{}", ran.stderr);
}

#[test]
fn what_is_live_at_a_snapshot_is_no_leak_and_no_problem() {
    let test = test_with_snapshot();
    assert_eq!(test.run(&["import", SNAPSHOT, "-o", "t.flood"]).code, 0);
    for input in [SNAPSHOT, "t.flood"] {
        let text = test.run(&["leaks", input]).ok().stdout;
        assert!(text.contains("221 blocks still live at the snapshot at"), "{text}");
        let leaks = test.run(&["leaks", input, "--json"]).json();
        let verdicts: Vec<&str> = leaks["groups"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|group| group["verdict"].as_str())
            .collect();
        assert!(verdicts.len() > 2 && verdicts.iter().all(|verdict| *verdict == "live"), "{verdicts:?}");
        test.run(&["report", input, "-q", "-o", "report.html", "--force"]).ok();
        let page = test.read("report.html");
        assert!(page.contains("is still live at the snapshot") && !page.contains(" leaks 177.3 MiB"));
    }
}

#[test]
fn a_log_made_of_a_snapshot_counts_segments_and_tensors_once() {
    let test = test_with_snapshot();
    let ran = test.run(&["export", SNAPSHOT, "--format", "rmm", "-o", "log.csv"]);
    assert_eq!(ran.code, 0);
    assert!(ran.stderr.contains("an event of reserved memory was left out"), "{}", ran.stderr);
    let log = stats(&test, "log.csv");
    assert_eq!(log["peak_bytes"], 1_047_300_120u64);
    assert_eq!(log["live_bytes"], 301_420_548u64);
    let snapshot = stats(&test, SNAPSHOT);
    for figure in ["allocations", "total_bytes", "frees"] {
        assert_eq!(log[figure], snapshot[figure], "{figure}");
    }
    // Segments alone are written if they are asked for.
    test.run(&["export", SNAPSHOT, "--format", "rmm", "-o", "segments.csv", "--kind", "reserved", "-q"]).ok();
    assert_eq!(stats(&test, "segments.csv")["peak_bytes"], 1_342_177_280u64);
}

#[test]
fn leaks_give_share_and_reason_at_every_width() {
    let test = test_with_snapshot();
    for columns in ["60", "80", "100", "120", "160"] {
        let output = test.command(&["leaks", SNAPSHOT, "--limit", "4"]).env("COLUMNS", columns).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let titles = text.lines().find(|line| line.trim_start().starts_with("site ")).unwrap();
        assert!(titles.contains("share"), "{columns}: {text}");
        let leaks = test.run(&["leaks", SNAPSHOT, "--json"]).json();
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let reason = leaks["groups"][0]["reason"].as_str().unwrap();
        assert!(words(&text).contains(&words(reason)), "{columns}: {reason}: {text}");
        let width: usize = columns.parse().unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= width), "{columns}: {text}");
    }
}
