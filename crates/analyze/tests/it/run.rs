//! Runs: known answers, and agreement with an oracle that looks at every instant anew.

use std::collections::BTreeMap;

use floodmark_analyze::{Mark, RunFold, RunMemory, SubjectSeriesFold};
use floodmark_event::{Metric, SampleRow, SubjectKind, SubjectRow};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn subject(subject: u64, kind: SubjectKind, number: u64, start_ns: i64) -> SubjectRow {
    SubjectRow {
        start_ns: (start_ns != 0).then_some(start_ns),
        detail: format!("program{subject} --run"),
        ..SubjectRow::new(subject, kind, number, format!("program{subject}"))
    }
}

fn subjects(rows: impl IntoIterator<Item = SubjectRow>) -> BTreeMap<u64, SubjectRow> {
    rows.into_iter().map(|row| (row.subject, row)).collect()
}

fn row(time_ns: i64, subject: u64, metric: Metric, value: u64) -> SampleRow {
    SampleRow { time_ns, subject, metric, value }
}

fn mark(time_ns: i64, name: &str) -> Mark {
    Mark { time_ns, name: name.into() }
}

fn fold(subjects: &BTreeMap<u64, SubjectRow>, marks: &[Mark], rows: &[SampleRow]) -> RunMemory {
    let mut fold = RunFold::new(subjects, marks.to_vec());
    fold.update(rows);
    fold.finish(None)
}

#[test]
fn one_that_grows_while_another_shrinks_is_no_peak() {
    let subjects =
        subjects([subject(1, SubjectKind::Process, 10, 1), subject(2, SubjectKind::Process, 11, 2)]);
    let rows = [
        row(1, 1, Metric::Rss, 100),
        row(1, 2, Metric::Rss, 10),
        row(2, 1, Metric::Rss, 10),
        row(2, 2, Metric::Rss, 105),
    ];
    let run = fold(&subjects, &[], &rows);
    assert_eq!((run.peak_rss_bytes, run.peak_time_ns), (115, Some(2)));
    let backwards = [rows[0], rows[1], rows[3], rows[2]];
    assert_eq!(fold(&subjects, &[], &backwards), run);
    assert_eq!(
        run.process_list.iter().map(|p| p.rss_at_peak_bytes).collect::<Vec<_>>(),
        [Some(105), Some(10)]
    );
}

#[test]
fn the_peak_is_never_below_the_exact_peak_of_a_process() {
    // Sums leave out what a forked process shares with its parent; this one ended before it was sampled.
    let mut forked = subject(3, SubjectKind::Process, 11, 4);
    (forked.end_ns, forked.peak_rss_bytes) = (Some(6), Some(80 * MIB));
    let mut job = subject(1, SubjectKind::Job, 0, 0);
    job.end_ns = Some(9);
    let mut all = subjects([job.clone(), subject(2, SubjectKind::Process, 10, 1), forked]);
    let rows = [row(1, 1, Metric::Rss, MIB), row(1, 2, Metric::Rss, MIB), row(9, 1, Metric::Rss, 0)];
    let run = fold(&all, &[], &rows);
    assert_eq!((run.peak_rss_bytes, run.peak_time_ns), (80 * MIB, Some(6)));
    assert!(!run.peak_is_lower_bound, "nothing is known to be missing");
    // A process that was only reaped is known to the job alone.
    job.peak_rss_bytes = Some(90 * MIB);
    all.insert(1, job);
    assert_eq!(fold(&all, &[], &rows).peak_rss_bytes, 90 * MIB);
    let missed = [&rows[..], &[row(9, 1, Metric::MissedProcesses, 1)]].concat();
    assert!(fold(&all, &[], &missed).peak_is_lower_bound);
    let unknown = [&rows[..], &[row(9, 1, Metric::MissedProcesses, 0)]].concat();
    assert!(!fold(&all, &[], &unknown).peak_is_lower_bound, "all that ended have exact peaks");
    all.get_mut(&3).expect("it is there").peak_rss_bytes = None;
    assert!(fold(&all, &[], &unknown).peak_is_lower_bound, "the peak of one is not known");
}

