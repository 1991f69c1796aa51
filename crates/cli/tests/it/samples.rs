//! Memory over time: logs of other tools, and traces with samples.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::cli_test::{CliTest, Ran};

/// Copies fixtures into the test's directory.
fn test_with(names: &[&str]) -> CliTest {
    let test = CliTest::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    for name in names {
        let to = test.path(name.rsplit('/').next().unwrap());
        fs::copy(fixtures.join(name), to).unwrap();
    }
    test
}

fn fixture(name: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    fs::read_to_string(fixtures.join(name)).unwrap()
}

fn run_wide(test: &CliTest, args: &[&str], columns: &str) -> Ran {
    let output = test.command(args).env("COLUMNS", columns).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ran::of(args, &output)
}

#[test]
fn a_log_reads_to_the_character_as_the_original_reads_it() {
    for (log, args, expected) in [
        ("single_node.log", &["--stdout"][..], "single_node.read_stdout.txt"),
        ("pbs_two_nodes.log", &["--stdout", "--separate"][..], "pbs_two_nodes.read_separate_stdout.txt"),
    ] {
        let test = test_with(&[&format!("memory_logger/{log}")]);
        let expected = fixture(&format!("memory_logger/{expected}"));
        let args = [&["read", log, "--color", "always"], args].concat();
        assert_eq!(run_wide(&test, &args, "110").stdout, expected, "{log}");
        // A trace made from it reads the same.
        assert_eq!(test.run(&["import", log, "-o", "job.flood", "-q"]).code, 0);
        let args: Vec<&str> = args.iter().map(|arg| if *arg == log { "job.flood" } else { arg }).collect();
        assert_eq!(run_wide(&test, &args, "110").stdout, expected, "imported {log}");
    }
}

#[test]
fn hosts_are_marked_in_the_bar_and_stacks_stand_below() {
    let test = test_with(&["memory_logger/pbs_two_nodes.log", "memory_logger/gdb_pstack.log"]);
    let text = test.run(&["read", "pbs_two_nodes.log", "--limit", "6"]).ok().stdout;
    assert_snapshot!("read_hosts", text);
    let ran = test.run(&["read", "gdb_pstack.log", "--pstack", "--limit", "2"]);
    assert_snapshot!("read_stacks", ran.seen());
}

#[test]
fn the_compact_layout_shows_time_since_the_start_and_what_happened() {
    let test = test_with(&[
        "mprof/functions.dat",
        "memory_logger/single_node.log",
        "smi/two_gpus.csv",
        "psrecord/children.csv",
    ]);
    assert_snapshot!("read_mprof", test.run(&["read", "functions.dat"]).seen());
    let args = ["read", "single_node.log", "--layout", "compact", "--stdout", "--separate"];
    assert_snapshot!("read_compact", test.run(&args).seen());
    assert_snapshot!("read_smi", test.run(&["read", "two_gpus.csv", "--separate"]).seen());
    let busy = test.run(&["read", "two_gpus.csv", "--metric", "gpu_busy"]).stdout;
    assert!(busy.contains("gpu_busy of all devices"), "{busy}");
    assert_snapshot!(
        "read_psrecord",
        test.run(&["read", "children.csv", "--from", "+0.3s", "--to", "+1s"]).seen()
    );
}

