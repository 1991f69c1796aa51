//! How much is allocated by which site over time, and how much of it for nothing: temporary blocks, blocks that are
//! moved again and again, and memory that the allocator adds to what was asked for.
//!
//! A block is *temporary* if the next thing its thread does is to free it: no other allocation or free of that
//! thread lies in between. That is heaptrack's definition, thread by thread where threads are known.
//!
//! Memory grows with sites and live blocks. Time is divided into at most [`INTERVALS_MAX`] intervals of equal length,
//! a power of two in nanoseconds, which doubles when there would be more.

mod bins;
mod realloc;
mod waste;

use std::cmp::Reverse;

use floodmark_event::{Kind, ProcessId, REALLOC, StringId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::change::{Block, Ending, Space};
use crate::describe::{Describe, share};
use crate::fold::{End, Fold};
use crate::level::Level;
use crate::lifetimes::{Place, place, place_text};
use crate::site::SiteRules;

use bins::{Bins, Series};
use realloc::{Chain, ReallocSums};
use waste::{LiveWaste, Overhead};

pub use bins::INTERVALS_MAX;
pub use realloc::ReallocChain;

/// How to report what is allocated over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChurnOptions {
    /// How many sites to list, most allocated bytes first; all if none.
    pub limit: Option<usize>,
    /// Which frames cannot be sites.
    pub sites: SiteRules,
}

/// What was allocated over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Churn {
    /// Kinds the figures cover.
    #[serde(with = "crate::json::kinds")]
    pub kinds: Vec<Kind>,
    /// Time from the first to the last selected event.
    pub duration_ns: u64,
    /// Allocations, and what they add up to.
    #[serde(flatten)]
    pub total: Allocated,
    /// Allocations a second; none if all happened at one instant.
    pub allocations_per_s: Option<f64>,
    /// Allocated bytes a second.
    pub bytes_per_s: Option<f64>,
    /// Length of an interval.
    pub interval_ns: u64,
    /// Intervals in order; those without allocations included.
    pub intervals: Vec<ChurnInterval>,
    /// Sites, most allocated bytes first. Without stacks and names: classes of sizes.
    pub sites: Vec<ChurnSite>,
    /// Sites that are not listed because of the limit.
    pub sites_omitted: u64,
    /// Memory that the allocator adds to the blocks that were live at the peak; none if its rules are not known.
    pub waste_at_peak: Option<WasteAtPeak>,
    /// Whether the recording tells which allocations `realloc` made.
    pub has_reallocs: bool,
    /// The block that was reallocated most often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_chain: Option<ReallocChain>,
}

/// Sums of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocated {
    /// Allocations.
    pub allocations: u64,
    /// Bytes that they asked for.
    pub bytes: u64,
    /// Those whose block was freed by the next thing that the thread did.
    pub temporary: u64,
    /// Bytes of those.
    pub temporary_bytes: u64,
    /// Allocations by `realloc` that grew out of another block.
    pub reallocs: u64,
    /// Those that moved the block.
    pub moves: u64,
    /// Bytes that moving blocks had to copy, at most: the C library remaps large blocks instead.
    pub copied_bytes: u64,
    /// Bytes that the allocator adds, its headers included; 0 where its rules are not known.
    pub waste_bytes: u64,
}

impl Allocated {
    fn add(&mut self, other: &Self) {
        self.allocations += other.allocations;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.temporary += other.temporary;
        self.temporary_bytes = self.temporary_bytes.saturating_add(other.temporary_bytes);
        self.reallocs += other.reallocs;
        self.moves += other.moves;
        self.copied_bytes = self.copied_bytes.saturating_add(other.copied_bytes);
        self.waste_bytes = self.waste_bytes.saturating_add(other.waste_bytes);
    }
}

/// What was allocated in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChurnInterval {
    /// Nanoseconds since the Unix epoch at which it begins.
    pub from_ns: i64,
    /// Allocations.
    pub allocations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Allocations up to its end.
    pub cumulative_allocations: u64,
    /// Their bytes.
    pub cumulative_bytes: u64,
}

