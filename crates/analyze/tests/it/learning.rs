//! Folds of samples that learn of subjects and marks as they come find what they find when all is known
//! beforehand.

use std::collections::BTreeMap;

use floodmark_analyze::{
    Mark, RunFold, RunMemory, SampleState, SeriesKey, SubjectSeries, SubjectSeriesFold, SweepFold,
};
use floodmark_event::{Metric, SampleRow, SubjectKind, SubjectRow};
use proptest::prelude::*;

type Subjects = BTreeMap<u64, SubjectRow>;

fn subject(subject: u64, number: u64, end_ns: Option<i64>) -> SubjectRow {
    SubjectRow {
        start_ns: Some(1),
        end_ns,
        ..SubjectRow::new(subject, SubjectKind::Process, number, format!("program{subject}"))
    }
}

/// Programs, of which only the last one of a process has an end.
fn programs(list: &[(u64, Option<i64>)]) -> Subjects {
    let is_last = |at: usize| list[at + 1..].iter().all(|(number, _)| *number != list[at].0);
    let one = |(at, (number, end_ns)): (usize, &(u64, Option<i64>))| {
        (at as u64 + 1, subject(at as u64 + 1, *number, end_ns.filter(|_| is_last(at))))
    };
    list.iter().enumerate().map(one).collect()
}

/// What is known once samples of `time_ns` come, the subjects up to `last` among them.
fn known(subjects: &Subjects, last: u64, time_ns: i64) -> Subjects {
    let is_known =
        |(id, row): &(&u64, &SubjectRow)| **id <= last || row.end_ns.is_some_and(|end| end < time_ns);
    let mut known: Subjects = subjects.iter().filter(is_known).map(|(id, row)| (*id, row.clone())).collect();
    for row in known.values_mut() {
        row.end_ns = row.end_ns.filter(|end_ns| *end_ns < time_ns);
    }
    known
}

fn end_of(subjects: &Subjects, of: u64) -> Option<i64> {
    let number = subjects.get(&of)?.number;
    subjects.values().rfind(|row| row.number == number)?.end_ns
}

