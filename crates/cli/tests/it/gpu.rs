//! CUDA memory of commands, recorded from inside. The driver and CUPTI are those without a device that the tests of the
//! recording library compile.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::cli_test::{CliTest, Ran};
use crate::running::json_of;

const MIB: u64 = 1 << 20;

/// Compiles a source of the recording library's tests into the folder of a test.
#[track_caller]
fn build(test: &CliTest, source: &str, name: &str, options: &[&str]) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../inject/tests/it/programs/cuda");
    let mut compiler = Command::new("cc");
    compiler.args(["-g", "-O1", "-pthread"]).arg(sources.join(source)).arg("-o").arg(test.path(name));
    let output = compiler.args(options).arg("-ldl").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Compiles the driver, CUPTI and the program into the folder of a test.
fn stage() -> CliTest {
    let test = CliTest::new();
    let shared = ["-shared", "-fPIC", "-Wl,-Bsymbolic"];
    build(&test, "libcuda.c", "libcuda.so.1", &[&shared[..], &["-Wl,-soname,libcuda.so.1"]].concat());
    build(&test, "libcupti.c", "libcupti.so.12", &[&shared[..], &["-DVERSION=130401", "-DNEW"]].concat());
    let driver = test.path("libcuda.so.1").to_string_lossy().into_owned();
    build(&test, "program.c", "program", &[&driver]);
    test
}

/// Records the program, and returns what the summary has about CUDA.
#[track_caller]
fn record(test: &CliTest, options: &[&str], variables: &[(&str, &str)], what: &str) -> (Ran, Value) {
    let mut args = vec!["run", "-o", "gpu.flood", "--force", "--json", "gpu.json"];
    args.extend(options);
    args.extend(["--", "./program", "dlsym", what]);
    let folder = test.path("").to_string_lossy().into_owned();
    let mut all = vec![("LD_LIBRARY_PATH", folder.as_str()), ("CUDA_HOME", "/nowhere")];
    all.extend(variables);
    let output = test.command(&args).envs(all).output().unwrap();
    let ran = Ran::of(&args, &output);
    (ran, json_of(test, "gpu.json")["gpu"].clone())
}

#[test]
fn cuda_memory_of_a_command_is_recorded_and_answers_are_about_it() {
    let test = stage();
    let (ran, gpu) = record(&test, &["--gpu"], &[], "all");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(gpu["ways"], serde_json::json!(["cupti"]), "{gpu} {}", ran.stderr);
    assert_eq!((gpu["live_bytes"].as_u64(), gpu["live_blocks"].as_u64()), (Some(15 * MIB), Some(5)), "{gpu}");
    assert_eq!(gpu["peak_bytes"].as_u64(), Some(16 * MIB), "{gpu}");
    assert!(ran.stderr.contains("CUDA") && ran.stderr.contains("callbacks of CUPTI"), "{}", ran.stderr);
    assert!(ran.stderr.contains("next: floodmark watermark gpu.flood"), "{}", ran.stderr);

    let leaks = test.run(&["leaks", "gpu.flood"]).ok().stdout;
    assert!(leaks.contains("allocate") && leaks.contains("15.0 MiB"), "{leaks}");
    let watermark = test.run(&["watermark", "gpu.flood", "--json"]).json();
    assert_eq!(watermark["peak_bytes"].as_u64(), Some(16 * MIB), "{watermark}");
    assert!(!leaks.contains("libfloodmark_inject"), "{leaks}");
    let stats = test.run(&["stats", "gpu.flood", "--json"]).json();
    assert_eq!((stats["size_mismatches"].as_u64(), stats["unmatched_frees"].as_u64()), (Some(0), Some(0)));
    assert!(stats.to_string().contains("cuMemAllocAsync"), "{stats}");
    test.run(&["read", "gpu.flood"]).ok();
}

#[test]
fn an_allocation_that_failed_is_explained_at_the_end() {
    let test = stage();
    let (ran, gpu) = record(&test, &["--gpu"], &[("STUB_TOTAL", "1000000000")], "oom");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(gpu["failures"].as_u64(), Some(1), "{gpu}");
    for text in [
        "A request for 476.8 MiB",
        "The device had 223.4 MiB of 953.7 MiB free",
        "253.4 MiB less than asked for",
        "Held at that moment: 730.3 MiB",
        "allocate",
    ] {
        assert!(ran.stderr.contains(text), "{text}\n{}", ran.stderr);
    }
    let oom = test.run(&["oom", "gpu.flood", "--json"]).json();
    assert_eq!(oom["device_memory"]["total_bytes"].as_u64(), Some(1_000_000_000), "{oom}");
}

