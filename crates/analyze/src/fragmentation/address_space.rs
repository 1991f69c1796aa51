//! The memory that blocks are cut from, and the gaps between them.
//!
//! An address space is a set of extents: segments that an allocator holds, or regions that are inferred from
//! the blocks. All of it is covered by pieces, each a gap or a live block. Invariants:
//! - Extents do not overlap; those of an inferred address space have more than `join_bytes` between them, so
//!   pieces that touch belong to one extent. Segments may touch.
//! - No two gaps of one extent touch.
//! - `footprint_bytes == live_bytes + free_bytes`, and `free_bytes` is the sum of all gaps.
//!
//! The largest gap is remembered. Only when it goes is another one looked for, in a heap of the larger
//! gaps from which those that are gone are dropped as they come up. A change costs O(log n) and memory
//! grows with the number of gaps.

use std::collections::{BTreeMap, BinaryHeap};

use crate::fragmentation::pieces::{Piece, Pieces};

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

/// A run of memory with its blocks and gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) live_bytes: u64,
    pub(super) live_blocks: u64,
    pub(super) gaps: Vec<Piece>,
}

/// A segment that an allocator holds.
#[derive(Clone, Copy, Debug)]
struct SegmentEnd {
    end: u64,
    /// Order number of the block that is the segment.
    order: u64,
}

/// Why a block has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Misfit;

/// Extents with live blocks and gaps.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressSpace {
    pieces: Pieces,
    /// Segments by address; none if the address space is inferred.
    segments: BTreeMap<u64, SegmentEnd>,
    larger: LargerGaps,
    fill: Fill,
}

impl AddressSpace {
    pub(super) fn fill(&self) -> Fill {
        self.fill
    }

