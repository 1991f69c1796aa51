//! Live blocks by address.
//!
//! Neighbours in the address space share a shard, so that threads that allocate from different places
//! do not meet. Invariants: an address is in at most one entry, of its own shard; every entry between
//! the one that an address hashes to and the one it is in is taken.
//!
//! What a free needs is in the entries, which are small; the rest is in details, of which the one that
//! was given up last is used next, since it is still in the processor's cache.

use crate::spin::{Spin, SpinGuard};
use crate::stream::Stream;
use floodmark_stacks::Stack;

const SHARDS: usize = 256;
/// Binary logarithm of the bytes whose blocks share a shard. Larger pieces separate threads that use memory
/// of their own better, but make all threads that share some memory contend for one shard.
const PIECE_BITS: u32 = 16;
const FIRST_ENTRIES: usize = 16;

/// What is known of a live block beside its address and size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Details {
    pub(super) stream: Stream,
    pub(super) monotonic_ns: u64,
    pub(super) sequence: u64,
    pub(super) thread: u32,
    pub(super) stack: Option<Stack>,
}

const UNUSED: Details =
    Details { stream: Stream::DEFAULT, monotonic_ns: 0, sequence: 0, thread: 0, stack: None };

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// 0 for none.
    address: u64,
    bytes: u64,
    details: u32,
    /// Where the address would best be, in tables of any size.
    home: u32,
}

/// All live blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    shards: Box<[Shard]>,
}

/// Apart from its neighbours, which other threads may be at; all of it in one line of the cache.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Spin<Table>);

/// Open addressing with linear probing, half full at most: what a step to the next entry costs is that
/// the processor did not expect it.
#[derive(Debug, Default)]
struct Table {
    entries: Box<[Entry]>,
    /// One for every second entry.
    details: Box<[Details]>,
    bytes: u64,
    blocks: u32,
    /// The details that were given up last; their sequence number leads to those before.
    unused: u32,
}

impl Default for Blocks {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl Blocks {
    #[inline]
    fn table(&self, address: u64) -> SpinGuard<'_, Table> {
        let Shard(table) = &self.shards[spread(address >> PIECE_BITS) as usize % SHARDS];
        table.lock()
    }

    /// Adds a block; returns the size of another one that was known at its address.
    #[inline]
    pub(super) fn insert(&self, address: u64, bytes: u64, details: Details) -> Option<u64> {
        self.table(address).insert(address, bytes, details)
    }

    /// Removes the block at an address; returns its size.
    #[inline]
    pub(super) fn remove(&self, address: u64) -> Option<u64> {
        self.table(address).remove(address)
    }

    /// Calls `each` with address, size and details of every block, in no order. Those that come and go
    /// meanwhile may be missed.
    pub(super) fn each(&self, mut each: impl FnMut(u64, u64, &Details)) {
        for Shard(table) in &self.shards {
            let table = table.lock();
            for entry in table.entries.iter().filter(|entry| entry.address != 0) {
                each(entry.address, entry.bytes, &table.details[entry.details as usize]);
            }
        }
    }

    /// Number of blocks, and their bytes.
    pub(super) fn totals(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(blocks, bytes), Shard(table)| {
            let table = table.lock();
            (blocks + u64::from(table.blocks), bytes + table.bytes)
        })
    }
}

