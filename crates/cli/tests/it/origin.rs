//! Elapsed times count from one origin: every command writes the same text for one peak, and options take it.

use std::path::Path;

use floodmark_event::units::{Instant, format_duration_ns, format_elapsed_ns, parse_instant};
use serde_json::Value;

use crate::cli_test::CliTest;

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    path.to_str().unwrap().to_owned()
}

/// The first elapsed time in a text, as in `+0.5s`, after `lead`.
fn elapsed_after(text: &str, lead: &str) -> String {
    let (_, rest) = text.split_once(lead).unwrap_or_else(|| panic!("'{lead}' is missing in {text}"));
    let from = rest.find('+').unwrap_or_else(|| panic!("no time after '{lead}' in {text}"));
    let length = rest[from..].find('s').unwrap_or_else(|| panic!("no unit after '{lead}' in {text}"));
    rest[from..=from + length].to_owned()
}

/// The document inside a report.
fn document(test: &CliTest, input: &str) -> Value {
    let html = test.run(&["report", input, "-o", "-"]).ok().stdout;
    let (_, rest) = html.split_once("<script type=\"application/json\" id=\"floodmark-data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// Asserts that a report states the peak at `at`, in its first sentence and in its timeline.
fn assert_report(test: &CliTest, input: &str, at: &str) {
    let document = document(test, input);
    let peak_ns = document["charts"][0]["peak"]["time"].as_i64().unwrap();
    let parts = document["story"][0]["parts"].as_array().unwrap();
    let sentence: String = parts.iter().map(|part| part["text"].as_str().unwrap()).collect();
    let rounded = format!(" at +{}", format_duration_ns(peak_ns.unsigned_abs()));
    assert!(sentence.contains(&rounded), "{input}: {sentence} instead of {rounded}");
    assert_eq!(format_elapsed_ns(peak_ns), at, "{input}");
}

#[test]
fn the_peak_of_events_is_at_one_time_everywhere() {
    let test = CliTest::new();
    let mut inputs = Vec::new();
    for name in
        ["rmm/rmm_26.10_h200_head.csv", "nsys/small_2025.3.sqlite", "torch/snapshot_torch2.11.pickle.gz"]
    {
        let trace = format!("{}.flood", inputs.len());
        test.run(&["import", "-q", &fixture(name), "-o", &trace]).ok();
        inputs.extend([fixture(name), trace]);
    }
    // Nothing is at the first event.
    let times = "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000001,allocate,0x10,100,0\n\
                 1,10:00:00.250001,allocate,0x20,900,0\n1,10:00:01.500001,free,0x20,900,0\n";
    test.write("times.csv", times);
    inputs.push("times.csv".to_owned());
    for input in &inputs {
        let text = test.run(&["watermark", input]).ok().stdout;
        let at = elapsed_after(&text, "Peak ");
        for command in [vec!["usage"], vec!["stats"], vec!["plot"]] {
            let text = test.run(&[&command[..], &[input]].concat()).ok().stdout;
            assert_eq!(
                elapsed_after(&text, if command[0] == "stats" { " at " } else { "eak " }),
                at,
                "{input}"
            );
        }
        let text = test.run(&["diff", input, input]).ok().stdout;
        assert_eq!(elapsed_after(&text, "time of the peak"), at, "{input}");
        assert_report(&test, input, &at);

        let found = test.run(&["watermark", input, "--at", &at, "--json"]).json();
        assert_eq!(found["at_ns"], found["peak_time_ns"], "{input}");
        let inside = test.run(&["stats", input, "--from", &at, "--to", &at, "--json"]).json();
        assert_eq!(inside["first_time_ns"], found["peak_time_ns"], "{input}");
        assert_eq!(inside["last_time_ns"], found["peak_time_ns"], "{input}");
        let rows = test.run(&["read", input, "--from", &at, "--to", &at, "--json"]).ok().stdout;
        let first: Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
        assert_eq!(first["time_ns"], found["peak_time_ns"], "{input}");
    }
    assert_eq!(elapsed_after(&test.run(&["watermark", "times.csv"]).stdout, "Peak "), "+0.25s");
    let text = |name: &str| test.run(&["watermark", name]).stdout;
    for pair in inputs[..6].chunks(2) {
        assert_eq!(elapsed_after(&text(&pair[0]), "Peak "), elapsed_after(&text(&pair[1]), "Peak "));
    }
}

#[test]
fn the_peak_of_a_run_is_at_one_time_everywhere() {
    let test = CliTest::new();
    let script = "import time; time.sleep(0.1); held = bytearray(90_000_000); time.sleep(0.3); del held";
    let ran = test.run(&["run", "-o", "run.flood", "--", "python3", "-c", script]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let at = elapsed_after(&ran.stderr, "Peak ");
    let info = test.run(&["info", "run.flood", "--json"]).json();
    let (start, peak) = (&info["run"]["start_time_ns"], &info["memory"]["peak_time_ns"]);
    let after_ns = peak.as_i64().unwrap() - start.as_i64().unwrap();
    assert_eq!(format_elapsed_ns(after_ns), at, "times count from the start of the run");
    assert_eq!(parse_instant(&at), Ok(Instant::AfterStart(after_ns as u64)));

    assert_eq!(elapsed_after(&test.run(&["info", "run.flood"]).ok().stdout, "Peak "), at);
    assert_eq!(elapsed_after(&test.run(&["plot", "run.flood"]).ok().stdout, "peak "), at);
    let text = test.run(&["diff", "run.flood", "run.flood"]).ok().stdout;
    assert_eq!(elapsed_after(&text, "time of the peak RSS"), at);
    assert_report(&test, "run.flood", &at);
    let rows = test.run(&["read", "run.flood", "--json", "--from", &at, "--to", &at]).ok().stdout;
    let first: Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
    assert_eq!(first["time_ns"], *peak, "{rows}");
}

#[test]
fn a_window_that_ends_before_it_begins_is_refused() {
    let test = CliTest::new();
    let commands: [&[&str]; 6] = [
        &["watermark", "golden.csv"],
        &["read", "golden.csv"],
        &["plot", "golden.csv"],
        &["report", "golden.csv", "-o", "-"],
        &["export", "golden.csv", "-o", "-"],
        &["replay", "golden.csv"],
    ];
    for command in commands {
        for (from, to) in [("+5s", "+1s"), ("10:00:02", "10:00:01")] {
            let ran = test.run(&[command, &["--from", from, "--to", to]].concat());
            assert_eq!(ran.code, 2, "{command:?}: {}", ran.stdout);
            assert!(ran.stderr.contains("--from is later than --to"), "{command:?}: {}", ran.stderr);
        }
        assert_eq!(test.run(&[command, &["--from", "+1us", "--to", "+1us"]].concat()).code, 0, "{command:?}");
    }
}

#[test]
fn rules_about_the_peak_hold_for_runs_too() {
    let test = CliTest::new();
    let run = fixture("run/solver.flood");
    assert_eq!(test.run(&["diff", &run, &run, "--fail-on", "peak>0"]).code, 0);
    for (limit, code, verdict) in
        [("1GiB", 0, "peak RSS 139.9 MiB (limit 1.00 GiB)"), ("64MiB", 1, "limit 64.0 MiB")]
    {
        let ran = test.run(&["check", &run, "--max-peak", limit]);
        assert_eq!(ran.code, code, "{}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains(verdict), "{}", ran.stdout);
    }
    let ran = test.run(&["check", &run, "--max-peak", "1GiB", "--max-leak", "0"]);
    assert!(ran.code == 2 && ran.stderr.contains("no allocation events"), "{}", ran.stderr);
    assert!(test.run(&["watermark", "golden.csv"]).stdout.contains("1 allocation failed (out of memory)"));
}