#[test]
fn a_process_with_a_new_program_stays_the_same_process() {
    let mut last = subject(2, SubjectKind::Process, 10, 1);
    (last.end_ns, last.wait_status, last.peak_rss_bytes) = (Some(9), Some(3 << 8), Some(80));
    let subjects = subjects([subject(1, SubjectKind::Process, 10, 1), last]);
    let rows = [row(1, 1, Metric::Rss, 50), row(2, 2, Metric::Rss, 20), row(9, 2, Metric::Rss, 70)];
    let run = fold(&subjects, &[], &rows);
    assert_eq!((run.peak_rss_bytes, run.processes), (80, 1), "not 50 and 20 together");
    let process = &run.process_list[0];
    assert_eq!((process.pid, process.name.as_str()), (10, "program2"));
    assert_eq!((process.peak_rss_bytes, process.peak_is_exact, process.peak_time_ns), (80, true, Some(9)));
    assert_eq!(process.wait_status, Some(3 << 8));
}

#[test]
fn a_high_water_mark_finds_a_peak_between_two_sweeps() {
    let old = subject(2, SubjectKind::Process, 10, -2_000_000_000);
    let new = SubjectRow { start_ns: Some(1), ..old.clone() };
    let at = |time_ns, job, rss, hwm| {
        [(2, Metric::Rss, rss), (2, Metric::Hwm, hwm), (1, Metric::Rss, job)]
            .map(|(of, metric, mib): (u64, Metric, u64)| row(time_ns, of, metric, mib * MIB))
    };
    let job = subject(1, SubjectKind::Job, 0, 0);
    let rows = [at(1, 60, 50, 90), at(2, 61, 50, 130), at(3, 65, 55, 130)].concat();
    for (process, highest) in [(&old, 141), (&new, 141)] {
        let run = fold(&subjects([job.clone(), process.clone()]), &[], &rows);
        assert_eq!((run.peak_rss_bytes / MIB, run.peak_time_ns), (highest, Some(2)));
        assert_eq!(run.peak_seen_bytes / MIB, 65);
        assert_eq!(run.process_list[0].peak_rss_bytes / MIB, 130);
    }
    let first = |process: &SubjectRow| fold(&subjects([job.clone(), process.clone()]), &[], &rows[..3]);
    assert_eq!(first(&old).peak_rss_bytes / MIB, 60, "its mark may be older than the watching");
    assert_eq!(first(&new).peak_rss_bytes / MIB, 100, "its mark is its own");
}

#[test]
fn a_peak_that_was_seen_is_not_counted_again_when_its_mark_is_read() {
    let subjects = subjects([
        subject(1, SubjectKind::Job, 0, 0),
        subject(2, SubjectKind::Process, 10, 1),
        subject(3, SubjectKind::Process, 11, 1),
    ]);
    let mib = |time_ns, of, metric, mib: u64| row(time_ns, of, metric, mib * MIB);
    let rows = [
        mib(1, 2, Metric::Rss, 10),
        mib(1, 2, Metric::Hwm, 10),
        mib(1, 1, Metric::Rss, 10),
        mib(2, 2, Metric::Rss, 170),
        mib(2, 1, Metric::Rss, 170),
        mib(4, 2, Metric::Rss, 50),
        mib(4, 2, Metric::Hwm, 171),
        mib(4, 3, Metric::Rss, 8),
        mib(4, 1, Metric::Rss, 58),
    ];
    let run = fold(&subjects, &[mark(3, "after")], &rows);
    assert_eq!((run.peak_rss_bytes / MIB, run.peak_time_ns, run.peak_phase), (171, Some(2), Some(0)));
    let peaks: Vec<u64> = run.phases.iter().map(|phase| phase.peak_rss_bytes / MIB).collect();
    assert_eq!(peaks, [171, 170], "the second phase begins with what the first one had");
}

