//! What an analysis is: a fold over the changes of the live blocks, and how folds share a pass.
//!
//! A fold sees selected events of the window only, in order: first [`Fold::carried`] for every block
//! that is live when the window opens, then the changes. Splitting events into batches differently
//! never changes what it sees.

use floodmark_event::{EventBatch, Tables};

use crate::change::{Block, Ending, Failure, Space, UnmatchedFree};
use crate::level::Level;
use crate::live::{KeptLive, LiveSet};
use floodmark_event::filter::Filter;

/// What a fold may look at when it gives its result.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Blocks that are live at the end.
    pub live: &'a LiveSet,
    /// What the ids in blocks point to.
    pub tables: &'a Tables,
}

/// An analysis. All methods but [`finish`](Fold::finish) do nothing unless overridden; a fold that needs
/// to know only which blocks are live overrides [`begins`](Fold::begins) and [`ends`](Fold::ends).
///
/// A [`Level`] is that of the block's tally, after the change.
pub trait Fold {
    /// What it finds out.
    type Output;

    /// The first event follows, at `first_ns`; it may not be selected. Elapsed times count from `origin_ns`.
    fn start(&mut self, _first_ns: i64, _origin_ns: i64) {}
    /// The event with this number in the trace follows, counted from 1; it may not be selected.
    fn event(&mut self, _order: u64, _time_ns: i64) {}
    /// Events of this process, device and resource were met; blocks of it have `index` as their space.
    fn space(&mut self, _index: u32, _space: Space) {}
    /// A block counts as live from `time_ns` on: it was carried into the window or allocated.
    fn begins(&mut self, _block: &Block, _time_ns: i64, _level: &Level) {}
    /// A block is not live any more after `time_ns`: it was freed or replaced.
    fn ends(&mut self, _block: &Block, _time_ns: i64, _level: &Level) {}
    /// A block was allocated before the window and is live when it opens at `time_ns`. Calls
    /// [`begins`](Fold::begins) unless overridden, as does [`alloc`](Fold::alloc).
    #[inline]
    fn carried(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.begins(block, time_ns, level);
    }
    /// A block was allocated.
    #[inline]
    fn alloc(&mut self, block: &Block, level: &Level) {
        self.begins(block, block.time_ns, level);
    }
    /// A block was freed. Calls [`ends`](Fold::ends) unless overridden, as does
    /// [`replaced`](Fold::replaced).
    #[inline]
    fn free(&mut self, block: &Block, ending: &Ending, level: &Level) {
        self.ends(block, ending.time_ns, level);
    }
    /// A block's address was allocated again at `time_ns`, so it must have ended unseen.
    #[inline]
    fn replaced(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.ends(block, time_ns, level);
    }
    /// An allocation failed.
    fn failure(&mut self, _failure: &Failure) {}
    /// A block was freed whose allocation was not seen.
    fn unmatched_free(&mut self, _free: &UnmatchedFree) {}

    /// Returns the result so far; the fold may go on afterwards.
    fn finish(&self, end: &End<'_>) -> Self::Output;
}

/// One run of folds over events.
#[derive(Clone, Debug)]
pub struct Pass<F> {
    pub(crate) live: LiveSet,
    pub(crate) fold: F,
}

impl<F: Fold> Pass<F> {
    /// Starts a pass of `fold` (or a tuple of folds) over what `filter` selects.
    pub fn new(filter: &Filter, fold: F) -> Self {
        Self { live: LiveSet::new(filter), fold }
    }

    /// Goes on after the events that led to `kept`. But for its window `filter` has to select what it
    /// selected then, and none of those events may lie in the window.
    pub fn resume(filter: &Filter, mut fold: F, kept: &KeptLive) -> Self {
        Self { live: LiveSet::resume(filter, kept, &mut fold), fold }
    }

    /// Takes in more events.
    pub fn update(&mut self, batch: &EventBatch) {
        self.live.update(batch, &mut self.fold);
    }

    /// Returns the result of the events so far; the pass may go on afterwards.
    ///
    /// If the window has not opened yet, it counts as open from here on.
    pub fn finish(&mut self, tables: &Tables) -> F::Output {
        self.live.open_window(&mut self.fold);
        self.fold.finish(&End { live: &self.live, tables })
    }

