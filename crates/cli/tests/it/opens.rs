//! Every command opens and parses its input once, and reads a stream twice only where it needs a second pass.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cli_test::CliTest;

/// Successful opens of files below the test's folder, by name, while the program runs with `args`.
fn opens(test: &CliTest, args: &[&str]) -> BTreeMap<String, usize> {
    let log = test.path("strace.txt");
    let ran = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=open,openat", "-e", "signal=none", "-o"])
        .arg(&log)
        .arg(env!("CARGO_BIN_EXE_floodmark"))
        .arg("-q")
        .args(args)
        .current_dir(test.path("."))
        .output()
        .expect("strace runs (apt-get install strace)");
    assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    let mut opens = BTreeMap::new();
    for line in fs::read_to_string(&log).expect("a log").lines().filter(|line| !line.contains("= -1 ")) {
        let Some(path) = line.split('"').nth(1) else { continue };
        // Opening a folder lists it; only files are parsed.
        if line.contains("O_DIRECTORY") || line.contains("O_WRONLY") || line.contains("O_RDWR") {
            continue;
        }
        let path = Path::new(path);
        let name: Vec<String> = path
            .components()
            .rev()
            .take_while(|part| part.as_os_str() != "input.flood")
            .take(2)
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect();
        *opens.entry(name.into_iter().rev().collect::<Vec<_>>().join("/")).or_default() += 1;
    }
    opens
}

/// How often the input itself was opened.
fn count(opens: &BTreeMap<String, usize>, name: &str) -> usize {
    opens.iter().filter(|(path, _)| path.ends_with(name)).map(|(_, count)| count).sum()
}

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// How often each of the commands below opens a file to see by its first bytes whether it is a partial result.
const LOOKS: [usize; 4] = [1, 1, 0, 0];

/// Commands that were the worst, on an input and a copy of it.
fn commands<'a>(input: &'a str, copy: &'a str) -> [Vec<&'a str>; 4] {
    [
        vec!["report", input, "-o", "report.html", "--force"],
        vec!["diff", input, copy],
        vec!["plot", input, "-o", "plot.svg", "--force"],
        vec!["export", input, "-o", "export.json", "--format", "chrome", "--force"],
    ]
}

#[test]
fn a_format_that_is_parsed_whole_is_opened_once() {
    let test = CliTest::new();
    fs::copy(fixture("torch/snapshot_torch2.11.pickle.gz"), test.path("a.pickle.gz")).expect("a copy");
    fs::copy(fixture("torch/snapshot_torch2.11.pickle.gz"), test.path("b.pickle.gz")).expect("a copy");
    for (args, looks) in commands("a.pickle.gz", "b.pickle.gz").into_iter().zip(LOOKS) {
        let opens = opens(&test, &args);
        assert_eq!(count(&opens, "a.pickle.gz"), 1 + looks, "{args:?}: {opens:?}");
        assert!(count(&opens, "b.pickle.gz") <= 1 + looks, "{args:?}: {opens:?}");
    }
}

#[test]
fn an_export_of_nsight_systems_has_at_most_two_connections() {
    let test = CliTest::new();
    let export = fs::read_dir(fixture("nsys"))
        .expect("fixtures")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|extension| extension == "sqlite"))
        .expect("an export");
    fs::copy(&export, test.path("a.sqlite")).expect("a copy");
    fs::copy(&export, test.path("b.sqlite")).expect("a copy");
    for (args, looks) in commands("a.sqlite", "b.sqlite").into_iter().zip(LOOKS) {
        let opens = opens(&test, &args);
        // Its first bytes tell the format; one connection reads the tables, another one call chains meanwhile.
        assert!(count(&opens, "a.sqlite") <= 3 + looks, "{args:?}: {opens:?}");
        assert!(count(&opens, "b.sqlite") <= 3 + looks, "{args:?}: {opens:?}");
    }
}

#[test]
fn a_log_that_is_read_as_a_stream_is_opened_once_per_pass() {
    let test = CliTest::new();
    fs::copy(fixture("rmm/golden.csv"), test.path("a.csv")).expect("a copy");
    fs::copy(fixture("rmm/golden.csv"), test.path("b.csv")).expect("a copy");
    for ((args, passes), looks) in commands("a.csv", "b.csv").into_iter().zip([2, 1, 1, 1]).zip(LOOKS) {
        let opens = opens(&test, &args);
        assert_eq!(count(&opens, "a.csv"), passes + looks, "{args:?}: {opens:?}");
        assert!(count(&opens, "b.csv") <= 1 + looks, "{args:?}: {opens:?}");
    }
}

#[test]
fn a_trace_loads_each_small_table_once() {
    let test = CliTest::new();
    fs::copy(fixture("torch/snapshot_torch2.11.pickle.gz"), test.path("a.pickle.gz")).expect("a copy");
    let imported = test.run(&["import", "a.pickle.gz", "-o", "input.flood"]);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    for (args, passes) in commands("input.flood", "input.flood").into_iter().zip([2, 2, 1, 1]) {
        let sides = if args[0] == "diff" { 2 } else { 1 };
        let opens = opens(&test, &args);
        for table in ["string", "frame", "stack", "subject"] {
            let part = format!("{table}/part-000001.parquet");
            let count =
                opens.iter().filter(|(path, _)| **path == part).map(|(_, count)| count).sum::<usize>();
            assert!(count <= sides, "{args:?} loads {table} {count} times: {opens:?}");
        }
        let events = count(&opens, "event/part-000001.parquet");
        assert!(events <= passes, "{args:?} reads events {events} times: {opens:?}");
    }
}
