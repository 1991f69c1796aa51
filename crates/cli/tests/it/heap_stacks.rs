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

/// What gdb prints of the stacks at which malloc is called with each of these sizes.
fn backtraces_of_gdb(command: &[&str], sizes: &[u64], backtrace: &str) -> Vec<Vec<String>> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-ex", "set breakpoint pending on", "-ex", "set debuginfod enabled off"]);
    gdb.args(["-ex", "set print frame-arguments none", "-ex", "set width 0"]);
    // Before that, calls of the loader would be met too.
    gdb.args(["-ex", "break main", "-ex", "run", "-ex", "delete"]);
    let condition: Vec<String> = sizes.iter().map(|size| format!("$rdi == {size}")).collect();
    gdb.arg("-ex").arg(format!("break malloc if {}", condition.join(" || ")));
    for _ in sizes {
        gdb.args(["-ex", "continue", "-ex", backtrace]);
    }
    let output = gdb.args(["-ex", "kill", "--args"]).args(command).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut stacks: Vec<Vec<String>> = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('#')) {
        if line.starts_with("#0 ") {
            stacks.push(Vec::new());
        }
        // `#2  0x0000555555555406 in function (arguments) at file:line`; the address is not always there.
        let call = line.split_once(' ').map_or("", |(_, call)| call.trim_start());
        let call = call.split_once(" in ").filter(|(before, _)| before.starts_with("0x"));
        let call = call
            .map_or_else(|| line.split_once(' ').map_or("", |(_, call)| call.trim_start()), |(_, call)| call);
        stacks.last_mut().unwrap().push(call.to_owned());
    }
    assert_eq!(stacks.len(), sizes.len(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    stacks
}

/// Functions of the program in what gdb prints, innermost first.
fn stacks_of_gdb(program: &str, sizes: &[u64]) -> Vec<Vec<Call>> {
    let own = |call: &String| {
        let ((function, _), (_, place)) = (call.split_once(" (")?, call.rsplit_once(" at ")?);
        own_call(function, place)
    };
    let stacks = backtraces_of_gdb(&[program], sizes, "backtrace");
    stacks.iter().map(|stack| stack.iter().filter_map(own).collect()).collect()
}

/// The same in a trace, of blocks that were never freed.
fn recorded_stacks(test: &CliTest, sizes: &[u64]) -> Vec<Vec<Call>> {
    // `function (file:line)`; without debug information there is a module instead.
    let own = |frame: &String| {
        let (function, place) = frame.strip_suffix(')')?.rsplit_once(" (")?;
        own_call(function, place)
    };
    let stacks = recorded_frames(test, sizes);
    stacks.iter().map(|stack| stack.iter().filter_map(own).collect()).collect()
}

/// The stacks of such blocks as `leaks` prints them, innermost frame first.
fn recorded_frames(test: &CliTest, sizes: &[u64]) -> Vec<Vec<String>> {
    let leaks = test.run(&["leaks", "heap.flood", "--limit", "100", "--json"]).json();
    let blocks = leaks["blocks"].as_array().unwrap();
    let stack = |size: &u64| {
        let block = blocks.iter().find(|block| block["bytes"] == *size);
        let block = block.unwrap_or_else(|| panic!("no block of {size}"));
        let frames = block["stack"].as_array().unwrap().iter();
        frames.map(|frame| frame.as_str().unwrap().to_owned()).collect()
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

/// Prints as `backtrace` does, without functions that have left the stack by a call at their end: gdb concludes from debug
/// information that they were there.
const FRAMES_ON_THE_STACK: &str = r##"python exec('frame = gdb.newest_frame()\nnumber = 0\nwhile frame:\n if frame.type() != gdb.TAILCALL_FRAME:\n  print(f"#{number} {frame.name()} ()")\n  number += 1\n frame = frame.older()')"##;

/// Native functions of a stack in Python: those without the one that runs Python code, in whose place Python frames stand,
/// up to the interpreter's main function.
fn native_functions<'a>(frames: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for frame in frames {
        let name = frame.split([' ', '(']).next().unwrap_or_default();
        if name != "_PyEval_EvalFrameDefault" {
            names.push(name.to_owned());
        }
        if name == "Py_BytesMain" {
            break;
        }
    }
    names
}

#[test]
fn stacks_of_python_are_those_of_gdb_and_of_python() {
    let test = CliTest::new();
    // What is called python3 may be a script that looks for it.
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    let python = String::from_utf8(found.stdout).unwrap().trim().to_owned();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs/heap_stacks.py");
    let command = [&python, program.to_str().unwrap()];
    let ran = test.run(&["run", "--heap", "-o", "heap.flood", "--", command[0], command[1]]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let told: Vec<Vec<&str>> = ran
        .stdout
        .lines()
        .filter(|line| line.contains('\t'))
        .map(|line| line.split('\t').collect())
        .collect();
    let sizes: Vec<u64> = told.iter().map(|words| words[0].parse().unwrap()).collect();
    assert!(sizes.len() >= 6, "{}", ran.stdout);
    let (ours, gdb) =
        (recorded_frames(&test, &sizes), backtraces_of_gdb(&command, &sizes, FRAMES_ON_THE_STACK));
    for ((ours, gdb), told) in ours.iter().zip(&gdb).zip(&told) {
        let is_python = |frame: &&String| frame.contains(SOURCE);
        let python: Vec<String> = ours
            .iter()
            .filter(is_python)
            .map(|frame| {
                let (function, place) = frame.strip_suffix(')').unwrap().rsplit_once(" (").unwrap();
                format!("{function}:{}", place.rsplit_once(':').unwrap().1)
            })
            .collect();
        assert_eq!(python, told[1..], "Python functions of the block of {} bytes", told[0]);
        let native = native_functions(ours.iter().filter(|frame| !is_python(frame)).map(String::as_str));
        // The first is malloc itself.
        let theirs = native_functions(gdb.iter().skip(1).map(String::as_str));
        assert!(theirs.len() > 10 && native.last().is_some_and(|name| name == "Py_BytesMain"), "{native:?}");
        assert_eq!(native, theirs, "native functions of the block of {} bytes", told[0]);
    }
}
