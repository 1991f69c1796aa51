//! The memory that blocks are cut from, and the gaps between them.
//!
//! An address space is a set of extents: segments that an allocator holds, or regions that are inferred from
//! the blocks. Invariants:
//! - Extents do not overlap; those of an inferred address space have more than `join_bytes` between them.
//! - Gaps lie in extents, no two of one extent touch, and no live block overlaps any.
//! - `footprint_bytes == live_bytes + free_bytes`, and `free_bytes` is the sum of all gaps.
//!
//! Gaps are kept by address. Which is the largest is remembered; only when that one goes is it looked
//! for again, in a heap from which gaps that are gone are dropped as they come up. A change costs
//! O(log n) and memory grows with the number of gaps.

use std::collections::{BTreeMap, BinaryHeap};

/// How much of an address space is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fill {
    pub(super) footprint_bytes: u64,
    pub(super) live_bytes: u64,
    pub(super) live_blocks: u64,
    pub(super) free_bytes: u64,
    pub(super) gaps: u64,
    pub(super) largest_bytes: u64,
}

impl Fill {
    /// Free bytes outside the largest gap.
    pub(super) fn scattered_bytes(&self) -> u64 {
        self.free_bytes - self.largest_bytes
    }
}

/// A run of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) end: u64,
    /// Order number of the block that is the segment; 0 for a region.
    pub(super) order: u64,
    pub(super) live_bytes: u64,
    pub(super) live_blocks: u64,
}

/// Why a block has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Misfit;

/// Extents with live blocks and gaps.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressSpace {
    pub(super) extents: BTreeMap<u64, Extent>,
    /// Gaps: first address and the one after the last.
    pub(super) gaps: BTreeMap<u64, u64>,
    /// Gaps by size and address, among them some that are gone.
    by_size: BinaryHeap<(u64, u64)>,
    fill: Fill,
    /// Whether it is kept what is in each extent: of segments, which may touch and go, and for a map. For
    /// regions it is not needed otherwise, and they never touch.
    keeps_extents: bool,
}

impl AddressSpace {
    /// One of which a map will be made.
    pub(super) fn to_be_mapped() -> Self {
        Self { keeps_extents: true, ..Self::default() }
    }

    pub(super) fn fill(&self) -> Fill {
        self.fill
    }

    /// Adds a segment, all of it free.
    pub(super) fn add_segment(&mut self, start: u64, end: u64, order: u64) -> Result<(), Misfit> {
        let before = self.extents.range(..end).next_back();
        if before.is_some_and(|(_, extent)| extent.end > start) {
            return Err(Misfit);
        }
        self.keeps_extents = true;
        self.extents.insert(start, Extent { end, order, live_bytes: 0, live_blocks: 0 });
        self.fill.footprint_bytes = self.fill.footprint_bytes.saturating_add(end - start);
        self.add_gap(start, end);
        Ok(())
    }

    /// Takes a segment away; returns how many blocks were live in it.
    pub(super) fn remove_segment(&mut self, start: u64, order: u64) -> Option<u64> {
        let extent = *self.extents.get(&start).filter(|extent| extent.order == order)?;
        self.extents.remove(&start);
        let gaps: Vec<(u64, u64)> =
            self.gaps.range(start..extent.end).map(|(from, to)| (*from, *to)).collect();
        for (from, to) in gaps {
            self.remove_gap(from, to);
        }
        self.fill.footprint_bytes -= extent.end - start;
        self.fill.live_bytes -= extent.live_bytes;
        self.fill.live_blocks -= extent.live_blocks;
        Some(extent.live_blocks)
    }

    /// Puts a block into a gap.
    pub(super) fn place(&mut self, start: u64, end: u64) -> Result<(), Misfit> {
        let gap = self.gaps.range(..=start).next_back();
        let Some((&from, &to)) = gap.filter(|(_, to)| **to >= end) else { return Err(Misfit) };
        if from < start {
            self.end_gap_at(from, to, start);
        } else {
            self.remove_gap(from, to);
        }
        if end < to {
            self.add_gap(end, to);
        }
        self.count(start, end);
        Ok(())
    }

