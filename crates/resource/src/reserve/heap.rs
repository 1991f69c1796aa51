//! Pieces of memory, live and free, and nothing of the memory itself.
//!
//! Invariants: the pieces of a span follow each other without gaps, linked by `before` and `after`;
//! two free neighbors never have the same tag, they are one piece; every live piece is in `live`, every
//! free one in the bins of its tag or on the [`Shelf`]. All records are out of band, so the memory may be a device's, or
//! not there at all.

mod moving;

use super::address_map::AddressMap;
use super::bins::{Bins, Cell, NONE};
use super::shelf::Shelf;

/// What pieces are measured in.
pub(crate) const GRANULE: u64 = 256;

/// Under which condition a free piece may be used: a stream that may use it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tag(pub(super) u32);

impl Tag {
    /// Any stream may use it at once.
    pub(crate) const CLEAN: Self = Self(0);
    /// Not free: handed out.
    const LIVE: Self = Self(u32::MAX);
    /// Not free: divided further by another heap.
    const LENT: Self = Self(u32::MAX - 1);
    /// Free, but not joined with its neighbors: on the shelf.
    const SHELVED: Self = Self(u32::MAX - 2);

    /// Whether it is free and in the bins.
    const fn is_free(self) -> bool {
        self.0 < Self::SHELVED.0
    }
}

/// How many blocks of the cell that a request belongs to are looked at for one that fits, before one
/// is taken that is sure to.
const PROBES: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    size: u64,
    /// Neighbors by address within the span.
    before: u32,
    after: u32,
    /// Neighbors in the cell, for free pieces. A live one has the granules that were asked for in
    /// `previous`, where they are fewer than it has; else 0.
    previous: u32,
    next: u32,
    tag: Tag,
}

impl Piece {
    /// Bytes that were asked for when it was taken.
    #[inline]
    fn asked(&self) -> u64 {
        if self.previous == 0 { self.size } else { u64::from(self.previous) * GRANULE }
    }
}

/// A piece that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// The size that was asked for.
    pub(crate) asked: u64,
    /// The span it belongs to, if nothing of that is in use any more.
    pub(crate) whole: Option<Whole>,
}

/// A span of which nothing is in use; good until the heap changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    index: u32,
    pub(crate) start: u64,
    pub(crate) size: u64,
    pub(crate) tag: Tag,
}

/// Pieces of one or more spans.
#[derive(Debug)]
pub(crate) struct Heap {
    pieces: Vec<Piece>,
    /// Records that are not used, linked by `next`.
    spare: u32,
    live: AddressMap,
    /// By tag; most heaps have one or two.
    #[expect(clippy::vec_box, reason = "bins are large, and most stay empty")]
    bins: Vec<Box<Bins>>,
    shelf: Shelf,
    live_bytes: u64,
    span_bytes: u64,
    /// Spans of which nothing is in use.
    whole: usize,
}

impl Heap {
    pub(crate) fn new() -> Self {
        Self {
            pieces: Vec::new(),
            spare: NONE,
            live: AddressMap::new(),
            bins: Vec::new(),
            shelf: Shelf::new(None),
            live_bytes: 0,
            span_bytes: 0,
            whole: 0,
        }
    }

    /// Keeps blocks that come back under `tag` as they are, as far as they are small.
    pub(crate) fn keep_for(&mut self, tag: Tag) {
        self.clear_shelf();
        self.shelf = Shelf::new(Some(tag));
    }

    /// Bytes handed out; what is lent to other heaps counts.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Blocks handed out, or lent.
    pub(crate) fn live_blocks(&self) -> u64 {
        self.live.len() as u64
    }

    /// Bytes of all spans.
    pub(crate) fn span_bytes(&self) -> u64 {
        self.span_bytes
    }

    /// Spans of which nothing is in use.
    pub(crate) fn whole_spans(&self) -> usize {
        self.whole
    }

