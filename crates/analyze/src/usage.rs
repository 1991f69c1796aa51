//! Live bytes over time.
//!
//! A timeline has a point per change of live bytes. Changes of one instant that go the same way are
//! one point, so that of each instant every extreme and the final value remain.

mod active;
pub mod index;
pub(crate) mod reduce;

use floodmark_event::Kind;
use serde::{Deserialize, Serialize};

use crate::change::Block;
use crate::fold::{End, Fold};
use crate::level::Level;
pub use crate::usage::active::active_part;
use crate::usage::reduce::{Collapse, Reducer};
use floodmark_event::filter::Filter;

/// How many points to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageMode {
    /// Every change of live bytes. Memory grows with the number of changes; see [`UsageStream`].
    Exact,
    /// At most this many points (at least 16), which keep the maximum and minimum of every interval
    /// and the peak exactly. Every change, if there are no more of them than that.
    Reduced(usize),
}

/// Live bytes from an instant on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsagePoint {
    /// From when on.
    pub time_ns: i64,
    /// Live bytes.
    pub live_bytes: u64,
}

/// Live bytes of the kinds covered, over time: a step function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Kinds the points cover.
    #[serde(with = "crate::json::kinds")]
    pub kinds: Vec<Kind>,
    /// Whether every change is a point.
    pub exact: bool,
    /// Number of points when every change is one.
    pub changes: u64,
    /// Width of the intervals, counted from the first point, whose extremes are kept; none if exact.
    pub interval_ns: Option<u64>,
    /// Instant that elapsed times count from.
    #[serde(default)]
    pub origin_time_ns: Option<i64>,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// First instant of the highest live bytes.
    pub peak_time_ns: Option<i64>,
    /// Live bytes at the end.
    pub live_bytes: u64,
    /// Time of the first event looked at.
    pub first_time_ns: Option<i64>,
    /// The end: the last value holds until then.
    pub end_time_ns: Option<i64>,
    /// The points, in order; several may share an instant, of which the last holds from then on.
    pub points: Vec<UsagePoint>,
    /// Kinds that are not covered.
    pub others: Vec<UsageSeries>,
}

/// Live bytes of one kind over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSeries {
    /// The kind, by name in JSON.
    #[serde(with = "crate::json::kind")]
    pub kind: Kind,
    /// Whether every change is a point.
    pub exact: bool,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// First instant of the highest live bytes.
    pub peak_time_ns: Option<i64>,
    /// Live bytes at the end.
    pub live_bytes: u64,
    /// The points, in order.
    pub points: Vec<UsagePoint>,
}

/// Folds events into [`Usage`].
#[derive(Clone, Debug)]
pub struct UsageFold {
    mode: UsageMode,
    timelines: [Option<Box<Timeline>>; Kind::ALL.len()],
}

/// The timeline of one tally.
#[derive(Clone, Debug)]
struct Timeline {
    collapse: Collapse,
    points: Points,
    changes: u64,
}

#[derive(Clone, Debug)]
enum Points {
    Exact(Vec<UsagePoint>),
    Reduced(Reducer),
}

impl Timeline {
    fn new(mode: UsageMode) -> Self {
        let points = match mode {
            UsageMode::Exact => Points::Exact(Vec::new()),
            UsageMode::Reduced(limit) => Points::Reduced(Reducer::new(limit)),
        };
        Self { collapse: Collapse::default(), points, changes: 0 }
    }

    fn keep(&mut self, point: UsagePoint) {
        self.changes += 1;
        match &mut self.points {
            Points::Exact(points) => points.push(point),
            Points::Reduced(reducer) => reducer.push(point),
        }
    }

    /// Returns the points so far, and the width of the intervals they stand for.
    fn points(&self) -> (Vec<UsagePoint>, Option<u64>, u64) {
        let mut whole = self.clone();
        if let Some(held) = self.collapse.held() {
            whole.keep(held);
        }
        match whole.points {
            Points::Exact(points) => (points, None, whole.changes),
            Points::Reduced(reducer) => (reducer.points(), reducer.width_ns(), whole.changes),
        }
    }
}

