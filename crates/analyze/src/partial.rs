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

pub(crate) mod blocks;
pub(crate) mod ids;

use std::collections::BTreeMap;
use std::fmt;

use floodmark_event::{Filter, ProcessId, Tables};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use self::blocks::{BlockData, BlockIds};
use self::ids::{Compact, Expand, ProcessData, TablesData};
use crate::caveats::{Caveats, CaveatsFold};
use crate::change::Block;
use crate::describe::sort_largest_first;
use crate::envelope::{Envelope, EnvelopeFold};
use crate::fold::{End, Fold, Pass};
use crate::growth::partial::GrowthData;
use crate::growth::{Growth, GrowthFold, GrowthOptions};
use crate::layers::{Layer, LayersFold, WholeBlocks};
use crate::leaks::{Leaks, LeaksData, LeaksFold, LeaksOptions};
use crate::lifetimes::{Lifetimes, LifetimesData, LifetimesFold, LifetimesOptions};
use crate::live::LiveSet;
use crate::live::partial::{LiveData, SpaceData};
use crate::merge::{Merge, SpaceMap};
use crate::peaks::{Cut, HeldFold, JobPeaks, Needed, PeakSearch};
use crate::stats::{Stats, StatsData, StatsFold};
use crate::watermark::{Watermark, WatermarkOptions};

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
pub type PartialFold =
    ((StatsFold, LayersFold), (LeaksFold, LifetimesFold), EnvelopeFold, CaveatsFold, Option<GrowthFold>);

/// Starts the folds of a partial result.
pub fn partial_fold(options: PartialOptions) -> PartialFold {
    let PartialOptions { leaks, lifetimes, growth } = options;
    (
        (StatsFold::default(), LayersFold::default()),
        (LeaksFold::new(leaks), LifetimesFold::new(lifetimes)),
        EnvelopeFold::default(),
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
    caveats: [u64; 7],
    peaks: Option<JobPeaks>,
}

/// A [`Layer`] in a form that leaves nothing out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LayerData {
    process: u32,
    device: Option<i32>,
    resource: String,
    blocks_resource: String,
    bytes: [u64; 7],
    times_ns: [Option<i64>; 3],
    whole_blocks: Option<WholeBlocks>,
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
        let ((stats, layers), (leaks, lifetimes), envelope, caveats, growth) = fold;
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
        let map: SpaceMap = self.live.merge(&live);
        self.stats.merge(stats, &map);
        self.leaks.merge(leaks, &map);
        self.lifetimes.merge(lifetimes, &map);
        self.growth.merge(growth, &map);
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
            let highest = self.names.keys().next_back().map_or(0, |id| id.0);
            let wanted = ProcessId(process.number);
            let new = if self.names.contains_key(&wanted) { ProcessId(highest + 1) } else { wanted };
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
    pub fn from_ns(&self) -> Option<i64> {
        self.live.from_ns()
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

    /// Position behind everything up to an instant, which may lie before the window.
    pub fn cut_at(&self, at_ns: i64) -> Cut {
        // Blocks that are carried into the window count from just before it.
        let is_before = self.from_ns().is_some_and(|from_ns| at_ns < from_ns);
        Cut::at(if is_before { at_ns.saturating_sub(1) } else { at_ns })
    }

    /// Turns the partial result into one whose processes and blocks are numbered as in one pass over everything.
    #[must_use]
    pub fn numbered(mut self) -> Self {
        let mut names: Vec<((&str, u32), ProcessId)> = self
            .names
            .iter()
            .map(|(id, (source, number))| ((self.sources[*source as usize].as_str(), *number), *id))
            .collect();
        names.sort_unstable();
        let keep = self.sources.len() == 1;
        let new = |at: usize, number: u32| ProcessId(if keep { number } else { at as u32 + 1 });
        let ids: FxHashMap<ProcessId, ProcessId> =
            names.iter().enumerate().map(|(at, ((_, number), id))| (*id, new(at, *number))).collect();
        let of = |id: ProcessId| ids.get(&id).copied().unwrap_or(id);
        self.names = self.names.into_iter().map(|(id, name)| (of(id), name)).collect();
        for process in &mut self.tables.processes {
            process.id = of(process.id);
        }
        self.tables.processes.sort_by_key(|process| process.id);
        self.live.spaces_mut().for_each(|space| space.process = of(space.process));
        self.layers.iter_mut().for_each(|layer| layer.process = of(ProcessId(layer.process)).0);
        self.layers
            .sort_by(|a, b| (a.process, a.device, &a.resource).cmp(&(b.process, b.device, &b.resource)));
        if let Some(growth) = &mut self.growth {
            growth.processes_mut().for_each(|process| *process = of(*process));
        }
        let processes: Vec<ProcessId> = self.live.spaces_mut().map(|space| space.process).collect();
        let blocks: Vec<&mut Block> = self.live.blocks_mut().chain(self.leaks.torn_down_mut()).collect();
        number_blocks(blocks, |block| processes[block.space as usize]);
        self
    }

    fn end(&self) -> End<'_> {
        End { live: &self.live, tables: &self.tables }
    }

    /// Returns counters, sizes and peaks, which may be bounds; see [`Stats::peak_exact`].
    pub fn stats(&self) -> (Stats, Vec<Layer>) {
        let mut stats = self.stats.finish(&self.end());
        if !stats.peak_exact {
            stats.peak_bytes = self.peak_bounds().1;
        }
        (stats, self.layers.clone())
    }

    /// Returns the blocks that are live at the end.
    pub fn leaks(&self, options: LeaksOptions) -> Leaks {
        let mut fold = self.leaks.clone();
        fold.set_report(options.limit, options.sites);
        fold.finish(&self.end())
    }

    /// Returns how long blocks lived.
    pub fn lifetimes(&self, options: LifetimesOptions) -> Lifetimes {
        let mut fold = self.lifetimes.clone();
        fold.set_report(options.limit, options.sites);
        fold.finish(&self.end())
    }

    /// Below which lifetime blocks count as churn.
    pub fn churn_ns(&self) -> u64 {
        self.lifetimes.threshold_ns()
    }

    /// What an iteration is called and how many were passed over, if growth was looked for.
    pub fn iterations(&self) -> Option<(&str, u64)> {
        self.growth.as_ref().map(GrowthFold::question)
    }

    /// Returns how sites grow from iteration to iteration, if that was looked for.
    pub fn growth(&self, options: GrowthOptions) -> Option<Growth> {
        let mut fold = self.growth.clone()?;
        fold.set_report(options.limit, options.sites);
        Some(fold.finish(&self.end()))
    }

    /// Returns what held memory: the blocks of `held`, which are those at the peak or at `at_ns`.
    ///
    /// # Errors
    /// If `held` is damaged or of a process that is not known here.
    pub fn watermark(
        &mut self,
        held: &[HeldBlocks],
        at_ns: Option<i64>,
        options: &WatermarkOptions,
    ) -> Result<Watermark, PartialError> {
        let mut blocks = Vec::new();
        for held in held {
            self.hold(held, &mut blocks)?;
        }
        let main = self.live.tallies().main();
        blocks.retain(|block| block.tally == main);
        let live = &self.live;
        number_blocks(blocks.iter_mut().collect(), |block| live.space(block.space).process);
        let mut sorted: Vec<&Block> = blocks.iter().collect();
        sort_largest_first(&mut sorted);
        // Without events there is no instant to look at.
        let at_ns = at_ns.filter(|_| self.first_ns().is_some());
        Ok(options.report(at_ns, &sorted, &self.end()))
    }

    /// Adds the blocks of a part, with ids of these tables.
    fn hold(&mut self, held: &HeldBlocks, blocks: &mut Vec<Block>) -> Result<(), PartialError> {
        let mut ids = FxHashMap::default();
        for (id, name) in &held.processes {
            let is_same = |(_, (source, number)): &(&ProcessId, &(u32, u32))| {
                self.sources[*source as usize] == held.source && number == name
            };
            let known = self.names.iter().find(is_same).map(|(id, _)| *id);
            ids.insert(*id, known.ok_or(PartialError::Damaged("a process"))?);
        }
        let ids = Expand::new(&held.tables, &mut self.tables, ids)?;
        let mut spaces = Vec::with_capacity(held.spaces.len());
        for space in &held.spaces {
            spaces.push(self.live.known_space(space.space(&ids)?));
        }
        let map = SpaceMap { spaces, orders: 0 };
        let block_ids = BlockIds { ids: &ids, spaces: held.spaces.len() };
        for block in &held.blocks {
            blocks.push(map.moved(&block.block(&block_ids)?));
        }
        Ok(())
    }
}

