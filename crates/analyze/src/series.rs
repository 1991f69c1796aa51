//! Values of several groups over time, and their sum: what every line chart is drawn from.
//!
//! A group is whatever the caller counts by: a process, a device, a kind. A value holds until the next one of
//! its group, or until its group ends, which is a fall to nothing; values set at one instant count together, so
//! that a sweep that finds one process grown and another shrunk is no peak. Changes happened one after the other,
//! however coarse the clock: of an instant the highest value is kept before the last one, also of a group that is
//! set twice. Memory depends on the limit and the number of groups, not on how long it goes on.
//!
//! Every group keeps the extremes of its own intervals; the sum keeps its own. [`StackedPoint`]s have the values of all
//! groups beside the sum, so that parts always add up; a caller that needs no parts keeps [`UsagePoint`]s.

mod by_domain;
mod by_space;
mod by_subject;

use std::collections::BTreeMap;

use crate::usage::UsagePoint;
use crate::usage::reduce::{Reducer, Timed};

pub use by_domain::{DomainSeriesFold, Place};
pub use by_space::{SpaceSeries, SpaceSeriesFold};
pub use by_subject::{SeriesMember, SubjectSeries, SubjectSeriesFold};

/// A size as a change; absurd ones stay at the highest number.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// What is kept of all groups at an instant.
pub trait SeriesPoint: Timed {
    /// Makes it of the sum and its parts.
    fn of(total: UsagePoint, values: &[u64]) -> Self;
}

/// The sum alone.
impl SeriesPoint for UsagePoint {
    fn of(total: UsagePoint, _values: &[u64]) -> Self {
        total
    }
}

/// Values of all groups at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackedPoint {
    /// When, and the sum.
    pub total: UsagePoint,
    /// By group, in the order in which they were first set; shorter before later ones were.
    pub values: Vec<u64>,
}

impl Timed for StackedPoint {
    fn point(&self) -> UsagePoint {
        self.total
    }
    fn at(self, time_ns: i64) -> Self {
        Self { total: self.total.at(time_ns), ..self }
    }
}

impl SeriesPoint for StackedPoint {
    fn of(total: UsagePoint, values: &[u64]) -> Self {
        Self { total, values: values.to_vec() }
    }
}

/// What became of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSeries<K> {
    /// The group.
    pub group: K,
    /// Its values over time.
    pub points: Vec<UsagePoint>,
    /// Width of the intervals whose extremes are kept; none if every change is a point.
    pub interval_ns: Option<u64>,
    /// The highest value and its first instant, wherever it lies.
    pub peak: UsagePoint,
}

/// Values of groups over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesSet<K, T = StackedPoint> {
    /// Each group by itself, in the order in which they were first set.
    pub groups: Vec<GroupSeries<K>>,
    /// All of them together.
    pub points: Vec<T>,
    /// Width of the intervals of which points are the extremes; none if every change is one.
    pub interval_ns: Option<u64>,
    /// The highest sum and its first instant, wherever it lies.
    pub peak: UsagePoint,
    /// The last instant, within the window.
    pub end_ns: Option<i64>,
}

/// Instants outside of which nothing is kept but what holds when they begin.
#[derive(Clone, Copy, Debug)]
struct Window {
    from_ns: i64,
    to_ns: i64,
}

/// Points of a group, or of all together.
#[derive(Clone, Debug)]
struct Line<P = UsagePoint> {
    points: Reducer<P>,
    /// What holds when the window opens, as long as no point is in it.
    held: Option<P>,
    peak: UsagePoint,
}

impl<P: Timed> Line<P> {
    fn new(limit: usize) -> Self {
        Self { points: Reducer::new(limit), held: None, peak: UsagePoint::default() }
    }

    fn push(&mut self, point: P, window: Window) {
        let at = point.point();
        if at.live_bytes > self.peak.live_bytes {
            self.peak = at;
        }
        if at.time_ns < window.from_ns {
            self.held = Some(point.at(window.from_ns));
        } else if at.time_ns <= window.to_ns {
            if at.time_ns == window.from_ns {
                self.held = None;
            }
            self.open();
            self.points.push(point);
        }
    }

    /// The window is open: what holds when it does is its first point.
    fn open(&mut self) {
        if let Some(held) = self.held.take() {
            self.points.push(held);
        }
    }
}

/// Folds values into [`SeriesSet`].
#[derive(Clone, Debug)]
pub struct SeriesFold<K, T = StackedPoint> {
    limit: usize,
    window: Window,
    groups: BTreeMap<K, usize>,
    lines: Vec<Line>,
    values: Vec<u64>,
    /// The highest that each group had at this instant; 0 if nothing was said of it.
    highs: Vec<u64>,
    /// Sum of the values.
    sum: u128,
    /// The highest sum that changes of this instant led to and that did not last.
    high: Option<(u128, T)>,
    /// Whether the sum is what a change raised it to.
    is_raised: bool,
    changed: Vec<usize>,
    total: Line<T>,
    now_ns: Option<i64>,
    last_ns: Option<i64>,
}

