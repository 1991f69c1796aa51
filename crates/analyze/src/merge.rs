//! Partial results: passes over parts of a trace that give, merged, the result of a pass over it all.
//!
//! Parts are apart if no block is selected in both: passes over different processes or devices, or over
//! the same events narrowed to different threads, streams or kinds chosen one by one. Then counters,
//! sizes, ledgers, leaks and lifetimes of the whole follow from those of the parts exactly.
//!
//! What does *not* follow is the highest sum of two parts: each has its peak at another instant. A
//! merged peak is therefore the sum of the parts' peaks, which the true one cannot exceed, without an
//! instant and marked as a bound. (The same goes for the highest number of blocks.) Peaks by process,
//! device, kind and resource stay exact where only one part has such blocks. Watermark and usage need
//! the sum at every instant and do not merge; run one pass over all events for them.
//!
//! Both passes must have read ids of the same tables, and windows given as a time after the start must
//! have been turned into instants, because each part has a start of its own.

use crate::change::Block;
use crate::fold::{Fold, Pass};

/// Where the blocks of one live set are in another.
#[derive(Clone, Debug)]
pub struct SpaceMap {
    /// The new index of each space.
    pub(crate) spaces: Vec<u32>,
    /// By how much order numbers are higher, so that no two blocks have the same.
    pub(crate) orders: u64,
}

impl SpaceMap {
    /// The new index of a space.
    pub fn at(&self, space: u32) -> u32 {
        self.spaces[space as usize]
    }

    /// A block as the other set has it.
    pub(crate) fn moved(&self, block: &Block) -> Block {
        Block { space: self.at(block.space), order: block.order + self.orders, ..*block }
    }
}

/// A fold whose partial results merge.
pub trait Merge: Fold {
    /// Takes in what `other` found in events that are apart from those seen here.
    fn merge(&mut self, other: Self, spaces: &SpaceMap);
}

impl<F: Merge> Pass<F> {
    /// Takes in what `other` found in a part of the trace that is apart from those seen here.
    ///
    /// From then on the pass is complete: further events are ignored.
    pub fn merge(&mut self, mut other: Self) {
        other.live.open_window(&mut other.fold);
        self.live.open_window(&mut self.fold);
        let spaces = self.live.merge(&other.live);
        self.fold.merge(other.fold, &spaces);
    }
}

impl<F: Merge> Merge for Option<F> {
    fn merge(&mut self, other: Self, spaces: &SpaceMap) {
        if let (Some(ours), Some(theirs)) = (self, other) {
            ours.merge(theirs, spaces);
        }
    }
}

/// A tuple of folds that merge is one itself.
macro_rules! merge_for_tuple {
    ($($fold:ident $at:tt),+) => {
        impl<$($fold: Merge),+> Merge for ($($fold,)+) {
            fn merge(&mut self, other: Self, spaces: &SpaceMap) {
                $(self.$at.merge(other.$at, spaces);)+
            }
        }
    };
}

merge_for_tuple!(A 0);
merge_for_tuple!(A 0, B 1);
merge_for_tuple!(A 0, B 1, C 2);
