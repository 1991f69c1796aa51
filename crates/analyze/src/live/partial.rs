//! What partial results have of a live set.

use floodmark_event::{Filter, Kind};
use serde::{Deserialize, Serialize};

use crate::change::{Block, Space};
use crate::level::{Level, Tallies};
use crate::live::{Counters, LiveSet, Phase};
use crate::partial::PartialError;
use crate::partial::blocks::{BlockData, BlockIds};
use crate::partial::ids::{Compact, Expand};

/// A live set whose events have all been read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveData {
    /// Kinds that were chosen, if any were.
    chosen: Option<Vec<u8>>,
    levels: Vec<Level>,
    counters: Counters,
    pub(crate) spaces: Vec<SpaceData>,
    blocks: Vec<BlockData>,
    rows: u64,
    order: u64,
    from_ns: Option<i64>,
    first_ns: Option<i64>,
    origin_ns: Option<i64>,
    last_ns: Option<i64>,
}

/// A process, device and resource.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SpaceData {
    process: u32,
    device: i32,
    resource: u32,
    remembers_all: bool,
}

impl SpaceData {
    pub(crate) fn new(space: Space, remembers_all: bool, ids: &mut Compact<'_>) -> Self {
        let Space { process, device, resource } = space;
        Self { process: process.0, device, resource: ids.string(resource), remembers_all }
    }

    pub(crate) fn space(self, ids: &Expand) -> Result<Space, PartialError> {
        let Self { process, device, resource, remembers_all: _ } = self;
        Ok(Space { process: ids.process(process)?, device, resource: ids.string(resource)? })
    }
}

impl LiveSet {
    pub(crate) fn data(&self, ids: &mut Compact<'_>) -> LiveData {
        let spaces = self.spaces.iter();
        let mut blocks: Vec<&Block> = self.blocks().collect();
        blocks.sort_unstable_by_key(|block| block.order);
        LiveData {
            chosen: self
                .tallies
                .kind(0)
                .is_none()
                .then(|| self.tallies.kinds_of(0).into_iter().map(|kind| kind as u8).collect()),
            levels: self.tallies.levels().to_vec(),
            counters: self.counters,
            spaces: spaces.map(|one| SpaceData::new(one.space, one.table.remembers_all(), ids)).collect(),
            blocks: blocks.into_iter().map(|block| BlockData::new(block, ids)).collect(),
            rows: self.rows,
            order: self.order,
            from_ns: self.window.from_ns,
            first_ns: self.window.first_ns,
            origin_ns: self.origin_ns(),
            last_ns: self.window.last_ns,
        }
    }

    /// Returns the set that `data` is of; no more events are taken in.
    pub(crate) fn of(data: LiveData, ids: &Expand) -> Result<Self, PartialError> {
        let kind = |number: &u8| Kind::from_number(*number).ok_or(PartialError::Damaged("a kind"));
        let chosen = data.chosen.as_ref().map(|chosen| chosen.iter().map(kind).collect()).transpose()?;
        let mut live = Self::new(&Filter { kinds: chosen.clone(), ..Filter::default() });
        let levels: [Level; Kind::ALL.len()] =
            data.levels.try_into().map_err(|_| PartialError::Damaged("the sums"))?;
        live.tallies = Tallies::with_levels(chosen, &levels);
        live.counters = data.counters;
        for (at, space) in data.spaces.iter().enumerate() {
            if live.space_id(space.space(ids)?) as usize != at {
                return Err(PartialError::Damaged("a process that occurs twice"));
            }
            if !space.remembers_all {
                live.spaces[at].table.forget();
            }
        }
        let block_ids = BlockIds { ids, spaces: live.spaces.len() };
        for block in data.blocks {
            let block = block.block(&block_ids)?;
            let slot = live.slab.reserve();
            live.slab.put(slot, block);
        }
        (live.rows, live.order) = (data.rows, data.order);
        live.window.phase = Phase::Past;
        (live.window.from_ns, live.window.first_ns) = (data.from_ns, data.first_ns);
        (live.window.origin_ns, live.window.last_ns) = (data.origin_ns, data.last_ns);
        Ok(live)
    }

    /// The sums by tally, to settle their peaks.
    pub(crate) fn tallies_mut(&mut self) -> &mut Tallies {
        &mut self.tallies
    }

    /// The live blocks, to number them anew.
    pub(crate) fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        self.slab.blocks_mut()
    }

    /// Processes, devices and resources.
    pub(crate) fn spaces_mut(&mut self) -> impl Iterator<Item = &mut Space> {
        self.spaces.iter_mut().map(|state| &mut state.space)
    }

    /// The index of a space, which is new if there was none.
    pub(crate) fn known_space(&mut self, space: Space) -> u32 {
        self.space_id(space)
    }

    /// Number of processes, devices and resources.
    pub(crate) fn space_count(&self) -> usize {
        self.spaces.len()
    }

    /// First instant of the window, if it has one.
    pub(crate) fn window_from_ns(&self) -> Option<i64> {
        self.window.from_ns
    }
}
