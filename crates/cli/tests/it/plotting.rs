//! Pictures from the command line.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;

use crate::cli_test::CliTest;

fn with_fixtures(names: &[&str]) -> CliTest {
    let test = CliTest::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    for name in names {
        let file = name.rsplit('/').next().unwrap();
        fs::copy(fixtures.join(name), test.path(file)).unwrap();
    }
    test
}

/// Writes a picture quietly and returns it.
fn drawn(test: &CliTest, args: &[&str], output: &str) -> Vec<u8> {
    let all = [&["plot"], args, &["-q", "--force", "-o", output]].concat();
    let ran = test.run(&all).ok();
    assert_eq!(ran.stdout, "");
    fs::read(test.path(output)).unwrap()
}

#[test]
fn logs_of_allocations_and_of_samples_are_drawn_in_the_terminal() {
    let test = with_fixtures(&["rmm/rmm_26.10_h200_head.csv", "memory_logger/single_node.log"]);
    let drawn = |args: &[&str]| {
        let mut command = test.command(&[&["plot"], args].concat());
        command.env("COLUMNS", "80");
        let output = command.output().unwrap();
        crate::cli_test::Ran::of(args, &output).ok().stdout
    };
    let rmm = drawn(&["rmm_26.10_h200_head.csv"]);
    let log = drawn(&["single_node.log"]);
    assert!(rmm.lines().chain(log.lines()).all(|line| line.chars().count() <= 80));
    assert_snapshot!("plot_rmm", rmm);
    assert_snapshot!("plot_memory_logger", log);
}

#[test]
fn every_format_is_what_its_name_says() {
    let test = with_fixtures(&["memory_logger/gdb_pstack.log"]);
    let args = ["gdb_pstack.log", "--stdout", "--pstack", "--size", "640x320"];
    let svg = String::from_utf8(drawn(&test, &args, "out.svg")).unwrap();
    assert!(
        svg.starts_with("<?xml") && svg.contains("width=\"640\" height=\"320\"") && svg.contains("<circle")
    );
    assert!(drawn(&test, &args, "out.pdf").starts_with(b"%PDF-1.5"));
    let html = String::from_utf8(drawn(&test, &args, "out.html")).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.contains("<svg") && !html.contains("src="));
    assert_eq!(svg.as_bytes(), drawn(&test, &args, "again.svg"), "the same input gives the same picture");
    let seen = test.run(&["plot", "golden.csv", "-o", "said.svg"]);
    assert_eq!((seen.code, seen.stdout.as_str()), (0, ""));
    assert!(seen.stderr.starts_with("wrote said.svg (1200x600"), "{}", seen.stderr);
}

#[cfg(feature = "png")]
#[test]
fn a_png_has_the_size_asked_for_and_is_not_blank() {
    let test = with_fixtures(&["memory_logger/pbs_two_nodes.log"]);
    for (size, width, height) in [("300x200", 300u32, 200u32), ("1200x600", 1200, 600)] {
        let bytes = drawn(&test, &["pbs_two_nodes.log", "--size", size], "out.png");
        assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"));
        assert_eq!(bytes[16..20], width.to_be_bytes());
        assert_eq!(bytes[20..24], height.to_be_bytes());
        // A blank one of this size has fewer bytes than its rows and columns together.
        assert!(bytes.len() > 4 * (width + height) as usize, "{} bytes", bytes.len());
        let dark = drawn(&test, &["pbs_two_nodes.log", "--size", size, "--dark"], "dark.png");
        assert_ne!(bytes, dark);
    }
}

#[test]
fn several_logs_share_an_axis() {
    let test = with_fixtures(&["memory_logger/single_node.log", "memory_logger/pbs_two_nodes.log"]);
    let both = ["single_node.log", "pbs_two_nodes.log"];
    let svg = String::from_utf8(drawn(&test, &both, "both.svg")).unwrap();
    assert!(svg.contains(">single_node</text>") && svg.contains(">pbs_two_nodes</text>"));
    let clock = [&both[..], &["--align", "clock"]].concat();
    let svg = String::from_utf8(drawn(&test, &clock, "clock.svg")).unwrap();
    assert!(svg.contains("time of day"), "{svg}");
    let step = ["single_node.log", "single_node.log", "--align", "mark:step 1"];
    let svg = String::from_utf8(drawn(&test, &step, "step.svg")).unwrap();
    assert!(svg.contains(">single_node.log</text>") || svg.contains("single_node.log (2)"), "{svg}");
}

#[test]
fn parts_are_drawn_by_themselves() {
    let test = with_fixtures(&["memory_logger/pbs_two_nodes.log", "mprof/multiprocess.dat"]);
    let hosts =
        String::from_utf8(drawn(&test, &["pbs_two_nodes.log", "--per", "host"], "hosts.svg")).unwrap();
    assert!(hosts.contains(">total</text>"));
    let args = ["multiprocess.dat", "--per", "process", "--draw", "lines"];
    let lines = String::from_utf8(drawn(&test, &args, "lines.svg")).unwrap();
    assert!(!lines.contains(">total</text>") && lines.matches("<text").count() > 8);
    assert_eq!(test.run(&["import", "pair.dev0.csv", "pair.dev1.csv", "-q"]).code, 0);
    let devices = String::from_utf8(drawn(&test, &["pair.flood", "--per", "device"], "devices.svg")).unwrap();
    assert!(devices.contains(">device 0</text>") && devices.contains(">device 1</text>"));
}

