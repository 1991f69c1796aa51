//! Live bytes of a whole recording in fine intervals, from which long windows are answered without events.
//!
//! A long window has more intervals of the index than it can show points, and coarser intervals are unions of
//! the index's own; so the answer has the same extremes as one made from events. A short window needs events, but
//! only its own: the index knows the live bytes at the start of each interval, and whether sizes of the rows alone
//! tell how they go on ([`UsageIndex::is_plain`]).

use floodmark_event::{Action, EventBatch, Kind};
use serde::{Deserialize, Serialize};

use crate::change::{Block, Ending, UnmatchedFree};
use crate::fold::{End, Fold};
use crate::level::Level;
use crate::usage::reduce::{Collapse, Reducer};
use crate::usage::{Usage, UsagePoint};

/// Points that an index has at most: intervals are then a few hundred thousandths of the recording.
const POINTS: usize = 1 << 20;

/// Live bytes of a whole recording in fine intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageIndex {
    /// What the points are of.
    #[serde(with = "crate::json::kinds")]
    kinds: Vec<Kind>,
    /// Start of the first interval.
    origin_ns: i64,
    /// Binary logarithm of the width of intervals; none if every change is a point.
    shift: Option<u32>,
    points: Vec<UsagePoint>,
    end_ns: Option<i64>,
    is_plain: bool,
}

/// How to go about a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexedWindow {
    /// The answer.
    Known(Usage),
    /// Events from an instant on have to be read, before which there were so many live bytes.
    Read {
        /// From when on.
        from_ns: i64,
        /// Live bytes of earlier events.
        live_bytes: u64,
    },
}

impl UsageIndex {
    /// Whether live bytes are the sum of what rows allocate less the sum of what they free.
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Tells how to answer a window with at most `limit` points.
    ///
    /// A known answer begins where the first interval of the index begins that lies in the window as a whole.
    pub fn window(&self, from_ns: i64, to_ns: i64, limit: usize) -> IndexedWindow {
        let Some(shift) = self.shift else {
            return IndexedWindow::Known(self.of_points(from_ns, to_ns, Reducer::new(limit)));
        };
        let after_origin = from_ns.saturating_sub(self.origin_ns).max(0);
        let start_ns = self.origin_ns.saturating_add((after_origin >> shift) << shift);
        let next_ns = if start_ns < from_ns { start_ns.saturating_add(1 << shift) } else { start_ns };
        if self.upto(to_ns).saturating_sub(self.before(next_ns)) > limit {
            let reducer = Reducer::aligned(limit, self.origin_ns, shift);
            return IndexedWindow::Known(self.of_points(next_ns, to_ns, reducer));
        }
        IndexedWindow::Read { from_ns: start_ns, live_bytes: self.level_before(start_ns) }
    }

    /// Number of points before an instant.
    fn before(&self, time_ns: i64) -> usize {
        self.points.partition_point(|point| point.time_ns < time_ns)
    }

    /// Number of points up to an instant.
    fn upto(&self, time_ns: i64) -> usize {
        self.points.partition_point(|point| point.time_ns <= time_ns)
    }

    /// Live bytes before an instant at which an interval begins.
    fn level_before(&self, time_ns: i64) -> u64 {
        self.before(time_ns).checked_sub(1).map_or(0, |at| self.points[at].live_bytes)
    }

    fn of_points(&self, from_ns: i64, to_ns: i64, mut reducer: Reducer) -> Usage {
        let (first, after) = (self.before(from_ns), self.upto(to_ns));
        let own = &self.points[first..after.max(first)];
        let carried = UsagePoint { time_ns: from_ns, live_bytes: self.level_before(from_ns) };
        // A rise at the very beginning goes on from what was live, as one point.
        let rises = |next: &UsagePoint| next.time_ns == from_ns && next.live_bytes > carried.live_bytes;
        if carried.live_bytes > 0 && !own.first().is_some_and(rises) {
            reducer.push(carried);
        }
        for point in own {
            reducer.push(*point);
        }
        self.usage(reducer.points(), reducer.width_ns(), to_ns)
    }

    fn usage(&self, points: Vec<UsagePoint>, interval_ns: Option<u64>, to_ns: i64) -> Usage {
        let peak = points.iter().rev().max_by_key(|point| point.live_bytes).copied();
        Usage {
            kinds: self.kinds.clone(),
            exact: interval_ns.is_none(),
            changes: points.len() as u64,
            interval_ns,
            peak_bytes: peak.map_or(0, |peak| peak.live_bytes),
            peak_time_ns: peak.map(|peak| peak.time_ns),
            live_bytes: points.last().map_or(0, |last| last.live_bytes),
            first_time_ns: points.first().map(|first| first.time_ns),
            end_time_ns: self.end_ns.map(|end_ns| end_ns.min(to_ns)),
            points,
            ..Usage::default()
        }
    }

