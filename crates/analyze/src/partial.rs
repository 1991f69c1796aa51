//! Partial results that travel: what a pass over some processes of a job found, as data that merges.
//!
//! A job is divided by process. Each part is read by itself ([`PartialFold`]), perhaps on another machine, and gives a
//! [`Partial`]. Partial results merge in any order and grouping, and the answers of the merged one are those of a
//! pass over everything, to the last figure. Two things need more than merging, because the sum of two processes
//! peaks where neither of them does: the peak of the job, which [`Partial::search`] finds with a second, bounded
//! look at the parts, and the blocks that were live then ([`HeldBlocks`]). Until then the peak is a bound and says so.
//!
//! Data is self-contained: it has the strings, frames and stacks that it uses, and merging numbers them anew.
//! Processes are known by their input and their number in it, never by an index. What was read from a file may
//! be damaged, so ids are checked; figures are taken as they are.
//!
//! Memory grows with live blocks, sites and different sizes, and not with events.
//!
//! Known to differ from one pass: `address_reuses` where addresses had to be forgotten and the number of different
//! sizes beyond a million of them, both of which say that they are not exact; and sums of bytes that passed 2^64.

mod answers;
pub(crate) mod blocks;
mod held;
pub(crate) mod ids;
mod layers;

use std::collections::BTreeMap;
use std::fmt;

use floodmark_event::{Filter, ProcessId, Tables};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use self::blocks::BlockIds;
pub use self::held::HeldBlocks;
use self::ids::{Compact, Expand, ProcessData, TablesData};
use self::layers::LayerData;
use crate::caveats::{Caveats, CaveatsFold};
use crate::envelope::{Envelope, EnvelopeFold};
use crate::fold::{End, Fold, Pass};
use crate::growth::partial::GrowthData;
use crate::growth::{GrowthFold, GrowthOptions};
use crate::layers::{Layer, LayersFold};
use crate::leaks::{LeaksData, LeaksFold, LeaksOptions};
use crate::lifetimes::{LifetimesData, LifetimesFold, LifetimesOptions};
use crate::live::LiveSet;
use crate::live::partial::LiveData;
use crate::merge::{Merge, SpaceMap};
use crate::peaks::{Cut, JobPeaks, Needed, PeakSearch};
use crate::process_map::{ProcessMapData, ProcessMapFold};
use crate::stats::{StatsData, StatsFold};

/// Why partial results cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartialError {
    /// Data points to something that is not there.
    Damaged(&'static str),
    /// The two were made with different options.
    Different {
        /// Which option.
        what: &'static str,
        /// What it was in one of them.
        one: String,
        /// What it was in the other.
        other: String,
    },
}

impl fmt::Display for PartialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(what) => write!(f, "{what} that it refers to is missing or wrong"),
            Self::Different { what, one, other } => {
                write!(f, "they were made with different {what}: {one} and {other}")
            }
        }
    }
}

/// What a partial result is to answer.
#[derive(Clone, Debug, Default)]
pub struct PartialOptions {
    /// Scopes that say how blocks began or ended, for leaks.
    pub leaks: LeaksOptions,
    /// What counts as churn, for lifetimes.
    pub lifetimes: LifetimesOptions,
    /// Iterations, if growth is to be found.
    pub growth: Option<GrowthOptions>,
}

/// What a search is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchFor {
    /// Peaks and when they were.
    Figures,
    /// Also where among the events that is, to tell which blocks were live.
    Holders,
}

/// Folds events into all that a [`Partial`] has.
pub type PartialFold = (
    (StatsFold, LayersFold),
    (LeaksFold, LifetimesFold),
    (EnvelopeFold, ProcessMapFold),
    CaveatsFold,
    Option<GrowthFold>,
);

/// Starts the folds of a partial result.
pub fn partial_fold(options: PartialOptions) -> PartialFold {
    let PartialOptions { leaks, lifetimes, growth } = options;
    (
        (StatsFold::default(), LayersFold::default()),
        (LeaksFold::new(leaks), LifetimesFold::new(lifetimes)),
        (EnvelopeFold::default(), ProcessMapFold::default()),
        CaveatsFold::default(),
        growth.map(GrowthFold::new),
    )
}

