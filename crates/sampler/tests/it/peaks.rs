//! Peaks that fall between two sweeps.

use crate::programs::{Report, WatchTest};

const MIB: u64 = 1 << 20;

fn saw(teeth: &str, options: &[&str], wrapped: &[&str]) -> (Report, Vec<(f64, f64)>) {
    let test = WatchTest::new(&format!("saw{}{}", options.len(), wrapped.len()));
    let (program, truth) = (test.compile("saw.c"), test.join("truth"));
    let mut watcher = test.watcher(options);
    watcher.args(wrapped).arg(program).args([teeth, "0.005", "0.015"]).arg(&truth);
    assert!(watcher.status().expect("it runs").success());
    let truth = std::fs::read_to_string(truth).expect("the truth");
    let holds = truth.lines().map(|line| {
        let (begin, end) = line.split_once(' ').expect("two numbers");
        (begin.parse().expect("a time"), end.parse().expect("a time"))
    });
    (test.report(), holds.collect())
}

/// 50 and 128 MiB, and what a process in C has anyway.
fn is_the_peak(bytes: u64) -> bool {
    (178 * MIB..182 * MIB).contains(&bytes)
}

#[test]
fn the_highest_peak_is_exact_at_any_interval() {
    for options in [&[][..], &["interval=100ms"], &["interval=100ms", "scan"]] {
        let (report, _) = saw("12", options, &[]);
        let peak = report.processes()[0].peak.expect("the kernel's last word");
        assert!(is_the_peak(peak), "{peak}");
        assert!(is_the_peak(report.figure("rss")), "{report:?}");
        assert_eq!(report.figure("largest"), peak);
        assert_eq!(report.peaks[0].2, "Exit");
        assert!(report.figure("rss_seen") <= report.figure("rss"));
        assert_eq!(report.figure("observed_rss"), report.figure("rss_seen"));
        assert_eq!(report.figure("observed"), report.figure("sweeps"));
    }
}

#[test]
fn the_peak_of_a_grandchild_is_known_too() {
    // A shell waits for the program, so the kernel's last word to us is about both.
    let (report, _) = saw("12", &["interval=100ms"], &["sh", "-c", "\"$@\"; exit $?", "sh"]);
    let saw = &report.named("saw")[0];
    assert!(is_the_peak(saw.peak.unwrap()), "{report:?}");
    assert!(is_the_peak(report.figure("largest")) && is_the_peak(report.figure("rss")));
    let shell = &report.named("sh")[0];
    assert!(shell.peak.unwrap() < 20 * MIB, "not its child's: {shell:?}");
}

#[test]
fn the_peak_of_one_that_slept_among_many_is_exact() {
    let test = WatchTest::new("slept");
    let (program, truth) = (test.compile("saw.c"), test.join("truth"));
    let script = "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do sleep 5 & done; \"$@\"";
    let mut watcher = test.watcher(&["interval=10ms"]);
    watcher.args(["sh", "-c", script, "sh"]).arg(program).args(["1", "0.005", "2.2"]).arg(truth);
    assert!(watcher.status().expect("it runs").success());
    let report = test.report();
    assert_eq!(report.named("sleep").len(), 18);
    assert!(is_the_peak(report.named("saw")[0].peak.expect("the kernel's last word")), "{report:?}");
    assert!(is_the_peak(report.figure("largest")) && report.figure("rss") >= 178 * MIB, "{report:?}");
}

#[test]
fn with_exact_peaks_every_tooth_is_seen() {
    let (report, holds) = saw("60", &["exact", "interval=20ms", "samples"], &[]);
    let process = &report.processes()[0];
    let marks = report.series(process.id, "hwm");
    assert_eq!(holds.len(), 60);
    for (number, (begin, end)) in holds.iter().enumerate() {
        // The first sweep after the begin of the hold reads a mark that covers some of it; a mark is
        // told when it differs from the one before, and holds until then.
        let (begin, end) = ((begin * 1e9) as u64, (end * 1e9) as u64);
        let next = marks.iter().position(|(at, _)| *at >= begin).unwrap_or(marks.len());
        let around = &marks[next.saturating_sub(1)..(next + 2).min(marks.len())];
        let covered = around.iter().any(|(at, mark)| is_the_peak(*mark) && *at <= end + 500_000_000);
        assert!(covered, "tooth {number}: {around:?}");
    }
    assert!(is_the_peak(process.peak.unwrap()), "{process:?}");
    let lows = marks.iter().filter(|(_, mark)| *mark < 60 * MIB).count();
    assert!(lows > 10, "marks come down again: {lows}");
}

#[test]
fn a_small_program_is_not_blamed_for_the_memory_of_its_parent() {
    let test = WatchTest::new("small");
    let report = test.watch(&[], &[&"sh", &"-c", &"sleep 0.2"]);
    for process in report.processes() {
        assert!(process.peak.unwrap() < 5 * MIB, "{process:?}");
    }
}
