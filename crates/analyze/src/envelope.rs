//! Bounds of live bytes over time that can be added up, however the processes of a job are divided.
//!
//! An envelope has, for intervals on one grid that counts from the Unix epoch, the highest live bytes and blocks
//! and the last ones. Those of several processes add up: the sum of the last values was really reached at the end
//! of the interval, and the sum of the highest ones cannot be exceeded in it. So the peak of the sum lies between
//! two known figures, and an interval whose bound is below a sum that was reached need not be looked at.
//!
//! A change whose time goes back belongs where the change before it is, as in a scan. Blocks that are carried into a
//! window count one nanosecond before it, so that they come before all events of every process.
//!
//! Memory depends on [`MOST_INTERVALS`] alone: intervals double their width when there are too many.

use floodmark_event::Kind;
use serde::{Deserialize, Serialize};

use crate::change::Block;
use crate::fold::{End, Fold};
use crate::level::Level;

/// Most intervals of an envelope. One should be shorter than a fifth of a step of the program; see
/// [`PeakSearch`](crate::peaks::PeakSearch).
pub const MOST_INTERVALS: usize = 1 << 14;

/// Bounds of live bytes and blocks of one tally.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Binary logarithm of the width of an interval in nanoseconds.
    shift: u32,
    /// Intervals in which something changed, in order.
    intervals: Vec<Interval>,
}

/// What is known of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interval {
    /// Number of the interval since the epoch.
    pub(crate) index: i64,
    pub(crate) high: Height,
    pub(crate) last: Height,
    pub(crate) changes: u64,
}

/// Live bytes and blocks, which need not be of one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Height {
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
}

impl Height {
    fn max(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), blocks: self.blocks.max(other.blocks) }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            blocks: self.blocks.saturating_add(other.blocks),
        }
    }
}

impl Envelope {
    /// Takes in what holds from `time_ns` on, which is not before the times so far.
    #[inline]
    fn push(&mut self, time_ns: i64, height: Height) {
        let index = time_ns >> self.shift;
        match self.intervals.last_mut() {
            Some(last) if index <= last.index => {
                last.high = last.high.max(height);
                last.last = height;
                last.changes += 1;
            }
            _ => self.begin(index, height),
        }
    }

    #[inline(never)]
    fn begin(&mut self, index: i64, height: Height) {
        let before = self.intervals.last().map_or_else(Height::default, |last| last.last);
        self.intervals.push(Interval { index, high: before.max(height), last: height, changes: 1 });
        self.keep_few();
    }

    fn keep_few(&mut self) {
        while self.intervals.len() > MOST_INTERVALS {
            self.widen(self.shift + 1);
        }
    }

    /// Makes intervals wider, to `1 << shift` nanoseconds.
    pub(crate) fn widen(&mut self, shift: u32) {
        let by = shift.saturating_sub(self.shift);
        if by == 0 {
            return;
        }
        // Shifting by all bits is not defined, and beyond 63 nothing changes.
        let wider = |index: i64| index >> by.min(63);
        self.shift += by;
        self.intervals.dedup_by(|later, earlier| {
            let is_same = wider(later.index) == wider(earlier.index);
            if is_same {
                earlier.high = earlier.high.max(later.high);
                earlier.last = later.last;
                earlier.changes += later.changes;
            }
            is_same
        });
        for interval in &mut self.intervals {
            interval.index = wider(interval.index);
        }
    }

    /// Adds the envelope of other processes.
    pub(crate) fn add(&mut self, mut other: Self) {
        let shift = self.shift.max(other.shift);
        self.widen(shift);
        other.widen(shift);
        let mut sum = Vec::with_capacity(self.intervals.len() + other.intervals.len());
        let (mut ours, mut theirs) = (Walk::new(&self.intervals), Walk::new(&other.intervals));
        while let Some(index) = ours.next_index().into_iter().chain(theirs.next_index()).min() {
            let (one, two) = (ours.at(index), theirs.at(index));
            sum.push(Interval {
                index,
                high: one.high.plus(two.high),
                last: one.last.plus(two.last),
                changes: one.changes + two.changes,
            });
        }
        self.intervals = sum;
        self.keep_few();
    }

    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    pub(crate) fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// The highest value that no instant exceeds.
    pub(crate) fn upper(&self) -> Height {
        self.intervals.iter().fold(Height::default(), |high, interval| high.max(interval.high))
    }

