//! Blocks that are live at the end, and whether their sites normally free.
//!
//! Which blocks leak is known from the live blocks alone; the fold counts how many blocks each stack
//! allocated and freed, because a site that frees most of its blocks owes an answer for the rest.
//! Without a stack or a name there is no site, and hence never more than a candidate.
//!
//! Excluded are blocks that no code is expected to free: static variables, segments that an
//! allocator holds, what was there before recording began, and what ended with its context.

use std::borrow::Cow;

use floodmark_event::Kind;
use floodmark_event::units::format_count;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::block::{BlockInfo, Group, GroupBy, KindSummary};
use crate::change::{Block, Ending};
use crate::describe::{Describe, Origin, share, sort_largest_first};
use crate::fold::{End, Fold};
use crate::level::Level;
use crate::merge::{Merge, SpaceMap};
use crate::scopes::ScopeRoles;
use crate::site::{NO_SITE, SiteRules};

/// How to report leaks.
#[derive(Clone, Debug, Default)]
pub struct LeaksOptions {
    /// How many blocks to list, largest first; all if none. Groups always cover all.
    pub limit: Option<usize>,
    /// Which frames cannot be sites.
    pub sites: SiteRules,
    /// Scopes that say how blocks began or ended.
    pub scopes: ScopeRoles,
}

/// Blocks that were not freed by the end of the trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Leaks {
    /// Kinds the figures cover.
    #[serde(with = "crate::json::kinds")]
    pub kinds: Vec<Kind>,
    /// The end: blocks are live then, and ages are counted up to it.
    pub end_time_ns: Option<i64>,
    /// Whether the end is a snapshot of a running program, whose live blocks are in use and no leaks.
    #[serde(default)]
    pub is_live_snapshot: bool,
    /// Bytes of all leak candidates, without excluded blocks.
    pub leaked_bytes: u64,
    /// Number of all leak candidates, without excluded blocks.
    pub leaked_blocks: u64,
    /// The blocks, largest first; the oldest first among equals.
    pub blocks: Vec<LeakedBlock>,
    /// Blocks that are not listed because of the limit.
    pub blocks_omitted: u64,
    /// The blocks by site, most bytes first.
    pub groups: Vec<LeakGroup>,
    /// Variables that live as long as their module: no leaks, and in none of the figures above.
    pub static_blocks: Vec<LeakedBlock>,
    /// Number of all static blocks, listed or not.
    pub static_count: u64,
    /// Bytes of all static blocks, listed or not.
    pub static_bytes: u64,
    /// Blocks that are not leak candidates, by reason. Static ones are included.
    pub excluded: Vec<Excluded>,
    /// Kinds that are not covered.
    pub others: Vec<KindSummary>,
}

/// Why blocks are no leaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExcludeReason {
    /// Variables of a module.
    Static,
    /// Segments that an allocator holds.
    Reserved,
    /// Blocks that were live when recording began.
    BeforeCapture,
    /// Blocks that ended with their context.
    Teardown,
    /// Blocks of the heap that language runtimes keep for themselves.
    Runtime,
}

impl ExcludeReason {
    /// The word for it in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Reserved => "reserved",
            Self::BeforeCapture => "before_capture",
            Self::Teardown => "teardown",
            Self::Runtime => "runtime",
        }
    }

    /// What such blocks are, in words that finish "256 MiB in ...".
    pub const fn why(self) -> &'static str {
        match self {
            Self::Static => "static variables, which live as long as their module",
            Self::Reserved => "segments that an allocator holds to divide them: its pool, and no leak",
            Self::BeforeCapture => {
                "blocks allocated before recording began: it is not known whether their sites free what they allocate"
            }
            Self::Teardown => {
                "blocks that ended with their context: the program did not free them, and until then they leaked"
            }
            Self::Runtime => {
                "blocks that the C, C++ or language runtime keeps until its process ends: no leak"
            }
        }
    }
}

/// Blocks that are no leaks for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Excluded {
    /// The reason.
    pub reason: ExcludeReason,
    /// The same in words.
    pub why: Cow<'static, str>,
    /// How many blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The blocks by site, most bytes first.
    pub groups: Vec<Group>,
    /// The largest of them.
    pub listed: Vec<LeakedBlock>,
}

/// A block that is live at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeakedBlock {
    /// The block.
    #[serde(flatten)]
    pub block: BlockInfo,
    /// Time from its allocation to the end.
    pub age_ns: u64,
}

/// How sure it is that blocks of a site leak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Live at the end; nothing says that the program would have freed it.
    #[default]
    Candidate,
    /// Its site freed at least half of its blocks, so it normally frees.
    Leak,
    /// Live at a snapshot of a running program, which may still free it.
    Live,
}

impl Verdict {
    /// The word for it in JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Leak => "leak",
            Self::Live => "live",
        }
    }
}

