//! Jobs that are read in parts: the answers are those of one pass over everything, byte for byte.

use crate::cli_test::{CliTest, Ran};
use std::fmt::Write as _;

const QUESTIONS: [&[&str]; 6] = [
    &["stats"],
    &["leaks"],
    &["lifetimes"],
    &["watermark"],
    &["watermark", "--by", "process,thread,site"],
    &["watermark", "--limit", "3"],
];

/// A small generator of numbers, so that a job is the same every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Writes the log of one process, with ties in time, leaks, failures, unknown frees and addresses used twice.
fn log(seed: u64, rows: u64) -> String {
    let mut numbers = Numbers(seed);
    let mut text = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
    let (mut live, mut micros): (Vec<(u64, u64)>, u64) = (Vec::new(), 0);
    for row in 0..rows {
        micros += numbers.next(40);
        let time = format!("10:00:{:02}.{:06}", micros / 1_000_000 % 60, micros % 1_000_000);
        let thread = seed * 100 + row % 3;
        let high = 40 + 30 * ((row / (50 + seed * 7)) % 2);
        let (action, address, bytes) = match numbers.next(100) {
            0 => ("allocate failure", 0, 1 << 40),
            1 => ("free", 0x1000 + row * 256, 512),
            2 if !live.is_empty() => {
                let at = numbers.next(live.len() as u64) as usize;
                live[at].1 = numbers.next(1 << 20) + 1;
                ("allocate", live[at].0, live[at].1)
            }
            _ if (live.len() as u64) < high && numbers.next(5) > 0 || live.is_empty() => {
                live.push((0x7f00_0000_0000 + row * 4096, numbers.next(1 << 16) * 16 + 16));
                let (address, bytes) = live[live.len() - 1];
                ("allocate", address, bytes)
            }
            _ => {
                let at = numbers.next(live.len() as u64) as usize;
                let (address, bytes) = live.swap_remove(at);
                ("free", address, bytes)
            }
        };
        let pointer = if address == 0 { "(nil)".to_owned() } else { format!("{address:#x}") };
        let _ = writeln!(text, "{thread},{time},{action},{pointer},{bytes},0x{}", row % 2);
    }
    text
}