/// What is known of some processes of a job.
#[derive(Clone, Debug)]
pub struct Partial {
    /// Options of the command that selected events.
    filter: String,
    /// Inputs, as processes name them.
    sources: Vec<String>,
    /// What each process is called in its input.
    names: BTreeMap<ProcessId, (u32, u32)>,
    tables: Tables,
    live: LiveSet,
    stats: StatsFold,
    layers: Vec<Layer>,
    leaks: LeaksFold,
    lifetimes: LifetimesFold,
    growth: Option<GrowthFold>,
    envelope: EnvelopeFold,
    map: ProcessMapFold,
    caveats: Caveats,
    peaks: Option<JobPeaks>,
}

/// A [`Partial`] as it travels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartialData {
    filter: String,
    sources: Vec<String>,
    processes: Vec<(u32, ProcessData)>,
    tables: TablesData,
    live: LiveData,
    stats: StatsData,
    layers: Vec<LayerData>,
    leaks: LeaksData,
    lifetimes: LifetimesData,
    growth: Option<GrowthData>,
    envelopes: Vec<Envelope>,
    map: ProcessMapData,
    caveats: [u64; 7],
    peaks: Option<JobPeaks>,
}

/// What is told of a pass beside its folds.
#[derive(Clone, Copy, Debug)]
pub struct PartialSource<'a> {
    /// Names the input; equal for all parts of one.
    pub key: &'a str,
    /// Selected the events.
    pub filter: &'a Filter,
    /// What ids point to.
    pub tables: &'a Tables,
    /// Events that were read, selected or not.
    pub events_read: u64,
}

impl Partial {
    /// Keeps what a pass has found.
    pub fn new(mut pass: Pass<PartialFold>, source: PartialSource<'_>) -> Self {
        let tables = source.tables.clone();
        pass.live.open_window(&mut pass.fold);
        let Pass { live, fold } = pass;
        let ((stats, layers), (leaks, lifetimes), (envelope, map), caveats, growth) = fold;
        let end = End { live: &live, tables: &tables };
        let caveats = Caveats { events_read: source.events_read, ..caveats.finish(&end) };
        let layers = layers.finish(&end);
        let used = live_processes(&live);
        Self {
            filter: source.filter.words().join(" "),
            sources: vec![source.key.to_owned()],
            names: used.into_iter().map(|process| (process, (0, process.0))).collect(),
            tables,
            stats,
            layers,
            leaks,
            lifetimes,
            growth,
            envelope,
            map,
            caveats,
            live,
            peaks: None,
        }
    }

    /// Returns the partial result that `data` is of.
    ///
    /// # Errors
    /// [`PartialError::Damaged`].
    pub fn of(data: PartialData) -> Result<Self, PartialError> {
        let mut tables = Tables::default();
        let mut names = BTreeMap::new();
        let mut ids = FxHashMap::default();
        for (id, process) in &data.processes {
            ids.insert(*id, ProcessId(*id));
            names.insert(ProcessId(*id), (process.source, process.number));
            tables.processes.push(process.process(ProcessId(*id)));
            if process.source as usize >= data.sources.len() {
                return Err(PartialError::Damaged("an input"));
            }
        }
        let ids = Expand::new(&data.tables, &mut tables, ids)?;
        let live = LiveSet::of(data.live, &ids)?;
        let spaces = live_processes(&live).len().max(live.space_count());
        let block_ids = BlockIds { ids: &ids, spaces };
        if data.envelopes.iter().any(|envelope| !envelope.is_sound()) {
            return Err(PartialError::Damaged("an interval of time"));
        }
        let mut envelope = EnvelopeFold::default();
        envelope.tallies = data.envelopes.try_into().map_err(|_| PartialError::Damaged("the envelopes"))?;
        Ok(Self {
            filter: data.filter,
            sources: data.sources,
            names,
            stats: StatsFold::of(data.stats, spaces)?,
            layers: data.layers.into_iter().map(LayerData::layer).collect(),
            leaks: LeaksFold::of(data.leaks, &block_ids)?,
            lifetimes: LifetimesFold::of(data.lifetimes, &ids)?,
            growth: data.growth.map(|growth| GrowthFold::of(growth, &ids)).transpose()?,
            envelope,
            map: ProcessMapFold::of(data.map, &ids)?,
            caveats: caveats_of(data.caveats),
            tables,
            live,
            peaks: data.peaks,
        })
    }

