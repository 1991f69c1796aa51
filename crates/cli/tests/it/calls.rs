//! Calls of functions: logs that the real pymemtrace wrote, and what is made of them.

use insta::assert_snapshot;
use serde_json::Value;

use crate::cli_test::CliTest;

/// A folder with logs of pymemtrace 0.6.3: all events, and those at which memory changed.
fn with_logs() -> CliTest {
    let test = CliTest::new();
    test.write("all.log", include_bytes!("../../../../fixtures/pymemtrace/all.log"));
    test.write("change.log", include_bytes!("../../../../fixtures/pymemtrace/change.log"));
    test
}

/// Functions with what they gained, from the JSON of `calls`.
fn functions(text: &str) -> Vec<(String, u64, i64, i64)> {
    let json: Value = serde_json::from_str(text).expect("JSON");
    let functions = json["functions"].as_array().expect("a list");
    let figure = |function: &Value, key: &str| function[key].as_i64().expect("a number");
    functions
        .iter()
        .map(|function| {
            let name = function["function"].as_str().expect("a name").to_owned();
            let calls = function["calls"].as_u64().expect("a number");
            (name, calls, figure(function, "own_bytes"), figure(function, "cumulative_bytes"))
        })
        .collect()
}

#[test]
fn functions_and_lines_are_listed_by_what_they_gained() {
    let test = with_logs();
    assert_snapshot!("calls", test.run(&["calls", "all.log"]).seen());
    assert_snapshot!("calls_with_gaps", test.run(&["calls", "change.log", "--by", "cumulative"]).seen());
    assert_snapshot!("calls_flame", test.run(&["flame", "all.log"]).seen());
    assert_snapshot!("calls_read", test.run(&["read", "change.log", "--limit", "6"]).seen());
    assert_snapshot!(
        "calls_json",
        test.run(&["read", "all.log", "--calls", "--json", "--limit", "2"]).seen()
    );
    assert_snapshot!("calls_info", test.run(&["info", "all.log"]).seen());
}

#[test]
fn a_log_a_trace_of_it_and_what_is_printed_of_it_give_the_same_functions() {
    let test = with_logs();
    let expected = functions(&test.run(&["calls", "all.log", "--json"]).ok().stdout);
    let hold = expected.iter().find(|function| function.0 == "hold").expect("the function that holds memory");
    // Six times a MiB, and pages of the bookkeeping of malloc.
    assert!(hold.1 == 6 && (6 << 20..(6 << 20) + (64 << 10)).contains(&hold.2), "{hold:?}");
    test.run(&["import", "all.log", "-o", "calls.flood", "-q"]).ok();
    assert_eq!(functions(&test.run(&["calls", "calls.flood", "--json"]).ok().stdout), expected);
    let printed = test.run(&["read", "calls.flood", "--calls"]).ok().stdout;
    test.write("printed.log", printed);
    let again = functions(&test.run(&["calls", "printed.log", "--json"]).ok().stdout);
    let own = |list: &[(String, u64, i64, i64)]| {
        let mut own: Vec<_> = list.iter().map(|(name, _, own, _)| (name.clone(), *own)).collect();
        own.sort();
        own
    };
    assert_eq!(own(&again), own(&expected));
}

#[test]
fn what_has_no_calls_says_how_to_record_them() {
    let test = CliTest::new();
    let ran = test.run(&["calls", "golden.csv"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("contains no calls of functions"), "{}", ran.stderr);
    assert!(ran.stderr.contains("python -m floodmark.trace"), "{}", ran.stderr);
}
