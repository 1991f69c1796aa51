//! How high memory stands: live bytes of one tally, now and at their highest.
//!
//! A *tally* is what is summed up into one figure: one kind of memory, over all processes, devices
//! and resources; or, when the user chose kinds, all of those together. Kinds are never mixed unasked.
//!
//! Invariant: `carried_blocks + allocations - frees - replaced == live_blocks`. Sums saturate, so that
//! absurd sizes in a damaged trace give absurd figures and nothing worse.

/// Sums of one tally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Bytes of blocks that are live.
    pub live_bytes: u64,
    /// Blocks that are live.
    pub live_blocks: u64,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// First instant of the highest live bytes; none while they have been 0 throughout.
    pub peak_time_ns: Option<i64>,
    /// Order number of the newest block at that instant; see [`Block::order`](crate::Block::order).
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
    /// Blocks that were live when the window opened.
    pub carried_blocks: u64,
    /// Bytes of those.
    pub carried_bytes: u64,
}