#[test]
fn phases_have_peaks_and_growth_of_their_own() {
    let subjects = subjects([subject(1, SubjectKind::Job, 0, 0)]);
    let rows =
        [(1, 10), (3, 50), (5, 30), (8, 90), (9, 40)].map(|(at, mib)| row(at, 1, Metric::Rss, mib * MIB));
    let marks = [mark(4, "solve"), mark(6, "idle"), mark(7, "write"), mark(20, "late")];
    let run = fold(&subjects, &marks, &rows);
    let found: Vec<_> = run
        .phases
        .iter()
        .map(|phase| {
            let name = phase.name.as_deref().unwrap_or("");
            (name, phase.peak_rss_bytes / MIB, phase.peak_time_ns, phase.growth_bytes() / MIB as i64)
        })
        .collect();
    let expected = [
        ("", 50, Some(3), 50),
        ("solve", 50, Some(4), -20),
        ("idle", 30, Some(6), 0),
        ("write", 90, Some(8), 10),
        ("late", 40, Some(20), 0),
    ];
    assert_eq!(found, expected);
    assert_eq!((run.peak_phase, run.peak_time_ns), (Some(3), Some(8)));
    assert!(fold(&subjects, &[], &rows).phases.is_empty());
}

#[test]
fn devices_groups_and_own_cost_are_told() {
    let subjects = subjects([
        subject(1, SubjectKind::Job, 0, 0),
        subject(2, SubjectKind::Device, 1, 0),
        subject(3, SubjectKind::Cgroup, 0, 0),
        subject(4, SubjectKind::Process, 9, 5),
    ]);
    let rows = [
        row(1, 2, Metric::GpuUsed, 7),
        row(1, 2, Metric::GpuTotal, 80),
        row(1, 3, Metric::CgroupUsage, 5),
        row(1, 3, Metric::CgroupLimit, 64),
        row(2, 2, Metric::GpuUsed, 9),
        row(2, 3, Metric::CgroupPeak, 33),
        row(2, 4, Metric::GpuUsed, 4),
        row(2, 1, Metric::OwnCpuTime, 1234),
        row(2, 1, Metric::LateSweeps, 2),
        row(2, 1, Metric::Pss, 55),
        row(3, 99, Metric::Rss, 1),
    ];
    let run = fold(&subjects, &[], &rows);
    let device = &run.devices[0];
    assert_eq!(
        (device.device, device.peak_bytes, device.peak_time_ns, device.total_bytes),
        (1, 9, Some(2), Some(80))
    );
    let group = &run.cgroups[0];
    assert_eq!((group.peak_usage_bytes, group.peak_bytes, group.limit_bytes), (Some(5), Some(33), Some(64)));
    assert_eq!((run.own_cpu_ns, run.late_sweeps, run.missed_processes), (Some(1234), Some(2), None));
    assert_eq!((run.peak_pss_bytes, run.peak_pss_time_ns), (Some(55), Some(2)));
    assert_eq!((run.process_list[0].peak_gpu_bytes, run.unknown_samples), (Some(4), 1));
}

#[test]
fn ranks_and_what_a_proportional_size_is_worth_are_told() {
    let subjects = subjects([
        subject(1, SubjectKind::Job, 0, 0),
        subject(2, SubjectKind::Process, 10, 0),
        subject(3, SubjectKind::Process, 11, 0),
    ]);
    let rows = [
        row(1, 1, Metric::Rank, 5),
        row(1, 2, Metric::Rank, 3),
        row(1, 2, Metric::Rss, 10),
        row(1, 2, Metric::Pss, 8),
        row(2, 2, Metric::Rss, 100),
        row(2, 3, Metric::Rss, 100),
        row(2, 3, Metric::Pss, 60),
        row(3, 3, Metric::Rss, 102),
        row(3, 3, Metric::Pss, 50),
    ];
    let run = fold(&subjects, &[], &rows);
    assert_eq!(run.rank, Some(5));
    let [second, first] = &run.process_list[..] else { panic!("{run:?}") };
    assert_eq!((first.rank, first.peak_pss_bytes, first.rss_at_peak_pss_bytes), (Some(3), Some(8), Some(10)));
    assert!(!first.has_pss_of_peak(), "it was read long before the peak");
    assert_eq!(
        (second.rank, second.peak_pss_bytes, second.rss_at_peak_pss_bytes),
        (None, Some(60), Some(100))
    );
    assert!(second.has_pss_of_peak());
}

