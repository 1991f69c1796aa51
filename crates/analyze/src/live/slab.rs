//! Keeps blocks in numbered slots and uses slots again.
//!
//! Invariant: a slot that is not in use has order 0, and its address is the number of the next such
//! slot, so that beginning and ending a block touch no memory but the block itself.

use crate::change::Block;

/// The end of the list of slots that are not in use.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Slab {
    blocks: Vec<Block>,
    unused: u32,
}

impl Default for Slab {
    fn default() -> Self {
        Self { blocks: Vec::new(), unused: NONE }
    }
}

impl Slab {
    /// Returns a slot for [`Self::put`].
    #[inline]
    pub(super) fn reserve(&mut self) -> u32 {
        let slot = self.unused;
        if slot == NONE {
            return self.grow();
        }
        self.unused = self.blocks[slot as usize].address as u32;
        slot
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        self.blocks.push(Block::default());
        self.blocks.len() as u32 - 1
    }

    /// Stores a block in a reserved slot.
    #[inline]
    pub(super) fn put(&mut self, slot: u32, block: Block) -> &Block {
        let stored = &mut self.blocks[slot as usize];
        *stored = block;
        stored
    }

    /// Hands the block in a slot to `look` for the last time and makes the slot free for others.
    #[inline]
    pub(super) fn end<R>(&mut self, slot: u32, look: impl FnOnce(&Block) -> R) -> R {
        let block = &mut self.blocks[slot as usize];
        let seen = look(block);
        block.order = 0;
        block.address = u64::from(self.unused);
        self.unused = slot;
        seen
    }

    /// Reads the first and last of a slot that may not exist, so that it is at hand soon.
    #[inline]
    pub(super) fn touch(&self, slot: u32) -> u64 {
        self.blocks.get(slot as usize).map_or(0, |block| block.address ^ u64::from(block.tally))
    }

    /// All blocks, to change them.
    pub(super) fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        self.blocks.iter_mut().filter(|block| block.order != 0)
    }

    /// All blocks, in no particular order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.order != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_only_blocks_in_use_are_seen() {
        let mut slab = Slab::default();
        let put = |slab: &mut Slab, order| {
            let slot = slab.reserve();
            slab.put(slot, Block { order, address: order << 8, ..Block::default() });
            slot
        };
        let slots: Vec<u32> = (1..=4).map(|order| put(&mut slab, order)).collect();
        assert_eq!(slab.end(slots[1], |block| block.order), 2);
        assert_eq!(slab.end(slots[2], |block| block.address), 3 << 8);
        assert_eq!(slab.blocks().map(|block| block.order).collect::<Vec<_>>(), [1, 4]);
        assert_eq!([put(&mut slab, 5), put(&mut slab, 6)], [slots[2], slots[1]]);
        assert_eq!(put(&mut slab, 7), 4);
        assert_eq!(slab.end(slots[1], |block| block.order), 6);
    }
}
