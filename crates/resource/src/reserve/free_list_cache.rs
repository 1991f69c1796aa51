//! A cache of freed blocks that are kept as they are for the next request of the same size.
//!
//! Merging a block with its neighbors only to split it again at the next request is most of what a random
//! mix of sizes costs. A freed block of up to [`MAX_GRANULES`] therefore goes to a list of its size. It is
//! merged when the heap finds no other memory, when the whole heap is inspected, or when the cache holds
//! more blocks than are allocated.
//!
//! This helps only if sizes recur. Requests that may be cached later are therefore rounded up to the
//! smallest size of their cell, by at most a sixteenth; sizes below 8 KiB and powers of two stay as they
//! are. The lists run through the block records, which the heap owns.

use super::bins::{Cell, NONE};
use super::heap::Tag;

/// Largest block that is cached, in granules: 1 MiB.
pub(super) const MAX_GRANULES: u64 = 4096;
/// Number of cells up to that of the largest cached block.
const CELLS: usize = Cell::of(MAX_GRANULES).number() + 1;
/// Number of blocks that may be cached however few are allocated.
const MIN_CAPACITY: usize = 16;

/// Freed blocks of one stream, in lists by size.
#[derive(Clone, Debug)]
pub(super) struct FreeListCache {
    /// Tag of the stream whose blocks are cached; none if the cache is off.
    owner: Option<Tag>,
    heads: [u32; CELLS],
    len: usize,
}

impl FreeListCache {
    pub(super) const fn new(owner: Option<Tag>) -> Self {
        Self { owner, heads: [NONE; CELLS], len: 0 }
    }

    pub(super) fn owner(&self) -> Option<Tag> {
        self.owner
    }

    /// Size in granules that a block for `tag` is rounded up to; none if it would not be cached when freed.
    #[inline]
    pub(super) fn rounded(&self, granules: u64, tag: Tag) -> Option<u64> {
        (granules <= MAX_GRANULES && self.owner == Some(tag)).then(|| Cell::rounded(granules))
    }

    /// Whether a block of this size that is freed under `tag` is cached: only rounded sizes are requested.
    #[inline]
    pub(super) fn accepts(&self, granules: u64, tag: Tag) -> bool {
        self.rounded(granules, tag) == Some(granules)
    }

    /// First cached block of a rounded size, or [`NONE`].
    #[inline]
    pub(super) fn first(&self, granules: u64) -> u32 {
        self.heads[Cell::of(granules).number()]
    }

    /// Removes the first block of a size; `next` is the one after it.
    #[inline]
    pub(super) fn pop(&mut self, granules: u64, next: u32) {
        self.heads[Cell::of(granules).number()] = next;
        self.len -= 1;
    }

    /// Makes a block the first of its size; returns the previous first one.
    #[inline]
    pub(super) fn push(&mut self, granules: u64, block: u32) -> u32 {
        self.len += 1;
        std::mem::replace(&mut self.heads[Cell::of(granules).number()], block)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether too many blocks are cached for a heap that has `live` blocks allocated.
    #[inline]
    pub(super) fn is_overfull(&self, live: usize) -> bool {
        self.len > MIN_CAPACITY + live
    }

    /// Empties the cache; returns the first block of each list.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = u32> + use<> {
        let used = std::mem::replace(self, Self::new(self.owner));
        used.heads.into_iter().filter(|head| *head != NONE)
    }
}
