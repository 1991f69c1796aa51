//! A heap: bookkeeping of allocated and free pieces of memory, without touching the memory.
//!
//! Invariants: the pieces of a span follow each other without gaps, linked by `before` and `after`; two free
//! neighbors never have the same tag, because they are merged; every live piece is in `live`, every free one
//! in the bins of its tag or in the [`FreeListCache`]. All records are out of band, so the memory may be a
//! device's, or simulated.

mod moving;

use super::address_map::AddressMap;
use super::bins::{Bins, Cell, NONE};
use super::free_list_cache::FreeListCache;

/// Unit of sizes, in bytes.
pub(crate) const GRANULE: u64 = 256;

/// Condition under which a piece may be used: the stream that may use a free piece without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tag(pub(super) u32);

impl Tag {
    /// Any stream may use the piece without waiting.
    pub(crate) const CLEAN: Self = Self(0);
    /// Not free: allocated.
    const LIVE: Self = Self(u32::MAX);
    /// Not free: a span that another heap divides.
    const LENT: Self = Self(u32::MAX - 1);
    /// Free but not merged with its neighbors: in the free list cache.
    const CACHED: Self = Self(u32::MAX - 2);

    /// Whether the piece is free and in the bins.
    const fn is_free(self) -> bool {
        self.0 < Self::CACHED.0
    }
}

/// Number of pieces in the request's own cell that are tried before a larger piece is split.
const PROBES: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    size: u64,
    /// Neighbors by address within the span.
    before: u32,
    after: u32,
    /// Neighbors in the cell, for free pieces. A live piece has the requested granules in `previous` if they
    /// are fewer than its size, else 0.
    previous: u32,
    next: u32,
    tag: Tag,
}

impl Piece {
    /// Requested size in bytes, rounded up to granules.
    #[inline]
    fn asked(&self) -> u64 {
        if self.previous == 0 { self.size } else { u64::from(self.previous) * GRANULE }
    }
}

/// The result of freeing a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// Requested size in bytes, rounded up to granules.
    pub(crate) asked: u64,
    /// The span of the block, if the whole span is free now.
    pub(crate) whole: Option<Whole>,
}

/// A span that is completely free; valid until the heap changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    index: u32,
    pub(crate) start: u64,
    pub(crate) size: u64,
    pub(crate) tag: Tag,
}

/// Allocated and free pieces of one or more spans.
#[derive(Debug)]
pub(crate) struct Heap {
    pieces: Vec<Piece>,
    /// First unused record; they are linked by `next`.
    spare: u32,
    live: AddressMap,
    /// Bins by tag; most heaps have one or two.
    #[expect(clippy::vec_box, reason = "bins are large, and most stay empty")]
    bins: Vec<Box<Bins>>,
    cache: FreeListCache,
    live_bytes: u64,
    span_bytes: u64,
    /// Number of spans that are completely free.
    whole: usize,
}

impl Heap {
    pub(crate) fn new() -> Self {
        Self {
            pieces: Vec::new(),
            spare: NONE,
            live: AddressMap::new(),
            bins: Vec::new(),
            cache: FreeListCache::new(None),
            live_bytes: 0,
            span_bytes: 0,
            whole: 0,
        }
    }

    /// Caches small blocks that are freed under `tag` from now on.
    pub(crate) fn cache_for(&mut self, tag: Tag) {
        self.flush_cache();
        self.cache = FreeListCache::new(Some(tag));
    }

    /// Allocated bytes, including spans lent to other heaps.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Allocated blocks, including spans lent to other heaps.
    pub(crate) fn live_blocks(&self) -> u64 {
        self.live.len() as u64
    }

    /// Total size of all spans in bytes.
    pub(crate) fn span_bytes(&self) -> u64 {
        self.span_bytes
    }

    /// Number of spans that are completely free.
    pub(crate) fn whole_spans(&self) -> usize {
        self.whole
    }