#[test]
fn a_limit_shortens_the_list_and_says_so() {
    let subjects = subjects((1..=9).map(|at| subject(at, SubjectKind::Process, at, 1)));
    let rows: Vec<SampleRow> = (1..=9).map(|at| row(1, at, Metric::Rss, at % 4)).collect();
    let mut fold = RunFold::new(&subjects, Vec::new());
    fold.update(&rows);
    let run = fold.finish(Some(3));
    assert_eq!(run.process_list.iter().map(|process| process.pid).collect::<Vec<_>>(), [3, 7, 2]);
    assert_eq!((run.processes, run.processes_omitted), (9, 6));
}

/// A sweep, looked up from the start.
struct Instant {
    time_ns: i64,
    sum: u64,
    /// The highest that the sum is known to have been, with the time of that.
    highest: Vec<(u64, i64)>,
}

/// Returns the number of the sweep that each row belongs to: another time begins one, and so does something
/// that reports a metric again, unless as a later program.
fn sweeps(subjects: &BTreeMap<u64, SubjectRow>, rows: &[SampleRow]) -> Vec<usize> {
    let (mut number, mut reported) = (0, BTreeMap::new());
    let mut numbers = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let process = (subjects[&row.subject].number, subjects[&row.subject].start_ns, row.metric);
        let is_again = reported.get(&process).is_some_and(|before| row.subject <= *before);
        if at > 0 && (is_again || rows[at - 1].time_ns != row.time_ns) {
            number += 1;
            reported.clear();
        }
        reported.insert(process, row.subject);
        numbers.push(number);
    }
    numbers
}

fn instants(subjects: &BTreeMap<u64, SubjectRow>, rows: &[SampleRow]) -> Vec<Instant> {
    let mut processes: BTreeMap<(u64, Option<i64>), Vec<u64>> = BTreeMap::new();
    for row in subjects.values() {
        processes.entry((row.number, row.start_ns)).or_default().push(row.subject);
    }
    let numbers = sweeps(subjects, rows);
    let times: BTreeMap<usize, i64> =
        numbers.iter().copied().zip(rows.iter().map(|row| row.time_ns)).collect();
    // Values of a metric up to a sweep, with the sweeps they are from.
    let of_metric = |of: &[u64], metric: Metric, to: usize| -> Vec<(usize, u64)> {
        let all = numbers.iter().zip(rows).filter(|(number, _)| **number <= to);
        let mine = all.filter(|(_, row)| row.metric == metric && of.contains(&row.subject));
        mine.map(|(number, row)| (*number, row.value)).collect()
    };
    let rss = |of: &[u64], to: usize| of_metric(of, Metric::Rss, to).last().map_or(0, |(_, value)| *value);
    let sum = |sweep: usize| {
        let ends = |of: &[u64]| of.last().and_then(|last| subjects[last].end_ns);
        let living = processes.values().filter(|of| ends(of).is_none_or(|end_ns| end_ns >= times[&sweep]));
        living.map(|of| rss(of, sweep)).sum::<u64>()
    };
    let at = |sweep: usize| {
        let mut highest = vec![(sum(sweep), times[&sweep])];
        for of in processes.values() {
            let marks = of_metric(of, Metric::Hwm, sweep);
            let rises = |at: &usize| *at == 0 || marks[*at - 1].1 != marks[*at].1;
            let rises: Vec<usize> = (0..marks.len()).filter(rises).map(|at| marks[at].0).collect();
            if rises.last() != Some(&sweep) {
                continue;
            }
            let hwm = marks.last().unwrap().1;
            let before = rises.iter().copied().rfind(|at| *at < sweep);
            // Samples since, and what was held then; of equal ones the latest.
            let mut since: Vec<usize> = of_metric(of, Metric::Rss, sweep).iter().map(|(at, _)| *at).collect();
            since.retain(|at| before.is_none_or(|before| *at > before));
            since.extend(before);
            since.sort_unstable();
            let then = since.into_iter().max_by_key(|at| rss(of, *at)).unwrap_or(sweep);
            let missing = hwm.saturating_sub(rss(of, then));
            if missing > 0 {
                highest.push((sum(then) + missing, times[&then]));
            }
            if missing > MIB.max(rss(of, then) / 50) {
                highest.push((sum(sweep) + hwm - rss(of, sweep).min(hwm), times[&sweep]));
            }
        }
        Instant { time_ns: times[&sweep], sum: sum(sweep), highest }
    };
    times.keys().map(|sweep| at(*sweep)).collect()
}