    /// Returns what travels.
    pub fn data(&self) -> PartialData {
        let mut ids = Compact::new(&self.tables);
        let live = self.live.data(&mut ids);
        let leaks = self.leaks.data(&mut ids);
        let lifetimes = self.lifetimes.data(&mut ids);
        let growth = self.growth.as_ref().map(|growth| growth.data(&mut ids));
        let caveats = self.caveats;
        PartialData {
            filter: self.filter.clone(),
            sources: self.sources.clone(),
            processes: process_data(&self.names, &self.tables),
            tables: ids.finish(),
            live,
            stats: self.stats.data(),
            layers: self.layers.iter().map(LayerData::new).collect(),
            leaks,
            lifetimes,
            growth,
            envelopes: self.envelope.tallies.to_vec(),
            map: self.map.data(),
            caveats: [
                caveats.events_read,
                caveats.events_selected,
                caveats.unmatched_frees,
                caveats.unmatched_free_bytes,
                caveats.size_mismatches,
                caveats.replaced_blocks,
                u64::from(caveats.sums_saturated),
            ],
            peaks: self.peaks.clone(),
        }
    }

    /// Takes in what other processes did.
    ///
    /// # Errors
    /// If both are about the same process or were made with different options.
    pub fn merge(&mut self, other: &PartialData) -> Result<(), PartialError> {
        self.check_alike(other)?;
        let mut other = other.clone();
        let ids = self.adopt_processes(&other)?;
        let ids = Expand::new(&other.tables, &mut self.tables, ids)?;
        for layer in &mut other.layers {
            layer.process = ids.process(layer.process)?.0;
        }
        let live = LiveSet::of(other.live, &ids)?;
        let spaces = live.space_count();
        let block_ids = BlockIds { ids: &ids, spaces };
        let stats = StatsFold::of(other.stats, spaces)?;
        let leaks = LeaksFold::of(other.leaks, &block_ids)?;
        let lifetimes = LifetimesFold::of(other.lifetimes, &ids)?;
        let growth = other.growth.map(|growth| GrowthFold::of(growth, &ids)).transpose()?;
        let process_map = ProcessMapFold::of(other.map, &ids)?;
        let map: SpaceMap = self.live.merge(&live);
        self.stats.merge(stats, &map);
        self.leaks.merge(leaks, &map);
        self.lifetimes.merge(lifetimes, &map);
        self.growth.merge(growth, &map);
        self.map.merge(process_map, &map);
        self.layers.extend(other.layers.into_iter().map(LayerData::layer));
        for (ours, theirs) in self.envelope.tallies.iter_mut().zip(other.envelopes) {
            if !theirs.is_sound() {
                return Err(PartialError::Damaged("an interval of time"));
            }
            ours.add(theirs);
        }
        let theirs = caveats_of(other.caveats);
        let ours = &mut self.caveats;
        ours.events_read += theirs.events_read;
        ours.events_selected += theirs.events_selected;
        ours.unmatched_frees += theirs.unmatched_frees;
        ours.unmatched_free_bytes = ours.unmatched_free_bytes.saturating_add(theirs.unmatched_free_bytes);
        ours.size_mismatches += theirs.size_mismatches;
        ours.replaced_blocks += theirs.replaced_blocks;
        ours.sums_saturated |= theirs.sums_saturated;
        // A peak that was known is that of fewer processes.
        self.peaks = None;
        Ok(())
    }

