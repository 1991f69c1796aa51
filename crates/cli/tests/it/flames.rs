//! Flame graphs and comparisons from the command line, and exports for other tools.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::cli_test::CliTest;

const SNAPSHOT: &str = "snapshot_torch2.11.pickle.gz";

fn with_fixtures() -> CliTest {
    let test = CliTest::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    for name in
        ["torch/snapshot_torch2.11.pickle.gz", "memory_logger/gdb_pstack.log", "nsys/small_2025.3.sqlite"]
    {
        let file = name.rsplit('/').next().unwrap();
        fs::copy(fixtures.join(name), test.path(file)).unwrap();
    }
    test
}

#[test]
fn what_is_held_left_and_allocated_is_drawn_in_the_terminal() {
    let test = with_fixtures();
    assert_snapshot!("flame_torch", test.run(&["flame", SNAPSHOT, "--limit", "14"]).seen());
    assert_snapshot!(
        "flame_scopes",
        test.run(&["flame", SNAPSHOT, "--by", "scope", "--of", "allocated"]).seen()
    );
    assert_snapshot!("flame_rmm", test.run(&["flame", "golden.csv"]).seen());
    assert_snapshot!("flame_nsys", test.run(&["flame", "small_2025.3.sqlite", "--by", "site"]).seen());
    let json = test.run(&["flame", SNAPSHOT, "--json"]).json();
    assert_eq!(
        (&json["schema"], &json["total"]["bytes"]),
        (&"floodmark.flame/1".into(), &1_047_300_120u64.into())
    );
    let inverted =
        test.run(&["flame", SNAPSHOT, "--of", "end", "--invert", "--all-frames", "--limit", "1"]).ok();
    assert!(inverted.stdout.contains("torch::unwind::unwind()"), "{}", inverted.stdout);
}

#[test]
fn stacks_that_were_sampled_are_counted() {
    let test = with_fixtures();
    assert_snapshot!("flame_samples", test.run(&["flame", "gdb_pstack.log"]).seen());
    for file in ["samples.svg", "samples.html"] {
        test.run(&["flame", "gdb_pstack.log", "-o", file, "-q", "--width", "2000"]).ok();
        let text = test.read(file);
        assert!(text.contains(">Stack samples of the run: gdb_pstack.log<"), "{text}");
        assert!(
            text.contains("how often each call was sampled, not memory at the peak; 19 samples"),
            "{text}"
        );
        assert!(!text.contains("Live at the peak"), "{text}");
    }
    let none = test.run(&["flame", "empty.csv"]).ok();
    assert!(none.stdout.contains("no blocks"), "{}", none.stdout);
}

#[test]
fn blocks_of_no_bytes_are_counted() {
    let test = CliTest::new();
    let rows = [1, 2].map(|number| format!("1,10:00:0{number}.000000,allocate,0x{number}000,0,0\n"));
    test.write("zero.csv", format!("Thread,Time,Action,Pointer,Size,Stream\n{}", rows.concat()));
    let left = test.run(&["flame", "zero.csv", "--of", "end"]).ok().stdout;
    assert!(left.contains("Live at the end: 0 B in 2 blocks"), "{left}");
    let count = test.run(&["flame", "zero.csv", "--of", "count"]).ok().stdout;
    assert!(count.contains("blocks of 0 B"), "{count}");
}

#[test]
fn every_format_is_what_its_ending_says() {
    let test = with_fixtures();
    for (file, beginning) in [("a.svg", &b"<?xml"[..]), ("a.pdf", b"%PDF"), ("a.html", b"<!doctype html>")] {
        assert_eq!(test.run(&["flame", SNAPSHOT, "-q", "-o", file, "--width", "300"]).ok().stdout, "");
        assert!(fs::read(test.path(file)).unwrap().starts_with(beginning), "{file}");
    }
    let svg = test.read("a.svg");
    assert!(svg.contains("width=\"300\"") && svg.matches("<script").count() == 1);
    let page = test.read("a.html");
    assert!(page.matches("<script").count() == 1 && page.contains("script-src 'sha256-"));
    test.run(&["flame", SNAPSHOT, "-q", "-o", "a.folded"]).ok();
    let total: u64 = test
        .read("a.folded")
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    assert_eq!(total, 1_047_300_120, "what was live at the peak");
    let golden = test.read("golden.csv");
    for args in [&["a.svg"][..], &["a.folded"], &["golden.csv", "--format", "folded"]] {
        let refused = test.run(&[&["flame", "golden.csv", "-q", "-o"], args].concat());
        assert!(refused.code == 2 && refused.stderr.contains("exists already"), "{}", refused.stderr);
    }
    assert_eq!(test.read("golden.csv"), golden);
    test.run(&["flame", "golden.csv", "-q", "-o", "a.folded", "--force"]).ok();
    assert!(test.read("a.folded").starts_with("thread "), "{}", test.read("a.folded"));
    let bad = test.run(&["flame", "golden.csv", "-o", "picture"]);
    assert_eq!(bad.code, 2);
    assert!(bad.stderr.contains("end it in .svg"), "{}", bad.stderr);
    assert_eq!(test.run(&["flame", "golden.csv", "--at", "+1s", "--of", "end"]).code, 2);
}

