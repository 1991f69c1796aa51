//! An ordered map of memory: pieces that are free or that a live block covers.
//!
//! Pieces lie in leaves of up to [`LEAF`], sorted by address, and a B-tree finds the leaf of an address. A
//! program mostly allocates and frees near the address that it used before, so the place that was used last
//! is tried first, and one change of memory costs about one search and moves within one leaf. A `BTreeMap` of the
//! pieces themselves needs a search of millions of entries for every neighbor.

use std::collections::BTreeMap;
use std::ops::Bound;

/// Largest number of pieces in a leaf.
const LEAF: usize = 64;

/// A run of addresses that is free or that one live block covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: u64,
    /// Address after the last one.
    pub(super) end: u64,
    pub(super) is_live: bool,
}

impl Piece {
    pub(super) fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// Pieces that start at addresses from `first` to `last`.
#[derive(Clone, Debug)]
struct Leaf {
    first: u64,
    last: u64,
    pieces: Vec<Piece>,
}

impl Leaf {
    /// Returns how many pieces start at `address` or before it.
    #[inline]
    fn find(&self, address: u64) -> usize {
        self.pieces.partition_point(|piece| piece.start <= address)
    }

    /// Does the same as [`find`](Self::find), faster if the answer is `slot` or next to it.
    #[inline]
    fn find_near(&self, slot: usize, address: u64) -> usize {
        let starts_by = |slot: usize| self.pieces.get(slot).is_some_and(|piece| piece.start <= address);
        let is_answer = |slot: usize| (slot == 0 || starts_by(slot - 1)) && !starts_by(slot);
        let near = [slot, slot.saturating_sub(1), slot + 1];
        near.into_iter().find(|slot| is_answer(*slot)).unwrap_or_else(|| self.find(address))
    }
}

/// Pieces by address. Leaves cover all addresses without overlap; only the one at address 0 may be empty.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    leaves: Vec<Leaf>,
    /// Positions of leaves by the first address that they cover.
    index: BTreeMap<u64, usize>,
    /// Positions of leaves that are not in use.
    unused: Vec<usize>,
    /// Leaf that was used last, and how many of its pieces start at the address that was looked for or before.
    recent: usize,
    slot: usize,
}

impl Default for Pieces {
    fn default() -> Self {
        let leaf = Leaf { first: 0, last: u64::MAX, pieces: Vec::new() };
        Self { leaves: vec![leaf], index: BTreeMap::from([(0, 0)]), unused: Vec::new(), recent: 0, slot: 0 }
    }
}

