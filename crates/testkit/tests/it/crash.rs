//! Nothing acknowledged is lost, whoever is killed and whatever runs out.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use floodmark_testkit::torture::check_thread;

use crate::programs::{Folder, events_by_thread, lost, sealer, writer};

/// From when on the time is counted after which a writer is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// It was started.
    Start,
    /// It acknowledged something, which takes as long as the machine is busy.
    FirstWord,
}

/// Kills a writer after `delay` and returns what each of its threads had acknowledged by then.
fn kill_after(mut child: std::process::Child, from: From, delay: Duration) -> BTreeMap<u64, u64> {
    let mut words = child.stdout.take().expect("piped");
    let mut output = Vec::new();
    if from == From::FirstWord {
        let mut first = [0];
        words.read_exact(&mut first).expect("a first word");
        output.extend(first);
    }
    std::thread::sleep(delay);
    child.kill().expect("the writer can be killed");
    child.wait().expect("the writer ends");
    words.read_to_end(&mut output).expect("what is in the pipe");
    let output = String::from_utf8(output).expect("text");
    let mut acknowledged = BTreeMap::new();
    for line in output.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().expect("a number"));
        let (thread, count) = (numbers.next().expect("thread"), numbers.next().expect("count"));
        acknowledged.insert(thread, count);
    }
    acknowledged
}

/// A delay that differs from run to run and covers start, steady state and sealing.
fn delay(run: u64) -> Duration {
    let mixed = (run + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    Duration::from_micros(500 + mixed % 40_000)
}

#[test]
fn two_hundred_killed_writers_lose_nothing_they_acknowledged() {
    let folder = Folder::new("killed-writers");
    let (mut acknowledged_in_all, mut runs_with_events) = (0, 0);
    for run in 0..200 {
        let trace = folder.join(&format!("{run}.flood"));
        // Odd runs seal in the process itself, even ones leave everything to the next open.
        let options: &[&str] =
            if run % 2 == 1 { &["2", "100000000", "--ack", "--seal"] } else { &["2", "100000000", "--ack"] };
        // A fifth of them is killed while it starts, however far it has come.
        let from = if run % 5 == 0 { From::Start } else { From::FirstWord };
        let acknowledged = kill_after(writer(&trace, options), from, delay(run));
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
            acknowledged_in_all += count;
        }
        runs_with_events += u64::from(!acknowledged.is_empty());
        assert_eq!(lost(&trace), 0, "run {run}");
        let _ = std::fs::remove_dir_all(&trace);
    }
    assert!(runs_with_events > 150, "only {runs_with_events} writers lived long enough to tell");
    assert!(acknowledged_in_all > 1_000_000, "only {acknowledged_in_all} events");
}

#[test]
fn fifty_killed_sealers_lose_nothing_and_disturb_nobody() {
    let folder = Folder::new("killed-sealers");
    for run in 0..50 {
        let trace = folder.join(&format!("{run}.flood"));
        std::fs::create_dir_all(&trace).expect("a trace");
        let mut first = sealer(&trace);
        let mut child = writer(&trace, &["5", "80000"]);
        std::thread::sleep(delay(run));
        first.kill().expect("the sealer can be killed");
        first.wait().expect("the sealer ends");
        // Every other run a second sealer takes over while the writer goes on, and is killed too.
        if run % 2 == 1 {
            let mut second = sealer(&trace);
            std::thread::sleep(delay(run + 1000));
            second.kill().expect("the sealer can be killed");
            second.wait().expect("the sealer ends");
        }
        assert!(child.wait().expect("the writer ends").success());
        let threads = events_by_thread(&trace);
        for thread in 1..=5 {
            assert_eq!(check_thread(thread, &threads[&thread]), 80_000, "run {run}, thread {thread}");
        }
        assert_eq!(lost(&trace), 0, "run {run}");
        let _ = std::fs::remove_dir_all(&trace);
    }
}