    /// Starts to answer a window that begins at `from_ns` from rows, before which there were so many live bytes; see
    /// [`IndexedWindow::Read`].
    pub fn rows(&self, from_ns: i64, live_bytes: u64, limit: usize) -> PlainRows<'_> {
        let (collapse, reducer) = (Collapse::default(), Reducer::new(limit));
        PlainRows { index: self, from_ns, live_bytes, is_inside: false, collapse, reducer }
    }
}

/// Adds up the sizes of rows where that tells live bytes.
#[derive(Debug)]
pub struct PlainRows<'a> {
    index: &'a UsageIndex,
    from_ns: i64,
    live_bytes: u64,
    /// Whether a row of the window was seen.
    is_inside: bool,
    collapse: Collapse,
    reducer: Reducer,
}

impl PlainRows<'_> {
    /// Takes in rows.
    pub fn update(&mut self, batch: &EventBatch) {
        for row in 0..batch.len() {
            let (time_ns, bytes) = (batch.time_ns.at(row), batch.bytes.at(row));
            if time_ns >= self.from_ns {
                self.enter();
            }
            match batch.action.at(row) {
                Action::Alloc => self.live_bytes = self.live_bytes.saturating_add(bytes),
                Action::Free => self.live_bytes = self.live_bytes.saturating_sub(bytes),
                Action::Failure => continue,
            }
            if bytes > 0 && self.is_inside {
                self.push(time_ns);
            }
        }
    }

    fn push(&mut self, time_ns: i64) {
        let point = UsagePoint { time_ns, live_bytes: self.live_bytes };
        if let Some(point) = self.collapse.push(point) {
            self.reducer.push(point);
        }
    }

    /// Begins the window with what was live before.
    fn enter(&mut self) {
        if !std::mem::replace(&mut self.is_inside, true) && self.live_bytes > 0 {
            self.push(self.from_ns);
        }
    }

    /// Returns the live bytes up to `to_ns`, behind which there was no row.
    pub fn finish(mut self, to_ns: i64) -> Usage {
        self.enter();
        if let Some(held) = self.collapse.take() {
            self.reducer.push(held);
        }
        self.index.usage(self.reducer.points(), self.reducer.width_ns(), to_ns)
    }
}

/// Makes a [`UsageIndex`] if there is one tally only and times never go back.
#[derive(Clone, Debug)]
pub struct UsageIndexFold {
    collapse: Collapse,
    reducer: Reducer,
    tally: Option<u8>,
    has_several: bool,
    /// Whether sizes of rows tell live bytes.
    is_plain: bool,
    /// Whether times never go back.
    is_ordered: bool,
    latest_ns: i64,
}

impl Default for UsageIndexFold {
    fn default() -> Self {
        Self::limited(POINTS)
    }
}

impl UsageIndexFold {
    /// Makes an index of at most this many points.
    pub fn limited(points: usize) -> Self {
        Self {
            collapse: Collapse::default(),
            reducer: Reducer::new(points),
            tally: None,
            has_several: false,
            is_plain: true,
            is_ordered: true,
            latest_ns: i64::MIN,
        }
    }
}

impl UsageIndexFold {
    #[inline]
    fn change(&mut self, block: &Block, time_ns: i64, level: &Level) {
        if *self.tally.get_or_insert(block.tally) != block.tally {
            self.has_several = true;
        }
        if block.bytes == 0 || self.has_several {
            return;
        }
        if let Some(point) = self.collapse.push(UsagePoint { time_ns, live_bytes: level.live_bytes }) {
            self.reducer.push(point);
        }
    }
}

impl Fold for UsageIndexFold {
    type Output = Option<UsageIndex>;

    #[inline]
    fn event(&mut self, _order: u64, time_ns: i64) {
        self.is_ordered &= time_ns >= self.latest_ns;
        self.latest_ns = time_ns;
    }

    #[inline]
    fn begins(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.change(block, time_ns, level);
    }

    fn carried(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.is_plain = false;
        self.change(block, time_ns, level);
    }

    #[inline]
    fn free(&mut self, block: &Block, ending: &Ending, level: &Level) {
        self.is_plain &= ending.bytes == block.bytes;
        self.change(block, ending.time_ns, level);
    }

    fn replaced(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.is_plain = false;
        self.change(block, time_ns, level);
    }

    fn unmatched_free(&mut self, _free: &UnmatchedFree) {
        self.is_plain = false;
    }

    fn finish(&self, end: &End<'_>) -> Option<UsageIndex> {
        let tallies = end.live.tallies();
        if !self.is_ordered || self.has_several || self.tally? != tallies.main() {
            return None;
        }
        let (mut collapse, mut reducer) = (self.collapse, self.reducer.clone());
        if let Some(held) = collapse.take() {
            reducer.push(held);
        }
        Some(UsageIndex {
            kinds: tallies.main_kinds(),
            origin_ns: reducer.origin_ns(),
            shift: reducer.width_ns().map(u64::ilog2),
            points: reducer.points(),
            end_ns: end.live.end_ns(),
            // Frees of the null address are rows that end nothing.
            is_plain: self.is_plain && end.live.counters().null_frees == 0,
        })
    }
}
