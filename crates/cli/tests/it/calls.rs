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
    assert_snapshot!("calls_tree", test.run(&["calls", "all.log", "--tree", "--depth", "3"]).seen());
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
fn logs_of_threads_are_named_like_those_of_pymemtrace() {
    let test = CliTest::new();
    let name = "20241107_195847_0_62264_62270_P_0_PY3.13.0.log";
    test.write(name, include_bytes!("../../../../fixtures/pymemtrace/all.log"));
    let expected = functions(&test.run(&["calls", name, "--json"]).ok().stdout);
    let ran = test.run(&["read", name, "--calls", "-o", "logs"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    // The first event is 27 ms of processor time after the time in the name; a log does not say its process.
    let path = "logs/20241107_195847_0_0_62270_P_0.log";
    assert!(ran.stderr.contains(&format!("wrote {path}")), "{}", ran.stderr);
    let written = test.read(path);
    assert!(written.starts_with("SOF\nHDR: Event ") && written.ends_with("\nEOF\n"), "{written}");
    assert_eq!(written, test.run(&["read", name, "--calls"]).ok().stdout);
    let again = functions(&test.run(&["calls", path, "--json"]).ok().stdout);
    let own = |list: &[(String, u64, i64, i64)]| {
        list.iter().find(|function| function.0 == "hold").map(|function| (function.1, function.2))
    };
    assert_eq!(own(&again), own(&expected));
    let refused = test.run(&["read", name, "--calls", "-o", "logs"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("exists already") && refused.stderr.contains("--force"),
        "{}",
        refused.stderr
    );
    test.run(&["read", name, "--calls", "-o", "logs", "--force", "-q"]).ok();
}

#[test]
fn resident_memory_of_calls_is_plotted() {
    let test = with_logs();
    test.run(&["import", "all.log", "-o", "calls.flood", "-q"]).ok();
    for input in ["all.log", "calls.flood"] {
        let drawn = test.run(&["plot", input]).ok().stdout;
        assert!(drawn.contains("resident memory (RSS) at calls"), "{drawn}");
        assert!(drawn.contains("15.5 MiB"), "{drawn}");
    }
}

#[test]
fn what_has_no_calls_says_how_to_record_them() {
    let test = CliTest::new();
    let ran = test.run(&["calls", "golden.csv"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("contains no calls of functions"), "{}", ran.stderr);
    assert!(ran.stderr.contains("python -m floodmark.trace"), "{}", ran.stderr);
}
