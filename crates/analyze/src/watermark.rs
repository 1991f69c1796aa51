//! The highest live bytes, when they were reached, and the blocks that were live then.
//!
//! One pass, with memory for the live blocks only. At each new peak a tally forgets what it knew of
//! the one before; from then on it keeps the blocks that were live at the peak and have ended since.
//! Blocks at the peak are those, and the blocks still live that are no younger than the peak. Blocks
//! at a given instant are found in the same way, as if the peak were there.

use floodmark_event::Kind;
use floodmark_event::units::Instant;
use serde::{Deserialize, Serialize};

use crate::block::{BlockInfo, Group, GroupBy, KindSummary};
use crate::change::{Block, Ending, Failure};
use crate::describe::{Describe, sort_largest_first};
use crate::fold::{End, Fold};
use crate::level::Level;
use crate::pools::PoolUse;
use crate::scopes::ScopePaths;
use crate::site::{NO_SITE, SiteRules};
use floodmark_event::filter::resolve;

/// How to report a watermark.
#[derive(Clone, Debug, Default)]
pub struct WatermarkOptions {
    /// Reports the blocks live at this instant instead of those at the peak. There are none if it
    /// lies before the window.
    pub at: Option<Instant>,
    /// Reports the blocks live when the allocation with this number failed, counted from 1, instead of those at the
    /// peak. It goes before `at`; if fewer allocations failed, the blocks are those live at the end.
    pub at_failure: Option<u64>,
    /// By what blocks are grouped; several give several lists of groups.
    pub group_by: Vec<GroupBy>,
    /// How many blocks to list, largest first; all if none. Groups always cover all.
    pub limit: Option<usize>,
    /// Which frames cannot be sites.
    pub sites: SiteRules,
    /// Names that lead to scopes, for grouping by scope; scopes that it does not know are grouped by number.
    pub scopes: ScopePaths,
}

/// The highest live bytes and their holders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watermark {
    /// Kinds the figures cover.
    #[serde(with = "crate::json::kinds")]
    pub kinds: Vec<Kind>,
    /// Instant that elapsed times count from.
    #[serde(default)]
    pub origin_time_ns: Option<i64>,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// First instant of the highest live bytes.
    pub peak_time_ns: Option<i64>,
    /// Blocks that were live at that instant.
    pub peak_blocks: u64,
    /// Allocations that failed, as for lack of memory.
    #[serde(default)]
    pub failures: u64,
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
    /// Pools of stream-ordered allocation at that instant. Not events but samples tell of them, so the fold
    /// leaves this empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolUse>,
}

/// Blocks grouped in one way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grouping {
    /// By what.
    pub by: GroupBy,
    /// The groups, most bytes first.
    pub groups: Vec<Group>,
}

impl Watermark {
    /// Keeps, of several ways to group, those that are informative: the site if it is known, else those with
    /// more than one group and fewer groups than blocks.
    pub fn keep_informative(&mut self) {
        let blocks = self.reported_blocks;
        self.groups.retain(|grouping| match (grouping.by, grouping.groups.as_slice()) {
            (GroupBy::Site, groups) => groups.iter().any(|group| group.key != NO_SITE),
            (_, [_]) => false,
            // Sizes are informative only if many blocks share them.
            (GroupBy::Size, groups) => groups.len() as u64 * 2 <= blocks,
            (_, groups) => groups.iter().any(|group| group.blocks > 1),
        });
        // Where sites are known they answer the question; the rest is there for logs without stacks.
        if self.groups.first().is_some_and(|first| first.by == GroupBy::Site) {
            self.groups.truncate(1);
        }
    }
}

/// Folds events into a [`Watermark`].
#[derive(Clone, Debug, Default)]
pub struct WatermarkFold {
    pub(crate) options: WatermarkOptions,
    marks: [Mark; Kind::ALL.len()],
    at: At,
    /// Order number of the newest block seen.
    newest: u64,
}

/// The instant that was asked for, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Peak,
    Ahead(i64),
    /// So many failures are still to come, the one that was asked for included.
    FailureAhead(u64),
    Passed(i64),
}

/// The instant whose blocks a tally remembers.
#[derive(Clone, Debug, Default)]
struct Mark {
    /// Order number of the newest block then.
    order: u64,
    /// Blocks that were live then and have ended since.
    ended: Vec<Block>,
}

