//! Values of several groups over time, and their sum: what a picture is drawn from.
//!
//! A group is whatever the caller counts by: a process, a device, a kind. A value holds until the next one of
//! its group; values set at one instant count together, so that a sweep that finds one process grown and
//! another shrunk is no peak. Changes happened one after the other, however coarse the clock: of an instant
//! the highest value is kept before the last one. Memory depends on the limit and the number of groups, not
//! on how long it goes on.
//!
//! Every group keeps the extremes of its own intervals; the sum keeps its own, each with the values of all
//! groups at that instant, so that parts always add up.

mod by_place;
mod by_space;

use std::collections::{BTreeMap, BTreeSet};

use crate::usage::UsagePoint;
use crate::usage::reduce::{Reducer, Timed};

pub use by_place::{Place, PlaceCourseFold};
pub use by_space::{SpaceCourseFold, SpaceCourses};

/// A size as a change; absurd ones stay at the highest number.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Values of all groups at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, and the sum.
    pub total: UsagePoint,
    /// By group, in the order in which they were first set; shorter before later ones were.
    pub values: Vec<u64>,
}

impl Timed for Moment {
    fn point(&self) -> UsagePoint {
        self.total
    }
}

/// What became of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupCourse<K> {
    /// The group.
    pub group: K,
    /// Its values over time.
    pub points: Vec<UsagePoint>,
}

/// Values of groups over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Courses<K> {
    /// Each group by itself, in the order in which they were first set.
    pub groups: Vec<GroupCourse<K>>,
    /// All of them together.
    pub moments: Vec<Moment>,
    /// The last instant.
    pub end_ns: Option<i64>,
}

/// Folds values into [`Courses`].
#[derive(Clone, Debug)]
pub struct CourseFold<K> {
    limit: usize,
    groups: BTreeMap<K, usize>,
    lines: Vec<Reducer>,
    values: Vec<u64>,
    /// What changes of this instant raised each group to; 0 if none did.
    highs: Vec<u64>,
    /// Sum of the values.
    sum: u128,
    /// The highest sum that changes of this instant led to and that did not last, with its parts.
    high: Option<(u128, Vec<u64>)>,
    /// Whether the sum is what a change raised it to.
    is_raised: bool,
    changed: Vec<usize>,
    total: Reducer<Moment>,
    now_ns: Option<i64>,
    last_ns: Option<i64>,
    /// When groups end, the earliest first.
    ends: BTreeSet<(i64, usize)>,
}