#[test]
fn info_says_what_a_log_of_samples_has() {
    let test = test_with(&[
        "memory_logger/gdb_pstack.log",
        "memory_logger/pbs_two_nodes.log",
        "mprof/functions.dat",
        "psrecord/children.txt",
        "smi/two_gpus.csv",
        "smi/pmon.txt",
    ]);
    for (log, lines) in [
        (
            "gdb_pstack.log",
            [
                "memory_logger log, 42 samples, 18 pieces of output, 19 stacks",
                "host - vm rss 21 0 B 399.4 MiB 0 B",
            ],
        ),
        (
            "functions.dat",
            [
                "mprof file, 28 samples, 8 scopes and marks in 1.31 s",
                "job - python3 rss 14 6.29 MiB 82.8 MiB 32.8 MiB",
            ],
        ),
        (
            "children.txt",
            [
                "psrecord log, 14 samples in 1.23 s",
                "job - children.txt virtual 7 15.0 MiB 118.8 MiB 68.8 MiB",
            ],
        ),
        (
            "two_gpus.csv",
            ["nvidia-smi output, 6 samples in 1.00 s", "device 0 NVIDIA H200 gpu_busy 2 1 % 7 % 7 %"],
        ),
    ] {
        let text = run_wide(&test, &["info", log], "120").stdout;
        let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for line in lines {
            assert!(plain.contains(line), "{line} in {text}");
        }
    }
    let info = test.run(&["info", "pbs_two_nodes.log", "--json"]).json();
    let seen = &info["seen"];
    let kinds: Vec<&Value> = seen["subjects"].as_array().unwrap().iter().map(|one| &one["kind"]).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "host").count(), 2, "{kinds:?}");
    let counted = |one: &Value| {
        let metrics = one["metrics"].as_array().unwrap();
        metrics.iter().filter_map(|metric| metric["samples"].as_u64()).sum::<u64>()
    };
    let all: u64 = seen["subjects"].as_array().unwrap().iter().map(counted).sum();
    assert_eq!(Some(all), seen["samples"].as_u64());
    assert!(info["first_time_ns"].as_i64() < info["last_time_ns"].as_i64());
    let text = test.run(&["info", "pmon.txt"]).ok().stdout;
    assert!(text.contains("process"), "{text}");
    let log = fixture("memory_logger/single_node.log");
    let text = test.run_with_input(&["info", "-"], log.as_bytes()).ok().stdout;
    assert!(text.contains("\nlog, 14 samples, 4 pieces of output"), "{text}");
}

