//! Blocks that are live at the end.

use floodmark_event::Kind;
use serde::{Serialize, Serializer};

use crate::block::{BlockInfo, KindSummary};
use crate::fold::{End, Fold};

/// How to report leaks.
#[derive(Clone, Debug, Default)]
pub struct LeaksOptions {
    /// How many blocks to list, largest first; all if none. Groups always cover all.
    pub limit: Option<usize>,
}

/// What never came back.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Leaks {
    /// Kinds the figures cover.
    #[serde(serialize_with = "crate::json::kinds")]
    pub kinds: Vec<Kind>,
    /// The end: blocks are live then, and ages are counted up to it.
    pub end_time_ns: Option<i64>,
    /// Bytes of the blocks, static ones left out.
    pub leaked_bytes: u64,
    /// Number of the blocks, static ones left out.
    pub leaked_blocks: u64,
    /// The blocks, largest first; the oldest first among equals.
    pub blocks: Vec<LeakedBlock>,
    /// Blocks that are not listed because of the limit.
    pub blocks_omitted: u64,
    /// The blocks by site, most bytes first.
    pub groups: Vec<LeakGroup>,
    /// Variables that live as long as their module: no leaks, and in none of the figures above.
    pub static_blocks: Vec<LeakedBlock>,
    /// Bytes of all static blocks.
    pub static_bytes: u64,
    /// Kinds that are not covered.
    pub others: Vec<KindSummary>,
}

/// A block that is live at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeakedBlock {
    /// The block.
    #[serde(flatten)]
    pub block: BlockInfo,
    /// Time from its allocation to the end.
    pub age_ns: u64,
}

/// How sure it is that blocks of a site leak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Live at the end; nothing says that the program would have freed it.
    #[default]
    Candidate,
    /// Its site freed at least half of its blocks, so it normally frees.
    Leak,
}

impl Verdict {
    /// The word for it in JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Leak => "leak",
        }
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Blocks of one site that are live at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LeakGroup {
    /// Place in the program that allocated them.
    pub site: String,
    /// How sure it is that they leak.
    pub verdict: Verdict,
    /// Blocks live at the end.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their share of all leaked bytes, from 0 to 1.
    pub share: f64,
    /// All blocks the site allocated.
    pub allocated_blocks: u64,
    /// Those of them that were freed.
    pub freed_blocks: u64,
    /// Age of the oldest.
    pub oldest_age_ns: u64,
    /// Age of the youngest.
    pub youngest_age_ns: u64,
}

/// Folds events into [`Leaks`].
#[derive(Clone, Debug, Default)]
pub struct LeaksFold {}

impl LeaksFold {
    /// Starts to look for leaks.
    pub fn new(_options: LeaksOptions) -> Self {
        Self {}
    }
}

impl Fold for LeaksFold {
    type Output = Leaks;

    fn finish(&self, _end: &End<'_>) -> Leaks {
        Leaks::default()
    }
}
