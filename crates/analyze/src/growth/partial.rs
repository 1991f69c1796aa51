//! What partial results have of a search for growth, which is kept by process and so merges by putting together.

use floodmark_event::ProcessId;
use serde::{Deserialize, Serialize};

use crate::growth::{GrowthFold, GrowthOptions, Iterations, Series};
use crate::merge::{Merge, SpaceMap};
use crate::partial::PartialError;
use crate::partial::ids::{Compact, Expand, OriginData, checked_tally};
use crate::site::SiteRules;

/// A [`GrowthFold`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GrowthData {
    pub(crate) per: String,
    pub(crate) warm_up: u64,
    /// Processes, and when their iterations ended.
    processes: Vec<(u32, Vec<i64>)>,
    series: Vec<(u32, OriginData, Series)>,
    totals: Vec<(u32, u8, Series)>,
}

impl GrowthFold {
    pub(crate) fn data(&self, ids: &mut Compact<'_>) -> GrowthData {
        let process = |(id, known): &(ProcessId, Iterations)| (id.0, known.ends_ns.clone());
        let series = self.series.iter();
        let totals = self.totals.iter();
        GrowthData {
            per: self.options.per.clone(),
            warm_up: self.options.warm_up,
            processes: self.processes.iter().map(process).collect(),
            series: series.map(|((at, origin), one)| (*at as u32, ids.origin(*origin), *one)).collect(),
            totals: totals.map(|((at, tally), one)| (*at as u32, *tally, *one)).collect(),
        }
    }

    /// Returns the fold that `data` is of.
    pub(crate) fn of(data: GrowthData, ids: &Expand) -> Result<Self, PartialError> {
        let options = GrowthOptions { per: data.per, warm_up: data.warm_up, ..GrowthOptions::default() };
        let mut fold = Self::new(options);
        for (process, ends_ns) in data.processes {
            fold.processes.push((ids.process(process)?, Iterations { ends_ns, ended: 0 }));
        }
        let known = fold.processes.len();
        let process = |at: u32| {
            Some(at as usize).filter(|at| *at < known).ok_or(PartialError::Damaged("a process of iterations"))
        };
        for (at, origin, series) in data.series {
            fold.series.insert((process(at)?, ids.origin(origin)?), series);
        }
        for (at, tally, series) in data.totals {
            fold.totals.insert((process(at)?, checked_tally(tally)?), series);
        }
        Ok(fold)
    }

    /// Reports with other options; what iterations are stays.
    pub(crate) fn set_report(&mut self, limit: Option<usize>, sites: SiteRules) {
        (self.options.limit, self.options.sites) = (limit, sites);
    }

    /// What an iteration is called, and how many are passed over.
    pub(crate) fn question(&self) -> (&str, u64) {
        (&self.options.per, self.options.warm_up)
    }

    /// The processes, to number them anew.
    pub(crate) fn processes_mut(&mut self) -> impl Iterator<Item = &mut ProcessId> {
        self.processes.iter_mut().map(|(process, _)| process)
    }
}

impl Merge for GrowthFold {
    fn merge(&mut self, other: Self, _spaces: &SpaceMap) {
        let offset = self.processes.len();
        self.processes.extend(other.processes);
        let series = other.series.into_iter();
        self.series.extend(series.map(|((at, origin), one)| ((at + offset, origin), one)));
        let totals = other.totals.into_iter();
        self.totals.extend(totals.map(|((at, tally), one)| ((at + offset, tally), one)));
    }
}