prop_compose! {
    fn processes()(ends in proptest::collection::vec((1..4u64, 0..2i64, proptest::option::of(0..30i64)), 1..7))
        -> BTreeMap<u64, SubjectRow>
    {
        subjects(ends.into_iter().enumerate().map(|(at, (number, start_ns, end_ns))| SubjectRow {
            end_ns,
            ..subject(at as u64 + 1, SubjectKind::Process, number, start_ns + 1)
        }))
    }
}

prop_compose! {
    fn samples()(mut rows in proptest::collection::vec((0..25i64, 1..8u64, any::<bool>(), 0..50 * MIB), 0..60))
        -> Vec<SampleRow>
    {
        rows.sort_by_key(|row| row.0);
        let metric = |is_mark| if is_mark { Metric::Hwm } else { Metric::Rss };
        rows.into_iter().map(|(at, of, is_mark, value)| row(at, of, metric(is_mark), value)).collect()
    }
}

/// Rows of subjects that are described and not over.
fn possible(subjects: &BTreeMap<u64, SubjectRow>, rows: &[SampleRow]) -> Vec<SampleRow> {
    let latest = |row: &SubjectRow| {
        let same = |other: &&SubjectRow| (other.number, other.start_ns) == (row.number, row.start_ns);
        subjects.values().rfind(same).and_then(|last| last.end_ns)
    };
    let is_possible = |row: &&SampleRow| {
        let subject = subjects.get(&row.subject);
        subject.is_some_and(|subject| latest(subject).is_none_or(|end_ns| row.time_ns <= end_ns))
    };
    rows.iter().filter(is_possible).copied().collect()
}

/// Rows of subjects that are described, none of which repeats a metric of a process at one instant: that
/// would begin another sweep, which parts of the run do not see.
fn one_sweep_per_instant(subjects: &BTreeMap<u64, SubjectRow>, rows: &[SampleRow]) -> Vec<SampleRow> {
    let mut latest: BTreeMap<_, u64> = BTreeMap::new();
    let mut is_first = |row: &&SampleRow| {
        subjects.get(&row.subject).is_some_and(|subject| {
            let key = (row.time_ns, subject.number, subject.start_ns, row.metric == Metric::Hwm);
            // Only a later program of the process may report it again.
            latest.insert(key, row.subject).is_none_or(|before| before < row.subject)
        })
    };
    rows.iter().filter(|row| is_first(row)).copied().collect()
}

fn merged(rows: &[SampleRow], parts: [BTreeMap<u64, SubjectRow>; 2]) -> RunMemory {
    let [mut left, right] = parts.map(|of| {
        let mut fold = RunFold::new(&of, Vec::new());
        fold.update(&rows.iter().filter(|row| of.contains_key(&row.subject)).copied().collect::<Vec<_>>());
        fold
    });
    left.merge(right);
    left.finish(None)
}

#[test]
fn a_part_without_memory_leaves_the_peak_of_the_other_where_it_was() {
    // Process 10 runs another program in the sweep at 10, so no sum has its high-water mark; its end is later.
    let process = subject(1, SubjectKind::Process, 10, 1);
    let program = SubjectRow { end_ns: Some(12), ..subject(2, SubjectKind::Process, 10, 1) };
    let other = subject(3, SubjectKind::Process, 11, 1);
    for program in [program.clone(), SubjectRow { end_ns: None, ..program }] {
        let all = subjects([process.clone(), program.clone(), other.clone()]);
        let rows = [row(10, 1, Metric::Hwm, 50), row(10, 2, Metric::Hwm, 1), row(11, 3, Metric::Rss, 0)];
        let whole = fold(&all, &[], &rows);
        assert_eq!((whole.peak_rss_bytes, whole.peak_time_ns), (50, Some(10)));
        let with_memory = || subjects([process.clone(), program.clone()]);
        assert_eq!(merged(&rows, [with_memory(), subjects([other.clone()])]), whole);
        let backwards = merged(&rows, [subjects([other.clone()]), with_memory()]);
        assert_eq!((backwards.peak_rss_bytes, backwards.peak_time_ns), (50, Some(10)));
    }
}