/// Blocks of one site that are live at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeakGroup {
    /// Place in the program that allocated them.
    pub site: String,
    /// How sure it is that they leak.
    pub verdict: Verdict,
    /// Why, in words.
    pub reason: String,
    /// Blocks live at the end.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their share of all leaked bytes, from 0 to 1.
    pub share: f64,
    /// All blocks of the site, those carried into the window included.
    pub allocated_blocks: u64,
    /// Those of them that ended.
    pub freed_blocks: u64,
    /// Age of the oldest.
    pub oldest_age_ns: u64,
    /// Age of the youngest.
    pub youngest_age_ns: u64,
}

/// Folds events into [`Leaks`].
#[derive(Clone, Debug, Default)]
pub struct LeaksFold {
    options: LeaksOptions,
    /// Blocks that ended, by tally and origin.
    ended: FxHashMap<Origin, u64>,
    /// The origin that ended a block last, with blocks that are not in the map yet.
    recent: (Origin, u64),
    /// Blocks that ended with their context, and when.
    torn_down: Vec<(Block, i64)>,
}

impl LeaksFold {
    /// Starts to look for leaks.
    pub fn new(options: LeaksOptions) -> Self {
        Self { options, ..Self::default() }
    }

    #[inline]
    fn end_block(&mut self, block: &Block) {
        if block.kind == Kind::Static {
            return;
        }
        let origin = Origin::of(block);
        if origin == self.recent.0 {
            self.recent.1 += 1;
        } else {
            let (before, count) = std::mem::replace(&mut self.recent, (origin, 1));
            if count > 0 {
                *self.ended.entry(before).or_insert(0) += count;
            }
        }
    }

    fn groups(
        &self,
        blocks: &[&Block],
        tally: u8,
        end_ns: i64,
        describe: &mut Describe<'_>,
    ) -> Vec<LeakGroup> {
        let mut groups: FxHashMap<u32, LeakGroup> = FxHashMap::default();
        for block in blocks {
            let site = describe.site_id(block.stack, block.name);
            let age_ns = age_ns(block, end_ns);
            let group = groups.entry(site).or_insert_with(|| LeakGroup {
                site: describe.site(site).to_owned(),
                youngest_age_ns: age_ns,
                ..LeakGroup::default()
            });
            group.blocks += 1;
            group.bytes = group.bytes.saturating_add(block.bytes);
            group.oldest_age_ns = group.oldest_age_ns.max(age_ns);
            group.youngest_age_ns = group.youngest_age_ns.min(age_ns);
        }
        for (origin, count) in self.ended.iter().chain([(&self.recent.0, &self.recent.1)]) {
            if origin.tally == tally
                && let Some(group) = groups.get_mut(&describe.site_id(origin.stack, origin.name))
            {
                group.freed_blocks += count;
            }
        }
        for (block, _) in self.torn_down.iter().filter(|(block, _)| block.tally == tally) {
            if let Some(group) = groups.get_mut(&describe.site_id(block.stack, block.name)) {
                group.allocated_blocks += 1;
            }
        }
        let total = groups.values().fold(0, |total: u64, group| total.saturating_add(group.bytes));
        let mut groups: Vec<LeakGroup> = groups.into_values().collect();
        for group in &mut groups {
            group.share = share(group.bytes, total);
            group.allocated_blocks += group.blocks + group.freed_blocks;
            if self.options.scopes.is_live_snapshot() {
                group.verdict = Verdict::Live;
            } else if group.site != NO_SITE && group.freed_blocks * 2 >= group.allocated_blocks {
                group.verdict = Verdict::Leak;
            }
            group.reason = reason(group);
        }
        groups.sort_by(|a, b| (b.bytes, b.blocks, &a.site).cmp(&(a.bytes, a.blocks, &b.site)));
        groups
    }

    fn list(&self, blocks: &[&Block], end_ns: i64, describe: &mut Describe<'_>) -> Vec<LeakedBlock> {
        let limit = self.options.limit.unwrap_or(usize::MAX);
        let listed = blocks.iter().take(limit);
        listed
            .map(|block| LeakedBlock { block: describe.info(block), age_ns: age_ns(block, end_ns) })
            .collect()
    }

    /// Describes blocks that are no leaks; none if there are no such blocks.
    fn excluded(
        &self,
        reason: ExcludeReason,
        blocks: &[&Block],
        end_ns: i64,
        describe: &mut Describe<'_>,
    ) -> Option<Excluded> {
        (!blocks.is_empty()).then(|| Excluded {
            reason,
            why: reason.why().into(),
            blocks: blocks.len() as u64,
            bytes: sum(blocks),
            groups: describe.group(blocks, GroupBy::Site),
            listed: self.list(blocks, end_ns, describe),
        })
    }

