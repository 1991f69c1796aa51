//! Programs of known memory, watched with and without permissions.

use crate::programs::{Report, User, WatchTest};

const MIB: u64 = 1 << 20;
/// Memory of a process in C besides what it takes.
const BASE: u64 = 3 * MIB;
const USERS: [User; 2] = [User::Current, User::Unprivileged];

fn watch(test: &WatchTest, user: User, words: &[&str]) -> Report {
    let mut watcher = test.watcher_as(user, &[]);
    watcher.arg(test.join("truth")).args(words);
    // A report of another user could not be replaced.
    let _ = std::fs::remove_file(test.join("report"));
    assert!(watcher.status().expect("it runs").success());
    test.report()
}

/// Asserts that what is reported as exact is exact, for processes that had `bytes`, `BASE` or less.
fn assert_exact_is_exact(report: &Report, bytes: u64) {
    for (pid, peak, known) in &report.peaks {
        let is_true = *peak < BASE || (bytes..bytes + BASE).contains(peak);
        assert!(known != "Exit" || is_true, "{pid} had {peak}: {report:?}");
    }
}

#[test]
fn the_peak_is_not_below_that_of_one_of_many_short_processes() {
    let test = WatchTest::new("forks");
    test.compile("truth.c");
    for user in USERS {
        let report = watch(&test, user, &["forks", "200", "80"]);
        let (rss, largest) = (report.figure("rss"), report.figure("largest"));
        assert!((80 * MIB..80 * MIB + BASE).contains(&largest), "{user:?} {largest} {report:?}");
        assert!((largest..=largest + 2 * BASE).contains(&rss), "{user:?} {rss} {report:?}");
        assert_exact_is_exact(&report, 80 * MIB);
    }
}

#[test]
fn the_peak_of_a_grandchild_is_exact_or_a_bound() {
    let test = WatchTest::new("grandchild");
    test.compile("truth.c");
    for user in USERS {
        let report = watch(&test, user, &["child", "100"]);
        let largest = report.figure("largest");
        assert!((100 * MIB..100 * MIB + BASE).contains(&largest), "{user:?} {report:?}");
        // Its mark was read during the 200 ms in which it rested, and is the peak of the whole tree.
        let child = &report.peaks[0];
        assert_eq!((child.1, child.2.as_str()), (largest, "Exit"), "{user:?} {report:?}");
        assert_exact_is_exact(&report, 100 * MIB);
    }
}

#[test]
fn a_missing_permission_is_named() {
    let test = WatchTest::new("permission");
    test.compile("truth.c");
    let report = watch(&test, User::Unprivileged, &["forks", "200", "1"]);
    let is_told = report.notes.iter().any(|note| note.contains("CAP_NET_ADMIN"));
    let has_taskstats = !report.notes.iter().any(|note| note.contains("has no exit statistics"));
    assert!(is_told || !has_taskstats, "{report:?}");
}

#[test]
fn memory_that_twenty_processes_share_counts_once() {
    let test = WatchTest::new("twenty");
    test.compile("truth.c");
    for user in USERS {
        let report = watch(&test, user, &["share", "20", "200", "15", "2500"]);
        let (total, error) = (report.figure("total"), report.figure("total_error"));
        let truth = 500 * MIB..500 * MIB + 20 * MIB;
        assert!(truth.contains(&total), "{user:?} {} MiB {report:?}", total / MIB);
        assert!(error < total / 20, "{user:?} {error} {report:?}");
    }
}
