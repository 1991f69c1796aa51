//! Rules that hold, rules that are broken, and who broke them.

use insta::assert_snapshot;
use serde_json::json;

use crate::cli_test::CliTest;

#[test]
fn broken_rules_end_in_1_and_name_the_culprits() {
    let test = CliTest::new();
    let ran = test.run(&[
        "check",
        "golden.csv",
        "--max-peak",
        "3KiB",
        "--max-leak",
        "0",
        "--max-leaked-blocks",
        "2",
        "--no-failures",
        "--no-losses",
    ]);
    assert_snapshot!("check_broken", ran.seen());
}

#[test]
fn rules_that_hold_end_in_0_and_are_listed() {
    let test = CliTest::new();
    assert_snapshot!(
        "check_ok",
        test.run(&["check", "golden.csv", "--max-peak", "20GiB", "--max-leak", "1k"]).seen()
    );
}

#[test]
fn each_rule_is_judged_by_itself() {
    let test = CliTest::new();
    for (rule, code) in [
        (&["--max-peak", "3500"][..], 0),
        (&["--max-peak", "3499"], 1),
        (&["--max-leak", "756"], 0),
        (&["--max-leak", "755"], 1),
        (&["--max-leaked-blocks", "2"], 0),
        (&["--max-leaked-blocks", "1"], 1),
        (&["--no-failures"], 1),
        (&["--no-failures", "--thread", "101"], 0),
        (&["--no-losses"], 0),
    ] {
        let args = [&["check", "golden.csv"], rule].concat();
        assert_eq!(test.run(&args).code, code, "{rule:?}");
    }
    assert_eq!(test.run(&["check", "truncated.csv", "--no-losses"]).code, 1);
}

#[test]
fn one_bad_input_among_several_is_enough() {
    let test = CliTest::new();
    let ran = test.run(&["check", "pair.dev0.csv", "pair.dev1.csv", "--max-leak", "0", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&document["inputs"][0]["passed"], &document["inputs"][1]["passed"]),
        (&json!(true), &json!(false))
    );
    let rule = &document["inputs"][1]["rules"][0];
    assert_eq!(
        (&rule["rule"], &rule["limit"], &rule["actual"]),
        (&json!("max-leak"), &json!(0), &json!(2560))
    );
}

#[test]
fn rules_that_nothing_is_checked_on_do_not_hold() {
    let test = CliTest::new();
    for (rules, code) in [
        (&["--max-peak", "20GiB", "--device", "9"][..], 2),
        (&["--no-failures", "--thread", "7"], 2),
        (&["--no-losses", "--device", "9"], 0),
        (&["--max-leak", "1k", "--from", "+1h"], 0),
        (&["--max-leak", "0", "--from", "+1h"], 1),
    ] {
        let ran = test.run(&[&["check", "golden.csv"], rules].concat());
        assert_eq!(ran.code, code, "{rules:?}: {}", ran.stderr);
    }
    let ran = test.run(&["check", "golden.csv", "--max-peak", "20GiB", "--device", "9"]);
    assert!(ran.stderr.starts_with("error: golden.csv: none of its "), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: correct --device"), "{}", ran.stderr);
}