    /// Opens the window if no event has done so, and returns the fold: nothing more comes.
    pub fn finished(mut self, tables: &Tables) -> F {
        self.finish(tables);
        self.fold
    }

    /// The live blocks so far.
    pub fn live(&self) -> &LiveSet {
        &self.live
    }

    /// The fold, as in reading a figure between two batches.
    pub fn fold(&self) -> &F {
        &self.fold
    }

    /// The fold, as in flushing a [`UsageStream`](crate::UsageStream).
    pub fn fold_mut(&mut self) -> &mut F {
        &mut self.fold
    }

    /// Whether every further event lies behind the window, so that reading on is of no use.
    pub fn is_past_window(&self) -> bool {
        self.live.is_past_window()
    }
}

impl<F: Fold> Fold for Option<F> {
    type Output = Option<F::Output>;

    fn start(&mut self, first_ns: i64, origin_ns: i64) {
        if let Some(fold) = self {
            fold.start(first_ns, origin_ns);
        }
    }
    fn event(&mut self, order: u64, time_ns: i64) {
        if let Some(fold) = self {
            fold.event(order, time_ns);
        }
    }
    fn space(&mut self, index: u32, space: Space) {
        if let Some(fold) = self {
            fold.space(index, space);
        }
    }
    fn carried(&mut self, block: &Block, time_ns: i64, level: &Level) {
        if let Some(fold) = self {
            fold.carried(block, time_ns, level);
        }
    }
    fn alloc(&mut self, block: &Block, level: &Level) {
        if let Some(fold) = self {
            fold.alloc(block, level);
        }
    }
    fn free(&mut self, block: &Block, ending: &Ending, level: &Level) {
        if let Some(fold) = self {
            fold.free(block, ending, level);
        }
    }
    fn replaced(&mut self, block: &Block, time_ns: i64, level: &Level) {
        if let Some(fold) = self {
            fold.replaced(block, time_ns, level);
        }
    }
    fn failure(&mut self, failure: &Failure) {
        if let Some(fold) = self {
            fold.failure(failure);
        }
    }
    fn unmatched_free(&mut self, free: &UnmatchedFree) {
        if let Some(fold) = self {
            fold.unmatched_free(free);
        }
    }
    fn finish(&self, end: &End<'_>) -> Self::Output {
        self.as_ref().map(|fold| fold.finish(end))
    }
}

/// A tuple of folds is a fold whose result is the tuple of theirs.
macro_rules! fold_for_tuple {
    ($($fold:ident $at:tt),+) => {
        impl<$($fold: Fold),+> Fold for ($($fold,)+) {
            type Output = ($($fold::Output,)+);

            fn start(&mut self, first_ns: i64, origin_ns: i64) {
                $(self.$at.start(first_ns, origin_ns);)+
            }
            #[inline]
            fn event(&mut self, order: u64, time_ns: i64) {
                $(self.$at.event(order, time_ns);)+
            }
            fn space(&mut self, index: u32, space: Space) {
                $(self.$at.space(index, space);)+
            }
            #[inline]
            fn carried(&mut self, block: &Block, time_ns: i64, level: &Level) {
                $(self.$at.carried(block, time_ns, level);)+
            }
            #[inline]
            fn alloc(&mut self, block: &Block, level: &Level) {
                $(self.$at.alloc(block, level);)+
            }
            #[inline]
            fn free(&mut self, block: &Block, ending: &Ending, level: &Level) {
                $(self.$at.free(block, ending, level);)+
            }
            #[inline]
            fn replaced(&mut self, block: &Block, time_ns: i64, level: &Level) {
                $(self.$at.replaced(block, time_ns, level);)+
            }
            #[inline]
            fn failure(&mut self, failure: &Failure) {
                $(self.$at.failure(failure);)+
            }
            #[inline]
            fn unmatched_free(&mut self, free: &UnmatchedFree) {
                $(self.$at.unmatched_free(free);)+
            }
            fn finish(&self, end: &End<'_>) -> Self::Output {
                ($(self.$at.finish(end),)+)
            }
        }
    };
}

fold_for_tuple!(A 0);
fold_for_tuple!(A 0, B 1);
fold_for_tuple!(A 0, B 1, C 2);
fold_for_tuple!(A 0, B 1, C 2, D 3);
fold_for_tuple!(A 0, B 1, C 2, D 3, E 4);