impl WatermarkFold {
    /// Starts a watermark.
    pub fn new(options: WatermarkOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Marks the instant that was asked for, if it lies before `time_ns`.
    #[inline]
    fn pass(&mut self, time_ns: i64) {
        if let At::Ahead(at_ns) = self.at
            && time_ns > at_ns
        {
            self.mark(at_ns);
        }
    }

    /// Marks the blocks that are live now, at the instant that was asked for.
    fn mark(&mut self, at_ns: i64) {
        self.at = At::Passed(at_ns);
        for mark in &mut self.marks {
            mark.order = self.newest;
        }
    }

    #[inline]
    fn end_block(&mut self, block: &Block, time_ns: i64) {
        self.pass(time_ns);
        let mark = &mut self.marks[usize::from(block.tally)];
        if block.order <= mark.order {
            mark.ended.push(*block);
        }
    }

    /// The instant that was asked for, once the first event is known.
    pub(crate) fn asked_ns(&self) -> Option<i64> {
        match self.at {
            At::Peak | At::FailureAhead(_) => None,
            At::Ahead(at_ns) | At::Passed(at_ns) => Some(at_ns),
        }
    }

    /// The blocks of a tally that were live at the mark, largest first.
    pub(crate) fn marked<'a>(&'a self, tally: u8, end: &'a End<'_>) -> Vec<&'a Block> {
        let mark = &self.marks[usize::from(tally)];
        let order = if matches!(self.at, At::Ahead(_) | At::FailureAhead(_)) { u64::MAX } else { mark.order };
        let live = end.live.blocks().filter(|block| block.tally == tally && block.order <= order);
        let mut blocks: Vec<&Block> = live.chain(&mark.ended).collect();
        sort_largest_first(&mut blocks);
        blocks
    }
}

impl Fold for WatermarkFold {
    type Output = Watermark;

    fn start(&mut self, _first_ns: i64, origin_ns: i64) {
        if let Some(number) = self.options.at_failure {
            self.at = At::FailureAhead(number);
        } else if let Some(at) = self.options.at {
            self.at = At::Ahead(resolve(at, origin_ns));
        }
    }

    fn carried(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.pass(time_ns);
        self.newest = self.newest.max(block.order);
        if self.at == At::Peak {
            self.marks[usize::from(block.tally)].order = level.peak_order;
        }
    }

    #[inline]
    fn alloc(&mut self, block: &Block, level: &Level) {
        if self.at == At::Peak {
            if level.peak_order == block.order {
                let mark = &mut self.marks[usize::from(block.tally)];
                mark.order = block.order;
                mark.ended.clear();
            }
        } else {
            self.pass(block.time_ns);
            self.newest = block.order;
        }
    }

    #[inline]
    fn free(&mut self, block: &Block, ending: &Ending, _level: &Level) {
        self.end_block(block, ending.time_ns);
    }

    fn replaced(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.end_block(block, time_ns);
    }

    fn failure(&mut self, failure: &Failure) {
        match &mut self.at {
            At::FailureAhead(ahead) if *ahead > 1 => *ahead -= 1,
            At::FailureAhead(_) => self.mark(failure.time_ns),
            _ => {}
        }
    }

    fn finish(&self, end: &End<'_>) -> Watermark {
        self.options.report(self.asked_ns(), &self.marked(end.live.tallies().main(), end), end)
    }
}

impl WatermarkOptions {
    /// Reports blocks that are sorted, largest first, and the peak of all; `at_ns` is the instant they are of if that is
    /// not the peak.
    pub(crate) fn report(&self, at_ns: Option<i64>, blocks: &[&Block], end: &End<'_>) -> Watermark {
        let tallies = end.live.tallies();
        let level = tallies.main_level();
        let listed = &blocks[..blocks.len().min(self.limit.unwrap_or(usize::MAX))];
        let mut describe = Describe::new(end, &self.sites).with_scopes(&self.scopes);
        Watermark {
            kinds: tallies.main_kinds(),
            origin_time_ns: end.live.origin_ns(),
            peak_bytes: level.peak_bytes,
            peak_time_ns: level.peak_time_ns,
            peak_blocks: level.peak_blocks,
            failures: level.failures,
            at_ns,
            reported_bytes: blocks.iter().fold(0, |sum, block| block.bytes.saturating_add(sum)),
            reported_blocks: blocks.len() as u64,
            blocks: listed.iter().map(|block| describe.info(block)).collect(),
            blocks_omitted: (blocks.len() - listed.len()) as u64,
            groups: self
                .group_by
                .iter()
                .map(|by| Grouping { by: *by, groups: describe.group(blocks, *by) })
                .collect(),
            others: tallies.other_summaries(),
            pools: Vec::new(),
        }
    }
}
