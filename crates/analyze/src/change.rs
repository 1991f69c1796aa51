//! What changes among the live blocks: a block begins, ends, fails to come, or was never known.

use floodmark_event::{Kind, ProcessId, StackId, StringId};

/// A block, as its allocation described it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Address; 0 for a zero-size block that has none.
    pub address: u64,
    /// Size.
    pub bytes: u64,
    /// When it was allocated.
    pub time_ns: i64,
    /// Thread that allocated it.
    pub thread: u64,
    /// Stream on which it was allocated.
    pub stream: u64,
    /// Number in the trace of the event that allocated it, from 1. Of two blocks the older one has the lower.
    pub order: u64,
    /// Call stack.
    pub stack: StackId,
    /// Name of the variable or block.
    pub name: StringId,
    /// Innermost scope open on the thread.
    pub scope: u64,
    /// Index of its process, device and resource; see [`LiveSet::space`](crate::LiveSet::space).
    pub space: u32,
    /// Sort of memory.
    pub kind: Kind,
    /// Index of the sum it is part of; see [`Tallies::level`](crate::Tallies::level).
    pub tally: u8,
}

/// Where addresses are unique: one process, device and resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space {
    /// Process.
    pub process: ProcessId,
    /// Device, or [`NO_DEVICE`](floodmark_event::NO_DEVICE).
    pub device: i32,
    /// Name of the resource.
    pub resource: StringId,
}

/// How a block ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// When.
    pub time_ns: i64,
    /// Thread that freed it.
    pub thread: u64,
    /// Stream on which it was freed.
    pub stream: u64,
    /// Size its caller stated, or [`UNKNOWN_BYTES`](floodmark_event::UNKNOWN_BYTES).
    pub bytes: u64,
    /// Innermost scope open on the thread that freed it.
    pub scope: u64,
}

/// An allocation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When.
    pub time_ns: i64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Thread that asked.
    pub thread: u64,
    /// Stream on which it asked.
    pub stream: u64,
    /// Call stack.
    pub stack: StackId,
    /// Index of process, device and resource.
    pub space: u32,
    /// Sort of memory.
    pub kind: Kind,
    /// Index of the sum it would have been part of.
    pub tally: u8,
}

/// A free whose allocation was not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmatchedFree {
    /// When.
    pub time_ns: i64,
    /// Address.
    pub address: u64,
    /// Size its caller stated.
    pub bytes: u64,
    /// Thread that freed it.
    pub thread: u64,
    /// Index of process, device and resource.
    pub space: u32,
}
