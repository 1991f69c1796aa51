//! Highest values in intervals of time, of any number of ranks, without knowing beforehand how long a run takes.
//!
//! An interval is 2^`shift` nanoseconds long and begins at a multiple of that since 1970, so the intervals of any two
//! folds coincide, or each of one consists of whole ones of the other.

use serde::{Deserialize, Serialize};

/// Intervals that are kept at most; with more, two become one.
pub(crate) const MOST_COLUMNS: usize = 512;
/// Length of the first intervals: 2^20 ns, about a millisecond.
pub(crate) const FIRST_SHIFT: u32 = 20;

/// Highest values of one rank, interval by interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GridRow {
    first: i64,
    highest: Vec<u64>,
    last: u64,
}

impl GridRow {
    /// Sets the value from the interval `column` on. One that comes late counts in the latest interval.
    pub(crate) fn set(&mut self, column: i64, value: u64) {
        if self.highest.is_empty() {
            (self.first, self.last) = (column, value);
            self.highest.push(value);
            return;
        }
        self.hold_until(column);
        if let Some(highest) = self.highest.last_mut() {
            *highest = value.max(*highest);
        }
        self.last = value;
    }

    /// Lets the latest value hold up to the interval `column`.
    pub(crate) fn hold_until(&mut self, column: i64) {
        let missing = column.saturating_sub(self.first).saturating_add(1).max(0) as usize;
        if !self.highest.is_empty() && missing > self.highest.len() {
            self.highest.resize(missing, self.last);
        }
    }

    /// Makes one interval of every two.
    pub(crate) fn coarsen(&mut self) {
        let first = self.first >> 1;
        let mut highest: Vec<u64> = Vec::with_capacity(self.highest.len() / 2 + 1);
        for (column, value) in (self.first..).zip(&self.highest) {
            let at = ((column >> 1) - first) as usize;
            match highest.get_mut(at) {
                Some(known) => *known = (*known).max(*value),
                None => highest.push(*value),
            }
        }
        (self.first, self.highest) = (first, highest);
    }

    /// Adds the values of another row with intervals of the same length.
    pub(crate) fn add(&mut self, other: &Self) {
        if self.highest.is_empty() {
            *self = other.clone();
            return;
        }
        if other.highest.is_empty() {
            return;
        }
        let first = self.first.min(other.first);
        let end = self.end().max(other.end());
        let value = |row: &Self, column: i64| row.at(column).unwrap_or(0);
        let highest = (first..end).map(|at| value(self, at).saturating_add(value(other, at))).collect();
        *self = Self { first, highest, last: self.last.saturating_add(other.last) };
    }

    /// Whether it has no more intervals than a row may have, as one that was read from a file might.
    pub(crate) fn is_sound(&self) -> bool {
        self.highest.len() <= MOST_COLUMNS && self.first.checked_add(MOST_COLUMNS as i64).is_some()
    }

    /// First interval, none if there is no value.
    pub(crate) fn first(&self) -> Option<i64> {
        (!self.highest.is_empty()).then_some(self.first)
    }

    /// Interval after the last one.
    pub(crate) fn end(&self) -> i64 {
        self.first.saturating_add(self.highest.len() as i64)
    }

    /// Highest value in an interval; none before the first and after the last.
    pub(crate) fn at(&self, column: i64) -> Option<u64> {
        self.highest.get(usize::try_from(column.checked_sub(self.first)?).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_holds_until_the_next_and_intervals_keep_the_highest() {
        let mut row = GridRow::default();
        for (column, value) in [(7, 5), (7, 9), (7, 2), (10, 4), (9, 6)] {
            row.set(column, value);
        }
        let values = |row: &GridRow| (5..13).map(|column| row.at(column)).collect::<Vec<_>>();
        assert_eq!(values(&row), [None, None, Some(9), Some(2), Some(2), Some(6), None, None]);
        row.coarsen();
        assert_eq!((row.first(), row.end()), (Some(3), 6));
        assert_eq!([2, 3, 4, 5, 6].map(|column| row.at(column)), [None, Some(9), Some(2), Some(6), None]);
        let mut other = GridRow::default();
        other.set(5, 10);
        other.hold_until(6);
        row.add(&other);
        assert_eq!([3, 4, 5, 6].map(|column| row.at(column)), [Some(9), Some(2), Some(16), Some(10)]);
    }
}
