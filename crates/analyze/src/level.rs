//! How high memory stands: live bytes of each tally, now and at their highest.
//!
//! A *tally* is what is summed up into one figure: one kind of memory, over all processes, devices
//! and resources; or, when the user chose kinds, all of those together. Kinds are never mixed unasked.
//!
//! Invariant: `carried_blocks + allocations - frees - replaced == live_blocks`. Sums saturate, so that
//! absurd sizes in a damaged trace give absurd figures and nothing worse.

use floodmark_event::Kind;

use serde::{Deserialize, Serialize};

use crate::block::KindSummary;
use crate::change::Block;

/// Sums of one tally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// Bytes of blocks that are live.
    pub live_bytes: u64,
    /// Blocks that are live.
    pub live_blocks: u64,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// Whether parts were merged, so that the highest live bytes and blocks are upper bounds.
    pub peak_is_bound: bool,
    /// First instant of the highest live bytes; none while they have been 0 throughout, and for a bound.
    pub peak_time_ns: Option<i64>,
    /// Order number of the newest block at that instant; see [`Block::order`].
    pub peak_order: u64,
    /// Blocks that were live at that instant.
    pub peak_blocks: u64,
    /// Highest number of live blocks at any instant.
    pub most_blocks: u64,
    /// Allocations.
    pub allocations: u64,
    /// Bytes of all allocations.
    pub total_bytes: u64,
    /// Frees that ended a block.
    pub frees: u64,
    /// Blocks that ended unseen: their address was allocated again.
    pub replaced: u64,
    /// Allocations that failed.
    pub failures: u64,
    /// Allocations at an address at which an earlier block had been freed.
    pub address_reuses: u64,
    /// Blocks that were live when the window opened.
    pub carried_blocks: u64,
    /// Bytes of those.
    pub carried_bytes: u64,
}

impl Level {
    #[inline]
    fn rise(&mut self, bytes: u64, time_ns: i64, order: u64) {
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        self.live_blocks += 1;
        self.most_blocks = self.most_blocks.max(self.live_blocks);
        if self.live_bytes > self.peak_bytes {
            self.peak_bytes = self.live_bytes;
            self.peak_time_ns = Some(time_ns);
            self.peak_order = order;
            self.peak_blocks = self.live_blocks;
        }
    }

    #[inline]
    fn fall(&mut self, bytes: u64) {
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
        self.live_blocks -= 1;
    }

    /// Adds what another part of the trace did.
    fn merge(&mut self, other: &Self) {
        if other.most_blocks > 0 {
            if self.most_blocks > 0 {
                self.peak_is_bound = true;
                self.peak_time_ns = None;
            } else {
                (self.peak_time_ns, self.peak_is_bound) = (other.peak_time_ns, other.peak_is_bound);
            }
        }
        self.live_bytes = self.live_bytes.saturating_add(other.live_bytes);
        self.live_blocks += other.live_blocks;
        self.peak_bytes = self.peak_bytes.saturating_add(other.peak_bytes);
        self.peak_blocks += other.peak_blocks;
        self.most_blocks += other.most_blocks;
        self.allocations += other.allocations;
        self.total_bytes = self.total_bytes.saturating_add(other.total_bytes);
        self.frees += other.frees;
        self.replaced += other.replaced;
        self.failures += other.failures;
        self.address_reuses += other.address_reuses;
        self.carried_blocks += other.carried_blocks;
        self.carried_bytes = self.carried_bytes.saturating_add(other.carried_bytes);
    }

    /// Whether anything happened here.
    pub fn is_used(&self) -> bool {
        self.allocations + self.carried_blocks + self.failures > 0
    }

    fn summary(&self, kind: Kind) -> KindSummary {
        KindSummary {
            kind,
            allocations: self.allocations,
            failures: self.failures,
            total_bytes: self.total_bytes,
            peak_bytes: self.peak_bytes,
            peak_time_ns: self.peak_time_ns,
            live_bytes: self.live_bytes,
            live_blocks: self.live_blocks,
        }
    }
}

/// The levels of all tallies.
#[derive(Clone, Debug, Default)]
pub struct Tallies {
    levels: [Level; Kind::ALL.len()],
    chosen: Option<Vec<Kind>>,
}

impl Tallies {
    /// Returns empty sums: of each kind, or of the chosen ones together.
    pub(crate) fn new(chosen: Option<Vec<Kind>>) -> Self {
        Self { levels: [Level::default(); Kind::ALL.len()], chosen }
    }

    /// The sums of one tally.
    pub fn level(&self, tally: u8) -> &Level {
        &self.levels[usize::from(tally)]
    }

