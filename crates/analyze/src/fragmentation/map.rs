//! The addresses at an instant: its blocks, its gaps, and the blocks beside the gaps.

use crate::change::Block;
use crate::describe::Describe;
use crate::fragmentation::Place;
use crate::fragmentation::address_space::AddressSpace;
use crate::fragmentation::result::{AddressMap, GapInfo, MapGap, MapSegment};
use floodmark_event::Kind;

/// Gaps that are described without a limit.
const GAPS: usize = 100;

/// The address spaces at an instant, and the blocks that ended since.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    time_ns: i64,
    /// Order number of the newest block then.
    order: u64,
    address_spaces: Vec<AddressSpace>,
    ended: Vec<Block>,
}

impl Snapshot {
    pub(super) fn new(time_ns: i64, order: u64, address_spaces: Vec<AddressSpace>) -> Self {
        Self { time_ns, order, address_spaces, ended: Vec::new() }
    }

    /// A block that has a place ended.
    pub(super) fn ended(&mut self, block: &Block) {
        if block.order <= self.order && block.kind != Kind::Reserved {
            self.ended.push(*block);
        }
    }

    /// Describes the address spaces in the order of the report, each with its space; `live` are the blocks of the
    /// end, and an address means one thing within a place.
    pub(super) fn map<'a>(
        &'a self,
        order: &[(usize, u32)],
        live: impl Iterator<Item = &'a Block>,
        place: &impl Fn(u32) -> Place,
        describe: &mut Describe<'_>,
        limit: Option<usize>,
    ) -> AddressMap {
        let then = |block: &&Block| {
            block.order <= self.order
                && block.bytes > 0
                && !matches!(block.kind, Kind::Reserved | Kind::Static)
        };
        let mut blocks: Vec<&Block> = live.filter(then).chain(&self.ended).collect();
        blocks.sort_unstable_by_key(|block| (place(block.space), block.address, block.order));
        let mut map = AddressMap { time_ns: self.time_ns, ..AddressMap::default() };
        let mut gaps: Vec<(MapGap, Place, (u64, u64))> = Vec::new();
        // An address space that began later was not there yet.
        let known = order.iter().enumerate();
        let known =
            known.filter_map(|(to, (at, space))| Some((to, self.address_spaces.get(*at)?, place(*space))));
        for (address_space, state, place) in known {
            for extent in state.extents() {
                let own = extent.gaps.iter();
                let own: Vec<MapGap> =
                    own.map(|gap| MapGap { address: gap.start, bytes: gap.bytes() }).collect();
                gaps.extend(own.iter().map(|gap| (*gap, place, (extent.start, extent.end))));
                map.segments.push(MapSegment {
                    address_space,
                    address: extent.start,
                    bytes: extent.end - extent.start,
                    live_blocks: extent.live_blocks,
                    live_bytes: extent.live_bytes,
                    gaps: own,
                });
            }
        }
        gaps.sort_by_key(|(gap, ..)| (std::cmp::Reverse(gap.bytes), gap.address));
        let described = gaps.into_iter().take(limit.unwrap_or(GAPS)).map(|(gap, here, (start, end))| {
            let at =
                blocks.partition_point(|block| (place(block.space), block.address) < (here, gap.address));
            let is_here =
                |block: &&Block| place(block.space) == here && block.address >= start && block.address < end;
            let before = at.checked_sub(1).map(|at| blocks[at]).filter(is_here);
            let after = blocks.get(at).copied().filter(is_here);
            GapInfo {
                gap,
                before: before.map(|block| describe.info(block)),
                after: after.map(|block| describe.info(block)),
            }
        });
        map.largest_gaps = described.collect();
        map
    }
}