proptest! {
    #[test]
    fn what_is_learned_as_it_comes_is_what_was_known_beforehand(
        list in proptest::collection::vec((1..4u64, proptest::option::of(0..30i64)), 1..7),
        mut rows in proptest::collection::vec((0..25i64, 1..7u64, 0..50u64), 1..60),
        mut marks in proptest::collection::vec(0..30i64, 0..4),
        limit in prop_oneof![Just(16usize), Just(1000)],
    ) {
        let subjects = programs(&list);
        rows.sort_unstable_by_key(|row| row.0);
        marks.sort_unstable();
        let row = |(time_ns, subject, value)| SampleRow { time_ns, subject, metric: Metric::Rss, value };
        let rows: Vec<SampleRow> = rows.into_iter().map(row).collect();
        let is_possible = |row: &&SampleRow| subjects.contains_key(&row.subject)
            && end_of(&subjects, row.subject).is_none_or(|end_ns| row.time_ns <= end_ns);
        let rows: Vec<SampleRow> = rows.iter().filter(is_possible).copied().collect();
        let marks: Vec<Mark> = marks.into_iter().map(|time_ns| Mark { time_ns, name: "m".into() }).collect();

        let (mut run, mut series) = (RunFold::new(&subjects, marks.clone()), SubjectSeriesFold::new(&subjects, limit));
        run.update(&rows);
        series.update(&rows);

        let nobody = Subjects::new();
        let (mut later, mut lines) = (RunFold::new(&nobody, Vec::new()), SubjectSeriesFold::new(&nobody, limit));
        let (mut marks, mut last) = (marks.into_iter().peekable(), 0);
        for row in &rows {
            while let Some(mark) = marks.next_if(|mark| mark.time_ns <= row.time_ns) {
                later.mark(mark);
            }
            last = last.max(row.subject);
            let known = known(&subjects, last, row.time_ns);
            later.learn(&known);
            lines.learn(&known);
            later.update(std::slice::from_ref(row));
            lines.update(std::slice::from_ref(row));
        }
        marks.for_each(|mark| later.mark(mark));
        later.learn(&subjects);
        lines.learn(&subjects);
        // Of equal ones that comes first which was known first.
        let by_pid = |mut found: RunMemory| {
            found.process_list.sort_by_key(|process| process.pid);
            found
        };
        prop_assert_eq!(by_pid(later.finish(None)), by_pid(run.finish(None)));
        prop_assert_eq!(lines.finish(), series.finish());
    }

    #[test]
    fn all_readers_of_samples_find_the_same_peak(
        list in proptest::collection::vec((1..4u64, proptest::option::of(0..30i64)), 1..7),
        mut rows in proptest::collection::vec((0..25i64, 1..7u64, 0..50u64), 1..60),
    ) {
        let subjects = programs(&list);
        rows.sort_unstable_by_key(|row| row.0);
        let row = |(time_ns, subject, value)| SampleRow { time_ns, subject, metric: Metric::Rss, value };
        let rows: Vec<SampleRow> = rows.into_iter().map(row).filter(|row| subjects.contains_key(&row.subject)).collect();

        let key = SeriesKey { kind: SubjectKind::Process, metric: Metric::Rss };
        let (mut survey, mut sweeps) = (SampleState::new(&subjects), SweepFold::new(key));
        let mut lines: SubjectSeriesFold = SubjectSeriesFold::new(&subjects, 16);
        let mut run = RunFold::new(&subjects, Vec::new());
        sweeps.learn(&subjects);
        let mut highest = 0;
        for row in &rows {
            survey.push(row, &mut ());
            highest = sweeps.push(row).map_or(0, |sweep| sweep.total).max(highest);
        }
        survey.finish(&mut ());
        highest = sweeps.finish().map_or(0, |sweep| sweep.total).max(highest);
        run.update(&rows);
        lines.update(&rows);
        let drawn = lines.finish().into_iter().find(|line: &SubjectSeries| line.subject.is_none());
        prop_assert_eq!(drawn.map_or(0, |line| line.peak_bytes), highest);
        prop_assert_eq!(survey.peak(key).map_or(0, |peak| peak.live_bytes), highest);
        prop_assert_eq!(run.finish(None).peak_seen_bytes, highest);
    }

    #[test]
    fn a_window_of_a_line_has_what_the_line_has_there(
        mut rows in proptest::collection::vec((0..40i64, 0..50u64), 1..60), from in 0..40i64, width in 0..40i64,
    ) {
        rows.sort_unstable_by_key(|row| row.0);
        let subjects = programs(&[(1, None)]);
        let rows: Vec<SampleRow> = rows.into_iter()
            .map(|(time_ns, value)| SampleRow { time_ns, subject: 1, metric: Metric::Rss, value })
            .collect();
        let to = from + width;
        let mut window: SubjectSeriesFold = SubjectSeriesFold::new(&subjects, 1000).within(from, to);
        window.update(&rows);
        let line = |fold: SubjectSeriesFold| fold.finish().into_iter().find(|line| line.subject == Some(1)).unwrap();
        let window = line(window);
        let found: Vec<(i64, u64)> = window.points.iter().map(|point| (point.time_ns, point.live_bytes)).collect();
        let held = rows.iter().rfind(|row| row.time_ns < from).map(|row| (from, row.value));
        let inside: Vec<(i64, u64)> = rows.iter()
            .filter(|row| (from..=to).contains(&row.time_ns))
            .map(|row| (row.time_ns, row.value))
            .collect();
        let starts_there = inside.first().is_some_and(|(time_ns, _)| *time_ns == from);
        let expected: Vec<(i64, u64)> = held.filter(|_| !starts_there).into_iter().chain(inside).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(window.peak_bytes, rows.iter().map(|row| row.value).max().unwrap());
    }
}
