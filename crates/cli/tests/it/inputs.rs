//! Where events come from and which are looked at.

use serde_json::{Value, json};

use crate::cli_test::CliTest;

#[test]
fn standard_input_is_an_input() {
    let test = CliTest::new();
    let golden = test.read("golden.csv");
    let stats = test.run_with_input(&["stats", "-", "--json"], golden.as_bytes()).json();
    assert_eq!((&stats["source"], &stats["peak_bytes"]), (&json!("-"), &json!(3500)));
    let text = test.run_with_input(&["leaks", "-"], golden.as_bytes()).ok().stdout;
    assert!(text.starts_with("standard input\n756 B in 2 blocks"), "{text}");
}

#[test]
fn several_inputs_are_looked_at_one_by_one() {
    let test = CliTest::new();
    let both = test.run(&["stats", "pair.dev0.csv", "pair.dev1.csv", "--json"]).json();
    assert_eq!(both["schema"], "floodmark.stats/1");
    let peaks: Vec<&Value> =
        both["inputs"].as_array().unwrap().iter().map(|input| &input["peak_bytes"]).collect();
    assert_eq!(peaks, [1024, 2560]);
    assert_eq!(both["inputs"][1]["ledgers"][0]["device"], 1);
    let text = test.run(&["leaks", "pair.dev0.csv", "pair.dev1.csv"]).ok().stdout;
    assert!(text.contains("pair.dev0.csv\nNo leaks"), "{text}");
    assert!(text.contains("\n\npair.dev1.csv\n2.50 KiB (2,560 bytes) in 2 blocks"), "{text}");
}

#[test]
fn narrowing_options_select_what_they_say() {
    let test = CliTest::new();
    assert_eq!(test.run(&["import", "pair.dev0.csv", "pair.dev1.csv", "-q"]).code, 0);
    let total = |args: &[&str]| {
        let args = [&["stats", "--json"], args].concat();
        test.run(&args).json()["total_bytes"].as_u64().unwrap()
    };
    assert_eq!(total(&["golden.csv", "--thread", "202"]), 500);
    assert_eq!(total(&["golden.csv", "--stream", "0x55d0c0"]), 500);
    assert_eq!(total(&["golden.csv", "--stream", "5624000,1"]), 2500);
    assert_eq!(total(&["golden.csv", "--stream", "0x55d0c0", "--stream", "1"]), 2500);
    assert_eq!(total(&["golden.csv", "--from", "+2us", "--to", "+5us"]), 756);
    assert_eq!(total(&["golden.csv", "--from", "10:00:00.000003", "--to", "10:00:00.000006"]), 756);
    assert_eq!(total(&["golden.csv", "--kind", "pinned,managed"]), 0);
    assert_eq!(total(&["golden.csv", "--kind", "device"]), 3756);
    assert_eq!(total(&["pair.flood"]), 3584);
    assert_eq!(total(&["pair.flood", "--device", "1"]), 2560);
    assert_eq!(total(&["pair.flood", "--process", "1", "--device", "0"]), 1024);
    assert_eq!(total(&["pair.flood", "--process", "2"]), 0);
}

#[test]
fn lenient_reading_skips_and_counts() {
    let test = CliTest::new();
    let stats = test.run(&["stats", "malformed.csv", "--lenient", "--json"]).json();
    assert_eq!((&stats["allocations"], &stats["frees"]), (&json!(1), &json!(1)));
    assert_eq!(stats["losses"][0]["count"], 1);
    let tables: [&[&str]; 4] = [
        &["read"],
        &["usage", "--csv"],
        &["usage", "--csv", "--exact"],
        &["export", "--format", "csv-timeline", "-o", "-"],
    ];
    for table in tables {
        let said = test.run(&[table, &["malformed.csv", "--lenient"]].concat()).stderr;
        assert!(said.starts_with("note: 1 was lost: "), "{table:?}: {said}");
    }
    assert_eq!(test.run(&["read", "malformed.csv", "--lenient", "-q"]).stderr, "");
}

#[test]
fn single_events_are_selected_by_what_they_carry() {
    let test = CliTest::new();
    let actions = |args: &[&str]| {
        let args = [&["read", "golden.csv", "--csv"], args].concat();
        let csv = test.run(&args).ok().stdout;
        let action = |line: &str| line.split(',').nth(3).unwrap().to_owned();
        csv.lines().skip(1).map(action).collect::<Vec<_>>()
    };
    assert_eq!(actions(&["--thread", "202"]), ["alloc", "failure", "free"]);
    assert_eq!(actions(&["--from", "+8us"]), ["free", "free"]);
    assert_eq!(actions(&["--limit", "1", "--stream", "1"]), ["alloc"]);
    assert_eq!(actions(&["--limit", "0"]), [""; 0]);
    let none = test.run(&["read", "golden.csv", "--csv", "--device", "9"]).ok().stdout;
    assert!(none.starts_with("time_ns,process,") && none.lines().count() == 1, "{none}");
    assert_eq!(test.run(&["read", "golden.csv", "--device", "9"]).ok().stdout, "");
}
