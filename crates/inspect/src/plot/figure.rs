//! The content of a plot in bytes and nanoseconds, before it is laid out.

use crate::plain::plain;

/// A value from an instant on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// When.
    pub time_ns: i64,
    /// How much.
    pub bytes: u64,
}

/// How points are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// A value holds until the next one.
    #[default]
    Steps,
    /// Values change evenly to the next one.
    Lines,
}

/// What a series is in the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// What the picture is about.
    #[default]
    Main,
    /// Something to compare that with.
    Beside,
}

/// The highest point of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// When.
    pub time_ns: i64,
    /// How much.
    pub bytes: u64,
}

/// A curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// The points, in order of time.
    pub points: Vec<Point>,
    /// Until when the last value holds.
    pub end_ns: i64,
    /// How they are connected.
    pub shape: Shape,
    /// What it is in the picture.
    pub role: Role,
    /// Its highest point, which may be known better than the points.
    pub peak: Option<Peak>,
}

impl Series {
    /// The value at an instant; none before the first point and after the end.
    pub fn at(&self, time_ns: i64) -> Option<u64> {
        let next = self.points.partition_point(|point| point.time_ns <= time_ns);
        let point = self.points.get(next.checked_sub(1)?)?;
        (time_ns <= self.end_ns).then_some(point.bytes)
    }

    /// The first of the highest points.
    pub fn highest(&self) -> Option<Peak> {
        let known = |peak: &Point| Peak { time_ns: peak.time_ns, bytes: peak.bytes };
        let first = self.points.iter().rev().max_by_key(|point| point.bytes).map(known);
        self.peak.or(first).filter(|peak| peak.bytes > 0)
    }
}

/// One of several parts that add up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// A value for every instant of the stack.
    pub values: Vec<u64>,
}

/// Parts that add up, one on top of the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stack {
    /// From when on the values hold, in order.
    pub times_ns: Vec<i64>,
    /// The parts, from the bottom up.
    pub layers: Vec<Layer>,
    /// Until when the last values hold.
    pub end_ns: i64,
}

impl Stack {
    /// The sum, as a series without a name.
    pub fn total(&self) -> Series {
        let value = |layer: &Layer, at: usize| layer.values.get(at).copied().unwrap_or(0);
        let sum = |at| self.layers.iter().fold(0, |sum: u64, layer| sum.saturating_add(value(layer, at)));
        let points = self.times_ns.iter().enumerate();
        let points = points.map(|(at, time_ns)| Point { time_ns: *time_ns, bytes: sum(at) });
        Series { points: points.collect(), end_ns: self.end_ns, ..Series::default() }
    }
}

/// A named span of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// From when.
    pub from_ns: i64,
    /// To when.
    pub to_ns: i64,
}

/// A line of output, or anything else to write at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// When.
    pub time_ns: i64,
    /// The series it stands at.
    pub series: usize,
    /// What it says.
    pub text: String,
}

/// A stack that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dot {
    /// When.
    pub time_ns: i64,
    /// The series it stands at.
    pub series: usize,
    /// Its frames, innermost first.
    pub lines: Vec<String>,
}

/// How instants are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeAxis {
    /// As time since 0.
    #[default]
    Elapsed,
    /// As time since a mark, which is 0.
    Marked,
    /// As time of day, in UTC.
    Clock,
}

/// What a picture shows: bytes over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// What it is about.
    pub title: String,
    /// What the vertical axis counts, as in `live bytes`.
    pub measure: String,
    /// Curves. Those that belong to a stack are not among them.
    pub series: Vec<Series>,
    /// Parts that add up, below the curves.
    pub stack: Option<Stack>,
    /// Named spans, in order.
    pub phases: Vec<Phase>,
    /// Texts at instants.
    pub notes: Vec<Note>,
    /// Stacks at instants.
    pub dots: Vec<Dot>,
    /// How instants are written.
    pub time: TimeAxis,
    /// Where the axis of time begins, if not with the first curve.
    pub from_ns: Option<i64>,
    /// What has to be known about the picture: what is missing, what is cut.
    pub remarks: Vec<String>,
}

impl Figure {
    /// First and last instant; none if there is nothing to show.
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let curves =
            self.series.iter().filter_map(|series| Some((series.points.first()?.time_ns, series.end_ns)));
        let stack = self.stack.iter().filter_map(|stack| Some((*stack.times_ns.first()?, stack.end_ns)));
        curves
            .chain(stack)
            .reduce(|(from, to), (first, end)| (from.min(first), to.max(end)))
            .map(|(from, to)| (self.from_ns.map_or(from, |earlier| from.min(earlier)), to))
    }

    /// The highest value of all.
    pub fn highest_bytes(&self) -> u64 {
        let stack = self.stack.as_ref().and_then(|stack| stack.total().highest());
        let curves = self.series.iter().filter_map(Series::highest);
        curves.chain(stack).map(|peak| peak.bytes).max().unwrap_or(0)
    }
}

/// Longest text that enters a picture.
const LONGEST: usize = 200;

/// Makes text of a trace fit for a picture: one line, nothing invisible, not endless.
pub fn label(text: &str) -> String {
    let text = plain(text.trim());
    // Characters that XML has no place for, even escaped.
    let shown = text.chars().filter(|c| !matches!(c, '\u{fffe}' | '\u{ffff}'));
    let mut short: String = shown.clone().take(LONGEST).collect();
    if shown.count() > LONGEST {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_one_line_without_anything_invisible() {
        assert_eq!(label(" a\nb\u{0}\u{202e}\u{ffff}\x1b[31m "), "a b[31m");
        assert_eq!(label(&"x".repeat(500)).chars().count(), LONGEST + 1);
    }

    #[test]
    fn a_value_holds_until_the_next_and_no_longer_than_the_end() {
        let points = [(10, 5), (20, 9), (30, 9)].map(|(time_ns, bytes)| Point { time_ns, bytes });
        let series = Series { points: points.into(), end_ns: 40, ..Series::default() };
        assert_eq!(
            [9, 10, 19, 20, 40, 41].map(|at| series.at(at)),
            [None, Some(5), Some(5), Some(9), Some(9), None]
        );
        assert_eq!(series.highest(), Some(Peak { time_ns: 20, bytes: 9 }));
    }
}
