//! Blocks that are live at an instant, as they travel.

use floodmark_event::Tables;
use serde::{Deserialize, Serialize};

use crate::fold::{End, Pass};
use crate::live::partial::SpaceData;
use crate::partial::blocks::BlockData;
use crate::partial::ids::{Compact, TablesData};
use crate::partial::live_processes;
use crate::peaks::HeldFold;

/// Blocks of some processes of one input that are live at an instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldBlocks {
    pub(super) source: String,
    /// Ids of processes, and their numbers in the input.
    pub(super) processes: Vec<(u32, u32)>,
    pub(super) tables: TablesData,
    pub(super) spaces: Vec<SpaceData>,
    pub(super) blocks: Vec<BlockData>,
}

impl HeldBlocks {
    /// Keeps the blocks of one tally that a pass has found.
    pub fn new(mut pass: Pass<HeldFold>, source: &str, tally: u8, tables: &Tables) -> Self {
        pass.live.open_window(&mut pass.fold);
        let end = End { live: &pass.live, tables };
        let mut ids = Compact::new(tables);
        let spaces = (0..pass.live.space_count() as u32).map(|space| pass.live.space(space));
        let spaces: Vec<SpaceData> = spaces.map(|space| SpaceData::new(space, true, &mut ids)).collect();
        let blocks = pass.fold.blocks(&end).filter(|block| block.tally == tally);
        let mut blocks: Vec<BlockData> = blocks.map(|block| BlockData::new(block, &mut ids)).collect();
        blocks.sort_by_key(BlockData::order);
        Self {
            source: source.to_owned(),
            processes: live_processes(&pass.live).iter().map(|process| (process.0, process.0)).collect(),
            tables: ids.finish(),
            spaces,
            blocks,
        }
    }

    /// Number of the blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}