pub(crate) fn job(test: &CliTest, processes: u64, rows: u64) {
    let mut args = vec!["import".to_owned()];
    for process in 1..=processes {
        let name = format!("rank{process}.csv");
        test.write(&name, log(process, rows));
        args.push(name);
    }
    args.extend(["-o", "job.flood", "--date", "2026-07-01"].map(str::to_owned));
    done(test, &args.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Runs a command that writes a file, and says so.
fn done(test: &CliTest, args: &[&str]) -> Ran {
    let ran = test.run(args);
    assert_eq!(ran.code, 0, "{}", ran.seen());
    ran
}

fn json(test: &CliTest, question: &[&str], file: &str) -> String {
    let args: Vec<&str> =
        question[..1].iter().chain(&[file, "--json"]).chain(&question[1..]).copied().collect();
    test.run(&args).ok().stdout
}

/// Reads a job in shards, merges them and asks them until nothing is open.
fn merged(test: &CliTest, shards: usize, filter: &[&str]) -> String {
    let name = |kind: &str, shard: usize| format!("{kind}.{shard}-{shards}");
    let each = |kind: &str, more: &[&str]| {
        for shard in 0..shards {
            let (of, out) = (format!("{shard}/{shards}"), name(kind, shard));
            let mut args = vec!["partial", "job.flood", "--shard", &of, "-o", &out, "--force"];
            args.extend(more);
            done(test, &args);
        }
        (0..shards).rev().map(|shard| name(kind, shard)).collect::<Vec<_>>()
    };
    let whole = format!("whole.{shards}");
    let merge = |files: &[String]| {
        let mut args = vec!["merge", "-q", "-o", &whole, "--force", "--json"];
        args.extend(files.iter().map(String::as_str));
        test.run(&args).ok().json()
    };
    let mut state = merge(&each("part", filter));
    let mut rounds = 0;
    while !state["asks"].is_null() {
        let mut files = vec![whole.clone()];
        files.extend(each("answer", &["--job", &whole]));
        state = merge(&files);
        rounds += 1;
        assert!(rounds < 10, "{state}");
    }
    assert_eq!(state["complete"], true);
    whole
}

#[test]
fn answers_from_parts_are_those_of_one_pass() {
    let test = CliTest::new();
    job(&test, 7, 600);
    for shards in [1, 3, 9] {
        let whole = merged(&test, shards, &[]);
        for question in QUESTIONS {
            assert_eq!(
                json(&test, question, &whole),
                json(&test, question, "job.flood"),
                "{question:?} {shards}"
            );
        }
    }
    let window = ["--from", "+2ms", "--to", "+9ms", "--kind", "device"];
    let whole = merged(&test, 2, &window);
    for question in QUESTIONS {
        let asked: Vec<&str> = question.iter().chain(&window).copied().collect();
        assert_eq!(json(&test, question, &whole), json(&test, &asked, "job.flood"), "{question:?}");
    }
}

#[test]
fn cores_and_a_second_look_give_the_same_answers() {
    let test = CliTest::new();
    job(&test, 5, 400);
    for question in QUESTIONS {
        let cores: Vec<&str> = question.iter().chain(&["--jobs", "3"]).copied().collect();
        assert_eq!(json(&test, &cores, "job.flood"), json(&test, question, "job.flood"), "{question:?}");
    }
    for shard in ["0/2", "1/2"] {
        let out = format!("part.{}", &shard[..1]);
        done(&test, &["partial", "job.flood", "--shard", shard, "-o", &out]);
    }
    let merged = done(&test, &["merge", "part.0", "part.1", "-o", "whole.part"]);
    assert!(merged.stderr.contains("The peak is between"), "{}", merged.stderr);
    let exact = test.run(&["stats", "job.flood", "--json"]).ok().json();
    let bound = test.run(&["stats", "whole.part", "--json"]).ok().json();
    assert_eq!(bound["peak_exact"], false);
    assert!(bound["peak_bytes"].as_u64() >= exact["peak_bytes"].as_u64());
    assert_eq!(bound["allocations"], exact["allocations"]);
    let found = test.run(&["watermark", "job.flood", "--job", "whole.part", "--json"]).ok().stdout;
    assert_eq!(found, json(&test, &["watermark"], "job.flood"));
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let test = CliTest::new();
    job(&test, 4, 200);
    for (shard, out) in [("0/2", "a"), ("1/2", "b")] {
        done(&test, &["partial", "job.flood", "--shard", shard, "-o", out]);
    }
    done(&test, &["partial", "job.flood", "--shard", "1/2", "--to", "+1ms", "-o", "other"]);
    let refused = |args: &[&str], words: &[&str]| {
        let ran = test.run(args);
        assert_eq!(ran.code, 2, "{}", ran.seen());
        for word in words {
            assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
        }
    };
    refused(&["merge", "a", "a", "-o", "x"], &["process 1 of job.flood", "hint"]);
    refused(&["merge", "a", "other", "-o", "x"], &["different filters: none and --to=+1000000ns"]);
    refused(&["stats", "a", "--process", "1"], &["leave the filters out"]);
    refused(&["usage", "a"], &["is a partial result"]);
    done(&test, &["merge", "a", "b", "-o", "whole"]);
    refused(&["watermark", "whole"], &["does not have the blocks at the peak yet", "--job FILE"]);
    done(&test, &["partial", "job.flood", "--shard", "0/2", "--job", "whole", "-o", "one"]);
    refused(&["merge", "whole", "one", "-o", "x"], &["has answered 0 times instead of once"]);
    refused(&["merge", "one", "-o", "x"], &["no merged result"]);
    refused(&["stats", "one"], &["is the answer of one shard"]);
    refused(&["partial", "job.flood", "--shard", "2/2", "-o", "x"], &["0/4 to 3/4"]);
    let mut cut = std::fs::read(test.path("whole")).unwrap();
    cut.truncate(cut.len() / 2);
    test.write("cut", cut);
    refused(&["stats", "cut"], &["cut is damaged", "floodmark partial"]);
}
