//! Playing logs.

use std::fs;
use std::path::Path;
use std::process::Command;

use insta::assert_snapshot;
use serde_json::Value;

use crate::cli_test::CliTest;
use crate::terminal::assert_fits;

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

/// Takes out of a document what no two runs have in common.
fn without_times(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if key.ends_with("_ns") && key != "duration_ns" {
                    *value = "…".into();
                } else {
                    without_times(value);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(without_times),
        _ => {}
    }
}

fn played(test: &CliTest, args: &[&str]) -> Value {
    let mut document = test.run(args).json();
    without_times(&mut document);
    document
}

/// The first rows that RMM wrote on an H200.
fn with_h200_log(test: &CliTest) -> &'static str {
    let name = "rmm_26.10_h200_head.csv";
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/rmm");
    fs::copy(fixtures.join(name), test.path(name)).unwrap();
    name
}

#[test]
fn a_replay_has_a_document_with_all_its_figures() {
    let test = CliTest::new();
    let document = played(&test, &["replay", "golden.csv", "--simulate", "1MiB", "-r", "cuda", "--json"]);
    assert_snapshot!("replay_json", serde_json::to_string_pretty(&document).unwrap());
}

#[test]
fn every_replay_of_a_log_finds_the_same() {
    let test = CliTest::new();
    let log = with_h200_log(&test);
    let args = ["replay", log, "--simulate", "1GiB", "--json", "--what-if", "--repeat", "1"];
    let first = played(&test, &args);
    assert_eq!(played(&test, &args), first);
    assert_eq!(first["log"]["allocations"], 4000);
    assert_eq!(first["what_if"][0]["enough_bytes"], 1024);
    assert_eq!(names(&first["resources"]), ["host", "cuda", "pool", "arena", "binning", "fixed"]);
}

#[test]
fn a_request_that_does_not_fit_ends_in_1_and_is_named_with_its_line() {
    let test = CliTest::new();
    let rows = "1,10:00:00.000001,allocate,0x1000,1000,0\n\
                \n\
                this is no row\n\
                1,10:00:00.000002,allocate,0x2000,3000000,0\n\
                1,10:00:00.000003,free,0x2000,3000000,0\n\
                1,10:00:00.000004,free,0x1000,1000,0\n";
    test.write("large.csv", format!("{HEADER}{rows}"));
    let ran = test.run(&["replay", "large.csv", "--lenient", "-s", "1MiB", "-r", "pool"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""), "{}", ran.stdout);
    let expected = "pool: 1 allocation fails that succeeded in the log\n  \
                    event 2 (line 5): 2.86 MiB (3,000,000 bytes) asked for, 1000 B live, 512.0 KiB reserved, \
                    largest\n    free block 511.0 KiB: not enough is left\n";
    assert!(ran.stdout.contains(expected), "{}", ran.stdout);
    assert_eq!(test.run(&["replay", "large.csv", "--lenient", "-s", "8MiB", "-r", "pool"]).code, 0);
}

#[test]
fn rmm_users_may_type_what_they_are_used_to() {
    let test = CliTest::new();
    let document = |args: &[&str]| played(&test, &[&["replay", "--json", "--repeat", "1"], args].concat());
    let first = document(&["golden.csv", "--resource", "pool", "--simulate", "1.5GiB"]);
    assert_eq!(first["memory"]["bytes"], 3u64 << 29);
    assert_eq!(document(&["-f", "golden.csv", "-r", "pool", "-s", "1.5"]), first);
    assert_eq!(document(&["--file", "golden.csv", "-r", "pool", "--size", "1.5"]), first);
    assert_eq!(document(&["--log_file=golden.csv", "-r", "pool", "-s", "1536MiB"]), first);
    let both = document(&["golden.csv", "-r", "pool", "-r", "arena,pool", "-s", "1"]);
    assert_eq!(both["resources"].as_array().unwrap().len(), 2);
}

#[test]
fn what_cannot_be_played_ends_in_2_with_a_remedy() {
    let test = CliTest::new();
    let mut seen = String::new();
    test.run(&["import", "pair.dev0.csv", "pair.dev1.csv", "-q"]).ok();
    for args in [
        &["replay", "golden.csv", "-r", "managed", "-s", "1GiB"][..],
        &["replay", "pair.flood", "-s", "1GiB"],
        &["replay", "empty.csv", "-s", "1GiB"],
        &["replay", "golden.csv", "-s", "1MiB", "-r", "pool", "--pool-initial", "2MiB"],
        &["replay", "malformed.csv", "-s", "1GiB"],
    ] {
        let ran = test.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}");
        seen += &ran.seen();
    }
    assert_snapshot!("replay_errors", seen);
    for args in [
        &["replay"][..],
        &["replay", "golden.csv", "-f", "golden.csv"],
        &["replay", "golden.csv", "-r", "paper"],
        &["replay", "golden.csv", "-s", "much"],
        &["replay", "golden.csv", "--speed", "0"],
        &["replay", "golden.csv", "--repeat", "0"],
    ] {
        let ran = test.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    }
    let one = test.run(&["replay", "pair.flood", "-s", "1GiB", "--device", "1", "--json"]).json();
    assert_eq!(one["log"]["device"], 1);
}

