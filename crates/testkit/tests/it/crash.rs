//! No acknowledged event is lost when writers and sealers are killed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Child;
use std::time::Duration;

use floodmark_testkit::torture::check_thread;
use floodmark_testkit::{TempDir, wait_for_exit};

use crate::programs::{events_by_thread, lost, sealer, writer};

/// When a writer is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    /// This long after its start, wherever it is by then.
    After(Duration),
    /// As soon as its threads have acknowledged this many events together.
    Acknowledged(u64),
}

/// Kills a writer and returns how many events each of its threads had acknowledged by then.
fn kill(mut child: Child, when: Kill) -> BTreeMap<u64, u64> {
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut acknowledged = BTreeMap::new();
    let mut note = |line: &str| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().expect("a number"));
        let (thread, count) = (numbers.next().expect("a thread"), numbers.next().expect("a count"));
        acknowledged.insert(thread, count);
        acknowledged.values().sum::<u64>()
    };
    match when {
        Kill::After(delay) => std::thread::sleep(delay),
        Kill::Acknowledged(events) => loop {
            let mut line = String::new();
            assert_ne!(output.read_line(&mut line).expect("text"), 0, "the writer ended by itself");
            if note(&line) >= events {
                break;
            }
        },
    }
    child.kill().expect("the writer can be killed");
    wait_for_exit(&mut child, "the killed writer");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    rest.split_inclusive('\n').filter(|line| line.ends_with('\n')).for_each(|line| {
        note(line);
    });
    acknowledged
}

/// A number below `limit` that differs from run to run.
fn vary(run: u64, limit: u64) -> u64 {
    ((run + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % limit
}

/// A delay within which a program starts, reaches its steady state and seals.
fn delay(run: u64) -> Duration {
    Duration::from_micros(500 + vary(run, 40_000))
}

#[test]
fn two_hundred_killed_writers_lose_nothing_they_acknowledged() {
    let folder = TempDir::new("killed-writers");
    for run in 0..200 {
        let trace = folder.join(format!("{run}.flood"));
        // Odd runs seal in the process itself, even ones leave everything to the next open.
        let options: &[&str] =
            if run % 2 == 1 { &["2", "100000000", "--ack", "--seal"] } else { &["2", "100000000", "--ack"] };
        // A fifth of them is killed while it starts; the others after 64 to 131,072 events, with as many
        // runs between 100 and 1,000 as between 10,000 and 100,000.
        let when =
            if run % 5 == 0 { Kill::After(delay(run)) } else { Kill::Acknowledged(64 << vary(run, 12)) };
        let acknowledged = kill(writer(&trace, options), when);
        if !trace.join("segments").exists() {
            assert!(acknowledged.is_empty(), "killed before it began");
            continue;
        }
        let threads = events_by_thread(&trace);
        for (thread, count) in &acknowledged {
            let found = threads.get(thread).map_or(0, |events| check_thread(*thread, events));
            assert!(
                found >= *count,
                "run {run}: thread {thread} had acknowledged {count}, the trace has {found}"
            );
        }
        assert_eq!(lost(&trace), 0, "run {run}");
        let _ = std::fs::remove_dir_all(&trace);
    }
}

#[test]
fn fifty_killed_sealers_lose_nothing_and_do_not_disturb_writers() {
    let folder = TempDir::new("killed-sealers");
    for run in 0..50 {
        let trace = folder.join(format!("{run}.flood"));
        std::fs::create_dir_all(&trace).expect("a trace");
        let mut first = sealer(&trace);
        let mut child = writer(&trace, &["5", "80000"]);
        std::thread::sleep(delay(run));
        first.kill().expect("the sealer can be killed");
        wait_for_exit(&mut first, "the killed sealer");
        // In every other run a second sealer takes over while the writer goes on, and is killed too.
        if run % 2 == 1 {
            let mut second = sealer(&trace);
            std::thread::sleep(delay(run + 1000));
            second.kill().expect("the sealer can be killed");
            wait_for_exit(&mut second, "the killed sealer");
        }
        assert!(wait_for_exit(&mut child, "the writer").success());
        let threads = events_by_thread(&trace);
        for thread in 1..=5 {
            assert_eq!(check_thread(thread, &threads[&thread]), 80_000, "run {run}, thread {thread}");
        }
        assert_eq!(lost(&trace), 0, "run {run}");
        let _ = std::fs::remove_dir_all(&trace);
    }
}