impl UsageFold {
    /// Starts a timeline.
    pub fn new(mode: UsageMode) -> Self {
        Self { mode, timelines: Default::default() }
    }

    #[inline]
    fn change(&mut self, block: &Block, time_ns: i64, level: &Level) {
        if block.bytes == 0 {
            return;
        }
        let mode = self.mode;
        let timeline =
            self.timelines[usize::from(block.tally)].get_or_insert_with(|| Box::new(Timeline::new(mode)));
        if let Some(point) = timeline.collapse.push(UsagePoint { time_ns, live_bytes: level.live_bytes }) {
            timeline.keep(point);
        }
    }

    fn points(&self, tally: u8) -> (Vec<UsagePoint>, Option<u64>, u64) {
        self.timelines[usize::from(tally)]
            .as_ref()
            .map_or_else(Default::default, |timeline| timeline.points())
    }
}

impl Fold for UsageFold {
    type Output = Usage;

    #[inline]
    fn begins(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.change(block, time_ns, level);
    }

    #[inline]
    fn ends(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.change(block, time_ns, level);
    }

    fn finish(&self, end: &End<'_>) -> Usage {
        let tallies = end.live.tallies();
        let level = tallies.main_level();
        let (points, interval_ns, changes) = self.points(tallies.main());
        let series = |(tally, kind)| {
            let level = tallies.level(tally);
            let (points, interval_ns, _) = self.points(tally);
            UsageSeries {
                kind,
                exact: interval_ns.is_none(),
                peak_bytes: level.peak_bytes,
                peak_time_ns: level.peak_time_ns,
                live_bytes: level.live_bytes,
                points,
            }
        };
        Usage {
            kinds: tallies.main_kinds(),
            exact: interval_ns.is_none(),
            changes,
            interval_ns,
            origin_time_ns: end.live.origin_ns(),
            peak_bytes: level.peak_bytes,
            peak_time_ns: level.peak_time_ns,
            live_bytes: level.live_bytes,
            first_time_ns: end.live.counters().first_time_ns,
            end_time_ns: end.live.end_ns(),
            points,
            others: tallies.others().map(series).collect(),
        }
    }
}

/// Hands every change of live bytes to a function as it happens, so that memory stays bounded.
///
/// The function gets the kind too, or none if kinds were chosen and points are their sum. Points of all kinds
/// are handed over in the order of time.
#[derive(Clone, Debug)]
pub struct UsageStream<S> {
    sink: S,
    summed: bool,
    collapses: [(Kind, Collapse); Kind::ALL.len()],
    /// Time of the points held back.
    held_ns: Option<i64>,
}

impl<S: FnMut(Option<Kind>, UsagePoint)> UsageStream<S> {
    /// Starts a timeline that goes to `sink`; `filter` is that of the pass.
    pub fn new(filter: &Filter, sink: S) -> Self {
        Self { sink, summed: filter.kinds.is_some(), collapses: Default::default(), held_ns: None }
    }

    /// Hands over the last points, which are held back in case more changes share their instant.
    pub fn flush(&mut self) {
        for (kind, collapse) in &mut self.collapses {
            if let Some(point) = collapse.take() {
                (self.sink)((!self.summed).then_some(*kind), point);
            }
        }
    }

    fn change(&mut self, block: &Block, time_ns: i64, level: &Level) {
        if block.bytes == 0 {
            return;
        }
        // No change shares the instant of the points held back any more, of whichever kind they are.
        if self.held_ns.replace(time_ns) != Some(time_ns) {
            self.flush();
        }
        let (kind, collapse) = &mut self.collapses[usize::from(block.tally)];
        *kind = block.kind;
        if let Some(point) = collapse.push(UsagePoint { time_ns, live_bytes: level.live_bytes }) {
            (self.sink)((!self.summed).then_some(*kind), point);
        }
    }
}

impl<S: FnMut(Option<Kind>, UsagePoint)> Fold for UsageStream<S> {
    type Output = ();

    #[inline]
    fn begins(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.change(block, time_ns, level);
    }

    #[inline]
    fn ends(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.change(block, time_ns, level);
    }

    fn finish(&self, _end: &End<'_>) {}
}
