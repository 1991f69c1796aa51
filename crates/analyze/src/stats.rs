//! Counters, sizes and ledgers of the allocations.

use floodmark_event::Kind;
use serde::Serialize;

use crate::block::KindSummary;
use crate::fold::{End, Fold};

/// What was allocated and freed, how much, and how it stands at the end.
///
/// Figures cover [`kinds`](Stats::kinds) only, except `unmatched_frees` and `null_frees`: a free
/// without a block has no kind to be trusted. Other kinds are summed up in `others`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Kinds the figures cover.
    #[serde(serialize_with = "crate::json::kinds")]
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
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// First instant of the highest live bytes.
    pub peak_time_ns: Option<i64>,
    /// Whether `peak_bytes` is exact; after merging it is an upper bound.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Id of the process in the trace.
    pub process: u32,
    /// Device, or none.
    pub device: Option<i32>,
    /// Kind, by name in JSON.
    #[serde(serialize_with = "crate::json::kind")]
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
    /// Live bytes at the end.
    pub live_bytes: u64,
    /// Live blocks at the end.
    pub live_blocks: u64,
}

/// Folds events into [`Stats`].
#[derive(Clone, Debug, Default)]
pub struct StatsFold {}

impl Fold for StatsFold {
    type Output = Stats;

    fn finish(&self, _end: &End<'_>) -> Stats {
        Stats::default()
    }
}