#[test]
fn another_tool_is_named_and_nothing_of_it_is_replaced() {
    let test = stage();
    let (ran, gpu) = record(&test, &["--gpu", "--heap"], &[("STUB_CUPTI", "taken")], "leak");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(gpu["ways"], serde_json::json!(["preload"]), "{gpu}");
    assert_eq!(gpu["live_bytes"].as_u64(), Some(15 * MIB), "{gpu}");
    assert!(ran.stderr.contains("another tool holds CUPTI (Nsight Systems)"), "{}", ran.stderr);
    let heap = json_of(&test, "gpu.json")["heap"].clone();
    assert!(heap["allocations"].as_u64() > Some(0), "{heap}");
    // A library that the user named for the driver is passed on, and its absence is said.
    let (ran, _) = record(&test, &["--gpu"], &[("CUDA_INJECTION64_PATH", "/nowhere/tool.so")], "leak");
    assert!(ran.stderr.contains("could not be loaded (/nowhere/tool.so)"), "{}", ran.stderr);
}

#[test]
fn without_cuda_the_summary_says_so_and_what_needs_stacks_is_refused() {
    let test = stage();
    let args = ["run", "-o", "gpu.flood", "--force", "--gpu", "--", "true"];
    let ran = test.run(&args);
    assert!(ran.stderr.contains("no process used it"), "{}", ran.stderr);
    let refused = test.run(&["run", "--gpu=all", "--no-gpu-stacks", "--", "true"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("--gpu=driver or --gpu=framework"), "{}", refused.stderr);
}

/// Records the program that allocates as PyTorch does, at a level.
#[track_caller]
fn record_torch(test: &CliTest, level: &str) -> (Ran, Value) {
    let args = ["run", "-o", "torch.flood", "--force", "--json", "torch.json", level, "--", "./torch"];
    let folder = test.path("").to_string_lossy().into_owned();
    let variables = [("LD_LIBRARY_PATH", folder.as_str()), ("CUDA_HOME", "/nowhere")];
    let ran = Ran::of(&args, &test.command(&args).envs(variables).output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    (ran, json_of(test, "torch.json")["gpu"].clone())
}

#[test]
fn tensors_and_what_pytorch_holds_for_them_are_two_layers() {
    let test = stage();
    let reports = test.path("libc10.so").to_string_lossy().into_owned();
    build(&test, "libc10.c", "libc10.so", &["-shared", "-fPIC", "-Wl,-soname,libc10.so"]);
    build(
        &test,
        "libc10_cuda.c",
        "libc10_cuda.so",
        &["-shared", "-fPIC", "-Wl,-soname,libc10_cuda.so", "-w", &reports],
    );
    build(&test, "torch.c", "torch", &["-w"]);

    let (ran, gpu) = record_torch(&test, "--gpu=all");
    assert_eq!(gpu["ways"], serde_json::json!(["preload", "torch"]), "{gpu}");
    // Tensors, and another library; what the cache holds is not added.
    assert_eq!(gpu["live_bytes"].as_u64(), Some(7 * MIB), "{gpu}");
    assert_eq!(gpu["peak_bytes"].as_u64(), Some(10 * MIB), "{gpu}");
    for text in ["interposed functions and reports of PyTorch's", "A request for 77.0 MiB", "cache_fail"] {
        assert!(ran.stderr.contains(text), "{text}\n{}", ran.stderr);
    }
    let stats = test.run(&["stats", "torch.flood", "--json"]).json();
    let layer = &stats["layers"][0];
    assert_eq!(
        (layer["resource"].as_str(), layer["blocks_resource"].as_str()),
        (Some("torch segments"), Some("torch")),
        "{stats}"
    );
    assert_eq!(
        (layer["reserved_bytes"].as_u64(), layer["live_bytes"].as_u64()),
        (Some(26 * MIB), Some(2 * MIB)),
        "{stats}"
    );

    let (ran, gpu) = record_torch(&test, "--gpu=framework");
    assert_eq!(gpu["ways"], serde_json::json!(["torch"]), "{gpu}");
    assert_eq!(gpu["live_bytes"].as_u64(), Some(2 * MIB), "{gpu}");
    assert!(ran.stderr.contains("only what PyTorch's cache hands out is recorded"), "{}", ran.stderr);
}
