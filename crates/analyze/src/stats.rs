//! Counters, sizes and ledgers of the allocations.

use floodmark_event::{Kind, NO_DEVICE, UNKNOWN_BYTES};
use serde::{Deserialize, Serialize};

use crate::block::KindSummary;
use crate::change::{Block, Ending, Failure};
use crate::fold::{End, Fold};
use crate::level::Level;
use crate::merge::{Merge, SpaceMap};
use crate::partial::PartialError;
use crate::sizes::{SizeCounts, SizesData};

/// What was allocated and freed, how much, and how it stands at the end.
///
/// Figures cover [`kinds`](Stats::kinds) only, except `unmatched_frees` and `null_frees`: a free
/// without a block has no kind to be trusted. Other kinds are summed up in `others`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Kinds the figures cover.
    #[serde(with = "crate::json::kinds")]
    pub kinds: Vec<Kind>,
    /// Events looked at, of all kinds.
    pub events: u64,
    /// Time of the first of them.
    pub first_time_ns: Option<i64>,
    /// Time of the last of them.
    pub last_time_ns: Option<i64>,
    /// Allocations that succeeded.
    pub allocations: u64,
    /// Frees that ended a block.
    pub frees: u64,
    /// Allocations that failed.
    pub failures: u64,
    /// Bytes asked for by those.
    pub failed_bytes: u64,
    /// The largest of those.
    pub largest_failure_bytes: u64,
    /// Frees of blocks whose allocation was not seen; never subtracted.
    pub unmatched_frees: u64,
    /// Frees of the null address while no null block was live; they mean nothing.
    pub null_frees: u64,
    /// Frees that stated another size than their allocation.
    pub size_mismatches: u64,
    /// Blocks that ended unseen: their address was allocated again while they were live.
    pub replaced_blocks: u64,
    /// Allocations of no bytes.
    pub zero_size: u64,
    /// Allocations at an address at which an earlier block had been freed.
    pub address_reuses: u64,
    /// Whether all addresses could be remembered; otherwise `address_reuses` is a lower bound.
    pub address_reuses_exact: bool,
    /// Frees by another thread than the one that allocated.
    pub cross_thread_frees: u64,
    /// Blocks that were live when the window opened.
    pub carried_blocks: u64,
    /// Bytes of those.
    pub carried_bytes: u64,
    /// Bytes of all allocations.
    pub total_bytes: u64,
    /// Instant that elapsed times count from.
    #[serde(default)]
    pub origin_time_ns: Option<i64>,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// First instant of the highest live bytes.
    pub peak_time_ns: Option<i64>,
    /// Whether `peak_bytes`, `peak_blocks` and `most_blocks` are exact; after merging they may be upper
    /// bounds.
    pub peak_exact: bool,
    /// Blocks that were live at that instant.
    pub peak_blocks: u64,
    /// Highest number of live blocks at any instant.
    pub most_blocks: u64,
    /// Live bytes at the end.
    pub live_bytes: u64,
    /// Live blocks at the end.
    pub live_blocks: u64,
    /// Sizes of the allocations.
    pub size: SizeSummary,
    /// Allocations by size, in powers of two; empty classes are left out.
    pub histogram: Vec<HistogramBar>,
    /// Live bytes by process, device, resource and kind: all kinds, in the order of those.
    pub ledgers: Vec<Ledger>,
    /// Kinds that are not covered.
    pub others: Vec<KindSummary>,
}

/// How sizes are distributed, as pandas' `describe` tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeSummary {
    /// Allocations.
    pub count: u64,
    /// Mean size; none without allocations.
    pub mean: Option<f64>,
    /// Sample standard deviation; none below two allocations.
    pub std: Option<f64>,
    /// Smallest.
    pub min: Option<u64>,
    /// First quartile, interpolated.
    pub p25: Option<f64>,
    /// Median, interpolated.
    pub p50: Option<f64>,
    /// Third quartile, interpolated.
    pub p75: Option<f64>,
    /// 95th percentile, interpolated.
    pub p95: Option<f64>,
    /// 99th percentile, interpolated.
    pub p99: Option<f64>,
    /// Largest.
    pub max: Option<u64>,
    /// Number of different sizes; a lower bound when approximate.
    pub distinct: u64,
    /// Whether there were too many sizes to count each: std and quantiles are then within 1/1024.
    pub approximate: bool,
}

