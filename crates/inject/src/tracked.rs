//! Addresses of the blocks that were recorded, where not all are: only their frees are recorded.
//!
//! Most frees are of blocks that were not. A table of marks says so without a lock and nearly always at once; it has 1 KiB
//! and leaves the processor's first cache to the program. Behind it is one of small counters, for programs with many
//! recorded blocks, and the addresses themselves, behind a lock.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::pid_lock::{Got, PidLock};

const COUNTERS: usize = 1 << 17;

/// How many recorded blocks there are whose address leads to a counter. One that reached the largest number stays there.
static COUNTS: [AtomicU8; COUNTERS] = [const { AtomicU8::new(0) }; COUNTERS];
/// A bit for counters that share a mark, set if any of them is not zero; changed by those who hold the lock of the addresses.
static MARKS: [AtomicU64; MARK_COUNT / 64] = [const { AtomicU64::new(0) }; MARK_COUNT / 64];
const MARK_COUNT: usize = 1 << 13;
/// Counters that share a mark.
const SHARED: usize = COUNTERS / MARK_COUNT;
static ADDRESSES: PidLock<AddressSet> = PidLock::new(AddressSet { slots: Vec::new(), used: 0 });

/// Spreads addresses over all bits; the uppermost ones are the best.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
const fn hash(address: usize) -> u64 {
    (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The place of an address in a table of `size` entries, a power of two.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
const fn place(address: usize, size: usize) -> usize {
    (hash(address) >> (64 - size.trailing_zeros())) as usize
}

fn counter(address: usize) -> &'static AtomicU8 {
    &COUNTS[place(address, COUNTERS)]
}

/// Whether the mark of an address is set: that of all counters whose places begin with the same bits.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
fn is_marked(address: usize) -> bool {
    let mark = place(address, MARK_COUNT);
    MARKS[mark / 64].load(Ordering::Relaxed) >> (mark % 64) & 1 != 0
}

/// Sets or clears the mark of an address. The caller holds the lock of the addresses.
fn set_mark(address: usize, is_set: bool) {
    let mark = place(address, MARK_COUNT);
    let (word, bit) = (&MARKS[mark / 64], 1 << (mark % 64));
    let before = word.load(Ordering::Relaxed);
    word.store(if is_set { before | bit } else { before & !bit }, Ordering::Relaxed);
}

/// Whether a block may have been recorded.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(crate) fn may_be_tracked(address: usize) -> bool {
    is_marked(address) && counter(address).load(Ordering::Relaxed) != 0
}

/// Makes [`may_be_tracked`] true for a block for good.
pub(crate) fn mark_for_good(address: usize) {
    ADDRESSES.locked(|addresses, got| {
        addresses.sound(got);
        counter(address).store(u8::MAX, Ordering::Relaxed);
        set_mark(address, true);
    });
}

/// Remembers that a block is recorded.
pub(crate) fn track(address: usize) {
    ADDRESSES.locked(|addresses, got| {
        addresses.sound(got).insert(address);
        let counter = counter(address);
        counter.store(counter.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        set_mark(address, true);
    });
}

/// Forgets a block; returns whether it was recorded.
pub(crate) fn untrack(address: usize) -> bool {
    ADDRESSES.locked(|addresses, got| {
        let was_tracked = addresses.sound(got).remove(address);
        if was_tracked {
            let counter = counter(address);
            let count = counter.load(Ordering::Relaxed);
            if count != u8::MAX {
                counter.store(count.saturating_sub(1), Ordering::Relaxed);
            }
            let first = place(address, MARK_COUNT) * SHARED;
            if COUNTS[first..first + SHARED].iter().all(|count| count.load(Ordering::Relaxed) == 0) {
                set_mark(address, false);
            }
        }
        was_tracked
    })
}

/// A hash table of addresses with linear probing; 0 is an empty slot.
#[derive(Debug, Default)]
struct AddressSet {
    slots: Vec<usize>,
    used: usize,
}

impl AddressSet {
    /// The set, empty if a forked child took it over in the middle of a change.
    fn sound(&mut self, got: Got) -> &mut Self {
        if got == Got::TakenOver {
            std::mem::forget(std::mem::take(self));
        }
        self
    }

    /// The slot of an address, or the empty one where it would be.
    fn slot(&self, address: usize) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = place(address, self.slots.len());
        while self.slots[at] != 0 && self.slots[at] != address {
            at = (at + 1) & mask;
        }
        at
    }

    fn insert(&mut self, address: usize) {
        if self.used * 2 >= self.slots.len() {
            let larger = (self.slots.len() * 2).max(1024);
            let before = std::mem::replace(&mut self.slots, vec![0; larger]);
            for address in before.into_iter().filter(|address| *address != 0) {
                let at = self.slot(address);
                self.slots[at] = address;
            }
        }
        let at = self.slot(address);
        self.used += usize::from(self.slots[at] == 0);
        self.slots[at] = address;
    }

    fn remove(&mut self, address: usize) -> bool {
        if self.slots.is_empty() {
            return false;
        }
        let mask = self.slots.len() - 1;
        let mut hole = self.slot(address);
        if self.slots[hole] == 0 {
            return false;
        }
        self.slots[hole] = 0;
        self.used -= 1;
        // Those behind the hole that would be looked for from before it move into it.
        let mut at = (hole + 1) & mask;
        while self.slots[at] != 0 {
            let home = place(self.slots[at], self.slots.len());
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = std::mem::take(&mut self.slots[at]);
                hole = at;
            }
            at = (at + 1) & mask;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn addresses_are_found_until_they_are_removed() {
        let (mut ours, mut theirs) = (AddressSet::default(), HashSet::new());
        let mut random = 1_u64;
        for _ in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Few enough to collide often.
            let address = 16 * (1 + (random >> 33) as usize % 3000);
            if random >> 63 == 0 {
                ours.insert(address);
                theirs.insert(address);
            } else {
                assert_eq!(ours.remove(address), theirs.remove(&address));
            }
        }
        assert_eq!(ours.used, theirs.len());
    }

    #[test]
    fn only_blocks_that_are_tracked_may_be() {
        track(0x7000);
        assert!(may_be_tracked(0x7000) && !may_be_tracked(0x8000));
        assert!(untrack(0x7000) && !untrack(0x7000) && !may_be_tracked(0x7000));
    }
}