    fn check_alike(&self, other: &PartialData) -> Result<(), PartialError> {
        let differ = |what, one: String, other: String| Err(PartialError::Different { what, one, other });
        let shown = |filter: &str| if filter.is_empty() { "none".to_owned() } else { filter.to_owned() };
        if self.filter != other.filter {
            return differ("filters", shown(&self.filter), shown(&other.filter));
        }
        let (ours, theirs) = (self.lifetimes.threshold_ns(), other.lifetimes.threshold_ns);
        if ours != theirs {
            return differ("churn", format!("{ours} ns"), format!("{theirs} ns"));
        }
        let text = |question: Option<(&str, u64)>| {
            question.map_or("none".to_owned(), |(per, warm_up)| format!("'{per}' after {warm_up}"))
        };
        let ours = text(self.growth.as_ref().map(GrowthFold::question));
        let theirs = text(other.growth.as_ref().map(|growth| (growth.per.as_str(), growth.warm_up)));
        if ours != theirs {
            return differ("iterations", ours, theirs);
        }
        Ok(())
    }

    /// Makes the processes of another known here and returns their new ids.
    fn adopt_processes(&mut self, other: &PartialData) -> Result<FxHashMap<u32, ProcessId>, PartialError> {
        let mut ids = FxHashMap::default();
        for (id, process) in &other.processes {
            let key = other.sources.get(process.source as usize).ok_or(PartialError::Damaged("an input"))?;
            let source = self.source(key);
            let name = (source, process.number);
            if self.names.values().any(|known| *known == name) {
                let both = format!("process {} of {key}", process.number);
                return Err(PartialError::Different {
                    what: "parts, which overlap",
                    one: both.clone(),
                    other: both,
                });
            }
            // The number of another input's process may be the same.
            let is_free = |id: &ProcessId| !self.names.contains_key(id);
            let wanted = Some(ProcessId(process.number)).filter(is_free);
            let new = wanted.or_else(|| (1..u32::MAX).map(ProcessId).find(is_free));
            let new = new.ok_or(PartialError::Damaged("a process"))?;
            ids.insert(*id, new);
            self.names.insert(new, name);
            self.tables.processes.retain(|known| known.id != new);
            self.tables.processes.push(process.process(new));
        }
        Ok(ids)
    }

    fn source(&mut self, key: &str) -> u32 {
        let known = self.sources.iter().position(|source| source == key);
        known.unwrap_or_else(|| {
            self.sources.push(key.to_owned());
            self.sources.len() - 1
        }) as u32
    }

    /// The processes: the input that each is of, and its number there.
    pub fn processes(&self) -> impl Iterator<Item = (&str, u32)> {
        self.names.values().map(|(source, number)| (self.sources[*source as usize].as_str(), *number))
    }

    /// Allocators that divide what they hold.
    pub fn layers_mut(&mut self) -> &mut [Layer] {
        &mut self.layers
    }

    /// Options of the command that selected the events; empty if all count.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Time of the first event of all, selected or not.
    pub fn first_ns(&self) -> Option<i64> {
        self.live.first_ns()
    }

    /// First instant of the window, if it has one.
    pub fn window_from_ns(&self) -> Option<i64> {
        self.live.window_from_ns()
    }

    /// Counts of events that make figures less certain.
    pub fn caveats(&self) -> Caveats {
        Caveats {
            sums_saturated: self.caveats.sums_saturated || self.live.tallies().is_saturated(),
            ..self.caveats
        }
    }

    /// The lowest and highest that the peak of live bytes can be.
    pub fn peak_bounds(&self) -> (u64, u64) {
        let level = self.live.tallies().main_level();
        if !level.peak_is_bound {
            return (level.peak_bytes, level.peak_bytes);
        }
        let envelope = &self.envelope.tallies[usize::from(self.live.tallies().main())];
        (envelope.lower().bytes, envelope.upper().bytes.min(level.peak_bytes))
    }

