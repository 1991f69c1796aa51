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
    job_of(test, "job.flood", &(1..=processes).map(|seed| (seed, rows)).collect::<Vec<_>>());
}

/// Imports a job of a process per seed and number of rows.
fn job_of(test: &CliTest, trace: &str, processes: &[(u64, u64)]) {
    let mut args = vec!["import".to_owned()];
    for (process, (seed, rows)) in (1..).zip(processes) {
        let name = format!("rank{process}.csv");
        test.write(&name, log(*seed, *rows));
        args.push(name);
    }
    args.extend(["-o", trace, "--force", "--date", "2026-07-01"].map(str::to_owned));
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
    merged_of(test, "job.flood", shards, filter)
}

fn merged_of(test: &CliTest, trace: &str, shards: usize, filter: &[&str]) -> String {
    let name = |kind: &str, shard: usize| format!("{trace}.{kind}.{shard}-{shards}");
    let each = |kind: &str, more: &[&str]| {
        for shard in 0..shards {
            let (of, out) = (format!("{shard}/{shards}"), name(kind, shard));
            let mut args = vec!["partial", trace, "--shard", &of, "-o", &out, "--force"];
            args.extend(more);
            done(test, &args);
        }
        (0..shards).rev().map(|shard| name(kind, shard)).collect::<Vec<_>>()
    };
    let whole = format!("{trace}.whole.{shards}");
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

#[test]
fn processes_of_a_job_are_compared_and_drawn_however_it_was_divided() {
    let test = CliTest::new();
    job(&test, 12, 300);
    let whole = merged(&test, 1, &[]);
    let found = test.run(&["ranks", &whole, "--json", "--limit", "0"]).ok().json();
    assert_eq!((&found["schema"], &found["processes"]), (&"floodmark.processes/1".into(), &12.into()));
    let list = found["process_list"].as_array().unwrap();
    // Each process is what the trace says of it alone.
    for one in list {
        let process = one["process"].to_string();
        let alone = test.run(&["stats", "job.flood", "--process", &process, "--json"]).ok().json();
        for key in ["peak_bytes", "peak_time_ns", "live_bytes", "allocations", "total_bytes"] {
            assert_eq!(one[key], alone[key], "{key} of {process}");
        }
    }
    assert!(list.is_sorted_by_key(|one| std::cmp::Reverse(one["peak_bytes"].as_u64())));
    let map = |whole: &str| {
        test.run(&["plot", whole, "--ranks", "-o", "map.svg", "--force", "--title", "job", "-q"]).ok();
        test.read("map.svg")
    };
    let picture = map(&whole);
    assert!(picture.contains("live bytes of processes") && picture.contains("process 11"), "{picture}");
    for shards in [5, 12] {
        let parts = merged(&test, shards, &[]);
        assert_eq!(
            json(&test, &["ranks", "--limit", "2"], &parts),
            json(&test, &["ranks", "--limit", "2"], &whole)
        );
        assert!(map(&parts) == picture, "{shards}");
    }
    test.run(&["report", &whole, "-o", "job.html", "-q"]).ok();
    let page = test.read("job.html");
    for part in ["<svg", "<h2>Processes</h2>", "peaks highest", "<h2>Held at the peak</h2>"] {
        assert!(page.contains(part), "{part}");
    }
    let refused = test.run(&["report", &whole, "-o", "x.html", "--process", "1"]);
    assert_eq!((refused.code, refused.stderr.contains("leave the filters out")), (2, true));
}

#[test]
fn jobs_of_different_size_are_compared_by_process() {
    let test = CliTest::new();
    let three: Vec<(u64, u64)> = (1..=3).map(|seed| (seed, 400)).collect();
    job_of(&test, "three.flood", &three);
    job_of(&test, "six.flood", &three.repeat(2));
    job_of(&test, "longer.flood", &[(1, 400), (2, 400), (3, 400), (1, 400), (2, 400), (3, 1600)]);
    let [three, six, longer] =
        ["three", "six", "longer"].map(|name| merged_of(&test, &format!("{name}.flood"), 2, &[]));
    let diff = |before: &str, after: &str| test.run(&["diff", before, after, "--json"]).ok().json();
    let same = diff(&three, &six);
    assert_eq!(same["per_process"], serde_json::json!({"before": 3, "after": 6, "bounds": false}));
    let figures = |found: &serde_json::Value| -> Vec<(String, u64, u64)> {
        let list = found["figures"].as_array().unwrap().clone();
        let figure = |one: &serde_json::Value| {
            let value = |side: &str| one[side].as_u64().unwrap();
            (one["figure"].as_str().unwrap().to_owned(), value("before"), value("after"))
        };
        list.iter().map(figure).collect()
    };
    for (name, before, after) in figures(&same) {
        assert_eq!(before, after, "{name}");
    }
    assert_eq!(same["groups"].as_array().unwrap().len(), 0, "{}", same["groups"]);
    let found = figures(&diff(&three, &longer));
    let grew = |name: &str| found.iter().any(|(known, before, after)| known == name && after > before);
    assert!(grew("allocations") && grew("allocated_bytes"), "{found:?}");
    let text = test.run(&["diff", &three, &longer]).ok().stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("the first job has 3 of them, the second 6"), "{text}");
    assert_eq!(test.run(&["diff", &three, &six, "--fail-on", "allocations>0"]).code, 0);
    assert_eq!(test.run(&["diff", &three, &longer, "--fail-on", "allocations>0"]).code, 1);
    let refused = test.run(&["diff", &three, "six.flood"]);
    assert!(refused.code == 2 && refused.stderr.contains("floodmark partial"), "{}", refused.seen());
    // A peak that was not searched for is a bound, and says so.
    done(&test, &["partial", "six.flood", "--shard", "0/2", "-o", "half.0"]);
    done(&test, &["partial", "six.flood", "--shard", "1/2", "-o", "half.1"]);
    done(&test, &["merge", "half.0", "half.1", "-o", "unsearched"]);
    let text = test.run(&["diff", &three, "unsearched"]).ok().stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("upper bound") && !text.contains("Held at the peak"), "{text}");
}
