//! Memory that several processes share counts once.

use std::io::Write as _;
use std::process::Stdio;

use floodmark_testkit::wait_for_exit;

use crate::programs::WatchTest;

const MIB: u64 = 1 << 20;

#[test]
fn a_segment_that_four_processes_share_counts_once() {
    let test = WatchTest::new("share");
    let family = test.compile("family.c");
    let mut watcher = test.watcher(&["samples", "totals=0.2", &test.ready(), "ready-rss=552MiB"]);
    let mut child = watcher.arg(&family).args(["share", "4"]).stdin(Stdio::piped()).spawn().unwrap();
    test.wait_until_ready(&mut child);
    child.stdin.take().unwrap().write_all(b"four").unwrap();
    assert!(wait_for_exit(&mut child, "the watcher").success());
    let report = test.report();
    let truth = 168 * MIB;
    let total = report.figure("total");
    assert!(total.abs_diff(truth) < truth / 50, "{} MiB: {report:?}", total / MIB);
    assert!(report.figure("total_error") < truth / 50);
    let sum = report.figure("rss_seen");
    assert!((540 * MIB..580 * MIB).contains(&sum), "{} MiB", sum / MIB);
    // What was told while all of it was there.
    let told = report.series(report.job(), "pss");
    let close = told.iter().filter(|(_, pss)| pss.abs_diff(truth) < truth / 50).count();
    assert!(close > 0, "{told:?}");
    assert!(told.iter().all(|(_, pss)| *pss < truth + truth / 10), "nothing misleading: {told:?}");
    let readings: usize =
        report.processes().iter().map(|process| report.series(process.id, "uss").len()).sum();
    assert!(readings >= 4);
}
