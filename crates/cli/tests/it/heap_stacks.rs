//! Stacks of allocations are those that gdb finds at the same calls of malloc.

use std::path::Path;
use std::process::Command;

use crate::cli_test::CliTest;

/// A function of a stack, with its line.
type Call = (String, u32);

/// Compiles a program of these tests; returns its path.
#[track_caller]
fn compile(test: &CliTest, source: &str, compiler: &str, options: &[&str]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs").join(source);
    let output =
        Command::new(compiler).args(options).arg("-o").arg(test.path("app")).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    test.path("app").display().to_string()
}

/// Part of the path of the programs' source: frames of libraries have other names with other tools.
const SOURCE: &str = "programs/heap_stacks.";

/// Stacks that gdb finds when malloc is called with each of these sizes, innermost function first.
fn stacks_of_gdb(program: &str, sizes: &[u64]) -> Vec<Vec<Call>> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-ex", "set breakpoint pending on", "-ex", "set debuginfod enabled off"]);
    gdb.args(["-ex", "set print frame-arguments none", "-ex", "set width 0"]);
    // Before that, calls of the loader would be met too.
    gdb.args(["-ex", "break main", "-ex", "run", "-ex", "delete"]);
    let condition: Vec<String> = sizes.iter().map(|size| format!("$rdi == {size}")).collect();
    gdb.arg("-ex").arg(format!("break malloc if {}", condition.join(" || ")));
    for _ in sizes {
        gdb.args(["-ex", "continue", "-ex", "backtrace"]);
    }
    let output = gdb.arg("-ex").arg("kill").arg(program).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut stacks: Vec<Vec<Call>> = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('#')) {
        if line.starts_with("#0 ") {
            stacks.push(Vec::new());
        }
        // `#2  0x0000555555555406 in function (arguments) at file:line`; the address is not always there.
        let call = line.split_once(' ').map_or("", |(_, call)| call.trim_start());
        let call = call
            .split_once(" in ")
            .filter(|(before, _)| before.starts_with("0x"))
            .map_or(call, |(_, call)| call);
        if let (Some((function, _)), Some((_, place))) = (call.split_once(" ("), call.rsplit_once(" at ")) {
            stacks.last_mut().unwrap().extend(own_call(function, place));
        }
    }
    assert_eq!(stacks.len(), sizes.len(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    stacks
}

/// The same in a trace, of blocks that were never freed.
fn recorded_stacks(test: &CliTest, sizes: &[u64]) -> Vec<Vec<Call>> {
    let leaks = test.run(&["leaks", "heap.flood", "--limit", "1000", "--json"]).json();
    let blocks = leaks["blocks"].as_array().unwrap();
    let stack = |size: &u64| {
        let block = blocks
            .iter()
            .find(|block| block["bytes"] == *size)
            .unwrap_or_else(|| panic!("no block of {size}"));
        let frames = block["stack"].as_array().unwrap().iter().map(|frame| frame.as_str().unwrap());
        // `function (file:line)`; without debug information there is a module instead.
        let calls = frames.filter_map(|frame| {
            let (function, place) = frame.strip_suffix(')')?.rsplit_once(" (")?;
            own_call(function, place)
        });
        calls.collect()
    };
    sizes.iter().map(stack).collect()
}

/// A function of the program with its line, without what the two spell differently: parameters and namespaces.
fn own_call(function: &str, place: &str) -> Option<Call> {
    let (file, line) = place.rsplit_once(':')?;
    if !file.contains(SOURCE) {
        return None;
    }
    let mut depth = 0;
    let mut name = String::new();
    for c in function.chars() {
        depth += i32::from(c == '<');
        if depth == 0 {
            name.push(c);
        }
        depth -= i32::from(c == '>');
    }
    let name = name.split('(').next()?.rsplit("::").next()?;
    let name = if name.contains("closure") { "closure" } else { name };
    Some((name.to_owned(), line.parse().ok()?))
}

#[track_caller]
fn compare(source: &str, compiler: &str, options: &[&str], count: u64) {
    let test = CliTest::new();
    let program = compile(&test, source, compiler, options);
    let sizes: Vec<u64> = (1..=count).map(|number| 40_000 + number).collect();
    let ran = test.run(&["run", "--heap", "-o", "heap.flood", "--", &program]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let ours = recorded_stacks(&test, &sizes);
    let theirs = stacks_of_gdb(&program, &sizes);
    for ((size, ours), theirs) in sizes.iter().zip(&ours).zip(&theirs) {
        assert!(!theirs.is_empty(), "gdb finds nothing for {size}");
        assert_eq!(ours, theirs, "block of {size} bytes");
    }
}

#[test]
fn stacks_of_c_are_those_of_gdb() {
    compare("heap_stacks.c", "cc", &["-g", "-O2", "-fno-builtin"], 7);
}

#[test]
fn stacks_of_cpp_are_those_of_gdb() {
    compare("heap_stacks.cpp", "c++", &["-g", "-O1", "-std=c++17"], 4);
}

#[test]
fn stacks_of_rust_are_those_of_gdb() {
    compare("heap_stacks.rs", "rustc", &["-g", "--edition", "2024", "-C", "opt-level=1"], 3);
}