    /// The highest value at the end of an interval, which was really reached.
    pub(crate) fn lower(&self) -> Height {
        self.intervals.iter().fold(Height::default(), |high, interval| high.max(interval.last))
    }

    /// Whether the intervals are in order, as those that were read from a file may not be.
    pub(crate) fn is_sound(&self) -> bool {
        self.shift < 64 && self.intervals.windows(2).all(|pair| pair[0].index < pair[1].index)
    }
}

/// Walks along intervals, of which some are left out because nothing changed in them.
struct Walk<'a> {
    rest: &'a [Interval],
    last: Height,
}

impl<'a> Walk<'a> {
    fn new(rest: &'a [Interval]) -> Self {
        Self { rest, last: Height::default() }
    }

    fn next_index(&self) -> Option<i64> {
        self.rest.first().map(|interval| interval.index)
    }

    /// The interval with this number, which is not behind the next one.
    fn at(&mut self, index: i64) -> Interval {
        match self.rest.split_first() {
            Some((next, rest)) if next.index == index => {
                (self.rest, self.last) = (rest, next.last);
                *next
            }
            _ => Interval { index, high: self.last, last: self.last, changes: 0 },
        }
    }
}

/// Folds events into the envelopes of all tallies.
#[derive(Clone, Debug)]
pub struct EnvelopeFold {
    pub(crate) tallies: [Envelope; Kind::ALL.len()],
    latest_ns: i64,
}

impl Default for EnvelopeFold {
    fn default() -> Self {
        Self { tallies: Default::default(), latest_ns: i64::MIN }
    }
}

impl EnvelopeFold {
    #[inline]
    fn change(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.latest_ns = self.latest_ns.max(time_ns);
        let height = Height { bytes: level.live_bytes, blocks: level.live_blocks };
        self.tallies[usize::from(block.tally)].push(self.latest_ns, height);
    }
}

impl Fold for EnvelopeFold {
    type Output = ();

    fn carried(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.change(block, time_ns.saturating_sub(1), level);
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(points: &[(i64, u64)], shift: u32) -> Envelope {
        let mut envelope = Envelope { shift, ..Envelope::default() };
        for (time_ns, bytes) in points {
            envelope.push(*time_ns, Height { bytes: *bytes, blocks: 1 });
        }
        envelope
    }

    fn highs(envelope: &Envelope) -> Vec<(i64, u64, u64)> {
        envelope.intervals.iter().map(|one| (one.index, one.high.bytes, one.last.bytes)).collect()
    }

    #[test]
    fn what_holds_when_an_interval_begins_counts_in_it() {
        let one = envelope(&[(1, 10), (2, 4), (9, 1)], 2);
        assert_eq!(highs(&one), [(0, 10, 4), (2, 4, 1)]);
        assert_eq!((one.upper().bytes, one.lower().bytes), (10, 4));
    }

    #[test]
    fn sums_hold_at_the_ends_of_intervals_and_bound_what_is_between() {
        let mut sum = envelope(&[(1, 10), (2, 4), (9, 1)], 2);
        sum.add(envelope(&[(5, 7), (6, 2)], 1));
        assert_eq!(highs(&sum), [(0, 10, 4), (1, 11, 6), (2, 6, 3)]);
    }

    #[test]
    fn there_are_never_more_intervals_than_allowed() {
        let points: Vec<(i64, u64)> = (0..100_000).map(|at| (at * 1000, at as u64 % 977)).collect();
        let one = envelope(&points, 0);
        assert!(one.intervals.len() <= MOST_INTERVALS && one.intervals.len() > MOST_INTERVALS / 4);
        assert_eq!(one.upper().bytes, 976);
        assert_eq!(one.intervals.iter().map(|interval| interval.changes).sum::<u64>(), 100_000);
        assert!(one.is_sound());
    }
}
