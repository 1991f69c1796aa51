//! Heaps of commands, recorded from inside by a library that is preloaded.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::cli_test::{CliTest, Ran};
use crate::running::json_of;

/// Compiles a program of these tests into the folder of a test.
#[track_caller]
fn compile(test: &CliTest, source: &str, name: &str, options: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs").join(source);
    let mut compiler = Command::new("cc");
    compiler.args(["-g", "-O1", "-fno-builtin"]).arg(source).arg("-o").arg(test.path(name)).args(options);
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Records a command, and returns what the summary has about heaps.
#[track_caller]
fn record(test: &CliTest, options: &[&str], command: &[&str]) -> (Ran, Value) {
    let mut args = vec!["run", "-o", "heap.flood", "--force", "--json", "heap.json"];
    args.extend(options);
    args.push("--");
    args.extend(command);
    let ran = test.run(&args);
    let heap = json_of(test, "heap.json")["heap"].clone();
    (ran, heap)
}

/// Directories with a library that recorders of this test left behind.
fn left_libraries(test: &CliTest) -> usize {
    let folders = fs::read_dir(test.path("tmp")).unwrap();
    folders
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("floodmark-heap-"))
        .count()
}

#[test]
fn every_block_of_a_command_is_recorded_and_charged_to_the_function_that_allocated() {
    let test = CliTest::new();
    compile(&test, "heap_holds.c", "holds", &[]);
    let (ran, heap) = record(&test, &["--heap"], &["./holds"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("next: floodmark watermark heap.flood"), "{}", ran.stderr);
    assert_eq!((heap["peak_bytes"].as_u64(), heap["live_bytes"].as_u64()), (Some(400_000), Some(7 * 77)));
    assert_eq!((heap["allocations"].as_u64(), heap["frees"].as_u64()), (Some(327), Some(320)));
    assert_eq!(heap["not_recorded"].as_array().map(Vec::len), Some(0), "{heap}");

    let watermark = test.run(&["watermark", "heap.flood", "--json"]).json();
    let sites: Vec<(&str, u64)> = groups(&watermark, "site");
    assert_eq!(sites, [("hold_small", 300_000), ("hold_large", 100_000)], "{watermark}");
    let leaks = test.run(&["leaks", "heap.flood"]).ok().stdout;
    assert!(leaks.contains("lose") && leaks.contains("539"), "{leaks}");
    assert!(!leaks.contains("wrapped_malloc"), "{leaks}");
}

/// Groups of one way, each with its bytes.
fn groups<'a>(watermark: &'a Value, way: &str) -> Vec<(&'a str, u64)> {
    let ways = watermark["groups"].as_array().unwrap().iter().filter(|group| group["by"] == way);
    let groups = ways.flat_map(|group| group["groups"].as_array().unwrap());
    let name = |group: &'a Value| group["key"].as_str().unwrap().split(' ').next().unwrap();
    groups.map(|group| (name(group), group["bytes"].as_u64().unwrap())).collect()
}