/// What a site allocated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChurnSite {
    /// Place in the program that allocated, or a class of sizes.
    pub site: String,
    /// Its allocations.
    #[serde(flatten)]
    pub total: Allocated,
    /// Allocations a second, over the whole duration.
    pub allocations_per_s: Option<f64>,
    /// Bytes a second, over the whole duration.
    pub bytes_per_s: Option<f64>,
    /// Temporary allocations as a share of all, from 0 to 1.
    pub temporary_share: f64,
    /// Allocations by interval.
    pub allocations_over_time: Vec<u64>,
    /// Allocated bytes by interval.
    pub bytes_over_time: Vec<u64>,
}

/// Memory that allocators add to the blocks that were live at the peak.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WasteAtPeak {
    /// Allocators whose rules are known: `malloc` stands for that of glibc.
    pub allocators: Vec<String>,
    /// Bytes of all live blocks, those of other allocators included.
    pub live_bytes: u64,
    /// Bytes added by headers and rounding.
    pub waste_bytes: u64,
}

/// Folds events into [`Churn`].
#[derive(Clone, Debug, Default)]
pub struct ChurnFold {
    options: ChurnOptions,
    bins: Bins,
    /// Process and resource of each space.
    spaces: Vec<(ProcessId, StringId)>,
    places: FxHashMap<(Place, StringId, StringId), u32>,
    sums: Vec<Sums>,
    /// Allocations of all sites, by tally.
    series: Vec<Series>,
    threads: FxHashMap<(ProcessId, u64), Last>,
    /// Blocks that grew out of others, by the order of their allocation.
    chains: FxHashMap<u64, Chain>,
    waste: LiveWaste,
}

/// What a thread did last.
#[derive(Clone, Copy, Debug)]
enum Last {
    /// It allocated the block with this order.
    Alloc(u64),
    /// It freed a block.
    Free(Chain),
}

/// What one place allocated through one resource and under one name.
#[derive(Clone, Debug, Default)]
struct Sums {
    allocated: Allocated,
    overhead: Overhead,
    reallocs: ReallocSums,
    series: Series,
}

impl ChurnFold {
    /// Starts to add up.
    pub fn new(options: ChurnOptions) -> Self {
        Self { options, ..Self::default() }
    }

    fn id(&mut self, block: &Block) -> usize {
        let resource = self.spaces[block.space as usize].1;
        let id = *self.places.entry((place(block), resource, block.name)).or_insert_with(|| {
            self.sums.push(Sums::default());
            self.sums.len() as u32 - 1
        });
        id as usize
    }

    /// The interval of an instant. All series are made coarser if there would be too many.
    fn bin(&mut self, time_ns: i64) -> u16 {
        let (bin, doublings) = self.bins.at(time_ns);
        if doublings > 0 {
            self.sums.iter_mut().for_each(|sums| sums.series.coarsen(doublings));
            self.series.iter_mut().for_each(|series| series.coarsen(doublings));
        }
        bin
    }

    fn by_site(&self, end: &End<'_>) -> FxHashMap<String, Sums> {
        let main = end.live.tallies().main();
        let mut describe = Describe::new(end, &self.options.sites);
        let mut sites: FxHashMap<String, Sums> = FxHashMap::default();
        for ((place, resource, name), id) in
            self.places.iter().filter(|((place, ..), _)| place.0.tally == main)
        {
            let sums = &self.sums[*id as usize];
            let mut allocated = sums.allocated;
            allocated.waste_bytes = sums.overhead.of(end.tables.string(*resource)).unwrap_or(0);
            let site = sites.entry(place_text(*place, &mut describe)).or_default();
            if end.tables.string(*name) == REALLOC {
                (allocated.reallocs, allocated.moves) = (sums.reallocs.calls, sums.reallocs.moves);
                allocated.copied_bytes = sums.reallocs.copied_bytes;
                site.reallocs.merge(&sums.reallocs);
            }
            site.allocated.add(&allocated);
            site.series.merge(&sums.series);
        }
        sites
    }
}

impl Fold for ChurnFold {
    type Output = Churn;

    fn space(&mut self, index: u32, space: Space) {
        let index = index as usize;
        if index >= self.spaces.len() {
            self.spaces.resize(index + 1, (ProcessId(0), StringId(0)));
        }
        self.spaces[index] = (space.process, space.resource);
    }

    fn carried(&mut self, block: &Block, _time_ns: i64, level: &Level) {
        let resource = self.spaces[block.space as usize].1;
        self.waste.begins(block, resource, level);
    }