/// Numbers blocks by process, and within one as they were numbered.
fn number_blocks(mut blocks: Vec<&mut Block>, process: impl Fn(&Block) -> ProcessId) {
    blocks.sort_by_key(|block| (process(block), block.order));
    for (order, block) in (1..).zip(blocks) {
        block.order = order;
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

impl LayerData {
    fn new(layer: &Layer) -> Self {
        Self {
            process: layer.process,
            device: layer.device,
            resource: layer.resource.clone(),
            blocks_resource: layer.blocks_resource.clone(),
            bytes: [
                layer.reserved_peak_bytes,
                layer.live_at_reserved_peak_bytes,
                layer.live_peak_bytes,
                layer.reserved_at_live_peak_bytes,
                layer.slack_peak_bytes,
                layer.reserved_bytes,
                layer.live_bytes,
            ],
            times_ns: [layer.reserved_peak_time_ns, layer.live_peak_time_ns, layer.slack_peak_time_ns],
            whole_blocks: layer.whole_blocks,
        }
    }

    fn layer(self) -> Layer {
        let [
            reserved_peak,
            live_at_reserved_peak,
            live_peak,
            reserved_at_live_peak,
            slack_peak,
            reserved,
            live,
        ] = self.bytes;
        let [reserved_peak_time_ns, live_peak_time_ns, slack_peak_time_ns] = self.times_ns;
        Layer {
            process: self.process,
            device: self.device,
            resource: self.resource,
            blocks_resource: self.blocks_resource,
            reserved_peak_bytes: reserved_peak,
            reserved_peak_time_ns,
            live_at_reserved_peak_bytes: live_at_reserved_peak,
            live_peak_bytes: live_peak,
            live_peak_time_ns,
            reserved_at_live_peak_bytes: reserved_at_live_peak,
            slack_peak_bytes: slack_peak,
            slack_peak_time_ns,
            reserved_bytes: reserved,
            live_bytes: live,
            whole_blocks: self.whole_blocks,
        }
    }
}

/// Blocks of some processes of one input that are live at an instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldBlocks {
    source: String,
    /// Ids of processes, and their numbers in the input.
    processes: Vec<(u32, u32)>,
    tables: TablesData,
    spaces: Vec<SpaceData>,
    blocks: Vec<BlockData>,
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
