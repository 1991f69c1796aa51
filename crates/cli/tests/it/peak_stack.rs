//! What a program was doing when its memory was highest.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::cli_test::CliTest;
use crate::terminal::assert_fits;

/// Fills memory for some tenths of a second, holds it for as long, and has a thread that only waits.
const PROGRAM: &str = r"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void *idle(void *nothing) {
    for (;;) pause();
    return nothing;
}

__attribute__((noinline)) void assemble_matrix(char *memory, size_t bytes) {
    double begin = now();
    size_t filled = 0;
    while (now() < begin + 0.6) {
        size_t want = bytes * ((now() - begin) / 0.3);
        for (; filled < want && filled < bytes; filled += 4096) ((volatile char *)memory)[filled] = 1;
    }
}

__attribute__((noinline)) int solve(void) {
    size_t bytes = 96 << 20;
    char *memory = malloc(bytes);
    assemble_matrix(memory, bytes);
    int sum = memory[0];
    free(memory);
    return sum;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, idle, 0);
    return solve() - 1;
}
";

fn compile(test: &CliTest) {
    fs::write(test.path("solver.c"), PROGRAM).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-g", "-fomit-frame-pointer", "-o"]);
    compiler.args([test.path("solver"), test.path("solver.c")]).arg("-lpthread");
    assert!(compiler.status().unwrap().success());
}

