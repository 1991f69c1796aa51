//! `nsys plot`: a picture of a usage file, beside what nvidia-smi reported.

use crate::cli_test::CliTest;

const USAGE: &str = "time(ns)\ttotal (B)\tvalid (B)\tinvalid (B)\tdriver (B)\n\
    500000000\t1048576\t1048576\t0\t0\n900000000\t3145728\t1048576\t0\t2097152\n\
    2500000000\t2097152\t0\t0\t2097152\n";

/// Draws a usage file and returns the picture.
fn drawn(smi: Option<&str>, more: &[&str]) -> String {
    let test = CliTest::new();
    test.write("usage.txt", USAGE);
    let mut args = vec!["nsys", "plot", "-q", "-u", "usage.txt", "-o", "chart.svg"];
    if let Some(smi) = smi {
        test.write("smi.txt", smi);
        args.extend(["-s", "smi.txt"]);
    }
    args.extend(more);
    test.run(&args).ok();
    test.read("chart.svg")
}

#[test]
fn a_usage_file_is_drawn_with_its_parts() {
    let svg = drawn(None, &[]);
    assert!(svg.contains(">with a call stack</text>") && svg.contains(">of the driver</text>"));
    assert!(!svg.contains("without a call stack") && svg.contains("peak 3.00 MiB at +0.4s"), "{svg}");
}

#[test]
fn what_nvidia_smi_reported_stands_beside_it() {
    let smi = "2026/11/15 10:00:00.000, 450\n2026/11/15 10:00:01.000, 460\n2026/11/15 10:00:02.000, 452\n";
    let svg = drawn(Some(smi), &["--shift", "-200ms"]);
    assert!(svg.contains(">nvidia-smi, GPU 0</text>") && svg.contains("460.0 MiB"), "{svg}");
}

#[test]
fn every_gpu_is_drawn_and_the_alignment_is_stated() {
    let smi = "timestamp, index, memory.used [MiB]\n\
               2026/11/15 10:00:00.000, 0, 450 MiB\n2026/11/15 10:00:00.001, 1, 77 MiB\n\
               2026/11/15 10:00:02.000, 0, 452 MiB\n2026/11/15 10:00:02.001, 1, 78 MiB\n";
    let svg = drawn(Some(smi), &["--shift", "-200ms"]);
    assert!(svg.contains(">nvidia-smi, GPU 0</text>") && svg.contains(">nvidia-smi, GPU 1</text>"), "{svg}");
    assert!(svg.contains("the clocks of the two files are not related"), "{svg}");
}

#[test]
fn other_files_are_refused() {
    let test = CliTest::new();
    test.write("usage.txt", "a,b\n1,2\n");
    let ran = test.run(&["nsys", "plot", "-u", "usage.txt", "-o", "chart.svg"]);
    assert!(ran.code == 2 && ran.stderr.contains("is no usage file: line 1"), "{}", ran.stderr);
}
