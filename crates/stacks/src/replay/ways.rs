//! Stacks that were walked before, recognized whole: by where the call is, and by the words of the stack that its walk
//! read.
//!
//! A program that allocates at a handful of places by turns would be walked anew at every call, from the innermost frame
//! to where the stack meets that of the call before. Invariant: what is found is what a walk would find, since a walk
//! depends on these words and on the registers alone; rules that changed with the loaded modules make all be forgotten.

use super::{Level, Position, Probe};

/// Sets of two stacks each, by place of the call.
const SETS: usize = 1 << 10;
/// Words of all stacks; where there is no room all are forgotten.
const WORDS: usize = 1 << 15;
/// Stacks with more words are not kept.
const MAX_WORDS: usize = 256;

/// A stack; zeros are none.
#[derive(Clone, Copy)]
#[repr(C)]
struct Way {
    at: Position,
    node: u32,
    /// Where its words are.
    first: u32,
    /// How many they are; 0 if the place was met once only, and nothing is kept yet.
    count: u16,
    needs_base: bool,
}

const NONE: Way =
    Way { at: Position { sp: 0, ra: 0, base: 0 }, node: 0, first: 0, count: 0, needs_base: false };

/// The stacks; zeros are none.
#[repr(C)]
pub(super) struct Ways {
    used: usize,
    sets: [[Way; 2]; SETS],
    words: [Probe; WORDS],
}

impl Way {
    #[inline]
    fn is_place(&self, at: Position) -> bool {
        self.at.sp == at.sp && self.at.ra == at.ra
    }
}

impl Ways {
    /// The node of the stack at `at`, if it was kept and is unchanged.
    #[inline]
    pub(super) fn find(&mut self, at: Position) -> Option<u32> {
        let set = &mut self.sets[set_of(at)];
        for number in 0..2 {
            let way = set[number];
            if way.count == 0 || !way.is_place(at) || (way.needs_base && way.at.base != at.base) {
                continue;
            }
            let first = way.first as usize;
            let words = self.words.get(first..first + usize::from(way.count)).unwrap_or_default();
            // Innermost first: that is where stacks differ.
            if words.iter().rev().all(|probe| probe.holds()) {
                if number == 1 {
                    set.swap(0, 1);
                }
                return Some(way.node);
            }
        }
        None
    }

    /// Keeps a stack that was walked just now, if its place was met before: the stacks of many programs are met once.
    #[inline]
    pub(super) fn keep(&mut self, at: Position, level: &Level, probes: &[Probe]) {
        let set = &mut self.sets[set_of(at)];
        if probes.is_empty() || probes.len() > MAX_WORDS {
            return;
        }
        let mut way =
            Way { at, node: level.node, first: 0, count: probes.len() as u16, needs_base: level.needs_base };
        if !set.iter().any(|other| other.is_place(at)) {
            way.count = 0;
            set[usize::from(set[0].at.sp != 0)] = way;
            return;
        }
        if set[0].count > 0 || !set[0].is_place(at) {
            // The words of a stack that is replaced are used again if they are enough.
            let (first, room) = (set[1].first, set[1].count);
            set[1] = set[0];
            if room >= way.count {
                way.first = first;
                set[0] = way;
                self.words[first as usize..first as usize + probes.len()].copy_from_slice(probes);
                return;
            }
        }
        if self.used + probes.len() > WORDS {
            self.forget();
        }
        way.first = self.used as u32;
        self.sets[set_of(at)][0] = way;
        self.words[self.used..self.used + probes.len()].copy_from_slice(probes);
        self.used += probes.len();
    }

    /// Forgets all.
    #[cold]
    pub(super) fn forget(&mut self) {
        if self.used > 0 {
            self.sets.fill([NONE; 2]);
        }
        self.used = 0;
    }
}

#[inline]
const fn set_of(at: Position) -> usize {
    let key = (at.ra ^ at.sp.rotate_left(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (key >> (64 - SETS.trailing_zeros())) as usize
}