#[test]
fn nvidia_smi_stands_beside_allocations() {
    let test = with_fixtures(&["rmm/golden.csv", "smi/query_gpu_all.csv"]);
    let args = ["golden.csv", "--smi", "query_gpu_all.csv"];
    let svg = String::from_utf8(drawn(&test, &args, "smi.svg")).unwrap();
    assert!(svg.contains("nvidia-smi, GPU") && svg.contains("do not meet"));
}

#[test]
fn what_cannot_be_drawn_is_refused_with_a_remedy() {
    let test = with_fixtures(&["memory_logger/single_node.log"]);
    let cases: [(&[&str], &str); 7] = [
        (&["single_node.log", "-o", "picture"], ".svg, .png, .pdf or .html"),
        (&["single_node.log", "--format", "svg"], "-o FILE"),
        (&["single_node.log", "--metric", "swap"], "leave --metric out"),
        (&["single_node.log", "--align", "mark:nowhere"], "floodmark read --stdout"),
        (&["single_node.log", "--per", "rank"], "--per process"),
        (&["golden.csv", "--per", "host"], "--per device"),
        (&["empty.csv"], "floodmark info"),
    ];
    for (args, remedy) in cases {
        let ran = test.run(&[&["plot"], args].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ran.stderr.contains(remedy), "{args:?}: {}", ran.stderr);
    }
    assert_eq!(test.run(&["plot", "single_node.log", "--size", "10x10"]).code, 2);
}

#[test]
fn the_options_of_memory_logger_draw_too() {
    let test = with_fixtures(&["memory_logger/single_node.log", "memory_logger/gdb_pstack.log"]);
    let text = test.run(&["memory_logger", "--plot", "single_node.log"]).ok().stdout;
    assert!(text.contains("peak "), "{text}");
    let words = "memory_logger --stdout --pstack --darkmode --rotate-text -45 --trim-text 8 --move-text 2 3 --outfile c.svg";
    let mut args: Vec<&str> = words.split(' ').collect();
    args.extend(["--legend", "lower left", "--plot", "single_node.log", "gdb_pstack.log"]);
    assert_eq!(test.run(&args).code, 0);
    assert!(test.read("c.svg").contains("#12161b"));
}

#[test]
fn a_process_that_runs_another_program_is_one_part() {
    let test = CliTest::new();
    let script = "sleep 0.3; exec sleep 0.3";
    assert_eq!(test.run(&["run", "-q", "-o", "exec.flood", "--", "sh", "-c", script]).code, 0);
    let args = ["exec.flood", "--per", "process", "--draw", "lines", "--legend", "top", "--size", "2000x600"];
    let svg = String::from_utf8(drawn(&test, &args, "exec.svg")).unwrap();
    let mut pids: Vec<&str> = svg
        .lines()
        .filter_map(|line| line.strip_suffix(")</text>")?.rsplit_once(" (").map(|(_, pid)| pid))
        .filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()))
        .collect();
    let all = pids.len();
    pids.sort_unstable();
    pids.dedup();
    assert!(all >= 2 && pids.len() == all, "{svg}");
}

#[test]
fn pictures_of_runs_look_as_they_did() {
    let test = CliTest::new();
    let fixture = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
        path.to_str().unwrap().to_owned()
    };
    let (run, log) = (fixture("run/solver.flood"), fixture("memory_logger/single_node.log"));
    let svg = |args: &[&str]| {
        let all = [&["plot", "-q", "--size", "640x320", "--format", "svg", "-o", "-"], args].concat();
        test.run(&all).ok().stdout
    };
    assert_snapshot!("plot_run_parts", svg(&[&run, "--per", "process", "--stdout", "--pstack"]));
    let marked = svg(&[&run, &log, "--align", "mark:step 1"]);
    assert!(marked.contains(">time since the mark</text>"), "{marked}");
    assert_snapshot!("plot_run_marked", marked);
    assert_snapshot!("plot_devices_dark", svg(&[&fixture("smi/two_gpus.csv"), "--per", "device", "--dark"]));
    let clock = svg(&[&run, &log, "--align", "clock"]);
    assert!(clock.contains(">time of day, "), "{clock}");
}

#[test]
fn one_sample_has_an_axis_that_people_can_read() {
    let test = CliTest::new();
    test.write("one.dat", "CMDLINE x\nMEM 12.5 1794748400.5\n");
    let svg = String::from_utf8(drawn(&test, &["one.dat"], "one.svg")).unwrap();
    assert!(svg.contains("peak 12.5 MiB at +0s") && !svg.contains(" ns</text>"), "{svg}");
}

#[test]
fn long_names_that_begin_alike_are_told_apart() {
    let test = CliTest::new();
    let names = ["one", "two"].map(|end| format!("{}{end}.dat", "a_long_name_of_a_log_".repeat(6)));
    for name in &names {
        test.write(name, "CMDLINE x\nMEM 12.5 1794748400.5\nMEM 13.5 1794748401.5\n");
    }
    for size in ["300x200", "1200x600"] {
        let args = [names[0].as_str(), &names[1], "--size", size];
        let svg = String::from_utf8(drawn(&test, &args, "long.svg")).unwrap();
        assert!(svg.contains("one</text>") && svg.contains("two</text>"), "{size}: {svg}");
    }
}