#[test]
fn logs_are_played_at_once_and_at_their_pace() {
    let test = CliTest::new();
    for args in [&["--concurrent"][..], &["--paced"], &["--speed", "2.5", "--concurrent"]] {
        let all = [&["replay", "golden.csv", "-s", "1GiB", "--repeat", "2"], args].concat();
        let ran = test.run(&all).ok();
        assert!(ran.stdout.contains("elapsed"), "{}", ran.stdout);
        let document = test.run(&[&all[..], &["--json"]].concat()).json();
        assert_eq!(document["log"]["threads"], 2);
        assert_eq!(document["resources"][2]["allocate"]["count"], 5);
    }
}

#[test]
fn no_line_of_a_replay_is_wider_than_the_terminal() {
    let test = CliTest::new();
    for columns in [40, 60, 80, 200] {
        for size in ["1KiB", "1GiB"] {
            let mut ran = test.command(&["replay", "golden.csv", "-s", size, "--what-if", "-r", "cuda,pool"]);
            let output = ran.env("COLUMNS", columns.to_string()).output().unwrap();
            assert_fits(&output.stdout, columns, "replay");
        }
    }
}

#[test]
fn who_asks_for_more_sees_what_is_played() {
    let test = CliTest::new();
    let log = fs::read(test.path("golden.csv")).unwrap();
    let args = ["replay", "-", "-s", "1GiB", "-r", "pool", "-v", "--color", "never", "--to", "+1us"];
    let ran = test.run_with_input(&args, &log);
    assert_eq!(ran.code, 0);
    let lines: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("event")).collect();
    assert_eq!(
        lines,
        [
            "event 1 (line 2): thread 101 allocates 1000 B on stream 0x0",
            "event 2 (line 3): thread 101 allocates 1.95 KiB on stream 0x1",
        ]
    );
}

/// Puts a stand-in for the CUDA driver where the command looks for it first, as `stub_cuda.c` explains.
fn with_driver(test: &CliTest, switches: &[&str]) -> String {
    let folder = test.path("driver");
    fs::create_dir(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../resource/tests/it/stub_cuda.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-O1", "-shared", "-fPIC"]).args(switches).arg(source);
    assert!(compiler.arg("-o").arg(folder.join("libcuda.so.1")).status().unwrap().success());
    folder.to_str().unwrap().to_owned()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["resource"].as_str().unwrap()).collect()
}

#[test]
fn where_there_is_a_gpu_logs_are_played_on_it() {
    let test = CliTest::new();
    let driver = with_driver(&test, &[]);
    let run = |args: &[&str]| {
        test.command(&[&["replay", "golden.csv"], args].concat())
            .env("LD_LIBRARY_PATH", &driver)
            .output()
            .unwrap()
    };
    let played = run(&["--json"]);
    assert_eq!(played.status.code(), Some(0), "{}", String::from_utf8_lossy(&played.stderr));
    let document: Value = serde_json::from_slice(&played.stdout).unwrap();
    assert_eq!(
        (&document["memory"]["kind"], &document["memory"]["name"]),
        (&"device".into(), &"Stand-in".into())
    );
    let all = ["host", "cuda", "managed", "cuda_async", "pinned", "pool", "arena", "binning"];
    assert_eq!(names(&document["resources"]), all);
    assert_eq!(names(&document["left_out"]), ["fixed"], "its first blocks are more than the device has");
    for resource in document["resources"].as_array().unwrap() {
        assert_eq!(
            (&resource["failures"], &resource["allocate"]["count"]),
            (&0.into(), &5.into()),
            "{resource}"
        );
        assert_eq!(resource["waits"], Value::Null, "a device does not tell");
    }
    let text = String::from_utf8(run(&["-r", "pool,cuda_async", "--concurrent"]).stdout).unwrap();
    assert!(text.contains("on Stand-in with 64.0 MiB"), "{text}");
    let elsewhere = run(&["--gpu", "3"]);
    assert_eq!(elsewhere.status.code(), Some(2));
    let stderr = String::from_utf8(elsewhere.stderr).unwrap();
    assert!(stderr.contains("there is no device 3, only device 0\nhint: "), "{stderr}");
}

#[test]
fn where_there_is_no_gpu_the_output_says_what_was_used() {
    let test = CliTest::new();
    let driver = with_driver(&test, &["-DSTUB_NO_DEVICE"]);
    let run = |args: &[&str]| {
        test.command(&[&["replay", "golden.csv"], args].concat())
            .env("LD_LIBRARY_PATH", &driver)
            .output()
            .unwrap()
    };
    let text = String::from_utf8(run(&[]).stdout).unwrap();
    let said = "Played in the order of the log, 3 times, on simulated memory of 1.00 GiB, twice the peak in whole\n  \
                GiB, as there is no GPU here (--simulate SIZE takes another)\n";
    assert!(text.contains(said), "{text}");
    let document: Value = serde_json::from_slice(&run(&["--json"]).stdout).unwrap();
    assert_eq!(document["memory"]["chosen"], "by_default");
    assert!(document["memory"]["no_device"].as_str().unwrap().contains("NO_DEVICE"), "{document}");
    assert_eq!(names(&document["resources"]), ["host", "cuda", "pool", "arena", "binning", "fixed"]);
    let asked = run(&["-r", "cuda_async"]);
    assert_eq!((asked.status.code(), asked.stdout.is_empty()), (Some(2), true));
}