    /// Puts a block where it says, and takes what is under it for address space from then on. What lies
    /// between it and address space known before belongs to it too, unless it is more than `join_bytes`.
    pub(super) fn place_anywhere(&mut self, start: u64, end: u64, join_bytes: u64) -> Result<(), Misfit> {
        if self.place(start, end).is_ok() {
            return Ok(());
        }
        // Nothing that is live may be under it: what of it is address space already has to be gaps.
        let reach = self.extents.range(..end).rev().take_while(|(_, extent)| extent.end > start);
        let known: u64 = reach.map(|(from, extent)| extent.end.min(end) - start.max(*from)).sum();
        let before = self.gaps.range(..end).rev().take_while(|(_, to)| **to > start);
        let free: u64 = before.map(|(from, to)| (*to).min(end) - start.max(*from)).sum();
        if known != free {
            return Err(Misfit);
        }
        self.grow(start, end, join_bytes);
        self.place(start, end)
    }

    /// Makes one extent of all that is in or near a run of memory; what is new is free.
    fn grow(&mut self, start: u64, end: u64, join_bytes: u64) {
        let (near_start, near_end) = (start.saturating_sub(join_bytes), end.saturating_add(join_bytes));
        let near = self.extents.range(..=near_end).rev().take_while(|(_, extent)| extent.end >= near_start);
        let near: Vec<(u64, Extent)> = near.map(|(from, extent)| (*from, *extent)).collect();
        let mut whole = Extent { end, order: 0, live_bytes: 0, live_blocks: 0 };
        let mut from = start;
        for (start, extent) in &near {
            self.extents.remove(start);
            from = from.min(*start);
            whole.end = whole.end.max(extent.end);
            whole.live_bytes += extent.live_bytes;
            whole.live_blocks += extent.live_blocks;
        }
        // The holes between the old extents, in the order of addresses.
        let mut at = from;
        for (start, extent) in near.iter().rev() {
            self.open(at, *start);
            at = extent.end;
        }
        self.open(at, whole.end);
        self.extents.insert(from, whole);
    }

    /// Makes address space, all of it free.
    fn open(&mut self, start: u64, end: u64) {
        if start < end {
            self.fill.footprint_bytes = self.fill.footprint_bytes.saturating_add(end - start);
            self.join_gap(start, end, true, true);
        }
    }

    /// Takes a block away that was placed.
    pub(super) fn remove(&mut self, start: u64, end: u64) {
        let (mut joins_before, mut joins_after) = (true, true);
        if self.keeps_extents {
            let Some((from, extent)) = self.extents.range_mut(..=start).next_back() else { return };
            extent.live_bytes -= end - start;
            extent.live_blocks -= 1;
            (joins_before, joins_after) = (*from < start, extent.end > end);
        }
        self.fill.live_bytes -= end - start;
        self.fill.live_blocks -= 1;
        self.join_gap(start, end, joins_before, joins_after);
    }

    fn count(&mut self, start: u64, end: u64) {
        self.fill.live_bytes += end - start;
        self.fill.live_blocks += 1;
        if self.keeps_extents
            && let Some((_, extent)) = self.extents.range_mut(..=start).next_back()
        {
            extent.live_bytes += end - start;
            extent.live_blocks += 1;
        }
    }

    /// Makes a gap, joined with those beside it where the extent goes on.
    fn join_gap(&mut self, start: u64, mut end: u64, joins_before: bool, joins_after: bool) {
        if joins_after && let Some(&to) = self.gaps.get(&end) {
            self.remove_gap(end, to);
            end = to;
        }
        if joins_before
            && let Some((&from, &to)) = self.gaps.range(..start).next_back()
            && to == start
        {
            self.end_gap_at(from, to, end);
            return;
        }
        self.add_gap(start, end);
    }

    /// Has a gap end elsewhere: cheaper than taking it away and putting another in its place.
    fn end_gap_at(&mut self, start: u64, old_end: u64, end: u64) {
        self.gaps.insert(start, end);
        let (old_bytes, bytes) = (old_end - start, end - start);
        self.by_size.push((bytes, start));
        self.fill.free_bytes = (self.fill.free_bytes - old_bytes).saturating_add(bytes);
        if bytes >= self.fill.largest_bytes {
            self.fill.largest_bytes = bytes;
        } else if old_bytes == self.fill.largest_bytes {
            self.fill.largest_bytes = self.find_largest();
        }
        self.tidy();
    }