#[test]
fn a_run_compared_with_itself_has_not_changed_and_breaks_no_rule() {
    let test = with_fixtures();
    for input in ["golden.csv", SNAPSHOT, "gdb_pstack.log"] {
        let ran =
            test.run(&["diff", input, input, "--fail-on", "growth>0", "--html", "same.html", "--force"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stdout.contains("nothing changed"), "{}", ran.stdout);
        assert!(test.read("same.html").contains("Nothing changed."));
    }
}

fn grown(test: &CliTest) {
    let golden = test.read("golden.csv");
    let header = golden.lines().next().unwrap().to_owned();
    assert!(header.starts_with("Thread,Time,Action"), "{header}");
    test.write("grown.csv", golden + "101,10:00:09.000000,allocate,0x7f9900000000,1000000,0\n");
}

#[test]
fn what_grew_is_shown_and_rules_decide_the_exit_code() {
    let test = CliTest::new();
    grown(&test);
    assert_snapshot!("diff_grown", test.run(&["diff", "golden.csv", "grown.csv"]).seen());
    let code = |rules: &[&str]| {
        let rules: Vec<&str> = rules.iter().flat_map(|rule| ["--fail-on", *rule]).collect();
        test.run(&[&["diff", "golden.csv", "grown.csv"], &rules[..]].concat())
    };
    assert_eq!(code(&["peak>2MB", "allocations>1", "leaked>1GiB"]).code, 0);
    let broken = code(&["peak>2MB", "growth>5%", "allocations>0"]);
    assert_eq!(broken.code, 1);
    let failed: Vec<&str> = broken.stderr.lines().collect();
    assert!(
        failed.len() == 2 && failed[0].starts_with("failed: 'growth>5%' is broken: the peak grew by"),
        "{failed:?}"
    );
    assert!(
        failed[1].ends_with("(10.0 %), from 10 to 11") || failed[1].contains("allocations"),
        "{failed:?}"
    );
    for rule in ["growth", "size>1", "rss>0", "peak<5%"] {
        assert_eq!(code(&[rule]).code, 2, "{rule}");
    }
    assert_eq!(test.run(&["diff", "golden.csv", "missing.csv"]).code, 2);
    assert_eq!(test.run(&["diff", "golden.csv", "-"]).code, 2);
}

#[test]
fn rules_that_nothing_is_compared_for_do_not_hold() {
    let test = with_fixtures();
    grown(&test);
    test.run(&["export", "golden.csv", "-o", "host.pb.gz", "--format", "pprof", "-q"]).ok();
    for (args, says) in [
        (&["golden.csv", "grown.csv", "--device", "9"][..], "golden.csv: none of its "),
        (&["golden.csv", "empty.csv"], "empty.csv has no events"),
        (&["empty.csv", "golden.csv"], "empty.csv has no events"),
        (&["golden.csv", "host.pb.gz"], "is about device memory and host.pb.gz is about pageable memory"),
    ] {
        let ran = test.run(&[&["diff", "--fail-on", "growth>5%"], args].concat());
        assert!(ran.code == 2 && ran.stderr.contains(says), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("hint: "), "{}", ran.stderr);
        assert_eq!(test.run(&[&["diff"], args].concat()).code, 0, "without rules it can be looked at");
    }
}

#[test]
fn programs_get_a_schema_and_people_a_page() {
    let test = CliTest::new();
    grown(&test);
    let ran = test.run(&["diff", "golden.csv", "grown.csv", "--json", "--fail-on", "growth>0"]);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["schema"], "floodmark.diff/1");
    assert_eq!(
        (&json["before"]["source"], &json["after"]["source"]),
        (&"golden.csv".into(), &"grown.csv".into())
    );
    assert_eq!(json["figures"][0]["figure"], "peak_bytes");
    assert_eq!(json["broken"][0]["rule"], "growth>0");
    assert_eq!(json["groups"][0]["change_bytes"], 1_000_000);
    let args = ["diff", "golden.csv", "grown.csv", "--html", "d.html", "-q"];
    test.run(&args).ok();
    let page = test.read("d.html");
    assert!(
        page.contains("prefers-color-scheme: dark")
            && page.matches("<script").count() == 1
            && !page.contains("src=")
    );
    // Both runs are drawn on one axis, once for each theme.
    assert_eq!(page.matches("<svg").count(), 2);
    for name in ["golden", "grown"] {
        assert_eq!(page.matches(&format!(">{name}</text>")).count(), 2, "{name}");
    }
    assert_eq!(test.run(&args).code, 2, "it exists already");
}