/// Allocations of sizes from `from_bytes` to below `to_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramBar {
    /// Smallest size of the class.
    pub from_bytes: u64,
    /// First size beyond the class (the largest number there is for the last one).
    pub to_bytes: u64,
    /// Allocations.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What one process, device and resource did with one kind of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Id of the process in the trace.
    pub process: u32,
    /// Device, or none.
    pub device: Option<i32>,
    /// Kind, by name in JSON.
    #[serde(with = "crate::json::kind")]
    pub kind: Kind,
    /// Resource.
    pub resource: Option<String>,
    /// Allocations.
    pub allocations: u64,
    /// Frees that ended a block.
    pub frees: u64,
    /// Allocations that failed.
    pub failures: u64,
    /// Bytes of all allocations.
    pub total_bytes: u64,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// First instant of the highest live bytes.
    pub peak_time_ns: Option<i64>,
    /// Whether `peak_bytes` is exact; after merging it may be an upper bound.
    pub peak_exact: bool,
    /// Live bytes at the end.
    pub live_bytes: u64,
    /// Live blocks at the end.
    pub live_blocks: u64,
}

/// Folds events into [`Stats`].
#[derive(Clone, Debug, Default)]
pub struct StatsFold {
    tallies: [TallyStats; KINDS],
    /// By space and kind: `space * KINDS + kind`.
    ledgers: Vec<LedgerState>,
}

const KINDS: usize = Kind::ALL.len();

/// What is counted of one tally beyond its [`Level`].
#[derive(Clone, Debug, Default)]
struct TallyStats {
    sizes: SizeCounts,
    zero_size: u64,
    size_mismatches: u64,
    cross_thread_frees: u64,
    failed_bytes: u64,
    largest_failure_bytes: u64,
}

/// The counters of a [`Ledger`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct LedgerState {
    live_bytes: u64,
    live_blocks: u64,
    peak_bytes: u64,
    peak_time_ns: i64,
    total_bytes: u64,
    allocations: u64,
    frees: u64,
    failures: u64,
    used: bool,
    peak_is_bound: bool,
}

impl LedgerState {
    #[inline]
    fn rise(&mut self, bytes: u64, time_ns: i64) {
        self.used = true;
        self.live_blocks += 1;
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        if self.live_bytes > self.peak_bytes {
            self.peak_bytes = self.live_bytes;
            self.peak_time_ns = time_ns;
        }
    }

    #[inline]
    fn fall(&mut self, bytes: u64) {
        self.live_blocks -= 1;
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
    }

    fn merge(&mut self, other: &Self) {
        if self.peak_bytes == 0 {
            (self.peak_time_ns, self.peak_is_bound) = (other.peak_time_ns, other.peak_is_bound);
        } else {
            self.peak_is_bound |= other.peak_bytes > 0;
        }
        self.used = true;
        self.live_bytes = self.live_bytes.saturating_add(other.live_bytes);
        self.live_blocks += other.live_blocks;
        self.peak_bytes = self.peak_bytes.saturating_add(other.peak_bytes);
        self.total_bytes = self.total_bytes.saturating_add(other.total_bytes);
        self.allocations += other.allocations;
        self.frees += other.frees;
        self.failures += other.failures;
    }
}

/// What partial results have of a [`StatsFold`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StatsData {
    tallies: Vec<(u8, TallyData)>,
    /// By space and kind.
    ledgers: Vec<(u32, u8, LedgerState)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct TallyData {
    sizes: SizesData,
    zero_size: u64,
    size_mismatches: u64,
    cross_thread_frees: u64,
    failed_bytes: u64,
    largest_failure_bytes: u64,
}

