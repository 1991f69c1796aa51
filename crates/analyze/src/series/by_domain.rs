//! Live bytes of every process, device and kind of memory.

use std::collections::BTreeMap;

use floodmark_event::{Kind, ProcessId};

use crate::change::{Block, Space};
use crate::fold::{End, Fold};
use crate::level::Level;
use crate::series::{GroupSeries, SeriesFold, signed};
use crate::usage::UsagePoint;

/// Where memory is: process, device and kind.
pub type Place = (ProcessId, i32, Kind);

/// Folds events into live bytes by process, device and kind over time.
#[derive(Clone, Debug)]
pub struct DomainSeriesFold {
    spaces: BTreeMap<u32, Space>,
    series: SeriesFold<Place, UsagePoint>,
}

impl DomainSeriesFold {
    /// Starts; at most `limit` instants are kept of every place.
    pub fn new(limit: usize) -> Self {
        Self { spaces: BTreeMap::new(), series: SeriesFold::new(limit) }
    }

    fn change(&mut self, block: &Block, time_ns: i64, by: i64) {
        let space = self.spaces.get(&block.space).copied().unwrap_or_default();
        self.series.change(&(space.process, space.device, block.kind), time_ns, by);
    }
}

impl Fold for DomainSeriesFold {
    type Output = Vec<GroupSeries<Place>>;

    fn space(&mut self, index: u32, space: Space) {
        self.spaces.insert(index, space);
    }
    #[inline]
    fn begins(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.change(block, time_ns, signed(block.bytes));
    }

    #[inline]
    fn ends(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.change(block, time_ns, -signed(block.bytes));
    }

    fn finish(&self, _end: &End<'_>) -> Vec<GroupSeries<Place>> {
        self.series.finish().groups
    }
}
