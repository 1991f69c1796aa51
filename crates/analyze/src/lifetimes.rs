//! How long blocks live, and which sites allocate only to free at once (churn).

use floodmark_event::Kind;
use serde::Serialize;

use crate::fold::{End, Fold};

/// How to report lifetimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifetimesOptions {
    /// A block that lives shorter than this is churn.
    pub threshold_ns: u64,
    /// How many sites to list, most churned bytes first; all if none.
    pub limit: Option<usize>,
}

impl Default for LifetimesOptions {
    fn default() -> Self {
        Self { threshold_ns: 1_000_000, limit: None }
    }
}

/// How long blocks live.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lifetimes {
    /// Kinds the figures cover.
    #[serde(serialize_with = "crate::json::kinds")]
    pub kinds: Vec<Kind>,
    /// Lifetimes below this are churn.
    pub threshold_ns: u64,
    /// Blocks that were freed.
    pub ended_blocks: u64,
    /// Blocks that are live at the end.
    pub live_blocks: u64,
    /// Blocks that lived shorter than the threshold.
    pub churned_blocks: u64,
    /// Bytes of those.
    pub churned_bytes: u64,
    /// Mean lifetime of blocks that were freed.
    pub mean_ns: Option<f64>,
    /// Median lifetime of blocks that were freed, within 1/16.
    pub median_ns: Option<u64>,
    /// Sites, most churned bytes first. Without stacks and names: classes of sizes.
    pub sites: Vec<LifetimeSite>,
    /// Sites that are not listed because of the limit.
    pub sites_omitted: u64,
    /// Blocks that were freed, by lifetime in powers of two; empty classes are left out.
    pub histogram: Vec<LifetimeBar>,
}

/// Lifetimes of the blocks of one site.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LifetimeSite {
    /// Place in the program that allocated them, or a class of sizes.
    pub site: String,
    /// Blocks, freed or live at the end.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks that were freed.
    pub ended_blocks: u64,
    /// Mean lifetime of those.
    pub mean_ns: Option<f64>,
    /// Median lifetime of those, within 1/16.
    pub median_ns: Option<u64>,
    /// Blocks that lived shorter than the threshold.
    pub churned_blocks: u64,
    /// Bytes of those.
    pub churned_bytes: u64,
    /// Churned blocks as a share of those that were freed, from 0 to 1.
    pub churn: f64,
}

/// Blocks that lived from `from_ns` to below `to_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LifetimeBar {
    /// Shortest lifetime of the class.
    pub from_ns: u64,
    /// First lifetime beyond the class.
    pub to_ns: u64,
    /// Blocks.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Folds events into [`Lifetimes`].
#[derive(Clone, Debug, Default)]
pub struct LifetimesFold {}

impl LifetimesFold {
    /// Starts to measure lifetimes.
    pub fn new(_options: LifetimesOptions) -> Self {
        Self {}
    }
}

impl Fold for LifetimesFold {
    type Output = Lifetimes;

    fn finish(&self, _end: &End<'_>) -> Lifetimes {
        Lifetimes::default()
    }
}