/// Makes numbers differ in their lowest bits whatever they have in common: addresses come in steps of
/// all sizes.
#[inline]
const fn spread(value: u64) -> u64 {
    let half = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let whole = (half ^ (half >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    whole ^ (whole >> 32)
}

impl Table {
    #[inline]
    fn mask(&self) -> usize {
        self.entries.len().wrapping_sub(1)
    }

    /// Where an address with this home is, or the empty entry where it would be; there are entries.
    #[inline]
    fn find(&self, address: u64, home: u32) -> Result<usize, usize> {
        let mask = self.mask();
        let mut at = home as usize & mask;
        loop {
            match self.entries[at].address {
                0 => return Err(at),
                found if found == address => return Ok(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    #[inline]
    fn insert(&mut self, address: u64, bytes: u64, details: Details) -> Option<u64> {
        if self.blocks as usize >= self.details.len() {
            self.grow();
        }
        self.bytes = self.bytes.wrapping_add(bytes);
        let home = spread(address) as u32;
        match self.find(address, home) {
            Err(at) => {
                let details = self.keep(details);
                self.entries[at] = Entry { address, bytes, details, home };
                self.blocks += 1;
                None
            }
            Ok(at) => {
                let entry = &mut self.entries[at];
                let before = std::mem::replace(&mut entry.bytes, bytes);
                self.details[entry.details as usize] = details;
                self.bytes = self.bytes.wrapping_sub(before);
                Some(before)
            }
        }
    }

    /// Puts details where some were given up; there are such.
    #[inline]
    fn keep(&mut self, details: Details) -> u32 {
        let at = self.unused;
        let place = &mut self.details[at as usize];
        self.unused = place.sequence as u32;
        *place = details;
        at
    }

    #[inline]
    fn remove(&mut self, address: u64) -> Option<u64> {
        if self.entries.is_empty() {
            return None;
        }
        let mut hole = self.find(address, spread(address) as u32).ok()?;
        let removed = self.entries[hole];
        let mask = self.mask();
        // Those behind move up, unless that would take them before where they hash to.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let next = self.entries[at];
            if next.address == 0 {
                break;
            }
            if at.wrapping_sub(next.home as usize) & mask >= at.wrapping_sub(hole) & mask {
                self.entries[hole] = next;
                hole = at;
            }
        }
        self.entries[hole].address = 0;
        self.details[removed.details as usize].sequence = u64::from(self.unused);
        self.unused = removed.details;
        self.blocks -= 1;
        self.bytes = self.bytes.wrapping_sub(removed.bytes);
        Some(removed.bytes)
    }

    #[cold]
    fn grow(&mut self) {
        let count = (self.entries.len() * 2).max(FIRST_ENTRIES);
        let before = std::mem::replace(&mut self.entries, vec![Entry::default(); count].into_boxed_slice());
        for entry in before.iter().filter(|entry| entry.address != 0) {
            if let Err(at) = self.find(entry.address, entry.home) {
                self.entries[at] = *entry;
            }
        }
        // All that there were are taken; new ones lead from each to the next, and the last nowhere.
        let taken = self.details.len();
        let new = (taken..count / 2).map(|at| Details { sequence: at as u64 + 1, ..UNUSED });
        self.details = self.details.iter().copied().chain(new).collect();
        self.unused = taken as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_shard_is_one_line_of_the_cache() {
        assert!(size_of::<Spin<Table>>() <= 64);
    }

    #[test]
    fn addresses_in_steps_of_any_size_stay_near_where_they_hash_to() {
        for step_bits in 0..36 {
            for odd in [1, 3, 9, 255] {
                let blocks = Blocks::default();
                for at in 1..=1000 {
                    blocks.insert((at * odd) << step_bits, 1, UNUSED);
                }
                let mut steps = 0;
                for Shard(table) in &blocks.shards {
                    let table = table.lock();
                    for (at, entry) in
                        table.entries.iter().enumerate().filter(|(_, entry)| entry.address != 0)
                    {
                        steps += at.wrapping_sub(entry.home as usize) & table.mask();
                    }
                }
                // In tables that are half full, half a step to each would be expected.
                assert!(steps < 1000, "{steps} steps to 1000 blocks {odd} << {step_bits} apart");
            }
        }
    }

    proptest! {
        #[test]
        fn blocks_behave_like_a_map(
            // Few addresses in few shards: many meet.
            steps in proptest::collection::vec((1_u64..200, 0_u64..1000, 0..3_u8), 0..600)
        ) {
            let blocks = Blocks::default();
            let mut oracle = HashMap::new();
            for (sequence, (at, bytes, action)) in steps.into_iter().enumerate() {
                let sequence = sequence as u64;
                let address = at * 256 + ((at % 3) << 40);
                let known = if action == 0 {
                    (blocks.remove(address), oracle.remove(&address).map(|(bytes, _)| bytes))
                } else {
                    let details = Details { sequence, ..UNUSED };
                    let before = oracle.insert(address, (bytes, sequence));
                    (blocks.insert(address, bytes, details), before.map(|(bytes, _)| bytes))
                };
                prop_assert_eq!(known.0, known.1);
                let bytes = oracle.values().map(|(bytes, _)| bytes).sum::<u64>();
                prop_assert_eq!(blocks.totals(), (oracle.len() as u64, bytes));
            }
            let mut left = HashMap::new();
            blocks.each(|address, bytes, details| {
                assert!(left.insert(address, (bytes, details.sequence)).is_none());
            });
            prop_assert_eq!(left, oracle);
        }
    }
}
