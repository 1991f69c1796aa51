//! Live blocks by address.
//!
//! Neighbours in the address space share a shard, so that threads that allocate from different places
//! do not meet. Invariants: an address is in at most one entry, of its own shard; every entry between
//! the one that an address hashes to and the one it is in is taken.
//!
//! What a free needs is in the entries, which are small; the rest is in details, of which the one that
//! was given up last is used next, since it is still in the processor's cache.

use crate::spin::{Spin, SpinGuard};
use crate::stacks::Stack;
use crate::stream::Stream;

const SHARDS: usize = 64;
/// Neighbours are blocks in the same piece of so many bytes (as a power of two).
const PIECE_BITS: u32 = 20;
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

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// 0 for none.
    address: u64,
    bytes: u64,
    details: u32,
}

/// All live blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    shards: Box<[Shard]>,
}

/// Apart from its neighbours, which other threads may be at.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Spin<Table>);

/// Open addressing with linear probing, three quarters full at most.
#[derive(Debug, Default)]
struct Table {
    entries: Box<[Entry]>,
    blocks: usize,
    bytes: u64,
    details: Vec<Details>,
    /// Details that no entry has.
    unused: Vec<u32>,
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
            (blocks + table.blocks as u64, bytes + table.bytes)
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
    /// Where an address would best be.
    #[inline]
    fn home(&self, address: u64) -> usize {
        spread(address) as usize & self.mask()
    }

    #[inline]
    fn mask(&self) -> usize {
        self.entries.len().wrapping_sub(1)
    }

    /// Where an address is, or the empty entry where it would be; there are entries.
    #[inline]
    fn find(&self, address: u64) -> Result<usize, usize> {
        let mut at = self.home(address);
        loop {
            match self.entries[at].address {
                0 => return Err(at),
                found if found == address => return Ok(at),
                _ => at = (at + 1) & self.mask(),
            }
        }
    }

    #[inline]
    fn insert(&mut self, address: u64, bytes: u64, details: Details) -> Option<u64> {
        if (self.blocks + 1) * 4 > self.entries.len() * 3 {
            self.grow();
        }
        self.bytes = self.bytes.wrapping_add(bytes);
        match self.find(address) {
            Err(at) => {
                let details = self.keep(details);
                self.entries[at] = Entry { address, bytes, details };
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

    #[inline]
    fn keep(&mut self, details: Details) -> u32 {
        if let Some(at) = self.unused.pop() {
            self.details[at as usize] = details;
            return at;
        }
        self.details.push(details);
        self.details.len() as u32 - 1
    }

    #[inline]
    fn remove(&mut self, address: u64) -> Option<u64> {
        if self.entries.is_empty() {
            return None;
        }
        let mut hole = self.find(address).ok()?;
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
            let home = self.home(next.address);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.entries[hole] = next;
                hole = at;
            }
        }
        self.entries[hole].address = 0;
        self.unused.push(removed.details);
        self.blocks -= 1;
        self.bytes = self.bytes.wrapping_sub(removed.bytes);
        Some(removed.bytes)
    }

    #[cold]
    fn grow(&mut self) {
        let count = (self.entries.len() * 2).max(FIRST_ENTRIES);
        let before = std::mem::replace(&mut self.entries, vec![Entry::default(); count].into_boxed_slice());
        for entry in before.iter().filter(|entry| entry.address != 0) {
            if let Err(at) = self.find(entry.address) {
                self.entries[at] = *entry;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_in_steps_of_any_size_stay_near_where_they_hash_to() {
        for step_bits in 0..36 {
            for odd in [1, 3, 9, 255] {
                let blocks = Blocks::default();
                for at in 1..=1000 {
                    let stream = Stream::DEFAULT;
                    let details = Details { stream, monotonic_ns: 0, sequence: 0, thread: 0, stack: None };
                    blocks.insert((at * odd) << step_bits, 1, details);
                }
                let mut steps = 0;
                for Shard(table) in &blocks.shards {
                    let table = table.lock();
                    for (at, entry) in
                        table.entries.iter().enumerate().filter(|(_, entry)| entry.address != 0)
                    {
                        steps += at.wrapping_sub(table.home(entry.address)) & table.mask();
                    }
                }
                // Of tables that are three quarters full, one and a half would be expected.
                assert!(steps < 3000, "{steps} steps to 1000 blocks {odd} << {step_bits} apart");
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
                    let stream = Stream::DEFAULT;
                    let details = Details { stream, monotonic_ns: 0, sequence, thread: 0, stack: None };
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