impl StatsFold {
    pub(crate) fn data(&self) -> StatsData {
        let tally = |(tally, own): (u8, &TallyStats)| {
            let data = TallyData {
                sizes: own.sizes.data(),
                zero_size: own.zero_size,
                size_mismatches: own.size_mismatches,
                cross_thread_frees: own.cross_thread_frees,
                failed_bytes: own.failed_bytes,
                largest_failure_bytes: own.largest_failure_bytes,
            };
            (tally, data)
        };
        let used = self.ledgers.iter().enumerate().filter(|(_, state)| state.used);
        StatsData {
            tallies: (0u8..).zip(&self.tallies).map(tally).collect(),
            ledgers: used.map(|(at, state)| ((at / KINDS) as u32, (at % KINDS) as u8, *state)).collect(),
        }
    }

    /// Returns the fold that `data` is of, in which there are `spaces`.
    pub(crate) fn of(data: StatsData, spaces: usize) -> Result<Self, PartialError> {
        let mut fold = Self::default();
        for (tally, own) in data.tallies {
            let tally = fold.tallies.get_mut(usize::from(tally)).ok_or(PartialError::Damaged("a kind"))?;
            *tally = TallyStats {
                sizes: SizeCounts::of(own.sizes),
                zero_size: own.zero_size,
                size_mismatches: own.size_mismatches,
                cross_thread_frees: own.cross_thread_frees,
                failed_bytes: own.failed_bytes,
                largest_failure_bytes: own.largest_failure_bytes,
            };
        }
        for (space, kind, state) in data.ledgers {
            let kind = Kind::from_number(kind).filter(|_| (space as usize) < spaces);
            *fold.ledger(space, kind.ok_or(PartialError::Damaged("a ledger"))?) = state;
        }
        Ok(fold)
    }
}

impl Merge for StatsFold {
    fn merge(&mut self, other: Self, spaces: &SpaceMap) {
        for (ours, theirs) in self.tallies.iter_mut().zip(other.tallies) {
            ours.sizes.merge(theirs.sizes);
            ours.zero_size += theirs.zero_size;
            ours.size_mismatches += theirs.size_mismatches;
            ours.cross_thread_frees += theirs.cross_thread_frees;
            ours.failed_bytes = ours.failed_bytes.saturating_add(theirs.failed_bytes);
            ours.largest_failure_bytes = ours.largest_failure_bytes.max(theirs.largest_failure_bytes);
        }
        for (at, theirs) in other.ledgers.iter().enumerate().filter(|(_, state)| state.used) {
            self.ledger(spaces.at((at / KINDS) as u32), Kind::ALL[at % KINDS]).merge(theirs);
        }
    }
}

impl StatsFold {
    #[inline]
    fn ledger(&mut self, space: u32, kind: Kind) -> &mut LedgerState {
        let at = space as usize * KINDS + kind as usize;
        if at >= self.ledgers.len() {
            self.ledgers.resize(at + 1, LedgerState::default());
        }
        &mut self.ledgers[at]
    }

    fn ledgers(&self, end: &End<'_>) -> Vec<Ledger> {
        let used = self.ledgers.iter().enumerate().filter(|(_, state)| state.used);
        let mut ledgers: Vec<Ledger> = used
            .map(|(at, state)| {
                let space = end.live.space((at / KINDS) as u32);
                let resource = end.tables.string(space.resource);
                Ledger {
                    process: space.process.0,
                    device: (space.device != NO_DEVICE).then_some(space.device),
                    kind: Kind::ALL[at % KINDS],
                    resource: (!resource.is_empty()).then(|| resource.to_owned()),
                    allocations: state.allocations,
                    frees: state.frees,
                    failures: state.failures,
                    total_bytes: state.total_bytes,
                    peak_bytes: state.peak_bytes,
                    peak_time_ns: (state.peak_bytes > 0 && !state.peak_is_bound)
                        .then_some(state.peak_time_ns),
                    peak_exact: !state.peak_is_bound,
                    live_bytes: state.live_bytes,
                    live_blocks: state.live_blocks,
                }
            })
            .collect();
        ledgers.sort_by(|a, b| {
            (a.process, a.device, a.kind, &a.resource).cmp(&(b.process, b.device, b.kind, &b.resource))
        });
        ledgers
    }
}