    /// Returns all extents in order of address.
    pub(super) fn extents(&self) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        for piece in self.pieces.iter() {
            let is_next = extents.last().is_none_or(|extent| extent.end != piece.start);
            if is_next || self.segments.contains_key(&piece.start) {
                extents.push(Extent { start: piece.start, end: piece.start, ..Extent::default() });
            }
            let Some(extent) = extents.last_mut() else { continue };
            extent.end = piece.end;
            if piece.is_live {
                extent.live_bytes += piece.bytes();
                extent.live_blocks += 1;
            } else {
                extent.gaps.push(*piece);
            }
        }
        extents
    }

    /// Adds a segment, all of it free.
    pub(super) fn add_segment(&mut self, start: u64, end: u64, order: u64) -> Result<(), Misfit> {
        let before = self.segments.range(..end).next_back();
        if before.is_some_and(|(_, segment)| segment.end > start) {
            return Err(Misfit);
        }
        self.segments.insert(start, SegmentEnd { end, order });
        self.fill.footprint_bytes = self.fill.footprint_bytes.saturating_add(end - start);
        self.add_gap(start, end);
        self.find_largest();
        Ok(())
    }

    /// Takes a segment away; returns how many blocks were live in it.
    pub(super) fn remove_segment(&mut self, start: u64, order: u64) -> Option<u64> {
        let segment = *self.segments.get(&start).filter(|segment| segment.order == order)?;
        self.segments.remove(&start);
        let mut blocks = 0;
        while let Some(piece) = self.pieces.at_or_after(start).filter(|piece| piece.start < segment.end) {
            self.pieces.remove(piece.start);
            if piece.is_live {
                self.fill.live_bytes -= piece.bytes();
                self.fill.live_blocks -= 1;
                blocks += 1;
            } else {
                self.lose_gap(&piece);
            }
        }
        self.fill.footprint_bytes -= segment.end - start;
        self.find_largest();
        Some(blocks)
    }

    /// Puts a block into a gap.
    #[inline]
    pub(super) fn place(&mut self, start: u64, end: u64) -> Result<(), Misfit> {
        let gap = self.pieces.at_or_before(start);
        let Some(gap) = gap.filter(|gap| !gap.is_live && gap.end >= end) else { return Err(Misfit) };
        self.lose_gap(&gap);
        if gap.start < start {
            self.add_gap(gap.start, start);
        }
        self.add_block(start, end);
        if end < gap.end {
            self.add_gap(end, gap.end);
        }
        self.find_largest();
        Ok(())
    }

    /// Puts a block where it says, and makes what is under it known from then on. What lies
    /// between it and memory known before belongs to it too, unless it is more than `join_bytes`.
    pub(super) fn place_anywhere(&mut self, start: u64, end: u64, join_bytes: u64) -> Result<(), Misfit> {
        if self.place(start, end).is_ok() {
            return Ok(());
        }
        // Gaps under the block, the highest first.
        let mut under: Vec<Piece> = Vec::new();
        let mut known_bytes = 0;
        let mut before = self.pieces.before(end);
        while let Some(piece) = before.filter(|piece| piece.end > start) {
            if piece.is_live {
                return Err(Misfit);
            }
            known_bytes += piece.end.min(end) - piece.start.max(start);
            before = self.pieces.before(piece.start);
            under.push(piece);
        }
        for gap in &under {
            self.lose_gap(gap);
            self.pieces.remove(gap.start);
        }
        self.fill.footprint_bytes = self.fill.footprint_bytes.saturating_add(end - start - known_bytes);
        match under.last().filter(|gap| gap.start < start) {
            Some(gap) => self.add_gap(gap.start, start),
            None => self.join_before(before, start, join_bytes),
        }
        match under.first().filter(|gap| gap.end > end) {
            Some(gap) => self.add_gap(end, gap.end),
            None => self.join_after(end, join_bytes),
        }
        self.add_block(start, end);
        self.find_largest();
        Ok(())
    }

    /// Makes a gap of the hole between the piece before a new block and the block, unless it is too large.
    fn join_before(&mut self, before: Option<Piece>, start: u64, join_bytes: u64) {
        let hole = |piece: &Piece| start - piece.end;
        let Some(before) = before.filter(|piece| (1..=join_bytes).contains(&hole(piece))) else { return };
        self.fill.footprint_bytes = self.fill.footprint_bytes.saturating_add(hole(&before));
        if before.is_live {
            self.add_gap(before.end, start);
        } else {
            self.lose_gap(&before);
            self.add_gap(before.start, start);
        }
    }

    /// Makes a gap of the hole between a new block and the piece after it, unless it is too large.
    fn join_after(&mut self, end: u64, join_bytes: u64) {
        let hole = |piece: &Piece| piece.start - end;
        let after = self.pieces.at_or_after(end);
        let Some(after) = after.filter(|piece| (1..=join_bytes).contains(&hole(piece))) else { return };
        self.fill.footprint_bytes = self.fill.footprint_bytes.saturating_add(hole(&after));
        if after.is_live {
            self.add_gap(end, after.start);
        } else {
            self.lose_gap(&after);
            self.pieces.remove(after.start);
            self.add_gap(end, after.end);
        }
    }

    /// Takes a block away that was placed.
    #[inline]
    pub(super) fn remove(&mut self, start: u64, end: u64) {
        let (mut joins_before, mut joins_after) = (true, true);
        if !self.segments.is_empty() {
            let Some((from, segment)) = self.segments.range(..=start).next_back() else { return };
            (joins_before, joins_after) = (*from < start, segment.end > end);
        }
        self.fill.live_bytes -= end - start;
        self.fill.live_blocks -= 1;
        let (mut from, mut to) = (start, end);
        let is_gap = |piece: &Piece| !piece.is_live;
        if joins_after && let Some(after) = self.pieces.get(end).filter(is_gap) {
            self.lose_gap(&after);
            self.pieces.remove(end);
            to = after.end;
        }
        let before = self.pieces.before(start).filter(|piece| is_gap(piece) && piece.end == start);
        if joins_before && let Some(before) = before {
            self.lose_gap(&before);
            self.pieces.remove(start);
            from = before.start;
        }
        self.add_gap(from, to);
        self.find_largest();
    }

    fn add_block(&mut self, start: u64, end: u64) {
        self.pieces.set(Piece { start, end, is_live: true });
        self.fill.live_bytes += end - start;
        self.fill.live_blocks += 1;
    }

    fn add_gap(&mut self, start: u64, end: u64) {
        let gap = Piece { start, end, is_live: false };
        self.pieces.set(gap);
        self.fill.free_bytes = self.fill.free_bytes.saturating_add(gap.bytes());
        self.fill.gaps += 1;
        self.larger.add(&gap, &self.pieces, self.fill.gaps);
    }

    /// Counts a gap no more; the caller removes or replaces its piece.
    fn lose_gap(&mut self, gap: &Piece) {
        self.fill.free_bytes -= gap.bytes();
        self.fill.gaps -= 1;
        self.larger.lose(gap);
    }

    /// Completes a change of gaps.
    #[inline]
    fn find_largest(&mut self) {
        self.fill.largest_bytes = self.larger.largest(&mut self.pieces, self.fill.gaps);
    }
}

