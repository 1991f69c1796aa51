//! Live blocks by address.
//!
//! Blocks of one mebibyte of address space share a shard, so that threads that allocate from different
//! places do not meet. Invariants: an address is in at most one slot, of its own shard; every slot
//! between the one that an address hashes to and the one it is in is taken.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::stacks::Stack;
use crate::stream::Stream;

const SHARDS: usize = 64;
/// A shard's part of the address space is counted in pieces of this many bytes (as a power of two).
const PIECE_BITS: u32 = 20;
const FIRST_SLOTS: usize = 16;

/// What is known of a live block; one line of the processor's cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Slot {
    /// 0 for none.
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: Stream,
    pub(super) monotonic_ns: u64,
    pub(super) sequence: u64,
    pub(super) thread: u32,
    pub(super) stack: Option<Stack>,
}

const EMPTY: Slot = Slot {
    address: 0,
    bytes: 0,
    stream: Stream::DEFAULT,
    monotonic_ns: 0,
    sequence: 0,
    thread: 0,
    stack: None,
};

/// All live blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    shards: Box<[Shard]>,
}

/// Apart from its neighbours, which other threads may be at.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Table>);

/// Open addressing with linear probing, three quarters full at most.
#[derive(Debug, Default)]
struct Table {
    slots: Box<[Slot]>,
    blocks: usize,
    bytes: u64,
}

impl Default for Blocks {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl Blocks {
    #[inline]
    fn table(&self, address: u64) -> MutexGuard<'_, Table> {
        let piece = (address >> PIECE_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let shard = &self.shards[(piece >> (64 - SHARDS.trailing_zeros())) as usize];
        shard.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a block; returns what was known of another one at its address.
    #[inline]
    pub(super) fn insert(&self, slot: Slot) -> Option<Slot> {
        self.table(slot.address).insert(slot)
    }

    /// Removes the block at an address.
    #[inline]
    pub(super) fn remove(&self, address: u64) -> Option<Slot> {
        self.table(address).remove(address)
    }

    /// Calls `each` with every block, in no order. Blocks that come and go meanwhile may be missed.
    pub(super) fn each(&self, mut each: impl FnMut(&Slot)) {
        for Shard(table) in &self.shards {
            let table = table.lock().unwrap_or_else(PoisonError::into_inner);
            table.slots.iter().filter(|slot| slot.address != 0).for_each(&mut each);
        }
    }

    /// Number of blocks, and their bytes.
    pub(super) fn totals(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(blocks, bytes), Shard(table)| {
            let table = table.lock().unwrap_or_else(PoisonError::into_inner);
            (blocks + table.blocks as u64, bytes + table.bytes)
        })
    }
}

impl Table {
    /// Where an address would best be, and the mask that leads around.
    #[inline]
    fn home(&self, address: u64) -> (usize, usize) {
        let mask = self.slots.len().wrapping_sub(1);
        // Neighbours in a piece of address space shall not share the bits that chose the shard.
        ((address.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as usize & mask, mask)
    }

    /// Where an address is, or the empty slot where it would be; the table is not empty.
    #[inline]
    fn find(&self, address: u64) -> Result<usize, usize> {
        let (mut at, mask) = self.home(address);
        loop {
            match self.slots[at].address {
                0 => return Err(at),
                found if found == address => return Ok(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    #[inline]
    fn insert(&mut self, slot: Slot) -> Option<Slot> {
        if (self.blocks + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        self.bytes = self.bytes.wrapping_add(slot.bytes);
        match self.find(slot.address) {
            Err(at) => {
                self.slots[at] = slot;
                self.blocks += 1;
                None
            }
            Ok(at) => {
                let before = std::mem::replace(&mut self.slots[at], slot);
                self.bytes = self.bytes.wrapping_sub(before.bytes);
                Some(before)
            }
        }
    }

    #[inline]
    fn remove(&mut self, address: u64) -> Option<Slot> {
        if self.slots.is_empty() {
            return None;
        }
        let mut hole = self.find(address).ok()?;
        let removed = self.slots[hole];
        let (_, mask) = self.home(address);
        // Those behind move up, unless that would take them before where they hash to.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let next = self.slots[at];
            if next.address == 0 {
                break;
            }
            let (home, _) = self.home(next.address);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = next;
                hole = at;
            }
        }
        self.slots[hole].address = 0;
        self.blocks -= 1;
        self.bytes = self.bytes.wrapping_sub(removed.bytes);
        Some(removed)
    }

    #[cold]
    fn grow(&mut self) {
        let count = (self.slots.len() * 2).max(FIRST_SLOTS);
        let before = std::mem::replace(&mut self.slots, vec![EMPTY; count].into_boxed_slice());
        for slot in before.iter().filter(|slot| slot.address != 0) {
            if let Err(at) = self.find(slot.address) {
                self.slots[at] = *slot;
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
    fn a_slot_is_one_line_of_the_cache() {
        assert_eq!(size_of::<Slot>(), 64);
    }

    proptest! {
        #[test]
        fn blocks_behave_like_a_map(
            // Few addresses in few shards: many meet.
            steps in proptest::collection::vec((1_u64..200, 0_u64..1000, 0..3_u8), 0..600)
        ) {
            let blocks = Blocks::default();
            let mut oracle = HashMap::new();
            for (at, bytes, action) in steps {
                let address = at * 256 + ((at % 3) << 40);
                let known = if action == 0 {
                    (blocks.remove(address).map(|slot| slot.bytes), oracle.remove(&address))
                } else {
                    let before = blocks.insert(Slot { address, bytes, ..EMPTY });
                    (before.map(|slot| slot.bytes), oracle.insert(address, bytes))
                };
                prop_assert_eq!(known.0, known.1);
                prop_assert_eq!(blocks.totals(), (oracle.len() as u64, oracle.values().sum::<u64>()));
            }
            let mut left = HashMap::new();
            blocks.each(|slot| assert!(left.insert(slot.address, slot.bytes).is_none()));
            prop_assert_eq!(left, oracle);
        }
    }
}