    fn alloc(&mut self, block: &Block, level: &Level) {
        let (process, resource) = self.spaces[block.space as usize];
        let bin = self.bin(block.time_ns);
        let id = self.id(block);
        let sums = &mut self.sums[id];
        sums.allocated.allocations += 1;
        sums.allocated.bytes = sums.allocated.bytes.saturating_add(block.bytes);
        sums.overhead.add(block.bytes);
        sums.series.add(bin, block.bytes);
        let last = self.threads.insert((process, block.thread), Last::Alloc(block.order));
        // Only its name tells that it is not merely an allocation after a free; names are known at the end.
        if block.name.0 != 0
            && let Some(Last::Free(chain)) = last
        {
            let chain = sums.reallocs.add(chain, block);
            self.chains.insert(block.order, chain);
        }
        let tally = usize::from(block.tally);
        if tally >= self.series.len() {
            self.series.resize(tally + 1, Series::default());
        }
        self.series[tally].add(bin, block.bytes);
        self.waste.begins(block, resource, level);
    }

    fn free(&mut self, block: &Block, ending: &Ending, _level: &Level) {
        let (process, resource) = self.spaces[block.space as usize];
        let chain = self.chains.remove(&block.order).unwrap_or_else(|| Chain::of(block));
        let last = self.threads.insert((process, ending.thread), Last::Free(chain));
        if matches!(last, Some(Last::Alloc(order)) if order == block.order) {
            let id = self.id(block);
            let allocated = &mut self.sums[id].allocated;
            allocated.temporary += 1;
            allocated.temporary_bytes = allocated.temporary_bytes.saturating_add(block.bytes);
        }
        self.waste.ends(block, resource);
    }

    fn replaced(&mut self, block: &Block, _time_ns: i64, _level: &Level) {
        self.chains.remove(&block.order);
        let resource = self.spaces[block.space as usize].1;
        self.waste.ends(block, resource);
    }

    fn finish(&self, end: &End<'_>) -> Churn {
        let tallies = end.live.tallies();
        let main = tallies.main();
        let counters = end.live.counters();
        let duration_ns = match (counters.first_time_ns, counters.last_time_ns) {
            (Some(first), Some(last)) => last.saturating_sub(first).max(0) as u64,
            _ => 0,
        };
        let per_s = |value: u64| (duration_ns > 0).then(|| value as f64 * 1e9 / duration_ns as f64);
        let mut total = Allocated::default();
        let mut reallocs = ReallocSums::default();
        let by_site = self.by_site(end);
        let all = self.series.get(usize::from(main)).cloned().unwrap_or_default();
        let count = all.len();
        let mut sites: Vec<ChurnSite> = Vec::with_capacity(by_site.len());
        for (site, sums) in by_site {
            total.add(&sums.allocated);
            reallocs.merge(&sums.reallocs);
            let (allocations_over_time, bytes_over_time) = sums.series.dense(count);
            sites.push(ChurnSite {
                site,
                allocations_per_s: per_s(sums.allocated.allocations),
                bytes_per_s: per_s(sums.allocated.bytes),
                temporary_share: share(sums.allocated.temporary, sums.allocated.allocations),
                total: sums.allocated,
                allocations_over_time,
                bytes_over_time,
            });
        }
        let rank = |site: &ChurnSite| (Reverse(site.total.bytes), Reverse(site.total.allocations));
        sites.retain(|site| site.total.allocations > 0);
        sites.sort_by(|a, b| (rank(a), &a.site).cmp(&(rank(b), &b.site)));
        let limit = self.options.limit.unwrap_or(usize::MAX).min(sites.len());
        let sites_omitted = (sites.len() - limit) as u64;
        sites.truncate(limit);
        Churn {
            kinds: tallies.main_kinds(),
            duration_ns,
            total,
            allocations_per_s: per_s(total.allocations),
            bytes_per_s: per_s(total.bytes),
            interval_ns: self.bins.width_ns(),
            intervals: self.bins.intervals(&all),
            sites,
            sites_omitted,
            waste_at_peak: self.waste.at_peak(main, end.tables),
            has_reallocs: self.places.keys().any(|(.., name)| end.tables.string(*name) == REALLOC),
            longest_chain: reallocs.longest,
        }
    }
}