/// The larger ones of the gaps, from which the largest is found.
#[derive(Clone, Debug, Default)]
struct LargerGaps {
    /// Size and address of all gaps of at least `floor_bytes`, among them some that are gone.
    by_size: BinaryHeap<(u64, u64)>,
    floor_bytes: u64,
    /// Length of `by_size` beyond which gaps are chosen anew.
    limit: usize,
    largest_bytes: u64,
    /// Whether the largest gap is gone.
    is_lost: bool,
}

impl LargerGaps {
    #[inline]
    fn add(&mut self, gap: &Piece, pieces: &Pieces, gaps: u64) {
        let bytes = gap.bytes();
        if bytes >= self.largest_bytes {
            (self.largest_bytes, self.is_lost) = (bytes, false);
        }
        if bytes >= self.floor_bytes {
            self.by_size.push((bytes, gap.start));
            if self.by_size.len() > self.limit {
                self.choose(pieces, gaps);
            }
        }
    }

    #[inline]
    fn lose(&mut self, gap: &Piece) {
        self.is_lost |= gap.bytes() == self.largest_bytes;
    }

    /// Returns the size of the largest gap; 0 if there is none.
    #[inline]
    fn largest(&mut self, pieces: &mut Pieces, gaps: u64) -> u64 {
        if self.is_lost {
            self.find(pieces, gaps);
        }
        self.largest_bytes
    }

    fn find(&mut self, pieces: &mut Pieces, gaps: u64) {
        (self.largest_bytes, self.is_lost) = (0, false);
        if gaps == 0 {
            return;
        }
        loop {
            while let Some((bytes, start)) = self.by_size.peek() {
                if pieces.get(*start).is_some_and(|piece| !piece.is_live && piece.bytes() == *bytes) {
                    self.largest_bytes = *bytes;
                    return;
                }
                self.by_size.pop();
            }
            self.choose(pieces, gaps);
        }
    }

    /// Keeps one gap in eight, the largest ones. Many more changes than there are gaps pass before this is
    /// needed again, or as many as one in eight if they end those.
    #[cold]
    fn choose(&mut self, pieces: &Pieces, gaps: u64) {
        let free = || pieces.iter().filter(|piece| !piece.is_live).map(|gap| (gap.bytes(), gap.start));
        let mut sizes: Vec<u64> = free().map(|(bytes, _)| bytes).collect();
        let at = sizes.len() - (gaps as usize / 8).max(64).min(sizes.len());
        self.floor_bytes = if at == 0 { 0 } else { *sizes.select_nth_unstable(at).1 };
        self.by_size = free().filter(|(bytes, _)| *bytes >= self.floor_bytes).collect();
        self.limit = 64 + 2 * self.by_size.len() + gaps as usize / 2;
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
        assert_eq!(address_space.extents().len(), 2);
        assert_eq!((address_space.fill().footprint_bytes, address_space.fill().free_bytes), (0x300, 0x80));
        address_space.remove(0x1000, 0x1100);
        assert_eq!(address_space.place_anywhere(0x1100, 0x1181, 0x80), Err(Misfit));
        address_space.place_anywhere(0x0f00, 0x1180, 0x80).unwrap();
        assert_eq!((address_space.fill().free_bytes, address_space.fill().footprint_bytes), (0, 0x400));
    }
}
