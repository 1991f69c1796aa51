//! Memory that is mapped, as pieces of the address space that do not overlap.

use std::collections::BTreeMap;

/// A piece: from `start` to below `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<T> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) value: T,
}

impl<T> Piece<T> {
    pub(crate) fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// Pieces by address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces<T> {
    pieces: BTreeMap<u64, (u64, T)>,
}

/// What became of a piece that something was cut out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut<T> {
    /// As it was.
    pub(crate) whole: Piece<T>,
    /// What is left of it before and behind.
    pub(crate) rest: [Option<Piece<T>>; 2],
}

impl<T: Copy> Pieces<T> {
    /// Adds a piece where there is none.
    pub(crate) fn insert(&mut self, start: u64, bytes: u64, value: T) {
        let end = start.saturating_add(bytes);
        if start < end {
            self.pieces.insert(start, (end, value));
        }
    }

    /// Cuts out what lies from `start` on.
    pub(crate) fn cut(&mut self, start: u64, bytes: u64) -> Vec<Cut<T>> {
        let end = start.saturating_add(bytes);
        let mut cuts = Vec::new();
        while let Some((&at, &(to, value))) = self.pieces.range(..end).next_back() {
            if to <= start || start >= end {
                break;
            }
            self.pieces.remove(&at);
            let piece = |start, end| (start < end).then_some(Piece { start, end, value });
            let rest = [piece(at, start.max(at)), piece(end.min(to), to)];
            cuts.push(Cut { whole: Piece { start: at, end: to, value }, rest });
        }
        for piece in cuts.iter().flat_map(|cut| cut.rest).flatten() {
            self.pieces.insert(piece.start, (piece.end, piece.value));
        }
        cuts.reverse();
        cuts
    }

    /// What of `start` and on is not covered.
    pub(crate) fn gaps(&self, start: u64, bytes: u64) -> Vec<(u64, u64)> {
        let end = start.saturating_add(bytes);
        let mut gaps = Vec::new();
        let mut at = start;
        let first = self.pieces.range(..=start).next_back().map_or(start, |(at, _)| *at);
        for (&from, &(to, _)) in self.pieces.range(first..end.max(first)) {
            if from > at {
                gaps.push((at, from.min(end) - at));
            }
            at = at.max(to);
        }
        if at < end {
            gaps.push((at, end - at));
        }
        gaps
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Piece<T>> + '_ {
        self.pieces.iter().map(|(&start, &(end, value))| Piece { start, end, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_leaves_what_lies_beside_it() {
        let mut pieces = Pieces::default();
        pieces.insert(10, 10, 'a');
        pieces.insert(20, 10, 'b');
        pieces.insert(40, 10, 'c');
        let cuts = pieces.cut(15, 10);
        let wholes: Vec<_> = cuts.iter().map(|cut| (cut.whole.start, cut.whole.end)).collect();
        assert_eq!(wholes, [(10, 20), (20, 30)]);
        let left: Vec<_> = pieces.iter().map(|piece| (piece.start, piece.end, piece.value)).collect();
        assert_eq!(left, [(10, 15, 'a'), (25, 30, 'b'), (40, 50, 'c')]);
        assert_eq!(pieces.gaps(0, 60), [(0, 10), (15, 10), (30, 10), (50, 10)]);
        assert_eq!(pieces.gaps(11, 4), []);
        assert!(pieces.cut(15, 10).is_empty() && pieces.cut(15, 0).is_empty());
        let inner = pieces.cut(42, 2);
        assert_eq!(inner[0].rest.map(|rest| rest.map(|piece| piece.bytes())), [Some(2), Some(6)]);
    }

    #[test]
    fn the_end_of_the_address_space_is_no_trouble() {
        let mut pieces = Pieces::default();
        pieces.insert(u64::MAX - 5, 100, ());
        pieces.insert(u64::MAX, 1, ());
        assert_eq!(pieces.cut(0, u64::MAX).len(), 1);
        assert_eq!(pieces.gaps(u64::MAX - 1, u64::MAX), [(u64::MAX - 1, 1)]);
        assert_eq!(pieces.iter().count(), 0);
    }
}
