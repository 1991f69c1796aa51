//! Counters of the whole process, exact at every instant, for threads that hardly ever meet.
//!
//! A peak over all threads needs to know their sum, but only where the sum could be a new peak. So the
//! distance to the peak is dealt out: each shard has its own values and some *room*, and while an
//! allocation fits into the room it touches that shard alone. A free gives room back. An
//! allocation without enough room locks all shards, computes the sum and the peak, and deals the rest out anew.
//!
//! Invariant: the values and rooms of all shards together are never more than the peak. So the sum
//! cannot pass the peak unseen, and the peak is never set to more than a sum that was there.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{Counter, Counters, Requests};
use crate::spin::{Spin, SpinGuard};
use crate::thread;

/// Threads beyond share.
const SHARDS: usize = 32;

/// What all threads count.
#[derive(Default)]
pub(super) struct Whole {
    shards: [Shard; SHARDS],
    /// Which shards were ever used, as bits.
    used: AtomicU32,
    peaks: Spin<Peaks>,
}

/// A processor fetches lines of 64 bytes in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Shard(Spin<Values>);

#[derive(Clone, Copy, Default)]
struct Values {
    bytes: i64,
    blocks: i64,
    total_bytes: i64,
    total_blocks: i64,
    room_bytes: i64,
    room_blocks: i64,
    largest_bytes: u64,
}

#[derive(Default)]
struct Peaks {
    bytes: i64,
    blocks: i64,
    failures: u64,
    largest_failed_bytes: u64,
}

/// What a block counts for: at most 64 PiB, so that a claim beyond all memory does not upset the sums.
#[inline]
const fn countable(bytes: u64) -> i64 {
    const MOST: u64 = 1 << 56;
    if bytes < MOST { bytes as i64 } else { MOST as i64 }
}

impl Values {
    #[inline]
    fn allocated(&mut self, bytes: u64) {
        self.bytes += countable(bytes);
        self.blocks += 1;
        self.total_bytes = self.total_bytes.wrapping_add(countable(bytes));
        self.total_blocks += 1;
        self.largest_bytes = self.largest_bytes.max(bytes);
    }
}

impl Whole {
    #[inline]
    pub(super) fn allocated(&self, bytes: u64) {
        let number = thread::number() as usize % SHARDS;
        {
            let mut values = self.shards[number].0.lock();
            if countable(bytes) <= values.room_bytes && values.room_blocks > 0 {
                values.room_bytes -= countable(bytes);
                values.room_blocks -= 1;
                values.allocated(bytes);
                return;
            }
        }
        self.allocated_at_the_peak(number, bytes);
    }

    #[inline]
    pub(super) fn freed(&self, bytes: u64) {
        let number = thread::number() as usize % SHARDS;
        // Before others look: a shard that only frees counts too.
        self.note_use(number);
        let mut values = self.shards[number].0.lock();
        values.bytes -= countable(bytes);
        values.blocks -= 1;
        values.room_bytes += countable(bytes);
        values.room_blocks += 1;
    }

    #[inline]
    fn note_use(&self, number: usize) {
        if self.used.load(Ordering::Relaxed) & (1 << number) == 0 {
            self.used.fetch_or(1 << number, Ordering::Relaxed);
        }
    }

    #[cold]
    fn allocated_at_the_peak(&self, number: usize, bytes: u64) {
        self.note_use(number);
        let mut peaks = self.peaks.lock();
        let mut shards = self.all();
        if let Some(values) = shards.iter_mut().find(|(shard, _)| *shard == number) {
            values.1.allocated(bytes);
        }
        let sum = |of: fn(&Values) -> i64| shards.iter().map(|(_, values)| of(values)).sum::<i64>();
        let (live_bytes, live_blocks) = (sum(|values| values.bytes), sum(|values| values.blocks));
        peaks.bytes = peaks.bytes.max(live_bytes);
        peaks.blocks = peaks.blocks.max(live_blocks);
        let count = shards.len().max(1) as i64;
        for (_, values) in &mut shards {
            values.room_bytes = (peaks.bytes - live_bytes) / count;
            values.room_blocks = (peaks.blocks - live_blocks) / count;
        }
    }

    /// All shards that were ever used, held at once. Taken in order, and only under the peaks' lock.
    fn all(&self) -> Vec<(usize, SpinGuard<'_, Values>)> {
        let used = self.used.load(Ordering::Relaxed);
        let numbers = (0..SHARDS).filter(|number| used & (1 << number) != 0);
        numbers.map(|number| (number, self.shards[number].0.lock())).collect()
    }

    #[cold]
    pub(super) fn failed(&self, bytes: u64) {
        let mut peaks = self.peaks.lock();
        peaks.failures += 1;
        peaks.largest_failed_bytes = peaks.largest_failed_bytes.max(bytes);
    }

    pub(super) fn counters(&self) -> Counters {
        let peaks = self.peaks.lock();
        let shards = self.all();
        let sum = |of: fn(&Values) -> i64| shards.iter().map(|(_, values)| of(values)).sum::<i64>();
        Counters {
            bytes: Counter {
                value: sum(|values| values.bytes),
                peak: peaks.bytes,
                total: sum(|values| values.total_bytes),
            },
            allocations: Counter {
                value: sum(|values| values.blocks),
                peak: peaks.blocks,
                total: sum(|values| values.total_blocks),
            },
        }
    }

    pub(super) fn requests(&self) -> Requests {
        let peaks = self.peaks.lock();
        Requests {
            largest_bytes: self.all().iter().map(|(_, values)| values.largest_bytes).max().unwrap_or(0),
            failures: peaks.failures,
            largest_failed_bytes: peaks.largest_failed_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Several threads, played by one so that there is an order to compare with.
        #[test]
        fn sums_and_peaks_are_exact_in_every_order(steps in prop::collection::vec((0_usize..5, 0_u64..1000, any::<bool>()), 1..500)) {
            let numbers: Vec<u32> = (0..5).map(|_| thread::reserve()).collect();
            let whole = Whole::default();
            let mut oracle = Counters::default();
            for (thread, bytes, allocate) in steps {
                thread::play(numbers[thread], || if allocate { whole.allocated(bytes) } else { whole.freed(bytes) });
                if allocate { oracle.allocated(bytes) } else { oracle.freed(bytes) }
                prop_assert_eq!(whole.counters(), oracle);
            }
        }
    }

    #[test]
    fn threads_at_once_lose_nothing_and_their_peak_is_one_they_had() {
        let whole = Whole::default();
        // Every thread holds between 0 and 100 blocks of 10 bytes; all hold 50 at one instant.
        let gate = std::sync::Barrier::new(8);
        let most = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let (mut live, mut highest) = (0, 0);
                    for round in 0..200 {
                        let target = if round == 100 { 50 } else { (round * 7) % 100 };
                        while live != target {
                            if live < target {
                                whole.allocated(10);
                            } else {
                                whole.freed(10);
                            }
                            live += if live < target { 1 } else { -1 };
                            highest = highest.max(live);
                        }
                        if round == 100 {
                            gate.wait();
                        }
                    }
                    (0..live).for_each(|_| whole.freed(10));
                    *most.lock().unwrap() += highest;
                });
            }
        });
        let counters = whole.counters();
        assert_eq!((counters.bytes.value, counters.allocations.value), (0, 0));
        assert_eq!(counters.bytes.total, counters.allocations.total * 10);
        assert!((8 * 50..=*most.lock().unwrap()).contains(&counters.allocations.peak), "{counters:?}");
        assert!(counters.bytes.peak <= counters.allocations.peak * 10);
    }
}
