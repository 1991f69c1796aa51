//! Moving pieces between heaps: those of a stream's local heap return to the shared heap.

use super::{FreeListCache, GRANULE, Heap, NONE, Piece, Tag};

/// A piece on its way to another heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// Allocated.
    Live { start: u64, size: u64, asked: u64 },
    /// Free.
    Free { start: u64, size: u64, tag: Tag },
}

impl Heap {
    /// Removes all spans; returns the start and the pieces of each, in order of address.
    pub(crate) fn drain(&mut self) -> Vec<(u64, Vec<Moved>)> {
        self.flush_cache();
        let cache = FreeListCache::new(self.cache.owner());
        let used = std::mem::replace(self, Self { cache, ..Self::new() });
        // The first piece of a span has no neighbor before it. Unused records have size 0.
        let first = used.pieces.iter().filter(|piece| piece.before == NONE && piece.size > 0);
        first
            .map(|first| {
                let mut moved = Vec::new();
                let mut piece = first;
                loop {
                    let Piece { start, size, tag, .. } = *piece;
                    moved.push(if tag.is_free() {
                        Moved::Free { start, size, tag }
                    } else {
                        Moved::Live { start, size, asked: piece.asked() }
                    });
                    if piece.after == NONE {
                        break;
                    }
                    piece = &used.pieces[piece.after as usize];
                }
                (first.start, moved)
            })
            .collect()
    }

    /// Takes a lent span back, as the pieces that the other heap made of it.
    pub(crate) fn absorb(&mut self, start: u64, moved: &[Moved]) {
        let Some(index) = self.live.remove(start) else { return };
        let Piece { size, before, after, .. } = self.pieces[index as usize];
        self.live_bytes -= size;
        self.release(index);
        let mut last = before;
        let mut free = Vec::new();
        for piece in moved {
            let (Moved::Live { start, size, .. } | Moved::Free { start, size, .. }) = *piece;
            let previous = match *piece {
                Moved::Live { asked, .. } if asked < size => (asked / GRANULE) as u32,
                _ => 0,
            };
            let index = self.record(Piece {
                start,
                size,
                before: last,
                after: NONE,
                previous,
                next: NONE,
                tag: Tag::LIVE,
            });
            if last != NONE {
                self.pieces[last as usize].after = index;
            }
            match piece {
                Moved::Live { .. } => {
                    self.live.insert(start, index);
                    self.live_bytes += size;
                }
                Moved::Free { tag, .. } => free.push((index, *tag)),
            }
            last = index;
        }
        self.pieces[last as usize].after = after;
        if after != NONE {
            self.pieces[after as usize].before = last;
        }
        for (index, tag) in free {
            self.free(index, tag);
        }
    }
}