impl Fold for StatsFold {
    type Output = Stats;

    fn carried(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.ledger(block.space, block.kind).rise(block.bytes, time_ns);
    }

    #[inline]
    fn alloc(&mut self, block: &Block, _level: &Level) {
        let tally = &mut self.tallies[usize::from(block.tally)];
        tally.sizes.add(block.bytes);
        tally.zero_size += u64::from(block.bytes == 0);
        let ledger = self.ledger(block.space, block.kind);
        ledger.allocations += 1;
        ledger.total_bytes = ledger.total_bytes.saturating_add(block.bytes);
        ledger.rise(block.bytes, block.time_ns);
    }

    #[inline]
    fn free(&mut self, block: &Block, ending: &Ending, _level: &Level) {
        // Which of several null blocks a free of null ends is arbitrary: nothing to compare.
        if block.address != 0 {
            let tally = &mut self.tallies[usize::from(block.tally)];
            tally.cross_thread_frees += u64::from(ending.thread != block.thread);
            tally.size_mismatches += u64::from(ending.bytes != block.bytes && ending.bytes != UNKNOWN_BYTES);
        }
        let ledger = self.ledger(block.space, block.kind);
        ledger.frees += 1;
        ledger.fall(block.bytes);
    }

    fn replaced(&mut self, block: &Block, _time_ns: i64, _level: &Level) {
        self.ledger(block.space, block.kind).fall(block.bytes);
    }

    fn failure(&mut self, failure: &Failure) {
        let tally = &mut self.tallies[usize::from(failure.tally)];
        tally.failed_bytes = tally.failed_bytes.saturating_add(failure.bytes);
        tally.largest_failure_bytes = tally.largest_failure_bytes.max(failure.bytes);
        let ledger = self.ledger(failure.space, failure.kind);
        ledger.used = true;
        ledger.failures += 1;
    }

    fn finish(&self, end: &End<'_>) -> Stats {
        let tallies = end.live.tallies();
        let (level, counters) = (tallies.main_level(), end.live.counters());
        let own = &self.tallies[usize::from(tallies.main())];
        let (size, histogram) = own.sizes.summary();
        Stats {
            kinds: tallies.main_kinds(),
            events: end.live.events(),
            first_time_ns: counters.first_time_ns,
            last_time_ns: counters.last_time_ns,
            allocations: level.allocations,
            frees: level.frees,
            failures: level.failures,
            failed_bytes: own.failed_bytes,
            largest_failure_bytes: own.largest_failure_bytes,
            unmatched_frees: counters.unmatched_frees,
            null_frees: counters.null_frees,
            size_mismatches: own.size_mismatches,
            replaced_blocks: level.replaced,
            zero_size: own.zero_size,
            address_reuses: level.address_reuses,
            address_reuses_exact: end.live.remembers_all_addresses(),
            cross_thread_frees: own.cross_thread_frees,
            carried_blocks: level.carried_blocks,
            carried_bytes: level.carried_bytes,
            total_bytes: level.total_bytes,
            origin_time_ns: end.live.origin_ns(),
            peak_bytes: level.peak_bytes,
            peak_time_ns: level.peak_time_ns,
            peak_exact: !level.peak_is_bound,
            peak_blocks: level.peak_blocks,
            most_blocks: level.most_blocks,
            live_bytes: level.live_bytes,
            live_blocks: level.live_blocks,
            size,
            histogram,
            ledgers: self.ledgers(end),
            others: tallies.other_summaries(),
        }
    }
}