impl<K: Ord + Clone, T: SeriesPoint> SeriesFold<K, T> {
    /// Starts; at most `limit` points are kept of every group.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            window: Window { from_ns: i64::MIN, to_ns: i64::MAX },
            groups: BTreeMap::new(),
            lines: Vec::new(),
            values: Vec::new(),
            highs: Vec::new(),
            sum: 0,
            high: None,
            is_raised: false,
            changed: Vec::new(),
            total: Line::new(limit),
            now_ns: None,
            last_ns: None,
        }
    }

    /// Keeps what lies between two instants only; peaks stay those of everything.
    #[must_use]
    pub fn within(self, from_ns: i64, to_ns: i64) -> Self {
        Self { window: Window { from_ns, to_ns }, ..self }
    }

    /// A group has a value from an instant on. Instants that go back count as the latest one.
    pub fn set(&mut self, group: &K, time_ns: i64, bytes: u64) {
        self.go_to(time_ns);
        let at = self.index(group);
        self.replace(at, bytes);
        self.highs[at] = self.highs[at].max(bytes);
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
            self.high = Some((self.sum, self.together(self.now_ns.unwrap_or_default())));
        }
    }

    fn together(&self, time_ns: i64) -> T {
        let live_bytes = u64::try_from(self.sum).unwrap_or(u64::MAX);
        T::of(UsagePoint { time_ns, live_bytes }, &self.values)
    }

    /// Ends groups together: they have nothing any more after an instant. What was set at that very
    /// instant held until then. Groups that never had a value are ignored.
    pub fn end(&mut self, groups: &[K], time_ns: i64) {
        let known: Vec<usize> = groups.iter().filter_map(|group| self.groups.get(group).copied()).collect();
        if known.is_empty() {
            return;
        }
        self.step_to(self.last_ns.map_or(time_ns, |last| last.max(time_ns)));
        for at in known {
            if self.values[at] > 0 {
                self.replace(at, 0);
            }
        }
    }

    fn index(&mut self, group: &K) -> usize {
        if let Some(at) = self.groups.get(group) {
            return *at;
        }
        let at = self.lines.len();
        self.groups.insert(group.clone(), at);
        self.lines.push(Line::new(self.limit));
        self.values.push(0);
        self.highs.push(0);
        at
    }

    fn go_to(&mut self, time_ns: i64) {
        let time_ns = self.last_ns.map_or(time_ns, |last| last.max(time_ns));
        if self.now_ns != Some(time_ns) {
            self.step_to(time_ns);
        }
    }

    fn step_to(&mut self, time_ns: i64) {
        self.settle();
        (self.now_ns, self.last_ns) = (Some(time_ns), Some(time_ns));
    }

    /// Counts the changes so far together; further ones of the same instant count after them.
    pub fn settle(&mut self) {
        let Some(time_ns) = self.now_ns.take().filter(|_| !self.changed.is_empty()) else { return };
        self.changed.sort_unstable();
        self.changed.dedup();
        for at in self.changed.drain(..) {
            let (value, high) = (self.values[at], std::mem::take(&mut self.highs[at]));
            let highest = (high > value).then_some(high);
            for live_bytes in highest.into_iter().chain([value]) {
                self.lines[at].push(UsagePoint { time_ns, live_bytes }, self.window);
            }
        }
        self.is_raised = false;
        let highest = self.high.take().filter(|(high, _)| *high > self.sum);
        for together in highest.map(|(_, high)| high).into_iter().chain([self.together(time_ns)]) {
            self.total.push(together, self.window);
        }
    }

    /// Returns the series so far; the fold may go on afterwards.
    pub fn finish(&self) -> SeriesSet<K, T> {
        let mut whole = self.clone();
        whole.settle();
        whole.lines.iter_mut().for_each(Line::open);
        whole.total.open();
        let series = |(group, at): (K, usize)| {
            let Line { points, peak, .. } = &whole.lines[at];
            let (points, interval_ns) = (points.points(), points.width_ns());
            (at, GroupSeries { group, points, interval_ns, peak: *peak })
        };
        let mut groups: Vec<_> = whole.groups.into_iter().map(series).collect();
        groups.sort_by_key(|(at, _)| *at);
        SeriesSet {
            groups: groups.into_iter().map(|(_, group)| group).collect(),
            points: whole.total.points.points(),
            interval_ns: whole.total.points.width_ns(),
            peak: whole.total.peak,
            end_ns: whole.last_ns.map(|last_ns| last_ns.min(whole.window.to_ns).max(whole.window.from_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(series: &SeriesSet<&'static str>) -> Vec<(i64, u64)> {
        series.points.iter().map(|point| (point.total.time_ns, point.total.live_bytes)).collect()
    }

    #[test]
    fn values_of_one_instant_count_together_and_ends_give_back() {
        let mut fold = SeriesFold::new(100);
        fold.set(&"a", 1, 10);
        fold.set(&"b", 1, 5);
        fold.set(&"a", 2, 4);
        fold.set(&"b", 2, 11);
        fold.end(&["b", "c"], 3);
        fold.set(&"a", 9, 6);
        let series = fold.finish();
        assert_eq!(totals(&series), [(1, 15), (2, 15), (3, 4), (9, 6)]);
        assert_eq!(series.points[1].values, [4, 11]);
        assert_eq!(
            series.groups[1].points.last().map(|point| (point.time_ns, point.live_bytes)),
            Some((3, 0))
        );
        assert_eq!(series.end_ns, Some(9));
    }

    #[test]
    fn however_few_points_the_highest_sum_stays_with_its_parts() {
        let mut fold: SeriesFold<&str> = SeriesFold::new(30);
        for at in 0..10_000i64 {
            fold.set(&"a", at, (at % 13) as u64);
            fold.set(&"b", at, if at == 6130 { 500 } else { 1 });
        }
        let series = fold.finish();
        assert!(series.points.len() <= 30);
        let highest = series.points.iter().max_by_key(|point| point.total.live_bytes).unwrap();
        assert_eq!((highest.total.time_ns, highest.values.clone()), (6130, vec![7, 500]));
    }

    #[test]
    fn changes_add_up_and_time_never_goes_back() {
        let mut fold = SeriesFold::new(100);
        fold.change(&"a", 5, 7);
        fold.change(&"a", 4, 3);
        fold.change(&"a", 6, -20);
        assert_eq!(totals(&fold.finish()), [(5, 10), (6, 0)]);
    }

    #[test]
    fn what_an_instant_rose_to_is_kept_before_what_it_ends_with() {
        let mut fold = SeriesFold::new(100);
        fold.change(&"a", 1, 10);
        fold.change(&"b", 2, 90);
        fold.change(&"a", 2, -10);
        fold.change(&"a", 2, 5);
        fold.change(&"b", 2, -90);
        fold.change(&"a", 3, -5);
        let series = fold.finish();
        assert_eq!(totals(&series), [(1, 10), (2, 100), (2, 5), (3, 0)]);
        assert_eq!(series.points[1].values, [10, 90]);
        let of = |at: usize| -> Vec<(i64, u64)> {
            series.groups[at].points.iter().map(|point| (point.time_ns, point.live_bytes)).collect()
        };
        assert_eq!(of(0), [(1, 10), (2, 5), (3, 0)]);
        assert_eq!(of(1), [(2, 90), (2, 0)]);
    }

    #[test]
    fn what_is_read_when_a_group_ends_held_until_then() {
        let mut fold = SeriesFold::new(100);
        fold.set(&"a", 3, 8);
        fold.set(&"b", 3, 2);
        fold.end(&["a", "b"], 3);
        let series = fold.finish();
        assert_eq!(totals(&series), [(3, 10), (3, 0)]);
        assert_eq!((series.peak.live_bytes, series.end_ns), (10, Some(3)));
    }

    #[test]
    fn a_group_that_is_set_twice_at_once_keeps_its_peak() {
        let mut fold: SeriesFold<&str> = SeriesFold::new(100);
        fold.set(&"a", 1, 3);
        fold.set(&"a", 1, 9);
        fold.set(&"a", 1, 4);
        let series = fold.finish();
        let points = &series.groups[0].points;
        assert_eq!(points.iter().map(|point| point.live_bytes).collect::<Vec<_>>(), [9, 4]);
        assert_eq!(series.groups[0].peak.live_bytes, 9);
    }

    #[test]
    fn a_window_begins_with_what_holds_then_in_all_parts() {
        let mut fold = SeriesFold::new(100).within(5, 7);
        fold.set(&"a", 1, 90);
        fold.set(&"a", 2, 10);
        fold.set(&"b", 3, 1);
        fold.set(&"a", 6, 20);
        fold.set(&"b", 9, 70);
        let series = fold.finish();
        assert_eq!(totals(&series), [(5, 11), (6, 21)]);
        assert_eq!(series.points[0].values, [10, 1]);
        assert_eq!(series.groups[1].points, [UsagePoint { time_ns: 5, live_bytes: 1 }]);
        assert_eq!((series.peak.time_ns, series.peak.live_bytes), (1, 90));
        assert_eq!(series.end_ns, Some(7));
    }
}
