//! Blocks of a partial result, with ids of its own tables.

use floodmark_event::Kind;
use serde::{Deserialize, Serialize};

use crate::change::Block;
use crate::partial::PartialError;
use crate::partial::ids::{Compact, Expand, checked_tally};

/// A block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BlockData {
    address: u64,
    bytes: u64,
    time_ns: i64,
    thread: u64,
    stream: u64,
    order: u64,
    stack: u32,
    name: u32,
    scope: u64,
    space: u32,
    kind: u8,
    tally: u8,
}

/// What is needed to turn [`BlockData`] into blocks.
pub(crate) struct BlockIds<'a> {
    pub(crate) ids: &'a Expand,
    /// Number of spaces that there are.
    pub(crate) spaces: usize,
}

impl BlockData {
    pub(crate) fn new(block: &Block, ids: &mut Compact<'_>) -> Self {
        Self {
            address: block.address,
            bytes: block.bytes,
            time_ns: block.time_ns,
            thread: block.thread,
            stream: block.stream,
            order: block.order,
            stack: ids.stack(block.stack),
            name: ids.string(block.name),
            scope: block.scope,
            space: block.space,
            kind: block.kind as u8,
            tally: block.tally,
        }
    }

    /// Number of the event that allocated it.
    pub(crate) fn order(&self) -> u64 {
        self.order
    }

    pub(crate) fn block(self, ids: &BlockIds<'_>) -> Result<Block, PartialError> {
        // An order of 0 marks a place without a block.
        if self.space as usize >= ids.spaces || self.order == 0 {
            return Err(PartialError::Damaged("a block"));
        }
        Ok(Block {
            address: self.address,
            bytes: self.bytes,
            time_ns: self.time_ns,
            thread: self.thread,
            stream: self.stream,
            order: self.order,
            stack: ids.ids.stack(self.stack)?,
            name: ids.ids.string(self.name)?,
            scope: ids.ids.scope(self.scope),
            space: self.space,
            kind: Kind::from_number(self.kind).ok_or(PartialError::Damaged("a kind"))?,
            tally: checked_tally(self.tally)?,
        })
    }
}
