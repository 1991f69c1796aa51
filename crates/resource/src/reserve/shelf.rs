//! Blocks that were given back and are kept as they are for the next request of their size.
//!
//! Joining a block with its neighbors only to part them again at the next request is most of what a
//! random mix of sizes costs. So a block of up to [`MOST`] granules is put on a shelf, and joins its
//! neighbors when the heap has nothing else left, is looked through as a whole, or keeps more on the shelf
//! than it has handed out.
//!
//! That only helps if sizes come again. Hence blocks that may come to the shelf are rounded up to the
//! smallest size of a cell, by at most a sixteenth; what is smaller than 8 KiB or a power of two stays as
//! it is. The lists run through the block records, which the heap owns.

use super::bins::{Cell, NONE};
use super::heap::Tag;

/// The largest block that is kept, in granules: 1 MiB.
pub(super) const MOST: u64 = 4096;
/// Cells up to that of the largest.
const CELLS: usize = Cell::of(MOST).number() + 1;
/// So many blocks may be kept even if hardly any is handed out.
const ALWAYS: usize = 16;

/// Blocks of one stream that wait to be taken again.
#[derive(Clone, Debug)]
pub(super) struct Shelf {
    /// Whose blocks these are; none if nothing is kept.
    owner: Option<Tag>,
    heads: [u32; CELLS],
    len: usize,
}

impl Shelf {
    pub(super) const fn new(owner: Option<Tag>) -> Self {
        Self { owner, heads: [NONE; CELLS], len: 0 }
    }

    pub(super) fn owner(&self) -> Option<Tag> {
        self.owner
    }

    /// The size in granules that a block for `tag` gets; none if it would not be kept afterwards.
    #[inline]
    pub(super) fn rounded(&self, granules: u64, tag: Tag) -> Option<u64> {
        (granules <= MOST && self.owner == Some(tag)).then(|| Cell::rounded(granules))
    }

    /// Whether a block of so many granules that comes back under `tag` is kept: if it has a size that is
    /// asked for.
    #[inline]
    pub(super) fn keeps(&self, granules: u64, tag: Tag) -> bool {
        self.rounded(granules, tag) == Some(granules)
    }

    /// Block that is first in line for requests of so many granules, rounded.
    #[inline]
    pub(super) fn first(&self, granules: u64) -> u32 {
        self.heads[Cell::of(granules).number()]
    }

    /// Takes the first one; `next` follows it.
    #[inline]
    pub(super) fn take(&mut self, granules: u64, next: u32) {
        self.heads[Cell::of(granules).number()] = next;
        self.len -= 1;
    }

    /// Puts a block first in line; returns the one that was.
    #[inline]
    pub(super) fn put(&mut self, granules: u64, block: u32) -> u32 {
        self.len += 1;
        std::mem::replace(&mut self.heads[Cell::of(granules).number()], block)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether more is kept than makes sense for a heap that has handed out `live` blocks.
    #[inline]
    pub(super) fn is_cluttered(&self, live: usize) -> bool {
        self.len > ALWAYS + live
    }

    /// Empties it; returns what was first in its lines.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = u32> + use<> {
        let used = std::mem::replace(self, Self::new(self.owner));
        used.heads.into_iter().filter(|head| *head != NONE)
    }
}