#[test]
fn a_summary_shows_what_the_program_was_doing_at_its_peak() {
    let test = CliTest::new();
    compile(&test);
    let args = ["run", "--stacks", "native", "--json", "run.json", "-o", "run.flood", "--", "./solver"];
    let ran = test.run(&args);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let summary: Value = serde_json::from_str(&test.read("run.json")).unwrap();
    let stack = &summary["peak_stack"];
    let frames: Vec<&str> = stack["frames"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let functions: Vec<&str> = frames.iter().filter_map(|frame| frame.split(' ').next()).collect();
    // The program asks for the time all the time, in a function of its own or in none.
    let functions = functions.strip_prefix(&["now"]).unwrap_or(&functions);
    assert_eq!(functions, ["assemble_matrix", "solve", "main"], "{stack:?}");
    assert!(frames.iter().all(|frame| frame.contains("solver.c:")), "{frames:?}");
    assert_eq!((&stack["pid"], &stack["name"]), (&stack["thread"], &"solver".into()));
    assert!(stack["growth_bytes"].as_u64().unwrap() > 90 << 20, "{stack:?}");
    assert!(stack["after_peak_ns"].as_i64().unwrap().abs() < 600_000_000, "{stack:?}");
    let shown = ran.stderr.split_once("\n  stack of solver ").expect("the summary has it").1;
    let shown: Vec<&str> = shown.lines().skip(1).take(frames.len()).map(str::trim).collect();
    assert_eq!(shown.len(), frames.len());
    assert!(shown.last().unwrap().starts_with("main ("), "{shown:?}");
    assert_fits(ran.stderr.as_bytes(), 100, "a summary");
    // The trace has it for good.
    let info = test.run(&["info", "run.flood", "--json"]).json();
    assert_eq!(&info["memory"]["peak_stack"], stack);
    assert!(test.run(&["info", "run.flood"]).stdout.contains("\n  stack of solver "));
    // What held memory at the peak: the process, and what it was doing.
    let watermark = test.run(&["watermark", "run.flood", "--json"]).json();
    assert_eq!(&watermark["peak_stack"], stack);
    assert_eq!(watermark["peak_rss_bytes"], info["memory"]["peak_rss_bytes"]);
    let process = &watermark["processes"][0];
    assert_eq!((&process["name"], &process["pid"]), (&stack["name"], &stack["pid"]));
    assert_eq!(process["share"], 1.0);
    assert!(process["rss_bytes"].as_u64().unwrap() > 90 << 20, "{process}");
    let text = test.run(&["watermark", "run.flood"]).ok().stdout;
    assert!(
        text.contains("stack of solver ") && text.contains("assemble_matrix") && text.contains("100 %"),
        "{text}"
    );
}

#[test]
fn without_stacks_there_is_none() {
    let test = CliTest::new();
    assert_eq!(test.run(&["run", "--json", "run.json", "-o", "run.flood", "--", "true"]).code, 0);
    let summary: Value = serde_json::from_str(&test.read("run.json")).unwrap();
    assert_eq!(summary["peak_stack"], Value::Null);
}

/// One thread only computes; another fills memory step by step and mostly sleeps.
const THREADS: &str = r"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile unsigned long turns;
static volatile int is_over;

__attribute__((noinline)) void *spin(void *nothing) {
    while (!is_over) turns++;
    return nothing;
}

__attribute__((noinline)) void *fill_cache(void *nothing) {
    for (int step = 0; step < 24; step++) {
        char *memory = malloc(4 << 20);
        memset(memory, 1, 4 << 20);
        usleep(25000);
    }
    return nothing;
}

int main(void) {
    pthread_t spinning[2], filling;
    for (int at = 0; at < 2; at++) pthread_create(&spinning[at], 0, spin, 0);
    pthread_create(&filling, 0, fill_cache, 0);
    pthread_join(filling, 0);
    is_over = 1;
    for (int at = 0; at < 2; at++) pthread_join(spinning[at], 0);
    return 0;
}
";

#[test]
fn the_thread_that_fills_memory_is_shown_though_others_are_busy() {
    let test = CliTest::new();
    fs::write(test.path("threads.c"), THREADS).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-g", "-o"]).args([test.path("threads"), test.path("threads.c")]).arg("-lpthread");
    assert!(compiler.status().unwrap().success());
    let args = ["run", "--stacks", "native", "--json", "run.json", "-o", "run.flood", "--", "./threads"];
    let ran = test.run(&args);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let summary: Value = serde_json::from_str(&test.read("run.json")).unwrap();
    let stack = &summary["peak_stack"];
    assert_eq!(stack["reason"], "fault", "{stack}");
    assert!(stack["frames"].to_string().contains("fill_cache"), "{stack}");
}

/// A debugger that works for as long as the command runs, and finds nothing.
const SLOW_DEBUGGER: &str = "#!/bin/sh
touch started
tries=0
while [ ! -e over ] && [ $tries -lt 600 ]; do sleep 0.05; tries=$((tries + 1)); done
";

/// Takes memory once the debugger works, holds it, and gives it back.
const PATIENT: &str = r#"
import os, time
first = bytearray(20 << 20)
end = time.monotonic() + 30
while not os.path.exists("started") and time.monotonic() < end: time.sleep(0.01)
second = bytearray(100 << 20)
time.sleep(1)
del second
open("over", "w").close()
"#;

#[test]
fn memory_is_sampled_while_a_debugger_works() {
    use std::os::unix::fs::PermissionsExt as _;
    let test = CliTest::new();
    fs::create_dir(test.path("bin")).unwrap();
    let debugger = test.path("bin/gdb");
    fs::write(&debugger, SLOW_DEBUGGER).unwrap();
    fs::set_permissions(&debugger, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(test.path("patient.py"), PATIENT).unwrap();
    let path = format!("{}:{}", test.path("bin").to_str().unwrap(), std::env::var("PATH").unwrap());
    let args = ["run", "--stacks", "gdb", "--json", "run.json", "-o", "run.flood", "--"];
    let mut command = test.command(&args);
    command.args(["python3", "patient.py"]).env("PATH", path);
    assert!(command.output().unwrap().status.success());
    let summary: Value = serde_json::from_str(&test.read("run.json")).unwrap();
    let seen = summary["peak_seen_bytes"].as_u64().unwrap();
    assert!(seen > 120 << 20, "{seen} of 120 MiB were sampled");
}

const SCRIPT: &str = "\
import time
held = []
def assemble(number):
    held.append(bytearray(8_000_000))
    deadline = time.monotonic() + 0.05
    while time.monotonic() < deadline:
        pass
for number in range(12):
    assemble(number)
";

#[test]
fn functions_of_python_are_shown_unasked() {
    let test = CliTest::new();
    test.write("grow.py", SCRIPT);
    let args = ["run", "--stacks", "--json", "run.json", "-o", "run.flood", "--", "python3", "grow.py"];
    let ran = test.run(&args);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let summary: Value = serde_json::from_slice(&fs::read(test.path("run.json")).unwrap()).unwrap();
    let frames: Vec<&str> = summary["peak_stack"]["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| frame.as_str().unwrap())
        .collect();
    let is_own = |frame: &&str| frame.starts_with("assemble") && frame.contains("grow.py:");
    assert!(frames.iter().any(is_own), "{frames:?}");
    assert!(!frames.iter().any(|frame| frame.contains("_PyEval_EvalFrame")), "{frames:?}");
}
