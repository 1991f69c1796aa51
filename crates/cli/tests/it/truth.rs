//! Reported peaks beside true ones, as root and without permissions.
//!
//! `cargo test --workspace --test it reported_and_true -- --ignored --nocapture` prints a table, which takes
//! minutes.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use floodmark_testkit::TempDir;
use serde_json::Value;

use crate::cli_test::floodmark;

const MIB: u64 = 1 << 20;
/// A user without permissions.
const NOBODY: u32 = 65534;

/// A directory that any user may write to, with the program of known memory.
struct Truth {
    dir: TempDir,
    program: PathBuf,
}

impl Truth {
    fn new() -> Self {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR"), "truth");
        fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sampler/tests/it/programs/truth.c");
        let program = dir.join("truth");
        assert!(Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).status().unwrap().success());
        Self { dir, program }
    }

    /// Runs the program as a user, and returns the summary.
    fn run(&self, user: Option<u32>, words: &[&str]) -> Value {
        let mut command = Command::new(floodmark());
        command.args(["run", "-q", "-o", "run.flood", "--json", "run.json", "--"]);
        command.arg(&self.program).args(words).current_dir(&self.dir).stdin(Stdio::null());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        assert!(command.status().unwrap().success());
        let text = fs::read_to_string(self.dir.join("run.json")).unwrap();
        fs::remove_dir_all(self.dir.join("run.flood")).unwrap();
        fs::remove_file(self.dir.join("run.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

/// The users to test: root and the account `nobody`, or only the user that runs the tests.
fn users() -> Vec<(&'static str, Option<u32>)> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    if is_root { vec![("root", None), ("nobody", Some(NOBODY))] } else { vec![("user", None)] }
}

fn number(summary: &Value, key: &str) -> u64 {
    summary[key].as_u64().unwrap_or_else(|| panic!("{key}: {summary}"))
}

/// Counts processes whose peak is said to be exact and is neither `bytes` nor that of a process that took none.
fn false_claims(summary: &Value, bytes: u64) -> usize {
    let list = summary["process_list"].as_array().unwrap();
    let is_false = |process: &&Value| {
        let peak = number(process, "peak_rss_bytes");
        let is_true = peak < 3 * MIB || (bytes..bytes + 3 * MIB).contains(&peak);
        process["peak_is_exact"] == true && !is_true
    };
    list.iter().filter(is_false).count()
}

#[test]
fn a_summary_claims_no_more_than_is_known() {
    let truth = Truth::new();
    for (user, id) in users() {
        let summary = truth.run(id, &["forks", "100", "80"]);
        let peak = number(&summary, "peak_rss_bytes");
        assert!((80 * MIB..90 * MIB).contains(&peak), "{user}: {summary}");
        assert_eq!(false_claims(&summary, 80 * MIB), 0, "{user}: {summary}");
        let is_bound = summary["peak_is_lower_bound"] == true;
        let names_permission = summary["notes"].to_string().contains("CAP_NET_ADMIN");
        assert_eq!(is_bound, names_permission, "{user}: {summary}");
    }
}

/// Bounds of the peak of the total that a summary states, in bytes.
fn stated(summary: &Value) -> (u64, u64) {
    let most = number(summary, "peak_pss_bytes");
    (most - number(summary, "peak_pss_error_bytes"), most)
}

/// Whether the stated bounds contain the truth: `bytes`, and up to 3 MiB for the program and its libraries.
fn is_within(summary: &Value, bytes: u64) -> bool {
    let (least, most) = stated(summary);
    least <= bytes + 3 * MIB && bytes <= most
}

#[test]
fn the_stated_total_contains_the_true_one() {
    let truth = Truth::new();
    let cases: [(&[&str], u64); 3] = [
        (&["share", "8", "60", "5", "400"], 100 * MIB),
        // Mostly too short for a reading of all, but not for a sweep.
        (&["share", "8", "60", "5", "200"], 100 * MIB),
        (&["copies", "4", "50", "1500"], 250 * MIB),
    ];
    for (user, id) in users() {
        for (words, bytes) in cases {
            let summary = truth.run(id, words);
            assert!(is_within(&summary, bytes), "{user}, {words:?}: {:?}, {summary}", stated(&summary));
        }
    }
}

#[test]
#[ignore = "takes minutes; prints a table"]
fn reported_and_true_peaks() {
    const RUNS: usize = 50;
    let truth = Truth::new();
    let cases: [(&str, &[&str], u64, &str); 5] = [
        ("500 forks, one takes 80 MiB", &["forks", "500", "80"], 80 * MIB, "peak_rss_bytes"),
        ("child takes 100 MiB for 30 ms", &["child", "100"], 100 * MIB, "peak_rss_bytes"),
        ("20 share 200 MiB, 15 MiB each", &["share", "20", "200", "15", "1000"], 500 * MIB, "peak_pss_bytes"),
        ("the same for 50 ms", &["share", "20", "200", "15", "50"], 500 * MIB, "peak_pss_bytes"),
        ("4 copies write to 50 MiB", &["copies", "4", "50", "1500"], 250 * MIB, "peak_pss_bytes"),
    ];
    let mut table = String::from(
        "user    program                        true MiB  reported MiB: least, median, most  too low or out of range  false \"exact\"\n",
    );
    for (user, id) in users() {
        for (name, words, bytes, key) in cases {
            let summaries: Vec<Value> = (0..RUNS).map(|_| truth.run(id, words)).collect();
            let mut reported: Vec<u64> = summaries.iter().map(|summary| number(summary, key)).collect();
            reported.sort_unstable();
            let mib = |at: usize| reported[at] as f64 / MIB as f64;
            let mut gaps: Vec<u64> = summaries
                .iter()
                .map(|summary| summary["peak_pss_error_bytes"].as_u64().unwrap_or(0) / MIB)
                .collect();
            gaps.sort_unstable();
            let low = match key {
                "peak_pss_bytes" => summaries.iter().filter(|summary| !is_within(summary, bytes)).count(),
                _ => reported.iter().filter(|reported| **reported < bytes).count(),
            };
            // Peaks of the processes that share are known too: shared and own memory.
            let single = match words[0] {
                "share" => 215 * MIB,
                "copies" => 50 * MIB,
                _ => bytes,
            };
            let claims: usize = summaries.iter().map(|summary| false_claims(summary, single)).sum();
            let _ = writeln!(
                table,
                "{user:6}  {name:30} {:8}  {:13.1} {:8.1} {:8.1} {low:15} {claims:14}{}",
                bytes / MIB,
                mib(0),
                mib(RUNS / 2),
                mib(RUNS - 1),
                if key == "peak_pss_bytes" {
                    format!("  range {} MiB wide at most, {} in the median", gaps[RUNS - 1], gaps[RUNS / 2])
                } else {
                    String::new()
                }
            );
        }
    }
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("peaks.txt"), &table).unwrap();
    let _ = std::io::Write::write_all(&mut std::io::stderr(), table.as_bytes());
}