    /// Free bytes, cached blocks included.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.span_bytes - self.live_bytes
    }

    /// Adds a span, all of it free.
    pub(crate) fn add(&mut self, start: u64, size: u64, tag: Tag) {
        self.ensure_bins(tag);
        let piece =
            self.record(Piece { start, size, before: NONE, after: NONE, previous: NONE, next: NONE, tag });
        self.span_bytes += size;
        self.whole += 1;
        self.link(piece);
    }

    /// Removes a span that is completely free.
    pub(crate) fn remove(&mut self, whole: Whole) {
        self.unlink(whole.index);
        self.span_bytes -= whole.size;
        self.whole -= 1;
        self.release(whole.index);
    }

    /// All spans that are completely free.
    pub(crate) fn wholes(&mut self) -> Vec<Whole> {
        self.flush_cache();
        self.free_pieces().filter_map(|index| self.as_whole(index)).collect()
    }

    /// The piece as a span, if it is all of one.
    #[inline]
    fn as_whole(&self, index: u32) -> Option<Whole> {
        let Piece { start, size, before, after, tag, .. } = self.pieces[index as usize];
        (before == NONE && after == NONE).then_some(Whole { index, start, size, tag })
    }

    /// Allocates `size` bytes of what `tag` may use.
    #[inline]
    pub(crate) fn take(&mut self, size: u64, tag: Tag) -> Option<u64> {
        self.take_as(size, tag, Tag::LIVE)
    }

    /// Lends `size` bytes of what `tag` may use to another heap.
    pub(crate) fn lend(&mut self, size: u64, tag: Tag) -> Option<u64> {
        self.take_as(size, tag, Tag::LENT)
    }

    #[inline]
    fn take_as(&mut self, size: u64, tag: Tag, taken: Tag) -> Option<u64> {
        let granules = size / GRANULE;
        let Some(rounded) = self.cache.rounded(granules, tag) else {
            return self.take_exactly(size, tag, taken);
        };
        let index = self.cache.first(rounded);
        if index == NONE {
            return self.take_rounded(size, rounded * GRANULE, tag, taken);
        }
        let piece = &mut self.pieces[index as usize];
        self.cache.pop(rounded, piece.next);
        self.live_bytes += piece.size;
        piece.tag = taken;
        piece.previous = if rounded == granules { 0 } else { granules as u32 };
        self.live.insert(piece.start, index);
        Some(piece.start)
    }

    /// Allocates a block of a rounded size that is not in the cache.
    fn take_rounded(&mut self, size: u64, rounded: u64, tag: Tag, taken: Tag) -> Option<u64> {
        let cell =
            self.bins_of(tag).and_then(|bins| bins.fitting(rounded / GRANULE).map(|cell| bins.head(cell)));
        match cell {
            Some(index) => Some(self.carve(index, rounded, size, taken)),
            None => self.take_exactly(size, tag, taken),
        }
    }

    #[inline]
    fn take_exactly(&mut self, size: u64, tag: Tag, taken: Tag) -> Option<u64> {
        let index = match self.find(size, tag) {
            None if self.cache.is_empty() => return None,
            None => {
                self.flush_cache();
                self.find(size, tag)?
            }
            Some(index) => index,
        };
        Some(self.carve(index, size, size, taken))
    }

    #[inline]
    fn find(&self, size: u64, tag: Tag) -> Option<u32> {
        let granules = size / GRANULE;
        let bins = self.bins_of(tag)?;
        // A piece of the request's own cell wastes least; every piece of the next cells is large enough.
        let own = Cell::of(granules);
        let mut index = bins.head(own);
        for _ in 0..PROBES {
            if index == NONE || self.pieces[index as usize].size >= size {
                break;
            }
            index = self.pieces[index as usize].next;
        }
        if index != NONE && self.pieces[index as usize].size >= size {
            return Some(index);
        }
        match bins.fitting(granules) {
            Some(cell) => Some(bins.head(cell)),
            None => self.search(own, size, tag),
        }
    }

    /// Searches all of a cell, whose pieces may be smaller or larger than `size`: the last resort.
    #[cold]
    fn search(&self, cell: Cell, size: u64, tag: Tag) -> Option<u32> {
        let mut index = self.bins_of(tag)?.head(cell);
        while index != NONE && self.pieces[index as usize].size < size {
            index = self.pieces[index as usize].next;
        }
        (index != NONE).then_some(index)
    }

    /// Splits the front off a free piece and allocates it.
    #[inline]
    fn carve(&mut self, index: u32, size: u64, asked: u64, taken: Tag) -> u64 {
        let previous = if asked == size { 0 } else { (asked / GRANULE) as u32 };
        let Piece { start, size: free, before, after, .. } = self.pieces[index as usize];
        self.live_bytes += size;
        if before == NONE && after == NONE {
            self.whole -= 1;
        }
        if free == size {
            self.unlink(index);
            let piece = &mut self.pieces[index as usize];
            (piece.tag, piece.previous) = (taken, previous);
            self.live.insert(start, index);
            return start;
        }
        let front =
            self.record(Piece { start, size, before, after: index, previous, next: NONE, tag: taken });
        if before != NONE {
            self.pieces[before as usize].after = front;
        }
        // The rest stays in its list if its size still belongs there, which spares changing two lists.
        let (old, new) = (Cell::of(free / GRANULE), Cell::of((free - size) / GRANULE));
        if old != new {
            self.unlink(index);
        }
        let rest = &mut self.pieces[index as usize];
        rest.before = front;
        rest.start = start + size;
        rest.size = free - size;
        if old == new {
            let tag = rest.tag;
            self.bins_mut(tag).bytes -= size;
        } else {
            self.link(index);
        }
        self.live.insert(start, front);
        start
    }

    /// Frees a block or a lent span; returns none if neither begins at `address`.
    #[inline]
    pub(crate) fn give(&mut self, address: u64, tag: Tag) -> Option<Given> {
        let index = self.live.remove(address)?;
        let piece = &mut self.pieces[index as usize];
        let (size, asked) = (piece.size, piece.asked());
        self.live_bytes -= size;
        if self.cache.accepts(size / GRANULE, tag) {
            piece.tag = Tag::CACHED;
            piece.next = self.cache.push(size / GRANULE, index);
            return Some(Given { asked, whole: None });
        }
        Some(Given { asked, whole: self.free(index, tag) })
    }

    /// Whether so many blocks are cached that the cache should be [flushed](Self::flush_cache).
    #[inline]
    pub(crate) fn is_cache_overfull(&self) -> bool {
        self.cache.is_overfull(self.live.len())
    }

    /// Merges all cached blocks with their neighbors; returns the spans that became completely free.
    pub(crate) fn flush_cache(&mut self) -> Vec<Whole> {
        let Some(tag) = self.cache.owner().filter(|_| !self.cache.is_empty()) else { return Vec::new() };
        let mut wholes = Vec::new();
        for head in self.cache.clear() {
            let mut index = head;
            while index != NONE {
                let next = self.pieces[index as usize].next;
                wholes.extend(self.free(index, tag));
                index = next;
            }
        }
        wholes
    }

    /// As [`give`](Self::give), but only for blocks, not for lent spans.
    pub(crate) fn give_live(&mut self, address: u64, tag: Tag) -> Option<Given> {
        let index = self.live.get(address)?;
        (self.pieces[index as usize].tag == Tag::LIVE).then(|| self.give(address, tag))?
    }

    /// Makes a piece free and merges it with free neighbors of the same tag.
    #[inline]
    fn free(&mut self, index: u32, tag: Tag) -> Option<Whole> {
        self.ensure_bins(tag);
        let Piece { start, size, before, after, .. } = self.pieces[index as usize];
        let joins = |other: u32| other != NONE && self.pieces[other as usize].tag == tag;
        let (join_before, join_after) = (joins(before), joins(after));
        let survivor = match (join_before, join_after) {
            (false, false) => {
                self.pieces[index as usize].tag = tag;
                self.link(index);
                index
            }
            (true, false) => {
                self.resize(before, |piece| {
                    piece.size += size;
                    piece.after = after;
                });
                if after != NONE {
                    self.pieces[after as usize].before = before;
                }
                self.release(index);
                before
            }
            (false, true) => {
                self.resize(after, |piece| {
                    piece.start = start;
                    piece.size += size;
                    piece.before = before;
                });
                if before != NONE {
                    self.pieces[before as usize].after = after;
                }
                self.release(index);
                after
            }
            (true, true) => {
                let Piece { size: more, after: beyond, .. } = self.pieces[after as usize];
                self.unlink(after);
                self.resize(before, |piece| {
                    piece.size += size + more;
                    piece.after = beyond;
                });
                if beyond != NONE {
                    self.pieces[beyond as usize].before = before;
                }
                self.release(index);
                self.release(after);
                before
            }
        };
        let whole = self.as_whole(survivor);
        self.whole += usize::from(whole.is_some());
        whole
    }

    /// Gives all free memory the tag `into`; returns the previous tags, whose streams must be waited for.
    pub(crate) fn settle(&mut self, into: Tag) -> Vec<Tag> {
        self.flush_cache();
        let tags: Vec<Tag> = self.other_tags(into).collect();
        for tag in &tags {
            self.settle_tag(*tag, into);
        }
        tags
    }

    /// Gives the free memory of one tag, whose stream must be waited for, the tag `into`.
    pub(crate) fn settle_tag(&mut self, tag: Tag, into: Tag) {
        let indexes: Vec<u32> = self.pieces_of(tag).collect();
        // Each piece is freed again, which merges it with its neighbors. Pieces of one tag are never
        // neighbors, so none of the list disappears before its turn.
        for index in indexes {
            self.unlink(index);
            let piece = &self.pieces[index as usize];
            if piece.before == NONE && piece.after == NONE {
                self.whole -= 1;
            }
            self.pieces[index as usize].tag = Tag::LIVE;
            self.free(index, into);
        }
    }

    /// The tag other than `own` that has a free piece of `size` bytes, and of those the one with the most
    /// free memory.
    pub(crate) fn other_tag_with(&self, size: u64, own: Tag) -> Option<Tag> {
        let fitting = self.other_tags(own).filter(|tag| self.find(size, *tag).is_some());
        fitting.max_by_key(|tag| self.bins[tag.0 as usize].bytes)
    }

    /// Tags of free memory other than `own`.
    pub(crate) fn other_tags(&self, own: Tag) -> impl Iterator<Item = Tag> + '_ {
        let numbered = self.bins.iter().enumerate();
        let free = numbered.filter(|(_, bins)| bins.blocks > 0);
        free.map(|(number, _)| Tag(number as u32)).filter(move |tag| *tag != own)
    }

    /// Size in bytes of the largest free piece of `tag`, or of all.
    pub(crate) fn largest(&mut self, tag: Option<Tag>) -> u64 {
        self.flush_cache();
        let all = self
            .bins
            .iter()
            .enumerate()
            .filter(|(number, _)| tag.is_none_or(|tag| tag.0 as usize == *number));
        let largest = all.filter_map(|(_, bins)| {
            self.list(bins.head(bins.last()?)).map(|index| self.pieces[index as usize].size).max()
        });
        largest.max().unwrap_or(0)
    }

    fn free_pieces(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.bins.len() as u32).flat_map(|tag| self.pieces_of(Tag(tag)))
    }

    fn pieces_of(&self, tag: Tag) -> impl Iterator<Item = u32> + '_ {
        let bins = self.bins_of(tag);
        bins.into_iter().flat_map(|bins| bins.cells().flat_map(|cell| self.list(bins.head(cell))))
    }

    fn list(&self, head: u32) -> impl Iterator<Item = u32> + '_ {
        let some = |index: u32| (index != NONE).then_some(index);
        std::iter::successors(some(head), move |index| some(self.pieces[*index as usize].next))
    }

    fn bins_of(&self, tag: Tag) -> Option<&Bins> {
        self.bins.get(tag.0 as usize).map(|bins| &**bins)
    }

    /// Bins of a tag for which [`Self::ensure_bins`] was called.
    #[inline]
    fn bins_mut(&mut self, tag: Tag) -> &mut Bins {
        &mut self.bins[tag.0 as usize]
    }

    /// Creates the bins of `tag` if there are none.
    #[inline]
    fn ensure_bins(&mut self, tag: Tag) {
        if tag.0 as usize >= self.bins.len() {
            self.bins.resize_with(tag.0 as usize + 1, || Box::new(Bins::new()));
        }
    }

    /// Changes a free piece and moves it to another cell if its new size belongs there.
    #[inline]
    fn resize(&mut self, index: u32, change: impl FnOnce(&mut Piece)) {
        let mut piece = self.pieces[index as usize];
        let old = piece.size;
        change(&mut piece);
        if Cell::of(old / GRANULE) == Cell::of(piece.size / GRANULE) {
            self.pieces[index as usize] = piece;
            let bins = self.bins_mut(piece.tag);
            bins.bytes = bins.bytes + piece.size - old;
            return;
        }
        self.unlink(index);
        let Piece { previous, next, .. } = self.pieces[index as usize];
        self.pieces[index as usize] = Piece { previous, next, ..piece };
        self.link(index);
    }

    #[inline]
    fn link(&mut self, index: u32) {
        let Piece { size, tag, .. } = self.pieces[index as usize];
        let cell = Cell::of(size / GRANULE);
        let bins = self.bins_mut(tag);
        let head = bins.head(cell);
        bins.set_head(cell, index);
        bins.blocks += 1;
        bins.bytes += size;
        let piece = &mut self.pieces[index as usize];
        piece.previous = NONE;
        piece.next = head;
        if head != NONE {
            self.pieces[head as usize].previous = index;
        }
    }

    #[inline]
    fn unlink(&mut self, index: u32) {
        let Piece { size, tag, previous, next, .. } = self.pieces[index as usize];
        if next != NONE {
            self.pieces[next as usize].previous = previous;
        }
        if previous != NONE {
            self.pieces[previous as usize].next = next;
        }
        let bins = self.bins_mut(tag);
        bins.blocks -= 1;
        bins.bytes -= size;
        if previous == NONE {
            bins.set_head(Cell::of(size / GRANULE), next);
        }
    }

    #[inline]
    fn record(&mut self, piece: Piece) -> u32 {
        if self.spare == NONE {
            self.pieces.push(piece);
            return self.pieces.len() as u32 - 1;
        }
        let index = self.spare;
        self.spare = self.pieces[index as usize].next;
        self.pieces[index as usize] = piece;
        index
    }

    #[inline]
    fn release(&mut self, index: u32) {
        let piece = &mut self.pieces[index as usize];
        piece.size = 0;
        piece.next = self.spare;
        piece.tag = Tag::LIVE;
        self.spare = index;
    }
}

#[cfg(test)]
mod tests;
