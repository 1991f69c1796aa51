//! `floodmark report` writes one HTML file that is complete and harmless.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::cli_test::CliTest;
use crate::hostile::hostile_trace;

/// Largest page of a small log.
const SMALL: usize = 200_000;

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    path.to_str().unwrap().to_owned()
}

/// The document inside a page.
fn document(html: &str) -> Value {
    let (_, rest) = html.split_once("<script type=\"application/json\" id=\"floodmark-data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// Asserts that a page has its own elements, as many as it should, and all columns it speaks of.
fn assert_whole(html: &str) {
    let document = document(html);
    assert_eq!(document["schema"], "floodmark.report/5");
    let columns = html.matches("<script type=\"application/octet-stream\"").count();
    for at in 0..columns {
        assert_eq!(html.matches(&format!("id=\"floodmark-column-{at}\"")).count(), 1);
    }
    // The page's own script, the document and the columns; none more, whatever was recorded.
    assert_eq!(html.matches("<script").count(), columns + 2);
    assert_eq!(html.matches("</script>").count(), columns + 2);
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
    assert!(
        html.contains("default-src 'none'") && !html.contains("%SCRIPT") && !html.contains("<!--floodmark")
    );
    for chart in document["charts"].as_array().unwrap() {
        for series in chart["series"].as_array().unwrap() {
            assert!(series["times"]["column"].as_u64().unwrap() < columns as u64);
            assert_eq!(series["times"]["length"], series["values"]["length"]);
        }
    }
}

#[test]
fn the_peak_is_that_of_stats_and_all_parts_are_there() {
    let test = CliTest::new();
    for name in ["rmm/golden.csv", "torch/snapshot_torch2.11.pickle.gz"] {
        let input = fixture(name);
        let html = test.run(&["report", &input, "-o", "-"]).ok().stdout;
        assert_whole(&html);
        let stats = test.run(&["stats", &input, "--json"]).json();
        let document = document(&html);
        let peak = &document["charts"][0]["peak"];
        assert_eq!(peak["bytes"], stats["peak_bytes"], "{name}");
        let after = stats["peak_time_ns"].as_i64().unwrap() - stats["first_time_ns"].as_i64().unwrap();
        assert_eq!(peak["time"], after, "{name}");
        let moments = &document["snapshots"];
        assert_eq!(moments["exact"], true, "{name}");
        assert!(moments["peak"].as_u64() < moments["times"]["length"].as_u64(), "{name}");
        assert!(html.len() < 3 * SMALL, "{name}: {} bytes", html.len());
    }
    let html = test.run(&["report", &fixture("torch/snapshot_torch2.11.pickle.gz"), "-o", "-"]).ok().stdout;
    let sites = document(&html)["tables"][0].clone();
    assert_eq!(sites["id"], "sites");
    assert_eq!(sites["details"].as_array().unwrap().len(), sites["rows"].as_array().unwrap().len());
}

#[test]
fn logs_of_samples_have_lines_processes_and_devices() {
    let test = CliTest::new();
    for (name, title) in [
        ("mprof/multiprocess.dat", "Resident memory"),
        ("memory_logger/pbs_two_nodes.log", "Resident memory"),
        ("smi/two_gpus.csv", "Device memory in use"),
        ("psrecord/children.txt", "Resident memory"),
    ] {
        let html = test.run(&["report", &fixture(name), "-o", "-"]).ok().stdout;
        assert_whole(&html);
        let document = document(&html);
        assert_eq!(document["charts"][0]["title"], title, "{name}");
        assert!(document["charts"][0]["series"][0]["times"]["length"].as_u64() > Some(1), "{name}");
        assert!(!document["story"].as_array().unwrap().is_empty(), "{name}");
        assert!(html.len() < SMALL, "{name}: {} bytes", html.len());
    }
}

#[test]
fn a_recorded_run_has_output_marks_phases_and_the_peak_of_info() {
    let test = CliTest::new();
    let script = "echo '</script><script>alert(1)</script>'; echo 'phase two' >&2; \
                  python3 -c 'x = bytearray(60000000); import time; time.sleep(0.2)'; echo end";
    test.run(&["run", "-q", "-o", "run.flood", "--mark", "phase two", "--", "sh", "-c", script]);
    let html = test.run(&["report", "run.flood", "-o", "-"]).ok().stdout;
    assert_whole(&html);
    let document = document(&html);
    let info = test.run(&["info", "run.flood", "--json"]).json();
    assert_eq!(document["charts"][0]["peak"]["bytes"], info["memory"]["peak_rss_bytes"]);
    let lines: Vec<&str> =
        document["output"]["lines"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert!(lines.contains(&"</script><script>alert(1)</script>") && lines.contains(&"end"), "{lines:?}");
    assert!(document["command"].as_str().unwrap().starts_with("sh -c"), "{}", document["command"]);
    assert_eq!(document["marks"][0]["name"], "phase two");
    let ids: Vec<&str> =
        document["tables"].as_array().unwrap().iter().map(|table| table["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["processes", "phases", "about"]);
}

#[test]
fn hostile_names_stay_text() {
    let test = CliTest::new();
    hostile_trace(&test, "</script><script>alert(1)</script><!--<script>\"'<img src=x onerror=alert(2)>");
    let html = test.run(&["report", "h.flood", "-o", "-"]).ok().stdout;
    assert_whole(&html);
    assert!(!html.contains("<script>alert") && !html.contains("<img"));
    assert!(html.contains("&lt;script&gt;alert(1)"), "it is shown, though");
    let page = html.split_once("<noscript>").unwrap().1;
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()));
    let name = "<b>&lt;.csv";
    test.write(name, test.read("golden.csv"));
    let html = test.run(&["report", name, "-o", "-"]).ok().stdout;
    assert!(html.contains("<title>&lt;b&gt;&amp;lt;.csv</title>"));
}

#[test]
fn a_report_is_written_beside_its_input_and_never_over_another() {
    let test = CliTest::new();
    let ran = test.run(&["report", "golden.csv"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("wrote report.html ("), "{}", ran.stderr);
    assert_whole(&test.read("report.html"));
    test.write("report.html", "mine");
    let ran = test.run(&["report", "golden.csv"]);
    assert_eq!((ran.code, test.read("report.html").as_str()), (2, "mine"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--force"), "{}", ran.stderr);
    test.run(&["report", "golden.csv", "--force", "-q"]).ok();
    assert_whole(&test.read("report.html"));
    let left = fs::read_dir(test.path("."))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    assert!(left.into_iter().all(|name| !name.contains("unfinished")));
}

#[test]
fn what_cannot_be_reported_is_said_with_a_remedy() {
    let test = CliTest::new();
    let ran = test.run(&["report", "-"]);
    assert!(ran.code == 2 && ran.stderr.contains("standard input"), "{}", ran.stderr);
    let ran = test.run(&["report", "golden.csv", "-o", "no/such/folder/x.html"]);
    assert!(ran.code == 2 && ran.stderr.contains("writing no/such/folder/x.html"), "{}", ran.stderr);
    let ran = test.run(&["report", "missing.csv"]);
    assert!(ran.code == 2 && ran.stderr.contains("missing.csv"), "{}", ran.stderr);
}

/// The sentences of the story.
fn story(html: &str) -> Vec<String> {
    let document = document(html);
    let sentence = |sentence: &Value| {
        let parts = sentence["parts"].as_array().unwrap().iter();
        parts.map(|part| part["text"].as_str().unwrap()).collect::<String>()
    };
    document["story"].as_array().unwrap().iter().map(sentence).collect()
}

#[test]
fn the_story_says_what_changed_since_an_earlier_recording() {
    let test = CliTest::new();
    let log = |rows: &[(&str, &str, u64)]| {
        let row = |(at, (action, pointer, size)): (usize, &(&str, &str, u64))| {
            format!("1,10:00:{at:02}.000000,{action},{pointer},{size},0x0\n")
        };
        let rows: String = rows.iter().enumerate().map(row).collect();
        format!("Thread,Time,Action,Pointer,Size,Stream\n{rows}")
    };
    test.write("earlier.csv", log(&[("allocate", "0x1", 4096), ("free", "0x1", 4096)]));
    test.write(
        "later.csv",
        log(&[("allocate", "0x1", 4096), ("allocate", "0x2", 2048), ("free", "0x1", 4096)]),
    );
    let told = |input: &str, earlier: &str| {
        story(&test.run(&["report", input, "--since", earlier, "-o", "-"]).ok().stdout).join("\n")
    };
    let more = told("later.csv", "earlier.csv");
    assert!(
        more.contains("Since earlier.csv the peak rose by 2.00 KiB (50 %), from 4.00 KiB to 6.00 KiB."),
        "{more}"
    );
    assert!(more.contains(" held 2.00 KiB more at the peak than before, the largest change."), "{more}");
    assert!(more.contains("2.00 KiB"), "{more}");
    let less = told("earlier.csv", "later.csv");
    assert!(
        less.contains("Since later.csv the peak fell by 2.00 KiB (33 %), from 6.00 KiB to 4.00 KiB."),
        "{less}"
    );
    assert!(less.contains("Less is leaked than before."), "{less}");
    let same = told("earlier.csv", "earlier.csv");
    assert!(same.contains("Since earlier.csv the peak has not changed."), "{same}");
    let ran = test.run(&["report", "later.csv", "--since", "missing.csv", "-o", "-"]);
    assert!(ran.code == 2 && ran.stderr.contains("missing.csv"), "{}", ran.stderr);
    let ran = test.run(&["report", "later.csv", "--since", "-", "-o", "-"]);
    assert!(ran.code == 2 && ran.stderr.contains("more than once"), "{}", ran.stderr);
}

#[test]
fn the_story_of_a_run_without_stacks_says_how_to_find_the_code() {
    let test = CliTest::new();
    let log = fixture("memory_logger/single_node.log");
    let told = story(&test.run(&["report", &log, "-o", "-"]).ok().stdout).join("\n");
    assert!(told.contains("To find the code: 'floodmark run --heap -- "), "{told}");
    let torch = fixture("torch/snapshot_torch2.11.pickle.gz");
    let told = story(&test.run(&["report", &torch, "-o", "-"]).ok().stdout).join("\n");
    assert!(!told.contains("To find the code"), "{told}");
}

#[test]
fn the_story_of_a_log_without_stacks_says_what_to_change_and_how_to_find_the_code() {
    let test = CliTest::new();
    let mut log = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
    for step in 0..1200 {
        let time = |us: u32| format!("10:00:{:02}.{:06}", step / 100, step % 100 * 10_000 + us);
        if step % 100 == 0 {
            let _ = writeln!(log, "1,{},allocate,0x{:x}000000,16777216,0x0", time(0), step + 16);
        }
        let _ = writeln!(log, "2,{},allocate,0x100,4096,0x1\n2,{},free,0x100,4096,0x1", time(10), time(20));
    }
    test.write("log.csv", &log);
    let input = test.path("log.csv").display().to_string();
    let told = story(&test.run(&["report", &input, "-o", "-"]).ok().stdout).join("\n");
    assert!(told.contains("1,200 of 1,212 blocks (4.69 MiB in all) lived shorter than 1.00 ms"), "{told}");
    assert!(told.contains("make smaller, blocks of 16.0 MiB to 32.0 MiB"), "{told}");
    assert!(told.contains("To find the code: 'floodmark run --gpu -- COMMAND'"), "{told}");
    // Nothing lives shortly in the same log without its small blocks.
    let few: Vec<&str> = log.lines().filter(|line| !line.starts_with('2')).collect();
    test.write("few.csv", few.join("\n"));
    let input = test.path("few.csv").display().to_string();
    let told = story(&test.run(&["report", &input, "-o", "-"]).ok().stdout).join("\n");
    assert!(!told.contains("lived shorter"), "{told}");
}
