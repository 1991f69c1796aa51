//! GPUs, through a library that only pretends.

use std::path::PathBuf;
use std::process::Command;

use crate::programs::{Report, WatchTest};

fn library(test: &WatchTest, defines: &[&str]) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/programs/nvml.c");
    let library = test.join("libnvml.so");
    let mut command = Command::new("cc");
    command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library).arg(source);
    assert!(command.args(defines).status().expect("cc runs").success());
    library
}

fn watch(test: &WatchTest, library: &str) -> Report {
    test.watch(&["samples", &format!("gpu={library}")], &[&"sleep", &"0.5"])
}

#[test]
fn memory_of_devices_and_processes_is_sampled() {
    let test = WatchTest::new("gpus");
    let report = watch(&test, &library(&test, &[]).display().to_string());
    let devices: Vec<_> = report.subjects.iter().filter(|seen| seen.kind == "device").collect();
    assert_eq!(devices.len(), 2, "{report:?}");
    for (index, device) in devices.iter().enumerate() {
        assert_eq!(device.number, index as u64);
        assert_eq!(
            (&device.name, &device.detail),
            (&format!("\"Imaginary {index}\""), &format!("\"GPU-0000 {index}\""))
        );
        let used = report.series(device.id, "gpu_used");
        assert!(used.len() >= 2 && used.iter().all(|(_, used)| used % 2 == index as u64), "{used:?}");
        assert_eq!(report.series(device.id, "gpu_total")[0].1, 80 << 30);
        assert!(report.series(device.id, "gpu_busy").is_empty(), "this library does not know");
    }
    let process = &report.processes()[0];
    let used = report.series(process.id, "gpu_used");
    let is_first_namespace = std::fs::read_link("/proc/self/ns/pid").unwrap().ends_with("pid:[4026531836]");
    if is_first_namespace {
        assert_eq!(used.first().map(|(_, used)| *used), Some(200 << 20), "on both devices");
    } else {
        assert!(used.is_empty());
        assert!(report.notes.iter().any(|note| note.contains("per device only")), "{:?}", report.notes);
    }
}

#[test]
fn a_library_that_does_not_work_is_noted_and_does_no_harm() {
    let test = WatchTest::new("broken");
    let report = watch(&test, &library(&test, &["-DBROKEN"]).display().to_string());
    assert!(report.notes.iter().any(|note| note.contains("does not start (error 9)")), "{:?}", report.notes);
    let report = watch(&test, "libc.so.6");
    assert!(report.notes.iter().any(|note| note.contains("it has no nvml")), "{:?}", report.notes);
    let report = watch(&test, "no-such-library.so");
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    assert!(report.subjects.iter().all(|seen| seen.kind != "device"));
}
