//! Live blocks by address: a hash table with linear probing, whose entries take half a cache line.

/// Entries a table begins with.
const FIRST_SLOTS: usize = 1 << 10;
/// Slots from which on a table does not fit in the caches near the processor.
const LARGE_SLOTS: usize = 1 << 15;

/// A live block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) bytes: u64,
    pub(super) time_ns: i64,
}

/// An entry; one with address 0 is empty.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    address: u64,
    block: Block,
    space: u32,
}

/// Blocks by space and address, which is never 0.
#[derive(Debug, Default)]
pub(super) struct BlockTable {
    /// A power of two of them, or none; at most half are used.
    slots: Vec<Slot>,
    len: usize,
    shift: u32,
}

impl BlockTable {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Slot at which the search for a block begins.
    #[inline]
    fn home(&self, space: u32, address: u64) -> usize {
        let mixed = (address ^ u64::from(space) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The upper bits alone depend on all others.
        (mixed >> self.shift) as usize
    }

    /// Index of a block, or of the empty slot where it would be.
    #[inline]
    fn find(&self, space: u32, address: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.home(space, address) & mask;
        loop {
            let slot = &self.slots[at];
            if slot.address == 0 || (slot.address == address && slot.space == space) {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// Loads the entries of blocks that are about to be looked up. The processor waits for memory many times at once
    /// here, and one time after the other where a search depends on what was found.
    pub(super) fn touch(&self, space: u32, addresses: &[u64]) {
        if self.slots.len() >= LARGE_SLOTS {
            let mask = self.slots.len() - 1;
            let seen = addresses
                .iter()
                .fold(0, |seen, address| seen ^ self.slots[self.home(space, *address) & mask].address);
            std::hint::black_box(seen);
        }
    }

    /// Adds a block, in the place of one that is at the same address.
    pub(super) fn insert(&mut self, space: u32, address: u64, block: Block) {
        if self.len * 2 >= self.slots.len() {
            self.grow();
        }
        let at = self.find(space, address);
        self.len += usize::from(self.slots[at].address == 0);
        self.slots[at] = Slot { address, block, space };
    }

    /// Removes a block.
    pub(super) fn remove(&mut self, space: u32, address: u64) -> Option<Block> {
        if self.len == 0 {
            return None;
        }
        let mut hole = self.find(space, address);
        let found = self.slots[hole];
        if found.address == 0 {
            return None;
        }
        // Those behind it that would not be found any more are moved up.
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.address == 0 {
                break;
            }
            let from_home = at.wrapping_sub(self.home(slot.space, slot.address)) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = Slot::default();
        self.len -= 1;
        Some(found.block)
    }

    /// Keeps the blocks of spaces for which `keep`.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        let slots = std::mem::take(&mut self.slots);
        self.len = 0;
        for slot in slots.into_iter().filter(|slot| slot.address != 0 && keep(slot.space)) {
            self.insert(slot.space, slot.address, slot.block);
        }
    }

    #[cold]
    fn grow(&mut self) {
        let count = (self.slots.len() * 2).max(FIRST_SLOTS);
        let slots = std::mem::replace(&mut self.slots, vec![Slot::default(); count]);
        self.shift = u64::BITS - count.trailing_zeros();
        for slot in slots.into_iter().filter(|slot| slot.address != 0) {
            let at = self.find(slot.space, slot.address);
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_table_holds_what_a_map_holds(
            steps in proptest::collection::vec((0u32..3, 1u64..400, any::<bool>(), 0u32..2), 0..3_000),
        ) {
            let (mut table, mut map) = (BlockTable::default(), HashMap::new());
            for (bytes, (space, number, is_insert, scale)) in (0..).zip(steps) {
                // Neighbours, and addresses whose lower bits are all alike.
                let address = number << (4 + 16 * scale);
                let block = Block { bytes, time_ns: -1 };
                if is_insert {
                    table.insert(space, address, block);
                    map.insert((space, address), block);
                } else {
                    prop_assert_eq!(table.remove(space, address), map.remove(&(space, address)));
                }
                prop_assert_eq!(table.len(), map.len());
            }
            table.retain(|space| space != 1);
            map.retain(|(space, _), _| *space != 1);
            prop_assert_eq!(table.len(), map.len());
            for ((space, address), block) in map {
                prop_assert_eq!(table.remove(space, address), Some(block));
            }
        }
    }
}
