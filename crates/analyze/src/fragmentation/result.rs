//! What fragmentation reports.

use floodmark_event::Kind;
use serde::{Deserialize, Serialize};

use crate::block::BlockInfo;
use crate::fragmentation::address_space::Fill;

/// Free memory between live blocks, and requests that failed because of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fragmentation {
    /// The address spaces that blocks were cut from, the one with the highest live bytes first.
    pub address_spaces: Vec<AddressSpaceReport>,
    /// Allocations that failed, in order.
    pub failures: Vec<FailedRequest>,
    /// Failures that are not listed because of the limit.
    pub failures_omitted: u64,
    /// Failures although enough was free.
    pub failed_by_fragmentation: u64,
    /// Failures with less free than was asked for.
    pub failed_by_exhaustion: u64,
    /// The addresses at one instant, if asked for.
    pub map: Option<AddressMap>,
    /// Holes up to this size that no block ever covered count as inferred address space.
    pub join_bytes: u64,
    /// Blocks of no bytes or without an address, which take no place.
    pub placeless_blocks: u64,
    /// Blocks left out because they overlap a live one or the end of their segment.
    pub overlapping_blocks: u64,
    /// Segments left out because they overlap another.
    pub overlapping_segments: u64,
    /// Blocks that were live when their segment went.
    pub orphaned_blocks: u64,
}

/// How the extents of an address space are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The source says which segments the allocator held.
    #[default]
    Segments,
    /// All that blocks have covered so far counts; what the allocator held beyond that is unknown.
    Inferred,
}

impl Basis {
    /// The word for it in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Segments => "segments",
            Self::Inferred => "inferred",
        }
    }
}

/// One address space from its first block to the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddressSpaceReport {
    /// Id of the process in the trace.
    pub process: u32,
    /// Device, or none.
    pub device: Option<i32>,
    /// Resource that holds the segments, or that served the blocks where address space is inferred.
    pub resource: Option<String>,
    /// Kind of the blocks; `reserved` for segments.
    #[serde(with = "crate::json::kind")]
    pub kind: Kind,
    /// How its extents are known.
    pub basis: Basis,
    /// Its first instant.
    pub first_time_ns: i64,
    /// Its last one.
    pub end_time_ns: i64,
    /// At the first instant of its highest live bytes.
    pub peak: Occupancy,
    /// At the first instant with most free bytes outside the largest gap.
    pub worst: Occupancy,
    /// At the end.
    pub end: Occupancy,
    /// Mean fragmentation over the time in which anything was free.
    pub mean_fragmentation: f64,
    /// Whether a request would have fitted, if asked.
    pub request: Option<RequestAnswer>,
    /// Of each interval the instant with most free bytes outside the largest gap.
    pub timeline: Vec<Occupancy>,
}

/// How an address space is filled at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Occupancy {
    /// When.
    pub time_ns: i64,
    /// Number of the change after which it was so, from 1.
    pub change: u64,
    /// Bytes of all extents: `live_bytes + free_bytes`.
    pub footprint_bytes: u64,
    /// Those of live blocks.
    pub live_bytes: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// Bytes of all gaps.
    pub free_bytes: u64,
    /// Number of gaps.
    pub gaps: u64,
    /// The largest of them.
    pub largest_gap_bytes: u64,
    /// `1 - largest_gap_bytes / free_bytes`; 0 if nothing is free.
    pub fragmentation: f64,
}

impl Occupancy {
    pub(super) fn new(time_ns: i64, change: u64, fill: Fill) -> Self {
        Self {
            time_ns,
            change,
            footprint_bytes: fill.footprint_bytes,
            live_bytes: fill.live_bytes,
            live_blocks: fill.live_blocks,
            free_bytes: fill.free_bytes,
            gaps: fill.gaps,
            largest_gap_bytes: fill.largest_bytes,
            fragmentation: fragmentation(fill),
        }
    }

    /// Free bytes outside the largest gap.
    pub fn scattered_bytes(&self) -> u64 {
        self.free_bytes - self.largest_gap_bytes
    }
}

pub(super) fn fragmentation(fill: Fill) -> f64 {
    if fill.free_bytes == 0 { 0.0 } else { fill.scattered_bytes() as f64 / fill.free_bytes as f64 }
}

/// Whether a request would have fitted into a gap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestAnswer {
    /// Its size.
    pub bytes: u64,
    /// Share of the time in which a gap was large enough, from 0 to 1.
    pub fitted_share: f64,
    /// First instant at which one was.
    pub first_fit_ns: Option<i64>,
    /// First instant at which none was.
    pub first_misfit_ns: Option<i64>,
    /// Whether it would have fitted at the peak.
    pub fits_at_peak: bool,
    /// Spells in which it did not fit.
    pub misfits: u64,
    /// The longest of them, in order of time.
    pub longest_misfits: Vec<Spell>,
}

/// A span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spell {
    /// From when.
    pub from_ns: i64,
    /// Until when.
    pub to_ns: i64,
}

/// Why an allocation failed, as far as free memory tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// Enough was free, in pieces that were too small.
    Fragmentation,
    /// Less was free than was asked for.
    Exhaustion,
    /// A gap was large enough: it belonged to another stream or pool, or something else went wrong.
    Other,
}

impl FailureCause {
    /// The word for it in JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fragmentation => "fragmentation",
            Self::Exhaustion => "exhaustion",
            Self::Other => "other",
        }
    }
}

/// An allocation that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedRequest {
    /// When.
    pub time_ns: i64,
    /// What it asked for.
    pub asked_bytes: u64,
    /// What was free in its address space.
    pub free_bytes: u64,
    /// The largest gap.
    pub largest_gap_bytes: u64,
    /// Why it failed.
    pub cause: FailureCause,
    /// Place in the program that asked.
    pub site: String,
}

/// The addresses of all address spaces at an instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddressMap {
    /// The instant.
    pub time_ns: i64,
    /// Segments and regions, by address space and address.
    pub segments: Vec<MapSegment>,
    /// The largest gaps with what sits beside them.
    pub largest_gaps: Vec<GapInfo>,
}

/// A segment or region at an instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MapSegment {
    /// Index of its address space in the report.
    pub address_space: usize,
    /// First address.
    #[serde(with = "crate::json::hex")]
    pub address: u64,
    /// Size.
    pub bytes: u64,
    /// Live blocks in it.
    pub live_blocks: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// The gaps in it, by address; all else is live.
    pub gaps: Vec<MapGap>,
}

/// A gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapGap {
    /// First address.
    #[serde(with = "crate::json::hex")]
    pub address: u64,
    /// Size.
    pub bytes: u64,
}

/// A gap with the blocks that sit beside it in its segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GapInfo {
    /// The gap.
    #[serde(flatten)]
    pub gap: MapGap,
    /// The live block that ends where the gap begins, or before it after padding.
    pub before: Option<BlockInfo>,
    /// The live block that follows.
    pub after: Option<BlockInfo>,
}