#[test]
fn a_peak_that_the_kernel_reported_at_the_end_is_dated_within_the_whole_run() {
    let ended =
        SubjectRow { end_ns: Some(20), peak_rss_bytes: Some(50), ..subject(1, SubjectKind::Process, 10, 1) };
    let other = subject(2, SubjectKind::Process, 11, 1);
    let rows = [row(10, 1, Metric::Threads, 1), row(30, 2, Metric::Rss, 0)];
    let whole = fold(&subjects([ended.clone(), other.clone()]), &[], &rows);
    assert_eq!((whole.peak_rss_bytes, whole.peak_time_ns), (50, Some(20)));
    assert_eq!(merged(&rows, [subjects([ended]), subjects([other])]), whole);
}

#[test]
fn what_processes_held_at_the_peak_is_known_if_the_first_part_has_no_memory() {
    let parts = [10, 11].map(|pid| subjects([subject(pid, SubjectKind::Process, pid, 1)]));
    let run = merged(&[row(1, 10, Metric::Rss, 0), row(1, 11, Metric::Rss, 7)], parts);
    let at_peak: Vec<_> = run.process_list.iter().map(|one| (one.pid, one.rss_at_peak_bytes)).collect();
    assert_eq!(at_peak, [(11, Some(7)), (10, Some(0))]);
}