#[test]
fn rows_are_written_for_programs() {
    let test = test_with(&["memory_logger/gdb_pstack.log", "mprof/functions.dat"]);
    let csv = test.run(&["read", "functions.dat", "--csv", "--limit", "2"]).ok().stdout;
    assert_eq!(
        csv,
        "time_ns,subject,kind,number,name,metric,value\n\
         1794748403506300000,4294967298,process,0,python3,rss,6594560\n\
         1794748403506300000,4294967297,job,0,python3,rss,6594560\n"
    );
    let lines = test.run(&["read", "gdb_pstack.log", "--json", "--limit", "4"]).stdout;
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tables: Vec<&Value> = rows.iter().map(|row| &row["table"]).collect();
    assert_eq!(tables, ["sample", "sample", "output", "stack_sample"]);
    assert!(rows.iter().all(|row| row["schema"] == "floodmark.sample/1"));
    assert_eq!(
        (&rows[1]["kind"], &rows[1]["name"], &rows[1]["value"]),
        (&json!("host"), &json!("vm"), &json!(59780 * 1024))
    );
    assert_eq!(rows[2]["text"], "nonlinear step 0\nnonlinear step 1\n");
    assert_eq!(rows[3]["stack"][2], "now (spin.c:6)");
    let scopes = test.run(&["read", "functions.dat", "--json"]).stdout;
    assert!(
        scopes.contains(r#""table":"scope""#) && scopes.contains(r#""name":"__main__.outer""#),
        "{scopes}"
    );
}

#[test]
fn logs_of_several_tools_become_one_trace() {
    let test = test_with(&["memory_logger/gdb_pstack.log", "smi/query_gpu_all.csv", "mprof/functions.dat"]);
    let args =
        ["import", "gdb_pstack.log", "query_gpu_all.csv", "functions.dat", "golden.csv", "-o", "all.flood"];
    let ran = test.run(&[&args[..], &["--utc-offset", "+01:00", "--json"]].concat());
    let imported: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&imported["events"], &imported["samples"], &imported["processes"]),
        (&json!(10), &json!(100), &json!(4))
    );
    let rows = test.run(&["read", "all.flood", "--json"]).stdout;
    let times: Vec<i64> = rows
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["time_ns"].as_i64().unwrap())
        .collect();
    assert!(times.is_sorted(), "one clock for all");
    assert!(rows.contains(r#""name":"NVIDIA H200""#));
    // What the clock showed was an hour ahead.
    assert!(rows.contains(r#""time_ns":1794744765927000000,"metric":"gpu_used""#), "{rows}");
    // Events are still there.
    assert_eq!(test.run(&["read", "all.flood", "--events"]).stdout.lines().count(), 11);
    assert_eq!(test.run(&["read", "all.flood", "--thread", "202"]).stdout.lines().count(), 4);
    assert_eq!(test.run(&["stats", "all.flood", "--json"]).code, 0);
}

#[test]
fn standard_input_is_shown_as_it_comes() {
    let test = CliTest::new();
    let log = fixture("memory_logger/single_node.log");
    let text = test.run_with_input(&["read", "-", "--stdout"], log.as_bytes()).ok().stdout;
    assert!(text.starts_with("       time      memory  rss of the job\n"), "{text}");
    assert!(text.contains("   +1.313 s   201.5 MiB"), "{text}");
    assert_eq!(text.matches(" stdout  step ").count(), 4);
    let refused = test.run_with_input(&["read", "-", "--layout", "original"], log.as_bytes());
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("hint: take --layout compact"), "{}", refused.stderr);
    let imported = test.run_with_input(&["import", "-", "-o", "in.flood"], log.as_bytes());
    assert!(imported.stderr.contains("imported 14 samples into in.flood"), "{}", imported.stderr);
    assert!(imported.stderr.contains("next: floodmark read in.flood"), "{}", imported.stderr);
}

#[test]
fn a_growing_log_is_followed() {
    let test = CliTest::new();
    let log = fixture("memory_logger/single_node.log");
    let (first, rest) = log.split_at(log.find("1794724130.708").unwrap());
    test.write("run.log", first);
    let mut child = test
        .command(&["read", "run.log", "--follow", "--limit", "3"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // The first row is complete only when the next begins, so more is written until it shows.
    let mut file = fs::OpenOptions::new().append(true).open(test.path("run.log")).unwrap();
    file.write_all(rest.as_bytes()).unwrap();
    assert_eq!(lines.next().unwrap(), "       time      memory  rss of the job");
    assert!(lines.next().unwrap().starts_with("   +0.000 s    51.5 MiB  "));
    assert_eq!(lines.count(), 2, "the rest of three");
    assert!(child.wait().unwrap().success());
}

#[test]
fn errors_name_the_file_the_line_and_a_remedy() {
    let test = CliTest::new();
    test.write("bad.dat", "CMDLINE x\nMEM 1 10\nMEM one 11\nMEM 1 12\n");
    let ran = test.run(&["read", "bad.dat"]);
    assert_eq!(ran.code, 2);
    assert_eq!(
        ran.stderr,
        "error: bad.dat:line 3: MEM is 'one 11', not as in MEM 30.898438 1794748400.6492\n\
         hint: --lenient skips such lines and counts them\n"
    );
    let lenient = test.run(&["read", "bad.dat", "--lenient"]);
    assert_eq!((lenient.code, lenient.stdout.lines().count()), (0, 3));
    assert_eq!(lenient.stderr, "note: 1 was lost: malformed lines skipped\n");
    assert_eq!(test.run(&["import", "bad.dat"]).code, 2);
    assert!(!test.path("bad.flood").exists(), "nothing half-written stays");
    let ran = test.run(&["watermark", "bad.dat"]);
    assert!(ran.stderr.contains("is a mprof file: it has samples but no allocations"), "{}", ran.stderr);
    let ran = test.run(&["read", "bad.dat", "--thread", "7"]);
    assert!(ran.stderr.contains("bad.dat contains samples but no events"), "{}", ran.stderr);
    let ran = test.run(&["read", "bad.dat", "--lenient", "--metric", "pss"]);
    assert!(ran.stderr.contains("bad.dat contains no samples of pss"), "{}", ran.stderr);
    assert_eq!(test.run(&["read", "golden.csv", "--follow"]).code, 2);
    assert!(test.run(&["import", "bad.dat", "--utc-offset", "7"]).stderr.contains("such as +02:00"));
}

#[test]
fn text_of_logs_cannot_act_on_the_terminal() {
    let test = CliTest::new();
    let text = "1794724130.5,7,|\u{1b}[2J\u{202e}evil\u{7}\n|,|#0  0x1 in \u{1b}]0;x\u{7}f () at a.c:1\n|,no\u{1b}de,7\r\n\
                1794724131.5,8,,,B,8\r\n";
    test.write("evil.log", text);
    for layout in ["original", "compact"] {
        let args = ["read", "evil.log", "--layout", layout, "--stdout", "--pstack", "--separate"];
        let shown = test.run(&args).ok().stdout;
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
        assert!(shown.contains("[2Jevil") && shown.contains("node") && shown.contains("]0;xf"), "{shown}");
    }
    let json = test.run(&["read", "evil.log", "--json"]).ok().stdout;
    assert!(json.chars().all(|c| c == '\n' || !c.is_control()), "{json:?}");
}

#[test]
fn a_trace_without_samples_has_none_to_print() {
    let test = CliTest::new();
    test.run(&["import", "golden.csv", "-q"]).ok();
    assert_eq!(test.run(&["read", "golden.flood", "--samples"]).ok().stdout, "");
    assert_eq!(test.run(&["read", "golden.flood", "--samples", "--json"]).ok().stdout, "");
}

#[test]
fn processes_of_a_trace_with_samples_alone_have_their_names_in_chrome() {
    let test = test_with(&["memory_logger/pbs_two_nodes.log"]);
    test.run(&["import", "pbs_two_nodes.log", "-o", "job.flood", "-q"]).ok();
    test.run(&["export", "job.flood", "-o", "job.json", "--format", "chrome", "-q"]).ok();
    let trace: Value = serde_json::from_str(&test.read("job.json")).unwrap();
    let mut events = trace["traceEvents"].as_array().unwrap().iter();
    let is_named = |event: &Value| {
        event["name"] == "process_name" && event["args"]["name"].as_str() == Some("pbs_two_nodes.log")
    };
    assert!(events.any(is_named), "{trace}");
}

#[test]
fn only_what_is_missing_is_called_lost() {
    let test = CliTest::new();
    // A value that nvidia-smi could not read, and a line of its own.
    let smi = "timestamp, index, memory.used [MiB]\n\
               2026/11/15 10:00:00.000, 0, 100 MiB\n\
               2026/11/15 10:00:01.000, 0, [N/A]\n\
               2026/11/15 10:00:02.000, 0, [N/A]\n";
    test.write("smi.csv", smi);
    let read = test.run(&["read", "smi.csv"]);
    assert_eq!(read.code, 0);
    assert!(!read.stderr.contains("lost"), "{}", read.stderr);
    assert!(read.stderr.contains("nvidia-smi could not read a value (2 times)"), "{}", read.stderr);
    let info = test.run(&["info", "smi.csv", "--json"]).json();
    assert_eq!(info["losses"], serde_json::json!([]), "{info:#}");
    let remark = serde_json::json!([{"count": 2, "reason": "nvidia-smi could not read a value"}]);
    assert_eq!(info["remarks"], remark, "{info:#}");
    // It stays a remark in a trace.
    test.run(&["import", "smi.csv", "-o", "smi.flood", "-q"]).ok();
    let info = test.run(&["info", "smi.flood", "--json"]).json();
    assert_eq!((&info["losses"], &info["remarks"]), (&serde_json::json!([]), &remark), "{info:#}");
    // A line that is cut off is lost.
    test.write("cut.csv", &smi.as_bytes()[..smi.len() - 4]);
    let info = test.run(&["info", "cut.csv", "--json"]).json();
    assert_eq!(info["losses"].as_array().unwrap().len(), 1, "{info:#}");
}