    /// The tally that figures cover: that of the kinds the user chose, else device memory if there is
    /// any, else the kind with most bytes. Address space that is mapped counts only where there is nothing else.
    pub fn main(&self) -> u8 {
        if self.chosen.is_some() {
            return 0;
        }
        let device = &self.levels[Kind::Device as usize];
        if device.allocations + device.carried_blocks > 0 {
            return Kind::Device as u8;
        }
        let weight = |level: &Level| {
            let bytes = level.total_bytes.saturating_add(level.carried_bytes);
            (bytes, level.allocations + level.carried_blocks, level.failures)
        };
        let rank = |kind: &Kind| {
            let level = &self.levels[*kind as usize];
            (level.is_used() && *kind != Kind::Mapped, weight(level))
        };
        let heaviest = Kind::ALL.into_iter().rev().max_by_key(rank);
        heaviest.filter(|kind| self.levels[*kind as usize].is_used()).unwrap_or(Kind::Device) as u8
    }

    /// The sums that figures cover.
    pub fn main_level(&self) -> &Level {
        self.level(self.main())
    }

    /// The kinds that figures cover.
    pub fn main_kinds(&self) -> Vec<Kind> {
        self.kinds_of(self.main())
    }

    /// The kinds of a tally.
    pub fn kinds_of(&self, tally: u8) -> Vec<Kind> {
        self.chosen.clone().unwrap_or_else(|| Kind::from_number(tally).into_iter().collect())
    }

    /// The kind of a tally; none if it is the sum of the kinds the user chose.
    pub fn kind(&self, tally: u8) -> Option<Kind> {
        if self.chosen.is_some() { None } else { Kind::from_number(tally) }
    }

    /// Tallies other than the main one in which something happened, with their kinds.
    pub fn others(&self) -> impl Iterator<Item = (u8, Kind)> {
        let main = self.main();
        let kinds = if self.chosen.is_some() { &[][..] } else { &Kind::ALL[..] };
        kinds
            .iter()
            .map(|kind| (*kind as u8, *kind))
            .filter(move |(tally, _)| *tally != main && self.level(*tally).is_used())
    }

    /// What there is of the kinds that figures do not cover.
    pub fn other_summaries(&self) -> Vec<KindSummary> {
        self.others().map(|(tally, kind)| self.level(tally).summary(kind)).collect()
    }

    /// Whether a sum of bytes reached the largest number, at which sums stop.
    pub(crate) fn is_saturated(&self) -> bool {
        let is_full =
            |level: &Level| level.total_bytes.max(level.carried_bytes).max(level.peak_bytes) == u64::MAX;
        self.levels.iter().any(is_full)
    }

    /// Sums as a partial result has them.
    pub(crate) fn levels(&self) -> &[Level; Kind::ALL.len()] {
        &self.levels
    }

    /// Returns sums that a partial result had.
    pub(crate) fn with_levels(chosen: Option<Vec<Kind>>, levels: &[Level; Kind::ALL.len()]) -> Self {
        Self { levels: *levels, chosen }
    }

    /// Replaces the bound of a peak by the peak.
    pub(crate) fn settle(&mut self, tally: u8, settle: impl FnOnce(&mut Level)) {
        settle(&mut self.levels[usize::from(tally)]);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (level, theirs) in self.levels.iter_mut().zip(&other.levels) {
            level.merge(theirs);
        }
    }

    /// Events of all tallies, other than frees that ended nothing.
    pub(crate) fn events(&self) -> u64 {
        self.levels.iter().map(|level| level.allocations + level.frees + level.failures).sum()
    }

    pub(crate) fn carry(&mut self, block: &Block, time_ns: i64, newest: u64) -> &Level {
        let level = &mut self.levels[usize::from(block.tally)];
        level.carried_blocks += 1;
        level.carried_bytes = level.carried_bytes.saturating_add(block.bytes);
        level.rise(block.bytes, time_ns, newest);
        if level.peak_bytes > 0 {
            // Blocks without bytes that are carried in later are part of the same instant.
            level.peak_blocks = level.live_blocks;
        }
        level
    }

    #[inline]
    pub(crate) fn alloc(&mut self, block: &Block, reuses_address: bool) -> &Level {
        let level = &mut self.levels[usize::from(block.tally)];
        level.allocations += 1;
        level.address_reuses += u64::from(reuses_address);
        level.total_bytes = level.total_bytes.saturating_add(block.bytes);
        level.rise(block.bytes, block.time_ns, block.order);
        level
    }

    #[inline]
    pub(crate) fn free(&mut self, block: &Block) -> &Level {
        let level = &mut self.levels[usize::from(block.tally)];
        level.frees += 1;
        level.fall(block.bytes);
        level
    }

    pub(crate) fn replace(&mut self, block: &Block) -> &Level {
        let level = &mut self.levels[usize::from(block.tally)];
        level.replaced += 1;
        level.fall(block.bytes);
        level
    }

    pub(crate) fn fail(&mut self, tally: u8) {
        self.levels[usize::from(tally)].failures += 1;
    }
}