proptest! {
    #[test]
    fn peaks_and_phases_are_those_of_an_oracle(
        subjects in processes(), rows in samples(), marks in proptest::collection::vec(0..30i64, 0..4), cut in 0..60usize,
    ) {
        let rows = possible(&subjects, &rows);
        let mut marks: Vec<Mark> = marks.into_iter().map(|at| mark(at, "m")).collect();
        let mut run = RunFold::new(&subjects, marks.clone());
        let (front, back) = rows.split_at(cut.min(rows.len()));
        run.update(front);
        run.finish(None);
        run.update(back);
        let run = run.finish(None);

        let instants = instants(&subjects, &rows);
        let all: Vec<(u64, i64)> = instants.iter().flat_map(|instant| instant.highest.clone()).collect();
        let highest = all.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0);
        // No process has had more than the run.
        let single = rows.iter().map(|row| row.value).max().unwrap_or(0);
        let is_single = single > highest;
        prop_assert_eq!(run.peak_rss_bytes, highest.max(single));
        let first = all.iter().filter(|(bytes, _)| *bytes == highest && highest > 0).map(|(_, at)| *at).min();
        prop_assert!(is_single || run.peak_time_ns == first);
        prop_assert_eq!(run.peak_seen_bytes, instants.iter().map(|instant| instant.sum).max().unwrap_or(0));

        marks.sort_by_key(|mark| mark.time_ns);
        let bounds: Vec<i64> = marks.iter().map(|mark| mark.time_ns).collect();
        for (at, phase) in run.phases.iter().enumerate() {
            let from = at.checked_sub(1).map_or(i64::MIN, |before| bounds[before]);
            let to = bounds.get(at).copied().unwrap_or(i64::MAX);
            let start = instants.iter().rfind(|instant| instant.time_ns < from).map_or(0, |instant| instant.sum);
            let inside = || instants.iter().filter(|instant| (from..to).contains(&instant.time_ns));
            let peaks = all.iter().filter(|(_, time_ns)| (from..to).contains(time_ns));
            let peak = peaks.map(|(bytes, _)| *bytes).max().unwrap_or(0).max(start);
            prop_assert_eq!(phase.start_rss_bytes, start);
            prop_assert!(phase.peak_rss_bytes == peak || is_single && phase.peak_rss_bytes == single);
            let end = inside().next_back().map_or(start, |instant| instant.sum);
            prop_assert_eq!(phase.end_rss_bytes, end);
        }
        for process in &run.process_list {
            let mine = |row: &&SampleRow| subjects[&row.subject].number == process.pid
                && subjects[&row.subject].start_ns == process.start_time_ns;
            let high = rows.iter().filter(mine).map(|row| row.value).max().unwrap_or(0);
            prop_assert_eq!(process.peak_rss_bytes, high);
        }
    }

    #[test]
    fn parts_merge_to_the_whole_but_for_the_peak_of_the_sum(
        subjects in processes(), rows in samples(), pick in any::<u8>(),
    ) {
        // All programs of a process are in one part.
        let is_left = |row: &SubjectRow| pick >> (row.number % 4) & 1 == 1;
        let rows = one_sweep_per_instant(&subjects, &rows);
        let part = |side: bool| {
            let of: BTreeMap<u64, SubjectRow> =
                subjects.iter().filter(|(_, row)| is_left(row) == side).map(|(id, row)| (*id, row.clone())).collect();
            let rows: Vec<SampleRow> = rows.iter().filter(|row| of.contains_key(&row.subject)).copied().collect();
            let mut fold = RunFold::new(&of, vec![mark(10, "m")]);
            fold.update(&rows);
            fold
        };
        let (mut merged, right) = (part(true), part(false));
        merged.merge(right);
        let merged = merged.finish(None);
        let whole = fold(&subjects, &[mark(10, "m")], &rows);
        prop_assert!(merged.peak_rss_bytes >= whole.peak_rss_bytes);
        if !merged.peak_is_bound {
            prop_assert_eq!((merged.peak_rss_bytes, merged.peak_time_ns), (whole.peak_rss_bytes, whole.peak_time_ns));
            let at_peak = |run: &RunMemory| {
                let at_peak = run.process_list.iter().map(|one| (one.pid, one.start_time_ns, one.rss_at_peak_bytes));
                at_peak.collect::<std::collections::BTreeSet<_>>()
            };
            prop_assert_eq!(at_peak(&merged), at_peak(&whole));
        }
        let peaks = |run: &RunMemory| {
            let mut peaks: Vec<_> = run
                .process_list
                .iter()
                .map(|process| (process.pid, process.start_time_ns, process.peak_rss_bytes, process.peak_time_ns))
                .collect();
            peaks.sort_unstable();
            peaks
        };
        prop_assert_eq!(peaks(&merged), peaks(&whole));
        prop_assert_eq!((merged.first_time_ns, merged.last_time_ns), (whole.first_time_ns, whole.last_time_ns));
    }

    #[test]
    fn absurd_rows_do_no_harm(
        subjects in processes(),
        rows in proptest::collection::vec((any::<i64>(), 0..9u64, 1..25u8, any::<u64>()), 0..60),
        marks in proptest::collection::vec(any::<i64>(), 0..4),
    ) {
        let rows: Vec<SampleRow> = rows
            .into_iter()
            .map(|(at, of, metric, value)| row(at, of, Metric::from_number(metric).unwrap(), value))
            .collect();
        let marks: Vec<Mark> = marks.into_iter().map(|at| mark(at, "m")).collect();
        let run = fold(&subjects, &marks, &rows);
        prop_assert!(run.first_time_ns <= run.last_time_ns);
        prop_assert!(run.peak_seen_bytes <= run.peak_rss_bytes);
        prop_assert!(run.process_list.iter().all(|process| process.rss_at_peak_bytes <= Some(run.peak_rss_bytes)));
        let mut fold: SubjectSeriesFold = SubjectSeriesFold::new(&subjects, 16);
        fold.update(&rows);
        for series in fold.finish() {
            let highest = series.points.iter().map(|point| point.live_bytes).max();
            prop_assert_eq!(highest, Some(series.peak_bytes));
            prop_assert!(series.points.len() <= 16 && series.points.is_sorted_by_key(|point| point.time_ns));
        }
    }
}