impl<K: Ord + Clone> CourseFold<K> {
    /// Starts; at most `limit` points are kept of every group.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            groups: BTreeMap::new(),
            lines: Vec::new(),
            values: Vec::new(),
            highs: Vec::new(),
            sum: 0,
            high: None,
            is_raised: false,
            changed: Vec::new(),
            total: Reducer::new(limit),
            now_ns: None,
            last_ns: None,
            ends: BTreeSet::new(),
        }
    }

    /// A group has a value from an instant on. Instants that go back count as the latest one.
    pub fn set(&mut self, group: &K, time_ns: i64, bytes: u64) {
        self.go_to(time_ns);
        let at = self.index(group);
        self.replace(at, bytes);
    }

    /// A group has more than before, or less.
    pub fn change(&mut self, group: &K, time_ns: i64, by: i64) {
        self.go_to(time_ns);
        let at = self.index(group);
        let value = self.values[at].saturating_add_signed(by);
        self.replace(at, value);
        if by > 0 {
            self.highs[at] = self.highs[at].max(value);
            self.is_raised = true;
        }
    }

    fn replace(&mut self, at: usize, value: u64) {
        let before = self.values[at];
        if value < before {
            self.keep_high();
        }
        self.sum = self.sum - u128::from(before) + u128::from(value);
        self.values[at] = value;
        self.changed.push(at);
    }

    /// Keeps the sum and its parts before it falls, if changes of this instant led there.
    fn keep_high(&mut self) {
        if !std::mem::take(&mut self.is_raised) {
            return;
        }
        if self.high.as_ref().is_none_or(|(high, _)| *high < self.sum) {
            self.high = Some((self.sum, self.values.clone()));
        }
    }

    /// A group has nothing any more after an instant, which may lie ahead; saying it again changes nothing.
    pub fn end(&mut self, group: &K, time_ns: i64) {
        let at = self.index(group);
        self.ends.insert((time_ns, at));
    }

    fn index(&mut self, group: &K) -> usize {
        if let Some(at) = self.groups.get(group) {
            return *at;
        }
        let at = self.lines.len();
        self.groups.insert(group.clone(), at);
        self.lines.push(Reducer::new(self.limit));
        self.values.push(0);
        self.highs.push(0);
        at
    }

    fn go_to(&mut self, time_ns: i64) {
        let time_ns = self.last_ns.map_or(time_ns, |last| last.max(time_ns));
        while let Some((end_ns, at)) = self.ends.first().copied()
            && end_ns < time_ns
        {
            self.ends.pop_first();
            self.step_to(self.last_ns.map_or(end_ns, |last| last.max(end_ns)));
            self.replace(at, 0);
        }
        self.step_to(time_ns);
    }

    fn step_to(&mut self, time_ns: i64) {
        if self.now_ns != Some(time_ns) {
            self.settle();
            (self.now_ns, self.last_ns) = (Some(time_ns), Some(time_ns));
        }
    }

    /// All changes of an instant are in.
    fn settle(&mut self) {
        let Some(time_ns) = self.now_ns.take() else { return };
        self.changed.sort_unstable();
        self.changed.dedup();
        for at in self.changed.drain(..) {
            let (value, high) = (self.values[at], std::mem::take(&mut self.highs[at]));
            let highest = (high > value).then_some(high);
            for live_bytes in highest.into_iter().chain([value]) {
                self.lines[at].push(UsagePoint { time_ns, live_bytes });
            }
        }
        self.is_raised = false;
        let highest = self.high.take().filter(|(high, _)| *high > self.sum);
        for (sum, values) in highest.into_iter().chain([(self.sum, self.values.clone())]) {
            let live_bytes = u64::try_from(sum).unwrap_or(u64::MAX);
            self.total.push(Moment { total: UsagePoint { time_ns, live_bytes }, values });
        }
    }

    /// Returns the courses so far; the fold may go on afterwards.
    pub fn finish(&self) -> Courses<K> {
        let mut whole = self.clone();
        while let Some((end_ns, _)) = whole.ends.first().copied() {
            whole.go_to(end_ns.saturating_add(1));
        }
        whole.settle();
        let mut groups: Vec<(usize, GroupCourse<K>)> = whole
            .groups
            .into_iter()
            .map(|(group, at)| (at, GroupCourse { group, points: whole.lines[at].points() }))
            .collect();
        groups.sort_by_key(|(at, _)| *at);
        let groups = groups.into_iter().map(|(_, group)| group).collect();
        Courses { groups, moments: whole.total.points(), end_ns: whole.last_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(courses: &Courses<&'static str>) -> Vec<(i64, u64)> {
        courses.moments.iter().map(|moment| (moment.total.time_ns, moment.total.live_bytes)).collect()
    }

    #[test]
    fn values_of_one_instant_count_together_and_ends_give_back() {
        let mut fold = CourseFold::new(100);
        fold.set(&"a", 1, 10);
        fold.set(&"b", 1, 5);
        fold.end(&"b", 3);
        fold.set(&"a", 2, 4);
        fold.set(&"b", 2, 11);
        fold.set(&"a", 9, 6);
        let courses = fold.finish();
        assert_eq!(totals(&courses), [(1, 15), (2, 15), (3, 4), (9, 6)]);
        assert_eq!(courses.moments[1].values, [4, 11]);
        assert_eq!(
            courses.groups[1].points.last().map(|point| (point.time_ns, point.live_bytes)),
            Some((3, 0))
        );
        assert_eq!(courses.end_ns, Some(9));
    }

    #[test]
    fn however_few_points_the_highest_sum_stays_with_its_parts() {
        let mut fold = CourseFold::new(30);
        for at in 0..10_000i64 {
            fold.set(&"a", at, (at % 13) as u64);
            fold.set(&"b", at, if at == 6130 { 500 } else { 1 });
        }
        let courses = fold.finish();
        assert!(courses.moments.len() <= 30);
        let highest = courses.moments.iter().max_by_key(|moment| moment.total.live_bytes).unwrap();
        assert_eq!((highest.total.time_ns, highest.values.clone()), (6130, vec![7, 500]));
    }

    #[test]
    fn changes_add_up_and_time_never_goes_back() {
        let mut fold = CourseFold::new(100);
        fold.change(&"a", 5, 7);
        fold.change(&"a", 4, 3);
        fold.change(&"a", 6, -20);
        assert_eq!(totals(&fold.finish()), [(5, 10), (6, 0)]);
    }

    #[test]
    fn what_an_instant_rose_to_is_kept_before_what_it_ends_with() {
        let mut fold = CourseFold::new(100);
        fold.change(&"a", 1, 10);
        fold.change(&"b", 2, 90);
        fold.change(&"a", 2, -10);
        fold.change(&"a", 2, 5);
        fold.change(&"b", 2, -90);
        fold.change(&"a", 3, -5);
        let courses = fold.finish();
        assert_eq!(totals(&courses), [(1, 10), (2, 100), (2, 5), (3, 0)]);
        assert_eq!(courses.moments[1].values, [10, 90]);
        let of = |at: usize| -> Vec<(i64, u64)> {
            courses.groups[at].points.iter().map(|point| (point.time_ns, point.live_bytes)).collect()
        };
        assert_eq!(of(0), [(1, 10), (2, 5), (3, 0)]);
        assert_eq!(of(1), [(2, 90), (2, 0)]);
    }
}