#[test]
fn programs_that_cannot_be_recorded_run_as_ever_and_are_named() {
    let test = CliTest::new();
    compile(&test, "heap_holds.c", "holds", &[]);
    compile(&test, "heap_holds.c", "static", &["-static"]);
    compile(&test, "heap_holds.c", "sanitized", &["-fsanitize=address"]);
    compile(&test, "own_allocator.c", "own", &[]);
    let script = "./holds && ./static stay && ./own && env -i ./holds2 stay && ASAN_OPTIONS=detect_leaks=0 ./sanitized stay && echo all";
    fs::copy(test.path("holds"), test.path("holds2")).unwrap();
    let (ran, heap) = record(&test, &["--heap"], &["sh", "-c", script]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "all\n"), "{}", ran.stderr);
    let named: Vec<(&str, &str)> = heap["not_recorded"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["program"].as_str().unwrap(), one["reason"].as_str().unwrap()))
        .collect();
    let reason = |program: &str| named.iter().find(|(name, _)| *name == program).map(|(_, reason)| *reason);
    assert_eq!(reason("static"), Some("statically linked"), "{named:?}");
    assert_eq!(reason("own"), Some("has an allocator linked into it"), "{named:?}");
    assert_eq!(reason("sanitized"), Some("built with AddressSanitizer"), "{named:?}");
    assert!(reason("holds2").is_some_and(|reason| reason.contains("LD_PRELOAD")), "{named:?}");
    assert_eq!(reason("holds"), None, "{named:?}");
    assert!(ran.stderr.contains("the heap of static was not recorded: statically linked"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("ld.so") && !ran.stderr.contains("ASan"), "{}", ran.stderr);

    // The first command too.
    let (ran, heap) =
        record(&test, &["--heap"], &["sh", "-c", "ASAN_OPTIONS=detect_leaks=0 exec ./sanitized stay"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(heap["not_recorded"][0]["program"], "sanitized", "{heap}");
}

#[test]
fn what_is_preloaded_already_stays_and_nothing_is_left_behind() {
    let test = CliTest::new();
    compile(&test, "heap_holds.c", "holds", &[]);
    compile(
        &test,
        "own_allocator.c",
        "other.so",
        &[
            "-shared",
            "-fPIC",
            "-Dmalloc=unused_malloc",
            "-Dfree=unused_free",
            "-Dcalloc=unused_calloc",
            "-Drealloc=unused_realloc",
            "-Dmain=unused_main",
        ],
    );
    fs::create_dir(test.path("tmp")).unwrap();
    let args = ["run", "-o", "heap.flood", "--heap", "--", "sh", "-c", "echo $LD_PRELOAD; ./holds"];
    let mut command = test.command(&args);
    command
        .env("TMPDIR", test.path("tmp"))
        .env_remove("XDG_RUNTIME_DIR")
        .env("LD_PRELOAD", test.path("other.so"));
    let ran = Ran::of(&args, &command.output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let (first, rest) = ran.stdout.trim().split_once(':').unwrap();
    assert!(first.ends_with("/libfloodmark_inject.so") && rest.ends_with("/other.so"), "{}", ran.stdout);
    assert!(!Path::new(first).exists());
    assert_eq!(left_libraries(&test), 0);
}

#[test]
fn options_say_what_is_recorded() {
    let test = CliTest::new();
    compile(&test, "heap_holds.c", "holds", &[]);
    let (_, heap) = record(&test, &["--heap", "--heap-min", "2000", "--no-heap-stacks"], &["./holds"]);
    assert_eq!(
        (heap["allocations"].as_u64(), heap["peak_bytes"].as_u64()),
        (Some(20), Some(100_000)),
        "{heap}"
    );
    let (_, heap) = record(&test, &["--heap", "--heap-include", "holds"], &["sh", "-c", "./holds; true"]);
    assert_eq!(
        (heap["allocations"].as_u64(), heap["pids"].as_array().map(Vec::len)),
        (Some(327), Some(1)),
        "{heap}"
    );
    let (_, heap) = record(&test, &["--heap", "--heap-exclude", "holds"], &["sh", "-c", "./holds; true"]);
    assert!(heap["allocations"].as_u64().is_some_and(|count| count > 0 && count < 327), "{heap}");
    let (ran, heap) = record(&test, &["--heap=sample:1KiB"], &["./holds"]);
    assert_eq!(heap["sample_period_bytes"].as_u64(), Some(1024), "{heap}");
    assert!(ran.stderr.contains("one in about 1.00 KiB"), "{}", ran.stderr);

    for (args, error) in [
        (["--heap=some", "--quiet"], "it is one of all, sample, sample:512KiB and python"),
        (["--heap=sample:0", "--quiet"], "a sample needs at least one byte"),
        (["--heap-min", "10"], "--heap"),
        (["--heap", "--heap-exclude=a,b"], "write the name of a program"),
    ] {
        let ran = test.run(&[&["run"][..], &args, &["--", "true"]].concat());
        assert!(ran.code == 2 && ran.stderr.contains(error), "{args:?}: {}", ran.stderr);
    }
    let ran = test.run(&["run", "--heap", "--heap-library", "/no/such.so", "--", "true"]);
    assert!(ran.code == 2 && ran.stderr.contains("opening /no/such.so"), "{}", ran.stderr);
}

#[test]
fn the_heap_of_a_running_process_is_refused_with_the_reason_and_what_to_do() {
    let test = CliTest::new();
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let ran = test.run(&["attach", "--heap", &sleeper.id().to_string(), "-o", "heap.flood"]);
    let still_runs = sleeper.try_wait().unwrap().is_none();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(still_runs, "the process was disturbed");
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    for part in ["cannot be recorded", "loaded when a program starts", "floodmark run --heap -- sleep 60"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    assert!(!test.path("heap.flood").exists());
}