    /// Blocks of a tally that ended with their context, largest first.
    fn torn_down(&self, tally: u8, describe: &mut Describe<'_>) -> Option<Excluded> {
        let own = || self.torn_down.iter().filter(|(block, _)| block.tally == tally);
        let mut blocks: Vec<&Block> = own().map(|(block, _)| block).collect();
        sort_largest_first(&mut blocks);
        let mut excluded = self.excluded(ExcludeReason::Teardown, &blocks, 0, describe)?;
        // Each ended at an instant of its own.
        let ends: FxHashMap<u64, i64> = own().map(|(block, end_ns)| (block.order, *end_ns)).collect();
        for (listed, block) in excluded.listed.iter_mut().zip(&blocks) {
            listed.age_ns = age_ns(block, ends.get(&block.order).copied().unwrap_or(0));
        }
        Some(excluded)
    }
}

/// Why the blocks of a group are thought to leak or not.
fn reason(group: &LeakGroup) -> String {
    let blocks = if group.allocated_blocks == 1 { "block" } else { "blocks" };
    match (group.site == NO_SITE, group.freed_blocks, group.allocated_blocks) {
        (true, ..) => "where it was allocated is not known".into(),
        (_, 0, 1) => "its site allocated nothing else".into(),
        (_, 0, all) => format!("its site freed none of {} {blocks}", format_count(all)),
        (_, freed, all) => {
            format!("its site freed {} of {} {blocks}", format_count(freed), format_count(all))
        }
    }
}

impl Merge for LeaksFold {
    fn merge(&mut self, other: Self, spaces: &SpaceMap) {
        let moved =
            |(block, end_ns): (Block, i64)| (Block { space: spaces.at(block.space), ..block }, end_ns);
        self.torn_down.extend(other.torn_down.into_iter().map(moved));
        for (origin, count) in other.ended.into_iter().chain([other.recent]) {
            *self.ended.entry(origin).or_insert(0) += count;
        }
    }
}

fn age_ns(block: &Block, end_ns: i64) -> u64 {
    end_ns.saturating_sub(block.time_ns).max(0) as u64
}

fn sum(blocks: &[&Block]) -> u64 {
    blocks.iter().fold(0, |sum, block| block.bytes.saturating_add(sum))
}

impl Fold for LeaksFold {
    type Output = Leaks;

    #[inline]
    fn free(&mut self, block: &Block, ending: &Ending, _level: &Level) {
        if self.options.scopes.is_teardown(ending.scope) && block.kind != Kind::Static {
            self.torn_down.push((*block, ending.time_ns));
        } else {
            self.end_block(block);
        }
    }

    fn replaced(&mut self, block: &Block, _time_ns: i64, _level: &Level) {
        self.end_block(block);
    }

    fn finish(&self, end: &End<'_>) -> Leaks {
        let tallies = end.live.tallies();
        let main = tallies.main();
        let end_ns = end.live.end_ns().unwrap_or(0);
        let (mut statics, mut others): (Vec<&Block>, Vec<&Block>) =
            end.live.blocks().partition(|block| block.kind == Kind::Static);
        sort_largest_first(&mut statics);
        sort_largest_first(&mut others);
        let (reserved, mut others): (Vec<&Block>, Vec<&Block>) =
            others.into_iter().partition(|block| block.kind == Kind::Reserved);
        // A null pointer holds nothing, whatever its size was said to be.
        others.retain(|block| block.tally == main && block.address != 0);
        let (before, others): (Vec<&Block>, Vec<&Block>) =
            others.into_iter().partition(|block| self.options.scopes.is_before_capture(block.scope));
        let sites = &self.options.sites;
        let is_kept = |block: &&Block| {
            block.kind == Kind::Pageable && sites.is_kept_by_runtime(block.stack, end.tables)
        };
        let (kept, others): (Vec<&Block>, Vec<&Block>) = others.into_iter().partition(is_kept);
        let mut describe = Describe::new(end, sites);
        let blocks = self.list(&others, end_ns, &mut describe);
        let excluded = [
            self.excluded(ExcludeReason::Static, &statics, end_ns, &mut describe),
            self.excluded(ExcludeReason::Reserved, &reserved, end_ns, &mut describe),
            self.excluded(ExcludeReason::BeforeCapture, &before, end_ns, &mut describe),
            self.torn_down(main, &mut describe),
            self.excluded(ExcludeReason::Runtime, &kept, end_ns, &mut describe),
        ];
        Leaks {
            kinds: tallies.main_kinds(),
            end_time_ns: end.live.end_ns(),
            is_live_snapshot: self.options.scopes.is_live_snapshot(),
            leaked_bytes: sum(&others),
            leaked_blocks: others.len() as u64,
            blocks_omitted: (others.len() - blocks.len()) as u64,
            blocks,
            groups: self.groups(&others, main, end_ns, &mut describe),
            static_blocks: self.list(&statics, end_ns, &mut describe),
            static_count: statics.len() as u64,
            static_bytes: sum(&statics),
            excluded: excluded.into_iter().flatten().collect(),
            others: tallies.other_summaries(),
        }
    }
}
