//! Live bytes of the main kind by process, device and resource.

use floodmark_event::Kind;

use crate::change::{Block, Space};
use crate::fold::{End, Fold};
use crate::level::Level;
use crate::series::{GroupSeries, SeriesFold, SeriesSet, signed};

/// Live bytes by process, device and resource over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceSeries {
    /// Kinds that are counted.
    pub kinds: Vec<Kind>,
    /// The series.
    pub series: SeriesSet<Space>,
}

/// Folds events into [`SpaceSeries`].
#[derive(Clone, Debug)]
pub struct SpaceSeriesFold {
    limit: usize,
    tallies: [Option<Box<SeriesFold<u32>>>; Kind::ALL.len()],
}

impl SpaceSeriesFold {
    /// Starts; at most `limit` instants are kept.
    pub fn new(limit: usize) -> Self {
        Self { limit, tallies: Default::default() }
    }

    fn change(&mut self, block: &Block, time_ns: i64, by: i64) {
        let limit = self.limit;
        let fold =
            self.tallies[usize::from(block.tally)].get_or_insert_with(|| Box::new(SeriesFold::new(limit)));
        fold.change(&block.space, time_ns, by);
    }
}

impl Fold for SpaceSeriesFold {
    type Output = SpaceSeries;

    #[inline]
    fn begins(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.change(block, time_ns, signed(block.bytes));
    }

    #[inline]
    fn ends(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.change(block, time_ns, -signed(block.bytes));
    }

    fn finish(&self, end: &End<'_>) -> SpaceSeries {
        let tallies = end.live.tallies();
        let fold = self.tallies[usize::from(tallies.main())].as_ref();
        let series = fold.map_or_else(|| SeriesFold::new(self.limit).finish(), |fold| fold.finish());
        let SeriesSet { groups, points, interval_ns, peak, end_ns } = series;
        let named = |GroupSeries { group, points, interval_ns, peak }| {
            let group = end.live.space(group);
            GroupSeries { group, points, interval_ns, peak }
        };
        let groups = groups.into_iter().map(named).collect();
        let end_ns = end.live.end_ns().or(end_ns);
        let series = SeriesSet { groups, points, interval_ns, peak, end_ns };
        SpaceSeries { kinds: tallies.main_kinds(), series }
    }
}
