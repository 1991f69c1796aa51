//! Blocks that grow out of others: what `realloc` does.

use serde::{Deserialize, Serialize};

use crate::change::Block;

/// What a block was before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    address: u64,
    bytes: u64,
    /// Size of the first block of the chain.
    first_bytes: u64,
    steps: u64,
    /// Bytes that were copied from one to the next.
    copied_bytes: u64,
}

impl Chain {
    /// A block that grew out of none.
    pub(super) fn of(block: &Block) -> Self {
        let Block { address, bytes, .. } = *block;
        Self { address, bytes, first_bytes: bytes, steps: 0, copied_bytes: 0 }
    }
}

/// A block that was reallocated again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReallocChain {
    /// How often.
    pub steps: u64,
    /// Its size to begin with.
    pub first_bytes: u64,
    /// Its size after the last step.
    pub last_bytes: u64,
    /// Bytes that were copied on the way, at most.
    pub copied_bytes: u64,
}

/// What reallocations of one place add up to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReallocSums {
    pub(super) calls: u64,
    pub(super) moves: u64,
    pub(super) copied_bytes: u64,
    pub(super) longest: Option<ReallocChain>,
}

impl ReallocSums {
    /// Adds a step from what a block was to what it is, and returns that.
    pub(super) fn add(&mut self, before: Chain, block: &Block) -> Chain {
        let is_moved = before.address != block.address;
        let copied_bytes = if is_moved { before.bytes.min(block.bytes) } else { 0 };
        self.calls += 1;
        self.moves += u64::from(is_moved);
        self.copied_bytes = self.copied_bytes.saturating_add(copied_bytes);
        let chain = Chain {
            steps: before.steps + 1,
            copied_bytes: before.copied_bytes.saturating_add(copied_bytes),
            first_bytes: before.first_bytes,
            ..Chain::of(block)
        };
        self.offer(ReallocChain {
            steps: chain.steps,
            first_bytes: chain.first_bytes,
            last_bytes: chain.bytes,
            copied_bytes: chain.copied_bytes,
        });
        chain
    }

    fn offer(&mut self, chain: ReallocChain) {
        let rank =
            |chain: &ReallocChain| (chain.steps, chain.copied_bytes, chain.last_bytes, chain.first_bytes);
        if self.longest.is_none_or(|longest| rank(&chain) > rank(&longest)) {
            self.longest = Some(chain);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.moves += other.moves;
        self.copied_bytes = self.copied_bytes.saturating_add(other.copied_bytes);
        if let Some(chain) = other.longest {
            self.offer(chain);
        }
    }
}
