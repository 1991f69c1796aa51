//! Logs that go out come back the same.

use std::path::Path;

use crate::cli_test::CliTest;

const SNAPSHOT: &str = "snapshot_torch2.11.pickle.gz";

#[test]
fn import_and_export_lead_back_to_the_same_log() {
    let test = CliTest::new();
    assert_eq!(test.run(&["import", "golden.csv", "-q"]).code, 0);
    assert_eq!(test.run(&["export", "golden.flood", "-o", "-"]).ok().stdout, test.read("golden.csv"));
    let ran = test.run(&["export", "golden.flood", "-o", "out.csv", "--format", "rmm-epoch", "--force"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "wrote 10 events to out.csv\n"));
    assert!(
        test.read("out.csv").contains("101,36000.000004,deallocate,0x7f0000000000,1000,0\n"),
        "{}",
        test.read("out.csv")
    );
    let events = |input: &str| test.run(&["read", input, "--csv"]).ok().stdout;
    assert_eq!(events("out.csv"), events("golden.csv"));
}

#[test]
fn every_device_gets_a_file_named_as_rmm_names_it() {
    let test = CliTest::new();
    assert_eq!(test.run(&["import", "pair.dev0.csv", "pair.dev1.csv", "-q"]).code, 0);
    let ran = test.run(&["export", "pair.flood", "-o", "out.csv"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (0, "wrote 2 events to out.dev0.csv\nwrote 2 events to out.dev1.csv\n")
    );
    assert_eq!(test.read("out.dev0.csv"), test.read("pair.dev0.csv"));
    assert_eq!(test.read("out.dev1.csv"), test.read("pair.dev1.csv"));
    assert_eq!(
        test.run(&["export", "pair.flood", "-o", "-", "--device", "1"]).ok().stdout,
        test.read("pair.dev1.csv")
    );
    let ran = test.run(&["export", "pair.flood", "-o", "-"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("hint: choose one, as in --device 0"), "{}", ran.stderr);
}

#[test]
fn nothing_is_overwritten_or_left_half_done() {
    let test = CliTest::new();
    let ran = test.run(&["export", "golden.csv", "-o", "empty.csv"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("empty.csv exists already\nhint: choose another name or add --force"),
        "{}",
        ran.stderr
    );
    assert_eq!(test.run(&["export", "malformed.csv", "-o", "out.csv"]).code, 2);
    assert_eq!(test.run(&["import", "malformed.csv"]).code, 2);
    assert_eq!(test.run(&["import", "golden.csv", "empty.csv", "-o", "two.flood", "-q"]).code, 0);
    let ran = test.run(&["export", "pair.dev0.csv", "-o", "golden.csv", "--force", "-q"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert_eq!(test.read("golden.csv"), test.read("pair.dev0.csv"));
    let names = std::fs::read_dir(test.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let odd: Vec<String> = names.filter(|name| !name.ends_with(".csv") && name != "two.flood").collect();
    assert!(odd.is_empty(), "{odd:?}");
}

#[test]
fn a_trace_of_samples_alone_is_refused_instead_of_writing_nothing() {
    let test = CliTest::new();
    test.run(&["run", "-q", "-o", "run.flood", "--", "true"]).ok();
    for format in ["rmm", "csv-events"] {
        let ran = test.run(&["export", "run.flood", "--format", format, "-o", "out.csv"]);
        assert_eq!(ran.code, 2, "{format}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("'floodmark read run.flood' its timeline (--csv as a table)"),
            "{}",
            ran.stderr
        );
        assert!(ran.stderr.contains("'floodmark run --stacks' records"), "{}", ran.stderr);
        assert!(!test.path("out.csv").exists(), "{format}");
    }
}

#[test]
fn samples_are_exported_as_a_log_of_memory_logger() {
    let test = CliTest::new();
    let ran = test.run(&["run", "-q", "-o", "run.flood", "--", "sh", "-c", "echo 'a, |b|'; sleep 0.2"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    test.run(&["export", "run.flood", "-o", "run.log", "--format", "memory_logger", "-q"]).ok();
    let peak = |path: &str| test.run(&["info", path, "--json"]).json()["memory"]["peak_seen_bytes"].clone();
    let kib = |value: serde_json::Value| value.as_u64().unwrap() / 1024;
    test.run(&["import", "run.log", "-o", "again.flood", "-q"]).ok();
    assert_eq!(kib(peak("again.flood")), kib(peak("run.flood")));
    let text = test.read("run.log");
    assert!(text.contains(",|a, ||b||\n|,") && text.ends_with("\r\n"), "{text}");
    let refused = test.run(&["export", "golden.csv", "-o", "no.log", "--format", "memory_logger"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(!test.path("no.log").exists());
}

#[test]
fn a_timeline_of_several_kinds_is_in_the_order_of_time() {
    let test = CliTest::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/torch");
    std::fs::copy(fixtures.join(SNAPSHOT), test.path(SNAPSHOT)).unwrap();
    let ran = test.run(&["export", SNAPSHOT, "-o", "-", "--format", "csv-timeline"]).ok();
    let times =
        ran.stdout.lines().skip(1).map(|line| line.split(',').next().unwrap().parse::<i64>().unwrap());
    let times: Vec<i64> = times.collect();
    assert!(times.len() > 10 && times.is_sorted(), "{}", ran.stdout);
}

#[test]
fn tables_of_traces_are_streams_of_arrow_ipc() {
    let test = CliTest::new();
    test.run(&["import", "golden.csv", "-o", "golden.flood", "-q"]).ok();
    test.run(&["export", "golden.flood", "-o", "out.arrows", "-q"]).ok();
    let event = std::fs::read(test.path("out.arrows")).unwrap();
    assert!(event.starts_with(&[0xff; 4]) && event.ends_with(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]));
    test.run(&["export", "golden.flood", "-o", "strings", "--format", "arrow", "--table", "string", "-q"])
        .ok();
    assert!(std::fs::read(test.path("strings")).unwrap() != event);
    let refused = [
        (vec!["export", "golden.csv", "-o", "no.arrows"], "is no trace"),
        (vec!["export", "golden.flood", "-o", "no.arrows", "--device", "0"], "by process and time only"),
        (vec!["export", "golden.flood", "-o", "no.arrows", "--table", "row"], "event, sample, scope"),
        (vec!["export", "golden.flood", "-o", "no.csv", "--table", "event"], "--table is for arrow"),
    ];
    for (arguments, reason) in refused {
        let ran = test.run(&arguments);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    }
    assert!(!test.path("no.arrows").exists() && !test.path("no.csv").exists());
}

#[test]
fn the_extension_names_the_format() {
    let test = CliTest::new();
    let formats = [
        ("out.csv", "rmm"),
        ("OUT.CSV", "rmm"),
        ("out.json", "chrome"),
        ("out.speedscope.json", "speedscope"),
        ("out.pb.gz", "pprof"),
        ("out.folded", "folded"),
    ];
    for (name, format) in formats {
        test.run(&["export", "golden.csv", "-o", name, "-q"]).ok();
        test.run(&["export", "golden.csv", "-o", "named", "--format", format, "--force", "-q"]).ok();
        let bytes = |name: &str| std::fs::read(test.path(name)).unwrap();
        assert!(bytes(name) == bytes("named"), "{name} is not {format}");
    }
    // Only a run has what this format needs.
    let refused = test.run(&["export", "golden.csv", "-o", "out.log"]);
    assert!(
        refused.stderr.contains("no samples of processes, which this format needs"),
        "{}",
        refused.stderr
    );
    // The option overrides the extension.
    test.run(&["export", "golden.csv", "-o", "events.json", "--format", "csv-events", "-q"]).ok();
    assert!(test.read("events.json").starts_with("time_ns,"), "{}", test.read("events.json"));
    test.run(&["export", "golden.csv", "-o", "chosen.json", "--events", "-q"]).ok();
    for name in ["out.parquet", "out", ".gz"] {
        let ran = test.run(&["export", "golden.csv", "-o", name]);
        assert_eq!(ran.code, 2);
        assert!(
            ran.stderr.contains(&format!("the extension of '{name}' names no format\nhint: ")),
            "{}",
            ran.stderr
        );
        assert!(
            ran.stderr.contains(".folded") && ran.stderr.contains("csv-timeline, csv-blocks"),
            "{}",
            ran.stderr
        );
        assert!(!test.path(name).exists());
    }
}