    /// Starts to search what is not known yet of the peaks of the sum of all processes; `None` if all is known.
    pub fn search(&self, wanted: SearchFor) -> Option<PeakSearch> {
        let (tallies, main) = (self.live.tallies(), self.main_tally());
        let search = PeakSearch::new(&self.envelope.tallies, main, |tally| {
            let level = tallies.level(tally);
            let needs_cut = wanted == SearchFor::Holders && tally == main && self.peak_cut().is_none();
            if level.peak_is_bound {
                Some(Needed::All)
            } else {
                (needs_cut && level.peak_bytes > 0).then_some(Needed::CutOf(level.peak_bytes))
            }
        });
        (!search.is_empty()).then_some(search)
    }

    /// Takes in the peaks that a search has found.
    pub fn settle(&mut self, peaks: JobPeaks) {
        for (tally, peak) in &peaks.bytes {
            self.live.tallies_mut().settle(*tally, |level| {
                (level.peak_bytes, level.peak_blocks) = (peak.bytes, peak.blocks);
                (level.peak_time_ns, level.peak_is_bound) = (Some(peak.time_ns), false);
            });
        }
        if let Some((tally, most_blocks)) = peaks.most_blocks {
            self.live.tallies_mut().settle(tally, |level| {
                level.most_blocks = most_blocks;
                // A tally that never had a byte has no peak to find.
                level.peak_is_bound = false;
            });
        }
        self.peaks = Some(peaks);
    }

    /// The peaks that were found, if any were searched.
    pub fn peaks(&self) -> Option<&JobPeaks> {
        self.peaks.as_ref()
    }

    /// The tally that figures cover.
    pub fn main_tally(&self) -> u8 {
        self.live.tallies().main()
    }

    /// Position of the peak in the events; none if nothing was ever live.
    pub fn peak_cut(&self) -> Option<Cut> {
        let main = self.main_tally();
        let found =
            self.peaks.as_ref().and_then(|peaks| peaks.bytes.iter().find(|(tally, _)| *tally == main));
        found.map(|(_, peak)| peak.cut.clone())
    }

    /// When the peak is, if that is known.
    pub fn peak_time_ns(&self) -> Option<i64> {
        self.live.tallies().main_level().peak_time_ns
    }

    /// Position behind everything up to an instant, which may lie before the window.
    pub fn cut_at(&self, at_ns: i64) -> Cut {
        // Blocks that are carried into the window count from just before it.
        let is_before = self.window_from_ns().is_some_and(|from_ns| at_ns < from_ns);
        Cut::at(if is_before { at_ns.saturating_sub(1) } else { at_ns })
    }
}

fn live_processes(live: &LiveSet) -> Vec<ProcessId> {
    let mut processes: Vec<ProcessId> =
        (0..live.space_count()).map(|space| live.space(space as u32).process).collect();
    processes.sort_unstable();
    processes.dedup();
    processes
}

/// Describes the processes that `names` has; one that the tables do not know has nothing but its number.
fn process_data(names: &BTreeMap<ProcessId, (u32, u32)>, tables: &Tables) -> Vec<(u32, ProcessData)> {
    let known: FxHashMap<ProcessId, _> =
        tables.processes.iter().map(|process| (process.id, process)).collect();
    let unknown = floodmark_event::tables::Process::default();
    let data = |(id, (source, number)): (&ProcessId, &(u32, u32))| {
        (id.0, ProcessData::new(*source, *number, known.get(id).copied().unwrap_or(&unknown)))
    };
    names.iter().map(data).collect()
}

fn caveats_of(figures: [u64; 7]) -> Caveats {
    let [
        events_read,
        events_selected,
        unmatched_frees,
        unmatched_free_bytes,
        size_mismatches,
        replaced_blocks,
        full,
    ] = figures;
    Caveats {
        events_read,
        events_selected,
        unmatched_frees,
        unmatched_free_bytes,
        size_mismatches,
        replaced_blocks,
        sums_saturated: full != 0,
    }
}