    /// Forgets gaps that are gone, once they are most.
    fn tidy(&mut self) {
        if self.by_size.len() > 64 + 4 * self.gaps.len() {
            self.by_size = self.gaps.iter().map(|(start, end)| (end - start, *start)).collect();
        }
    }

    fn add_gap(&mut self, start: u64, end: u64) {
        let bytes = end - start;
        self.gaps.insert(start, end);
        self.by_size.push((bytes, start));
        self.fill.free_bytes = self.fill.free_bytes.saturating_add(bytes);
        self.fill.gaps += 1;
        // Unknown while it has to be looked for: 0 with gaps there are.
        self.fill.largest_bytes = self.fill.largest_bytes.max(bytes);
        self.tidy();
    }

    fn remove_gap(&mut self, start: u64, end: u64) {
        self.gaps.remove(&start);
        self.fill.free_bytes -= end - start;
        self.fill.gaps -= 1;
        if end - start == self.fill.largest_bytes {
            self.fill.largest_bytes = self.find_largest();
        }
    }

    fn find_largest(&mut self) -> u64 {
        while let Some((bytes, start)) = self.by_size.peek() {
            if self.gaps.get(start).is_some_and(|end| end - start == *bytes) {
                return *bytes;
            }
            self.by_size.pop();
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_taken_away_leaves_one_gap_with_its_neighbors() {
        let mut address_space = AddressSpace::default();
        address_space.add_segment(0x1000, 0x2000, 1).unwrap();
        for start in [0x1000, 0x1100, 0x1200] {
            address_space.place(start, start + 0x100).unwrap();
        }
        assert_eq!((address_space.fill().gaps, address_space.fill().largest_bytes), (1, 0xd00));
        address_space.remove(0x1100, 0x1200);
        assert_eq!((address_space.fill().gaps, address_space.fill().scattered_bytes()), (2, 0x100));
        address_space.remove(0x1200, 0x1300);
        assert_eq!((address_space.fill().gaps, address_space.fill().largest_bytes), (1, 0xf00));
        assert_eq!(address_space.place(0x1080, 0x1180), Err(Misfit));
    }

    #[test]
    fn gaps_of_segments_side_by_side_stay_apart() {
        let mut address_space = AddressSpace::default();
        address_space.add_segment(0x1000, 0x2000, 1).unwrap();
        address_space.add_segment(0x2000, 0x3000, 2).unwrap();
        assert_eq!(address_space.add_segment(0x1800, 0x2800, 3), Err(Misfit));
        address_space.place(0x1f00, 0x2000).unwrap();
        address_space.remove(0x1f00, 0x2000);
        assert_eq!((address_space.fill().gaps, address_space.fill().largest_bytes), (2, 0x1000));
        address_space.place(0x2000, 0x2100).unwrap();
        assert_eq!(address_space.remove_segment(0x2000, 2), Some(1));
        assert_eq!(address_space.fill().footprint_bytes, 0x1000);
        assert_eq!((address_space.fill().live_blocks, address_space.fill().free_bytes), (0, 0x1000));
    }

    #[test]
    fn address_spaces_are_inferred_from_blocks_and_small_holes_between_them() {
        let mut address_space = AddressSpace::default();
        address_space.place_anywhere(0x1000, 0x1100, 0x80).unwrap();
        address_space.place_anywhere(0x1180, 0x1200, 0x80).unwrap();
        address_space.place_anywhere(0x5000, 0x5100, 0x80).unwrap();
        assert_eq!(address_space.extents.len(), 2);
        assert_eq!((address_space.fill().footprint_bytes, address_space.fill().free_bytes), (0x300, 0x80));
        address_space.remove(0x1000, 0x1100);
        assert_eq!(address_space.place_anywhere(0x1100, 0x1181, 0x80), Err(Misfit));
        address_space.place_anywhere(0x0f00, 0x1180, 0x80).unwrap();
        assert_eq!((address_space.fill().free_bytes, address_space.fill().footprint_bytes), (0, 0x400));
    }
}
