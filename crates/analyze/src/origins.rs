//! How much memory every origin held at one instant, held at the end, and ever asked for.
//!
//! An origin is a stack, or the name of blocks without one, or else thread, stream and class of size; and
//! the scope, where that is asked for. The instant is the peak unless another one is given. From these
//! sums flame graphs, comparisons and profiles of other tools are made, so they are kept by number:
//! [`Tables`](floodmark_event::Tables) turn them into text.
//!
//! Memory grows with live blocks and origins, never with events. Sizes go by powers of two for that.

use std::cmp::Reverse;

use floodmark_event::units::Instant;
use floodmark_event::{Kind, StackId, StringId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::block::KindSummary;
use crate::change::{Block, Ending};
use crate::describe::Origin;
use crate::fold::{End, Fold};
use crate::level::Level;
use crate::watermark::{WatermarkFold, WatermarkOptions};

/// Bytes, and the blocks they are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Totals {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

impl Totals {
    /// Adds another; absurd sums stay at the highest number.
    pub fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.blocks = self.blocks.saturating_add(other.blocks);
    }

    /// The sum of several.
    pub fn sum(weights: impl IntoIterator<Item = Self>) -> Self {
        weights.into_iter().fold(Self::default(), |mut sum, weight| {
            sum.add(weight);
            sum
        })
    }

    pub(crate) fn block(block: &Block) -> Self {
        Self { bytes: block.bytes, blocks: 1 }
    }
}

/// Identifies blocks that have neither stack nor name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FallbackOrigin {
    /// Thread that allocated.
    pub thread: u64,
    /// Stream on which was allocated.
    pub stream: u64,
    /// Upper bound of the blocks' bytes, a power of two; they have more than half of it.
    pub at_most_bytes: u64,
}

/// Where blocks come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockOrigin {
    /// Call stack.
    pub stack: StackId,
    /// Name of blocks without a stack.
    pub name: StringId,
    /// Innermost scope; 0 unless blocks are grouped by scope.
    pub scope: u64,
    /// Of blocks that have neither stack nor name.
    pub otherwise: Option<FallbackOrigin>,
}

impl BlockOrigin {
    /// Where a block comes from, whatever its scope.
    #[inline]
    pub(crate) fn of(block: &Block) -> Self {
        let origin = Origin::of(block);
        let otherwise = (!origin.is_known()).then(|| FallbackOrigin {
            thread: block.thread,
            stream: block.stream,
            at_most_bytes: match block.bytes {
                0 => 0,
                bytes => bytes.checked_next_power_of_two().unwrap_or(u64::MAX),
            },
        });
        Self { stack: origin.stack, name: origin.name, scope: 0, otherwise }
    }
}

/// What an origin held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginRow {
    /// The origin.
    pub origin: BlockOrigin,
    /// Live at the peak, or at the instant that was asked for.
    pub marked: Totals,
    /// Live at the end.
    pub end: Totals,
    /// Allocated ever; what was there when the window opened is not in it.
    pub allocated: Totals,
}

/// What all origins held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginTotals {
    /// Kinds that the sums cover.
    pub kinds: Vec<Kind>,
    /// Instant that elapsed times count from.
    pub origin_time_ns: Option<i64>,
    /// Instant of [`OriginRow::marked`]; none if nothing was allocated.
    pub marked_time_ns: Option<i64>,
    /// The same, if it was asked for instead of the peak.
    pub at_ns: Option<i64>,
    /// Time of the last event.
    pub end_time_ns: Option<i64>,
    /// The origins, most held at the instant first.
    pub rows: Vec<OriginRow>,
    /// Kinds that are not covered.
    pub others: Vec<KindSummary>,
}

impl OriginTotals {
    /// Whether it is known of any block where it comes from.
    pub fn has_origins(&self) -> bool {
        self.rows.iter().any(|row| row.origin.otherwise.is_none())
    }

    /// Whether any block has a stack.
    pub fn has_stacks(&self) -> bool {
        self.rows.iter().any(|row| row.origin.stack.0 != 0)
    }
}

/// How blocks of one stack are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitBy {
    /// By nothing.
    #[default]
    Nothing,
    /// By their scope.
    Scope,
}

/// Folds events into [`OriginTotals`].
#[derive(Clone, Debug, Default)]
pub struct OriginTotalsFold {
    watermark: WatermarkFold,
    split: SplitBy,
    allocated: FxHashMap<(u8, BlockOrigin), Totals>,
}

impl OriginTotalsFold {
    /// Starts to weigh; `at` stands for the peak if given.
    pub fn new(at: Option<Instant>, split: SplitBy) -> Self {
        let options = WatermarkOptions { at, limit: Some(0), ..WatermarkOptions::default() };
        Self { watermark: WatermarkFold::new(options), split, allocated: FxHashMap::default() }
    }

    #[inline]
    fn origin(&self, block: &Block) -> BlockOrigin {
        let scope = if self.split == SplitBy::Scope { block.scope } else { 0 };
        BlockOrigin { scope, ..BlockOrigin::of(block) }
    }
}

impl Fold for OriginTotalsFold {
    type Output = OriginTotals;

    fn start(&mut self, first_ns: i64, origin_ns: i64) {
        self.watermark.start(first_ns, origin_ns);
    }
    fn carried(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.watermark.carried(block, time_ns, level);
    }
    #[inline]
    fn alloc(&mut self, block: &Block, level: &Level) {
        self.watermark.alloc(block, level);
        let origin = self.origin(block);
        self.allocated.entry((block.tally, origin)).or_default().add(Totals::block(block));
    }
    #[inline]
    fn free(&mut self, block: &Block, ending: &Ending, level: &Level) {
        self.watermark.free(block, ending, level);
    }
    fn replaced(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.watermark.replaced(block, time_ns, level);
    }

    fn finish(&self, end: &End<'_>) -> OriginTotals {
        let tallies = end.live.tallies();
        let main = tallies.main();
        let mut rows: FxHashMap<BlockOrigin, OriginRow> = FxHashMap::default();
        let mut row = |origin, change: &dyn Fn(&mut OriginRow)| {
            change(rows.entry(origin).or_insert(OriginRow { origin, ..OriginRow::default() }));
        };
        for block in self.watermark.marked(main, end) {
            row(self.origin(block), &|row| row.marked.add(Totals::block(block)));
        }
        for block in end.live.blocks().filter(|block| block.tally == main) {
            row(self.origin(block), &|row| row.end.add(Totals::block(block)));
        }
        for ((_, origin), weight) in self.allocated.iter().filter(|((tally, _), _)| *tally == main) {
            row(*origin, &|row| row.allocated.add(*weight));
        }
        let mut rows: Vec<OriginRow> = rows.into_values().collect();
        rows.sort_unstable_by_key(|row| {
            (Reverse(row.marked), Reverse(row.end), Reverse(row.allocated), row.origin)
        });
        OriginTotals {
            kinds: tallies.main_kinds(),
            origin_time_ns: end.live.origin_ns(),
            marked_time_ns: self.watermark.asked_ns().or(tallies.main_level().peak_time_ns),
            at_ns: self.watermark.asked_ns(),
            end_time_ns: end.live.counters().last_time_ns,
            rows,
            others: tallies.other_summaries(),
        }
    }
}