impl Pieces {
    /// Returns all pieces in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.index.values().flat_map(|at| &self.leaves[*at].pieces)
    }

    /// Returns the piece that starts at `start`.
    pub(super) fn get(&mut self, start: u64) -> Option<Piece> {
        self.at_or_before(start).filter(|piece| piece.start == start)
    }

    /// Returns the last piece that starts at `address` or before it.
    #[inline]
    pub(super) fn at_or_before(&mut self, address: u64) -> Option<Piece> {
        let (leaf, slot) = self.find(address);
        match slot.checked_sub(1) {
            Some(slot) => Some(leaf.pieces[slot]),
            None => {
                let (_, before) = self.index.range(..self.leaves[self.recent].first).next_back()?;
                self.leaves[*before].pieces.last().copied()
            }
        }
    }

    /// Returns the last piece that starts before `address`.
    #[inline]
    pub(super) fn before(&mut self, address: u64) -> Option<Piece> {
        self.at_or_before(address.checked_sub(1)?)
    }

    /// Returns the first piece that starts at `address` or after it.
    #[inline]
    pub(super) fn at_or_after(&mut self, address: u64) -> Option<Piece> {
        let (leaf, mut slot) = self.find(address);
        if slot > 0 && leaf.pieces[slot - 1].start == address {
            slot -= 1;
        }
        if let Some(piece) = leaf.pieces.get(slot) {
            return Some(*piece);
        }
        let beyond = (Bound::Excluded(leaf.first), Bound::Unbounded);
        let (_, after) = self.index.range(beyond).next()?;
        self.leaves[*after].pieces.first().copied()
    }

    /// Adds a piece, or replaces the one that starts at the same address.
    #[inline]
    pub(super) fn set(&mut self, piece: Piece) {
        let (_, slot) = self.find(piece.start);
        let pieces = &mut self.leaves[self.recent].pieces;
        if slot > 0 && pieces[slot - 1].start == piece.start {
            pieces[slot - 1] = piece;
        } else if pieces.len() < LEAF {
            pieces.insert(slot, piece);
        } else {
            self.split(slot, piece);
        }
    }

    /// Removes the piece that starts at `start`, if there is one.
    #[inline]
    pub(super) fn remove(&mut self, start: u64) {
        let (leaf, slot) = self.find(start);
        if slot == 0 || leaf.pieces[slot - 1].start != start {
            return;
        }
        let (at, leaf) = (self.recent, &mut self.leaves[self.recent]);
        leaf.pieces.remove(slot - 1);
        let (first, last) = (leaf.first, leaf.last);
        if leaf.pieces.is_empty()
            && let Some((_, before)) = self.index.range(..first).next_back()
        {
            self.leaves[*before].last = last;
            self.recent = *before;
            self.index.remove(&first);
            self.unused.push(at);
        }
    }

    /// Returns the leaf of an address, and how many of its pieces start there or before.
    #[inline]
    fn find(&mut self, address: u64) -> (&Leaf, usize) {
        let leaf = &self.leaves[self.recent];
        self.slot = if address >= leaf.first && address <= leaf.last {
            leaf.find_near(self.slot, address)
        } else {
            if let Some((_, at)) = self.index.range(..=address).next_back() {
                self.recent = *at;
            }
            self.leaves[self.recent].find(address)
        };
        (&self.leaves[self.recent], self.slot)
    }

    /// Adds a piece to the recent leaf, which is full. Pieces that come in order of address leave full
    /// leaves behind.
    fn split(&mut self, slot: usize, piece: Piece) {
        let leaf = &mut self.leaves[self.recent];
        let mut upper = leaf.pieces.split_off(if slot == LEAF { LEAF } else { LEAF / 2 });
        match slot.checked_sub(leaf.pieces.len()) {
            Some(slot) if slot > 0 || upper.is_empty() => upper.insert(slot, piece),
            _ => leaf.pieces.insert(slot, piece),
        }
        upper.reserve(LEAF - upper.len());
        let first = upper[0].start;
        let leaf = Leaf { first, last: std::mem::replace(&mut leaf.last, first - 1), pieces: upper };
        let at = self.unused.pop().unwrap_or(self.leaves.len());
        if at == self.leaves.len() {
            self.leaves.push(leaf);
        } else {
            self.leaves[at] = leaf;
        }
        self.index.insert(first, at);
        if piece.start >= first {
            self.recent = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The map answers as a `BTreeMap` does, however leaves split and go.
        #[test]
        fn answers_as_a_b_tree(
            steps in prop::collection::vec((0u64..400, prop::bool::weighted(0.6)), 1..1500),
            rising in any::<bool>(),
        ) {
            let mut pieces = Pieces::default();
            let mut expected: BTreeMap<u64, Piece> = BTreeMap::new();
            for (at, (address, adds)) in steps.into_iter().enumerate() {
                let address = if rising && adds { at as u64 } else { address };
                if adds {
                    let piece = Piece { start: address, end: address + 1 + at as u64, is_live: at % 2 == 0 };
                    pieces.set(piece);
                    expected.insert(address, piece);
                } else {
                    pieces.remove(address);
                    expected.remove(&address);
                }
                let near = address ^ 3;
                let before = expected.range(..=near).next_back().map(|(_, piece)| *piece);
                let after = expected.range(near..).next().map(|(_, piece)| *piece);
                prop_assert_eq!(pieces.at_or_before(near), before);
                prop_assert_eq!(pieces.at_or_after(near), after);
                prop_assert_eq!(pieces.get(near), expected.get(&near).copied());
            }
            prop_assert!(pieces.iter().eq(expected.values()));
        }
    }
}