    /// Bytes that are free.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.span_bytes - self.live_bytes
    }

    /// Takes a span over, all of it free.
    pub(crate) fn add(&mut self, start: u64, size: u64, tag: Tag) {
        self.welcome(tag);
        let piece =
            self.record(Piece { start, size, before: NONE, after: NONE, previous: NONE, next: NONE, tag });
        self.span_bytes += size;
        self.whole += 1;
        self.link(piece);
    }

    /// Gives up a span of which nothing is in use.
    pub(crate) fn remove(&mut self, whole: Whole) {
        self.unlink(whole.index);
        self.span_bytes -= whole.size;
        self.whole -= 1;
        self.release(whole.index);
    }

    /// Spans of which nothing is in use.
    pub(crate) fn wholes(&mut self) -> Vec<Whole> {
        self.clear_shelf();
        self.free_pieces().filter_map(|index| self.as_whole(index)).collect()
    }

    /// The piece as a span, if it is one.
    #[inline]
    fn as_whole(&self, index: u32) -> Option<Whole> {
        let Piece { start, size, before, after, tag, .. } = self.pieces[index as usize];
        (before == NONE && after == NONE).then_some(Whole { index, start, size, tag })
    }

    /// Hands out `size` bytes of what `tag` may use.
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
        let Some(rounded) = self.shelf.rounded(granules, tag) else {
            return self.take_exactly(size, tag, taken);
        };
        let index = self.shelf.first(rounded);
        if index == NONE {
            return self.take_rounded(size, rounded * GRANULE, tag, taken);
        }
        let piece = &mut self.pieces[index as usize];
        self.shelf.take(rounded, piece.next);
        self.live_bytes += piece.size;
        piece.tag = taken;
        piece.previous = if rounded == granules { 0 } else { granules as u32 };
        self.live.insert(piece.start, index);
        Some(piece.start)
    }

    /// Takes a block that may come to the shelf, where there is none of its size.
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
            None if self.shelf.is_empty() => return None,
            None => {
                self.clear_shelf();
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
        // One of the request's own cell wastes least; one of the next cells is sure to fit.
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

    /// Looks at all of a cell: the last resort, since its blocks may be smaller or larger than `size`.
    #[cold]
    fn search(&self, cell: Cell, size: u64, tag: Tag) -> Option<u32> {
        let mut index = self.bins_of(tag)?.head(cell);
        while index != NONE && self.pieces[index as usize].size < size {
            index = self.pieces[index as usize].next;
        }
        (index != NONE).then_some(index)
    }

    /// Makes the front of a free piece a live one.
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
        // The rest stays where it is if it still belongs there, which spares two lists.
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

    /// Takes a block back that is handed out or lent; none if there is none at `address`.
    #[inline]
    pub(crate) fn give(&mut self, address: u64, tag: Tag) -> Option<Given> {
        let index = self.live.remove(address)?;
        let piece = &mut self.pieces[index as usize];
        let (size, asked) = (piece.size, piece.asked());
        self.live_bytes -= size;
        if self.shelf.keeps(size / GRANULE, tag) {
            piece.tag = Tag::SHELVED;
            piece.next = self.shelf.put(size / GRANULE, index);
            return Some(Given { asked, whole: None });
        }
        Some(Given { asked, whole: self.free(index, tag) })
    }

    /// Whether so much is kept on the shelf that it is time to [clear](Self::clear_shelf) it.
    #[inline]
    pub(crate) fn is_cluttered(&self) -> bool {
        self.shelf.is_cluttered(self.live.len())
    }

    /// Lets all that is on the shelf join its neighbors; returns the spans that became whole.
    pub(crate) fn clear_shelf(&mut self) -> Vec<Whole> {
        let Some(tag) = self.shelf.owner().filter(|_| !self.shelf.is_empty()) else { return Vec::new() };
        let mut wholes = Vec::new();
        for head in self.shelf.clear() {
            let mut index = head;
            while index != NONE {
                let next = self.pieces[index as usize].next;
                wholes.extend(self.free(index, tag));
                index = next;
            }
        }
        wholes
    }

    /// As [`give`](Self::give), but only for blocks that are handed out, not lent.
    pub(crate) fn give_live(&mut self, address: u64, tag: Tag) -> Option<Given> {
        let index = self.live.get(address)?;
        (self.pieces[index as usize].tag == Tag::LIVE).then(|| self.give(address, tag))?
    }

    /// Makes a piece free, one with its neighbors where they may be used alike.
    #[inline]
    fn free(&mut self, index: u32, tag: Tag) -> Option<Whole> {
        self.welcome(tag);
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

    /// Lets `into` use all that is free; returns the tags whose streams it has to wait for.
    pub(crate) fn settle(&mut self, into: Tag) -> Vec<Tag> {
        self.clear_shelf();
        let mut settled = Vec::new();
        for number in 0..self.bins.len() as u32 {
            let tag = Tag(number);
            let indexes: Vec<u32> = if tag == into { Vec::new() } else { self.pieces_of(tag).collect() };
            if indexes.is_empty() {
                continue;
            }
            settled.push(tag);
            // Freed again one by one, each joins what it can. A piece that joined another is gone, so
            // only what still has the tag is looked at.
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
        settled
    }

    /// Tags other than `own` under which something is free.
    pub(crate) fn other_tags(&self, own: Tag) -> impl Iterator<Item = Tag> + '_ {
        let numbered = self.bins.iter().enumerate();
        let free = numbered.filter(|(_, bins)| bins.blocks > 0);
        free.map(|(number, _)| Tag(number as u32)).filter(move |tag| *tag != own)
    }

    /// The largest free piece of those that `tag` may use, or of all.
    pub(crate) fn largest(&mut self, tag: Option<Tag>) -> u64 {
        self.clear_shelf();
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

    /// Bins of a tag that something was made free under before.
    #[inline]
    fn bins_mut(&mut self, tag: Tag) -> &mut Bins {
        &mut self.bins[tag.0 as usize]
    }

    /// Makes sure that there are bins for `tag`.
    #[inline]
    fn welcome(&mut self, tag: Tag) {
        if tag.0 as usize >= self.bins.len() {
            self.bins.resize_with(tag.0 as usize + 1, || Box::new(Bins::new()));
        }
    }

    /// Changes a free piece, which may belong into another cell then.
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
