//! Calls of functions: logs that the real pymemtrace wrote, and what is made of them.

use std::collections::BTreeMap;

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
fn logs_of_earlier_versions_give_the_functions_of_their_own_figures() {
    let test = CliTest::new();
    test.write("changes.log", include_bytes!("../../../../fixtures/pymemtrace/documented_changes.log"));
    test.write("pairs.log", include_bytes!("../../../../fixtures/pymemtrace/documented_pairs.log"));
    test.write("every.log", include_bytes!("../../../../fixtures/pymemtrace/documented_every.log"));
    let gained = |log: &str| {
        let found = functions(&test.run(&["calls", log, "--json"]).ok().stdout);
        found
            .into_iter()
            .map(|(name, _, own, _)| (name, own))
            .filter(|(_, own)| *own != 0)
            .collect::<BTreeMap<_, _>>()
    };
    // The last column is the change; that of the first row is everything before the trace.
    let mut expected = BTreeMap::<String, i64>::new();
    for line in test.read("changes.log").lines().skip(2) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let change: i64 = words[words.len() - 1].parse().expect("a number");
        *expected.entry(words[words.len() - 3].to_owned()).or_default() += change;
    }
    assert_eq!(gained("changes.log"), expected);
    assert_eq!(expected["acquire"], 65536);
    // Rows are left out of this one where it has an ellipsis, and memory grew in between.
    let pairs = gained("pairs.log");
    let named = ["mean", "len", "decode", "_xml", "add_member_line"].map(|name| pairs[name]);
    assert_eq!(named, [188_416, 94_208, 4096, 4096, 4096]);
    let every = test.run(&["calls", "every.log", "--json"]).ok().stdout;
    let every: Value = serde_json::from_str(&every).expect("JSON");
    let counts = ["events", "calls", "native_calls", "exceptions", "gaps"].map(|key| every[key].as_u64());
    assert_eq!(counts, [21, 7, 3, 1, 1].map(Some));
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
