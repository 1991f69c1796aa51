//! The highest live bytes, when they were reached, and the blocks that were live then.

use floodmark_event::Kind;
use floodmark_event::units::Instant;
use serde::Serialize;

use crate::block::{BlockInfo, Group, GroupBy, KindSummary};
use crate::fold::{End, Fold};

/// How to report a watermark.
#[derive(Clone, Debug, Default)]
pub struct WatermarkOptions {
    /// Reports the blocks live at this instant instead of those at the peak.
    pub at: Option<Instant>,
    /// By what blocks are grouped; several give several lists of groups.
    pub group_by: Vec<GroupBy>,
    /// How many blocks to list, largest first; all if none. Groups always cover all.
    pub limit: Option<usize>,
}

/// The highest live bytes and who held them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Watermark {
    /// Kinds the figures cover.
    #[serde(serialize_with = "crate::json::kinds")]
    pub kinds: Vec<Kind>,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// First instant of the highest live bytes.
    pub peak_time_ns: Option<i64>,
    /// Instant that was asked for instead of the peak.
    pub at_ns: Option<i64>,
    /// Bytes of the blocks reported: at the peak, or at the instant that was asked for.
    pub reported_bytes: u64,
    /// Number of those blocks.
    pub reported_blocks: u64,
    /// The blocks, largest first; the oldest first among equals.
    pub blocks: Vec<BlockInfo>,
    /// Blocks that are not listed because of the limit.
    pub blocks_omitted: u64,
    /// The same blocks in groups: one entry per way to group that was asked for.
    pub groups: Vec<Grouping>,
    /// Kinds that are not covered.
    pub others: Vec<KindSummary>,
}

/// Blocks grouped in one way.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Grouping {
    /// By what.
    pub by: GroupBy,
    /// The groups, most bytes first.
    pub groups: Vec<Group>,
}

/// Folds events into a [`Watermark`].
#[derive(Clone, Debug)]
pub struct WatermarkFold {}

impl WatermarkFold {
    /// Starts a watermark.
    pub fn new(_options: WatermarkOptions) -> Self {
        Self {}
    }
}

impl Fold for WatermarkFold {
    type Output = Watermark;

    fn finish(&self, _end: &End<'_>) -> Watermark {
        Watermark::default()
    }
}