fn exported(test: &CliTest, input: &str, args: &[&str]) -> String {
    test.run(&[&["export", input, "-o", "-", "--format"], args].concat()).ok().stdout
}

#[test]
fn exports_for_other_tools_say_what_the_input_says() {
    let test = with_fixtures();
    let peak = 1_047_300_120;
    let sum = |text: &str| -> u64 {
        text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    };
    assert_eq!(sum(&exported(&test, SNAPSHOT, &["folded"])), peak);
    assert_eq!(sum(&exported(&test, SNAPSHOT, &["folded", "--of", "count"])), 2814);
    let speedscope: Value = serde_json::from_str(&exported(&test, SNAPSHOT, &["speedscope"])).unwrap();
    assert_eq!(speedscope["profiles"][0]["endValue"], peak);
    let trace: Value = serde_json::from_str(&exported(&test, SNAPSHOT, &["chrome", "--events"])).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!((of("i"), of("X") > 0, of("b")), (5486, true, of("e")));
    let live = events.iter().filter(|event| event["name"] == "live device memory on device 0");
    assert_eq!(live.map(|event| event["args"]["bytes"].as_u64().unwrap()).max(), Some(peak));
    let blocks = exported(&test, SNAPSHOT, &["csv-blocks"]);
    assert_eq!(blocks.lines().count(), 330);
    assert_eq!(
        exported(&test, "golden.csv", &["csv-events"]),
        test.run(&["read", "golden.csv", "--csv"]).ok().stdout
    );
    assert_eq!(
        exported(&test, "golden.csv", &["csv-timeline"]),
        test.run(&["usage", "golden.csv", "--csv", "--exact"]).ok().stdout
    );
}

#[test]
fn a_profile_for_pprof_can_be_read_again() {
    let test = with_fixtures();
    let sites = |value: &Value| -> Vec<(String, u64)> {
        let groups = value["groups"][0]["groups"].as_array().unwrap();
        groups.iter().map(|group| (group["key"].to_string(), group["bytes"].as_u64().unwrap())).collect()
    };
    for input in [SNAPSHOT, "small_2025.3.sqlite"] {
        test.run(&["export", input, "-o", "peak.pb.gz", "--format", "pprof", "-q", "--force"]).ok();
        let [again, original] = ["peak.pb.gz", input].map(|input| {
            let json = test.run(&["watermark", input, "--by", "site", "--json"]).json();
            (json["peak_bytes"].as_u64().unwrap(), sites(&json))
        });
        assert!(original.1.len() > 1);
        assert_eq!(again, original, "{input}");
    }
}

#[test]
fn an_export_that_fails_leaves_nothing_behind_and_replaces_nothing() {
    let test = CliTest::new();
    for format in ["chrome", "speedscope", "pprof", "folded", "csv-events", "csv-timeline", "csv-blocks"] {
        let ran = test.run(&["export", "malformed.csv", "-o", "out", "--format", format]);
        assert_eq!((ran.code, test.path("out").exists()), (2, false), "{format}");
        let ran = test.run(&["export", "golden.csv", "-o", "epoch.csv", "--format", format]);
        assert!(ran.code == 2 && ran.stderr.contains("exists already"), "{format}: {}", ran.stderr);
    }
    for args in [&["rmm", "--events"][..], &["chrome", "--of", "end"], &["csv-events", "--at", "+1s"]] {
        let ran = test.run(&[&["export", "golden.csv", "-o", "-", "--format"], args].concat());
        assert!(ran.code == 2 && ran.stderr.contains("leave it out"), "{args:?}: {}", ran.stderr);
    }
    std::os::unix::fs::symlink("epoch.csv", test.path("link.csv")).unwrap();
    test.run(&["export", "golden.csv", "-o", "link.csv", "--format", "folded", "--force", "-q"]).ok();
    assert!(fs::symlink_metadata(test.path("link.csv")).unwrap().is_symlink(), "a link stays a link");
    assert!(test.read("epoch.csv").starts_with("thread 101;"), "{}", test.read("epoch.csv"));
    let names =
        fs::read_dir(test.path(".")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().all(|name| name.ends_with(".csv")));
}
