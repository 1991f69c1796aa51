//! Exports of Nsight Systems, and what stands in for its scripts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::cli_test::{CliTest, Ran};

const EXPORT: &str = "small_2025.3.sqlite";

fn test() -> CliTest {
    let test = CliTest::new();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/nsys").join(EXPORT);
    fs::copy(fixture, test.path(EXPORT)).unwrap();
    test
}

/// Puts a program that stands in for nsys on the path: it writes down how it was called, and its reports
/// are exports.
fn run_with_nsys(test: &CliTest, args: &[&str]) -> Ran {
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$*\" >> '{calls}'\nwant=\nfor word in \"$@\"; do\n\
         [ \"$want\" = yes ] && out=$word\n[ \"$word\" = --output ] && want=yes || want=no\ndone\n\
         case $1 in\nprofile) cp '{export}' \"$out.nsys-rep\"; exit 3;;\n\
         export) for last; do :; done; cp \"$last\" \"$out\";;\nesac\n",
        calls = test.path("calls").display(),
        export = test.path(EXPORT).display(),
    );
    fs::create_dir_all(test.path("bin")).unwrap();
    test.write("bin/nsys", script);
    fs::set_permissions(test.path("bin/nsys"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", test.path("bin").display(), std::env::var("PATH").unwrap());
    Ran::of(args, &test.command(args).env("PATH", path).output().unwrap())
}

fn report(test: &CliTest, args: &[&str]) -> Value {
    serde_json::from_str(&test.run(args).ok().stdout).unwrap()
}

#[test]
fn an_export_and_its_trace_give_the_same_answers() {
    let test = test();
    let imported = report(&test, &["import", EXPORT, "-o", "run.flood", "--json"]);
    assert_eq!(
        (&imported["events"], &imported["samples"], &imported["processes"]),
        (&json!(22), &json!(9), &json!(1))
    );
    for input in [EXPORT, "run.flood"] {
        let peak = report(&test, &["watermark", input, "--kind", "device", "--json"]);
        assert_eq!(peak["peak_bytes"], json!((5 * 3 + 64) << 20), "{peak}");
        let leaks = test.run(&["leaks", input]);
        assert!(leaks.stdout.contains("leak()") && leaks.stdout.contains("15.0 MiB"), "{}", leaks.stdout);
        let info = test.run(&["info", input]).ok().stdout;
        assert!(info.contains("15 messages of the tool that recorded"), "{info}");
        assert!(info.contains("539"), "{info}");
    }
    let events = test.run(&["read", "run.flood", "--csv"]).ok().stdout;
    assert_eq!(events, test.run(&["read", EXPORT, "--csv"]).ok().stdout);
    let seen = test.run(&["read", "run.flood", "--samples", "--json"]).ok().stdout;
    assert_eq!(seen, test.run(&["read", EXPORT, "--samples", "--json"]).ok().stdout);
    assert!(seen.contains(r#""table":"log""#) && seen.contains(r#""level":"info""#), "{seen}");
    let text = test.run(&["read", "run.flood", "--samples"]).ok().stdout;
    assert!(text.contains("Injection: CUDA injection initialized successfully."), "{text}");
}

#[test]
fn two_exports_keep_their_processes_apart() {
    let test = test();
    let args = ["import", EXPORT, EXPORT, "golden.csv", "-o", "run.flood", "--json"];
    let imported = report(&test, &args);
    assert_eq!((&imported["processes"], &imported["events"]), (&json!(3), &json!(54)));
}

#[test]
fn the_scripts_tables_and_analyses_are_there() {
    let test = test();
    let ran = test.run(&["nsys", "split", EXPORT, "-o", "run"]);
    assert_eq!(ran.code, 0);
    assert_eq!(test.read("run_valid.tsv").lines().count(), 20);
    assert_eq!(test.read("run_invalid.tsv").lines().count(), 4);
    assert!(test.read("run_driver.tsv").starts_with("PID\taddress\tstart_time\t"));
    let ran = test.run(&["nsys", "process", "-i", "run", "-o", "peak.txt"]);
    assert!(
        ran.stdout.starts_with("high water mark: 82837504 bytes (valid 82837504, invalid 0, driver 0)\n"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("high water mark time: 561763489 ns"), "{}", ran.stdout);
    let ran = test.run(&["nsys", "process", "-i", "run", "-o", "left.txt", "-a", "leakage", "--no-header"]);
    assert!(
        ran.stdout.contains("total leakage: 19922944 bytes (valid 15728640, invalid 4194304"),
        "{}",
        ran.stdout
    );
    assert_eq!(test.read("left.txt").lines().count(), 6);
    assert_eq!(test.run(&["nsys", "process", "-i", "none", "-o", "x.txt"]).code, 2);
}

#[test]
fn a_command_is_profiled_and_imported_in_one_go() {
    let test = test();
    let ran = run_with_nsys(
        &test,
        &["nsys", "profile", "-o", "run.flood", "--keep-report", "--", "./app", "--steps", "3"],
    );
    assert_eq!(ran.code, 3, "the exit code is passed on: {}", ran.stderr);
    let calls = test.read("calls");
    let first = calls.lines().next().unwrap();
    for option in [
        "profile --trace=cuda,nvtx --cuda-memory-usage=true --cudabacktrace=memory:0 --sample=process-tree",
        "--output",
        "./app --steps 3",
    ] {
        assert!(first.contains(option), "{first}");
    }
    assert!(test.path("run.nsys-rep").is_file());
    assert!(test.run(&["leaks", "run.flood"]).stdout.contains("leak()"));
    // Nothing else is left behind.
    let beside = fs::read_dir(test.path(".")).unwrap().flatten().map(|entry| entry.file_name());
    assert!(beside.filter(|name| name.to_string_lossy().ends_with(".nsys")).count() == 0);
    let again = run_with_nsys(&test, &["nsys", "profile", "-o", "run.flood", "--", "./app"]);
    assert_eq!(again.code, 2);
    assert!(again.stderr.contains("exists already"), "{}", again.stderr);
}

#[test]
fn a_report_is_exported_by_nsys_and_needs_it() {
    let test = test();
    fs::copy(test.path(EXPORT), test.path("plain")).unwrap();
    let mut opaque = b"opaque".to_vec();
    opaque.extend(fs::read(test.path(EXPORT)).unwrap());
    test.write("r.nsys-rep", &opaque);
    let ran = test.run(&["watermark", "r.nsys-rep"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("nsys is not installed here"), "{}", ran.stderr);
    fs::copy(test.path(EXPORT), test.path("r.nsys-rep")).unwrap();
    assert!(run_with_nsys(&test, &["watermark", "r.nsys-rep"]).ok().stdout.contains("Peak"));
}

#[test]
fn what_is_wrong_with_an_export_is_told() {
    let test = test();
    let bytes = fs::read(test.path(EXPORT)).unwrap();
    let ran = test.run_with_input(&["watermark", "-"], &bytes[..4096]);
    assert!(ran.stderr.contains("read from its file, not from a pipe"), "{}", ran.stderr);
    test.write("cut.sqlite", &bytes[..bytes.len() / 2]);
    let ran = test.run(&["watermark", "cut.sqlite"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("cut.sqlite"), "{}", ran.stderr);
}

#[test]
fn devices_of_nvidia_smi_are_paired_by_their_uuid() {
    let test = test();
    // The order of devices in a program need not be that of nvidia-smi.
    let row = |index: u32, id: &str, mib: u32| format!("2026/11/15 06:28:10.1, {index}, {id}, {mib} MiB\n");
    for (column, mine, other) in [
        ("uuid", "GPU-f3f707f7-9f01-e048-20a7-afae5f35d3c3", "GPU-00000000-9f01-e048-20a7-afae5f35d3c3"),
        (
            "index, uuid",
            "GPU-F3F707F7-9f01-e048-20a7-afae5f35d3c3",
            "GPU-00000000-9f01-e048-20a7-afae5f35d3c3",
        ),
    ] {
        let rows = row(0, other, 111) + &row(3, mine, 555);
        let rows =
            if column == "uuid" { rows.replace(" 0, GPU", " GPU").replace(" 3, GPU", " GPU") } else { rows };
        test.write("smi.csv", format!("timestamp, {column}, memory.used [MiB]\n{rows}"));
        let usage = report(&test, &["usage", EXPORT, "--smi", "smi.csv", "--align", "start", "--json"]);
        let devices = usage["overlay"]["devices"].as_array().unwrap();
        assert_eq!(devices.len(), 1, "{column}: the other GPU is none of the export's");
        assert_eq!(
            (&devices[0]["device"], &devices[0]["used"]["max"]),
            (&json!(0), &json!(555 << 20)),
            "{column}"
        );
    }
}

#[test]
fn static_memory_is_listed_once_and_gaps_of_the_driver_are_not_drawn() {
    let test = test();
    let leaks = test.run(&["leaks", EXPORT]).ok().stdout;
    assert!(leaks.contains("4.00 MiB (4,194,304 bytes) in static variables"), "{leaks}");
    assert!(leaks.contains("pinned memory is not included"), "{leaks}");
    assert!(!leaks.contains("static memory is not included"), "{leaks}");
    test.run(&["report", EXPORT, "-q", "-o", "report.html"]).ok();
    let page = test.read("report.html");
    assert!(page.contains("Live bytes") && !page.contains("Free bytes between live blocks"));
    assert!(!page.contains("do not include static memory"));
}

#[test]
fn a_chart_of_a_metric_shows_the_samples_of_pools() {
    let test = test();
    test.run(&["import", EXPORT, "-o", "run.flood", "--quiet"]).ok();
    for input in [EXPORT, "run.flood"] {
        for (metric, peak) in [("reserved", "32.0 MiB"), ("live", "5.00 MiB")] {
            let ran = test.run(&["plot", input, "--metric", metric]).ok();
            assert!(ran.stdout.contains(&format!("peak {peak}")), "{input}: {}", ran.stdout);
            assert!(
                !ran.stdout.contains("79.0 MiB"),
                "allocations are not what was asked for: {}",
                ran.stdout
            );
        }
    }
}

#[test]
fn pools_reserve_more_than_is_in_use() {
    let test = test();
    test.run(&["import", EXPORT, "-o", "run.flood", "--quiet"]).ok();
    for input in [EXPORT, "run.flood"] {
        // The pool is created after the peak, and 5 MiB of it are in use for 19 microseconds, here 594 milliseconds
        // after the start of the export.
        let pool = |args: &[&str]| {
            let args = [&["watermark", input, "--json"], args].concat();
            let found = report(&test, &args)["pools"].clone();
            assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
            found[0].clone()
        };
        let at_peak = pool(&[]);
        assert_eq!((&at_peak["reserved_bytes"], &at_peak["used_bytes"]), (&json!(0), &json!(0)), "{at_peak}");
        assert_eq!(at_peak["peak_reserved_bytes"], json!(32 << 20));
        assert_eq!(at_peak["peak_used_bytes"], json!(5 << 20));
        let later = pool(&["--at", "+594.059155ms"]);
        assert_eq!(later["reserved_bytes"], json!(32 << 20), "{later}");
        assert_eq!(later["used_bytes"], json!(5 << 20), "{later}");
        let text = test.run(&["watermark", input, "--at", "+594.059155ms"]).ok().stdout;
        let row = text.lines().find(|line| line.contains("of device 0")).unwrap_or_else(|| panic!("{text}"));
        let figures = ["32.0 MiB", "5.00 MiB", "27.0 MiB", "32.0 MiB"];
        let found: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| figures.contains(cell)).collect();
        assert_eq!(found, figures, "{row}");
        // Devices and kinds of blocks are not known for pools.
        assert_eq!(report(&test, &["watermark", input, "--device", "0", "--json"])["pools"], json!(null));
    }
    test.run(&["report", EXPORT, "-q", "-o", "report.html"]).ok();
    let page = test.read("report.html");
    assert!(page.contains("Pools: reserved and in use") && page.contains("most reserved"));
}

/// What nvidia-smi writes while the program of the export runs. The program's only GPU is number 3 there.
const SMI: &str = "timestamp, index, uuid, memory.used [MiB]\n\
    2026/11/15 06:28:10.131, 0, GPU-00000000-9f01-e048-20a7-afae5f35d3c3, 111 MiB\n\
    2026/11/15 06:28:10.131, 3, GPU-f3f707f7-9f01-e048-20a7-afae5f35d3c3, 555 MiB\n\
    2026/11/15 06:28:10.162, 0, GPU-00000000-9f01-e048-20a7-afae5f35d3c3, 112 MiB\n\
    2026/11/15 06:28:10.162, 3, GPU-f3f707f7-9f01-e048-20a7-afae5f35d3c3, 556 MiB\n";

#[test]
fn charts_and_reports_show_the_devices_of_the_input_alone() {
    let test = test();
    test.write("smi.csv", SMI);
    test.run(&["import", EXPORT, "-o", "run.flood", "--quiet"]).ok();
    for input in [EXPORT, "run.flood"] {
        test.run(&["plot", input, "--smi", "smi.csv", "-q", "-o", "smi.svg", "--force"]).ok();
        let svg = test.read("smi.svg");
        assert!(svg.contains(">nvidia-smi, GPU 0</text>"), "{svg}");
        assert!(!svg.contains("nvidia-smi, GPU 3") && svg.matches(">nvidia-smi, ").count() == 1, "{svg}");
        test.run(&["report", input, "--smi", "smi.csv", "-q", "-o", "report.html", "--force"]).ok();
        let page = test.read("report.html");
        assert!(page.contains("Device 0 had 556.0 MiB in use at most"));
        assert!(page.contains("tracked on device 0, 555.0 MiB was in use there: 540.0 MiB is not tracked"));
        assert!(page.contains("Device memory in use") && !page.contains("112.0 MiB"));
    }
    let refused = test.run(&["report", EXPORT, "--smi", EXPORT, "-q", "-o", "again.html"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("contains no samples of a device or process"), "{}", refused.stderr);
}

#[test]
fn logs_of_processes_count_for_the_processes_of_the_input() {
    let test = test();
    let gpu = "GPU-f3f707f7-9f01-e048-20a7-afae5f35d3c3";
    let apps = format!(
        "timestamp, pid, process_name, used_gpu_memory [MiB], gpu_uuid\n\
         2026/11/15 06:28:10.131, 539, small, 500 MiB, {gpu}\n\
         2026/11/15 06:28:10.131, 777, other, 100 MiB, {gpu}\n"
    );
    test.write("apps.csv", apps);
    let pmon = "#Date        Time         gpu         pid   type     fb    command \n\
                #YYYYMMDD    HH:MM:SS     Idx           #    C/G     MB    name \n\
                \x2020261115    06:28:10       3        539     C    500    small\n\
                \x2020261115    06:28:10       3        777     C    100    other\n";
    test.write("pmon.txt", pmon);
    for log in ["apps.csv", "pmon.txt"] {
        let usage = report(&test, &["usage", EXPORT, "--smi", log, "--align", "start", "--json"]);
        let devices = usage["overlay"]["devices"].as_array().unwrap();
        assert_eq!(devices.len(), 1, "{log}: {usage:#}");
        assert_eq!(devices[0]["used"]["max"], json!(500 << 20), "{log}: 777 is another program");
        test.run(&["plot", EXPORT, "--smi", log, "-q", "-o", "smi.svg", "--force"]).ok();
        let svg = test.read("smi.svg");
        assert!(svg.contains(">nvidia-smi, small (539)</text>"), "{log}: {svg}");
    }
    test.run(&["report", EXPORT, "--smi", "apps.csv", "-q", "-o", "report.html"]).ok();
    assert!(test.read("report.html").contains("on device 0, 500.0 MiB was in use there"));
}
