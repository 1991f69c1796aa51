//! Which block a free ends: its size and when it was allocated, found while rows are written in order.
//!
//! Blocks are matched as analyses match them: by process, device, resource and address; an allocation at
//! an address that is live ends the earlier block; the null address stands for any number of zero-size
//! blocks, of which a free ends the newest. Memory is bounded: beyond [`MAX_BLOCKS`] live blocks, further
//! ones are not remembered, and their frees have no block.

mod table;

use floodmark_event::{Action, Column, EventBatch, ProcessId, StringId, UNKNOWN_BYTES};
use rustc_hash::FxHashMap;

use self::table::{Block, BlockTable};
use crate::columns::EndedBlocks;

/// Live blocks that are remembered. An entry has 32 bytes, and the table has room for twice as many: 270 MB.
const MAX_BLOCKS: usize = 1 << 22;
/// Rows whose blocks are loaded before they are looked up.
const ROWS_AHEAD: usize = 64;

/// What a block's alloc and free share, beside the address.
type Space = (ProcessId, i32, StringId);

fn space_of(batch: &EventBatch, row: usize) -> Space {
    (batch.process.at(row), batch.device.at(row), batch.resource.at(row))
}

/// The live blocks of all processes.
#[derive(Debug, Default)]
pub(crate) struct LiveBlocks {
    spaces: FxHashMap<Space, u32>,
    live: BlockTable,
    /// Blocks at the null address, by space.
    nulls: FxHashMap<u32, Vec<Block>>,
    /// Number of blocks in `nulls`.
    null_count: usize,
    /// The space that was looked up last.
    last: Option<(Space, u32)>,
}

impl LiveBlocks {
    fn space(&mut self, space: Space) -> u32 {
        if let Some((last, id)) = self.last
            && last == space
        {
            return id;
        }
        let next = self.spaces.len() as u32;
        let id = *self.spaces.entry(space).or_insert(next);
        self.last = Some((space, id));
        id
    }

    fn begin(&mut self, space: u32, address: u64, block: Block) {
        let has_room = self.live.len() + self.null_count < MAX_BLOCKS;
        if address == 0 {
            if has_room {
                self.nulls.entry(space).or_default().push(block);
                self.null_count += 1;
            }
        } else if has_room {
            self.live.insert(space, address, block);
        } else {
            // The block that was there, if it is known, has ended.
            self.live.remove(space, address);
        }
    }

    fn end(&mut self, space: u32, address: u64) -> Option<Block> {
        if address == 0 {
            let block = self.nulls.get_mut(&space)?.pop()?;
            self.null_count -= 1;
            return Some(block);
        }
        self.live.remove(space, address)
    }

    /// Takes in the next events and returns which blocks their frees end.
    pub(crate) fn resolve(&mut self, batch: &EventBatch) -> EndedBlocks {
        let rows = batch.len();
        let mut ended =
            EndedBlocks { times_us: vec![EndedBlocks::NO_TIME; rows], bytes: vec![UNKNOWN_BYTES; rows] };
        for start in (0..rows).step_by(ROWS_AHEAD) {
            let some = start..rows.min(start + ROWS_AHEAD);
            if let Column::Each(addresses) = &batch.address {
                let space = self.space(space_of(batch, start));
                self.live.touch(space, &addresses[some.clone()]);
            }
            for row in some {
                self.resolve_row(batch, row, &mut ended);
            }
        }
        ended
    }

    #[inline]
    fn resolve_row(&mut self, batch: &EventBatch, row: usize, ended: &mut EndedBlocks) {
        let action = batch.action.at(row);
        if action == Action::Failure {
            return;
        }
        let space = self.space(space_of(batch, row));
        let (address, bytes) = (batch.address.at(row), batch.bytes.at(row));
        if action == Action::Alloc {
            self.begin(space, address, Block { bytes, time_ns: batch.time_ns.at(row) });
        } else if let Some(block) = self.end(space, address) {
            ended.times_us[row] = block.time_ns.div_euclid(1000);
            // Most callers give the size of the block; saying it twice would take half a byte per event.
            if block.bytes != bytes {
                ended.bytes[row] = block.bytes;
            }
        }
    }

    /// Returns the same blocks with other ids for the names of their resources.
    pub(crate) fn with_resources(self, mut id: impl FnMut(StringId) -> StringId) -> Self {
        let spaces = self.spaces.into_iter();
        let spaces =
            spaces.map(|((process, device, resource), space)| ((process, device, id(resource)), space));
        Self { spaces: spaces.collect(), last: None, ..self }
    }

    /// Forgets the blocks of processes that write no more.
    pub(crate) fn forget(&mut self, mut has_ended: impl FnMut(ProcessId) -> bool) {
        let gone: Vec<u32> =
            self.spaces.iter().filter(|((process, ..), _)| has_ended(*process)).map(|(_, id)| *id).collect();
        if gone.is_empty() {
            return;
        }
        // Spaces keep their numbers; only their blocks go.
        self.live.retain(|space| !gone.contains(&space));
        for space in gone {
            self.null_count -= self.nulls.remove(&space).map_or(0, |blocks| blocks.len());
        }
    }
}
