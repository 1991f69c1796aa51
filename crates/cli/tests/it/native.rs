//! A native program that records its own allocations with stacks: names of its functions are found when the
//! trace is read, in the file that the program was started from and in no other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::cli_test::CliTest;

const TRACE: &str = "native.flood";

/// Records a trace with a copy of the program that the test may replace.
fn record(test: &CliTest) -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_floodmark")).with_file_name("examples/records_itself");
    let program = test.path("records_itself");
    fs::copy(built, &program).unwrap();
    let status = Command::new(&program).arg(test.path(TRACE)).status().unwrap();
    assert!(status.success());
    program
}

/// Line of the program that contains `text`.
fn line_of(text: &str) -> usize {
    let source = include_str!("../../examples/records_itself.rs");
    1 + source.lines().position(|line| line.contains(text)).unwrap()
}

/// A site of the program, with the path of its source from the root of the project on.
fn site(function: &str, code: &str) -> String {
    format!("{function} (crates/cli/examples/records_itself.rs:{})", line_of(code))
}

/// A frame or site as the command writes it, with the path of its source from the root of the project on.
fn short(text: &Value) -> String {
    text.as_str().unwrap().replace(concat!(env!("CARGO_MANIFEST_DIR"), "/"), "crates/cli/")
}

#[test]
fn native_stacks_name_functions_of_the_program_with_lines() {
    let test = CliTest::new();
    record(&test);
    let rows = site("records_itself::load_rows", "black_box(3 << 20)");
    let index = site("grow_index", "black_box(1 << 20)");
    let sort = site("records_itself::sort_rows", "black_box(512 << 10)");

    let watermark = test.run(&["watermark", TRACE, "--json"]).json();
    let blocks = watermark["blocks"].as_array().unwrap();
    let sites: Vec<String> = blocks.iter().map(|block| short(&block["site"])).collect();
    assert_eq!(sites, [&*rows, &*index, &*sort], "{watermark:#}");
    let stacks = blocks.iter().map(|block| block["stack"].as_array().unwrap().iter().map(short).collect());
    let stacks: Vec<Vec<String>> = stacks.collect();
    for (stack, site) in stacks.iter().zip(&sites) {
        // The innermost frame is the program's own, and nothing of the recorder or of Rust's runtime is left.
        assert_eq!(stack.first(), Some(site));
        for frame in stack {
            let is_own = frame.contains("records_itself") || frame.contains("libc.so");
            assert!(is_own && !frame.contains("floodmark_") && !frame.contains("std::"), "{stack:#?}");
        }
    }
    assert!(stacks[1][1].starts_with("records_itself::build_index ("), "{stacks:#?}");

    let leaks = test.run(&["leaks", TRACE, "--json"]).json();
    assert_eq!(short(&leaks["groups"][0]["site"]), rows, "{leaks:#}");
    let flame = test.run(&["flame", TRACE, "-o", "-", "--format", "folded"]).stdout;
    let line = flame.lines().find(|line| line.ends_with(" 3145728")).unwrap();
    let frames: Vec<&str> = line.strip_suffix(" 3145728").unwrap().split(';').collect();
    assert!(frames.last().unwrap().starts_with("records_itself::load_rows ("), "{line}");
    assert!(frames.iter().any(|frame| frame.starts_with("records_itself::main (")), "{line}");
    let text = test.run(&["watermark", TRACE]).ok().stdout;
    assert!(text.contains("load_rows") && text.contains("records_itself.rs:"), "{text}");
}

#[test]
fn names_are_never_taken_from_another_file() {
    let test = CliTest::new();
    let program = record(&test);
    let find = |remark: &str| {
        let ran = test.run(&["watermark", TRACE]);
        assert_eq!(ran.code, 0);
        assert!(!ran.stdout.contains("load_rows"), "{}", ran.stdout);
        let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(remark), "{said}");
    };
    // Rebuilt, or replaced by another program, since.
    fs::copy(env!("CARGO_BIN_EXE_floodmark"), &program).unwrap();
    find("have no names: the file has changed since the recording");
    fs::remove_file(&program).unwrap();
    find("have no names: the file is gone");
}

#[test]
fn a_trace_that_is_followed_has_the_same_names() {
    let test = CliTest::new();
    record(&test);
    let sites = |args: &[&str]| -> Vec<Value> {
        let text = test.run(&[&["read", TRACE, "--events", "--json"], args].concat()).ok().stdout;
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.filter(|row| row["action"] == "alloc").map(|row| row["stack"].clone()).collect()
    };
    let read = sites(&[]);
    assert!(!read.is_empty() && read[0].to_string().contains("records_itself::"), "{read:?}");
    assert_eq!(sites(&["--follow"]), read);
}
