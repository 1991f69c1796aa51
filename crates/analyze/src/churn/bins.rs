//! Counts by interval of time, where the length of the whole is not known before its end.

use super::ChurnInterval;

/// Time is divided into at most so many intervals.
pub const INTERVALS_MAX: usize = 128;
/// Length of an interval to begin with, as a power of two in nanoseconds.
const SHIFT_MIN: u32 = 10;

/// How time is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bins {
    /// Where the first interval begins; none before the first allocation.
    from_ns: Option<i64>,
    /// An interval has 2 to this power nanoseconds.
    shift: u32,
}

impl Default for Bins {
    fn default() -> Self {
        Self { from_ns: None, shift: SHIFT_MIN }
    }
}

impl Bins {
    /// Returns the interval of an instant, and how often intervals were doubled to make room for it.
    pub(super) fn at(&mut self, time_ns: i64) -> (u16, u32) {
        let from_ns = *self.from_ns.get_or_insert(time_ns);
        // Clocks of logs may go back.
        let elapsed_ns = time_ns.saturating_sub(from_ns).max(0) as u64;
        let before = self.shift;
        while elapsed_ns >> self.shift >= INTERVALS_MAX as u64 {
            self.shift += 1;
        }
        ((elapsed_ns >> self.shift) as u16, self.shift - before)
    }

    pub(super) fn width_ns(&self) -> u64 {
        1 << self.shift
    }

    pub(super) fn intervals(&self, series: &Series) -> Vec<ChurnInterval> {
        let (allocations, bytes) = series.dense(series.len());
        let (mut all_allocations, mut all_bytes) = (0u64, 0u64);
        let intervals = allocations.into_iter().zip(bytes).enumerate();
        intervals
            .map(|(at, (allocations, bytes))| {
                all_allocations += allocations;
                all_bytes = all_bytes.saturating_add(bytes);
                let after_ns = i64::try_from((at as u64) << self.shift).unwrap_or(i64::MAX);
                ChurnInterval {
                    from_ns: self.from_ns.unwrap_or(0).saturating_add(after_ns),
                    allocations,
                    bytes,
                    cumulative_allocations: all_allocations,
                    cumulative_bytes: all_bytes,
                }
            })
            .collect()
    }
}

/// Allocations and bytes of the intervals that have any, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Series(Vec<(u16, u64, u64)>);

impl Series {
    pub(super) fn add(&mut self, bin: u16, bytes: u64) {
        self.add_counts(bin, 1, bytes);
    }

    fn add_counts(&mut self, bin: u16, allocations: u64, bytes: u64) {
        let at = match self.0.last() {
            Some((last, ..)) if *last == bin => Ok(self.0.len() - 1),
            Some((last, ..)) if *last < bin => Err(self.0.len()),
            _ => self.0.binary_search_by_key(&bin, |entry| entry.0),
        };
        match at {
            Ok(at) => {
                let entry = &mut self.0[at];
                *entry = (bin, entry.1 + allocations, entry.2.saturating_add(bytes));
            }
            Err(at) => self.0.insert(at, (bin, allocations, bytes)),
        }
    }

    /// Joins neighbors because intervals were doubled.
    pub(super) fn coarsen(&mut self, doublings: u32) {
        for (bin, allocations, bytes) in std::mem::take(&mut self.0) {
            self.add_counts(bin.checked_shr(doublings).unwrap_or(0), allocations, bytes);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (bin, allocations, bytes) in &other.0 {
            self.add_counts(*bin, *allocations, *bytes);
        }
    }

    /// How many intervals it reaches over.
    pub(super) fn len(&self) -> usize {
        self.0.last().map_or(0, |(bin, ..)| usize::from(*bin) + 1)
    }

    /// Allocations and bytes of every interval.
    pub(super) fn dense(&self, count: usize) -> (Vec<u64>, Vec<u64>) {
        let (mut allocations, mut bytes) = (vec![0; count], vec![0; count]);
        for (bin, own_allocations, own_bytes) in &self.0 {
            allocations[usize::from(*bin)] = *own_allocations;
            bytes[usize::from(*bin)] = *own_bytes;
        }
        (allocations, bytes)
    }
}
