//! Chooses the instants at which to look.

use crate::fold::Fold;
use crate::fold::Pass;
use crate::usage::reduce::Reducer;
use crate::usage::{Usage, UsagePoint};

/// Blocks of a trace that may all be listed, so that every instant is exact.
const FEW_BLOCKS: u64 = 30_000;
/// Instants of such a trace, and of a larger one.
const MANY: usize = 20_000;
const FEW: usize = 600;
/// Live blocks that are looked at in all.
const WORK: u64 = 100_000_000;
/// Blocks whose addresses are kept at once, and instants at which they are looked at.
const MAPPED: u64 = 4_000_000;
const MOST_MAPS: u64 = 240;
const LEAST_MAPS: u64 = 1;

/// The instants at which to look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// The sum that is looked at.
    pub(super) tally: u8,
    /// The instants, in order.
    pub(super) times: Vec<i64>,
    /// The peak, which may lie between two events of one time.
    pub(super) peak: Option<PeakCut>,
    /// Whether memory changes at these instants only.
    pub(super) exact: bool,
    /// At every how manyth the addresses are looked at; 0 for never.
    pub(super) map_every: usize,
    few_blocks: bool,
}

/// Right after the allocation that made memory highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeakCut {
    pub(super) time_ns: i64,
    /// Order number of the newest block then.
    pub(super) order: u64,
}

impl Cuts {
    /// Chooses from what a pass found: every change, or of every interval the highest, the lowest and the
    /// last; and the peak in any case.
    pub fn choose<F: Fold>(usage: &Usage, pass: &Pass<F>) -> Self {
        let tallies = pass.live().tallies();
        let level = tallies.main_level();
        let few_blocks = level.allocations + level.carried_blocks <= FEW_BLOCKS;
        let live = level.most_blocks.max(1);
        let limit = (if few_blocks { MANY } else { FEW }).min((WORK / live).max(64) as usize);
        let mut reducer = Reducer::new(limit);
        for point in &usage.points {
            reducer.push(*point);
        }
        let mut times: Vec<i64> = reducer.points().iter().map(|point: &UsagePoint| point.time_ns).collect();
        times.sort_unstable();
        times.dedup();
        let peak = level.peak_time_ns.map(|time_ns| PeakCut { time_ns, order: level.peak_order });
        let maps = (MAPPED / live).clamp(LEAST_MAPS, MOST_MAPS) as usize;
        Self {
            tally: tallies.main(),
            exact: usage.exact && reducer.width_ns().is_none(),
            map_every: times.len().div_ceil(maps).max(1),
            times,
            peak,
            few_blocks,
        }
    }

    /// Instants that the caller asks for, of one sum.
    pub(super) fn at(tally: u8, mut times: Vec<i64>) -> Self {
        times.sort_unstable();
        times.dedup();
        Self { tally, times, ..Self::default() }
    }

    /// Whether there are so few blocks that all can be listed.
    pub fn has_few_blocks(&self) -> bool {
        self.few_blocks
    }
}
