//! Blocks that are alike, and what they held at each instant.

use std::cmp::Reverse;

use floodmark_event::{NO_DEVICE, StackId};
use rustc_hash::FxHashMap;

use super::cumulative::{self, CumulativeAllocations};
use crate::block::StackText;
use crate::change::Block;
use crate::describe::Describe;
use crate::fold::{End, Fold};
use crate::level::Level;
use crate::origins::BlockOrigin;
use crate::paths::{PathRules, Step};
use crate::scopes::ScopePaths;

/// Blocks that are alike, and what they held.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HolderGroup {
    /// The stack, innermost frame first; empty if there is none.
    pub stack: StackText,
    /// What leads to them, outermost first: calls, runs of which that say little are folded; of blocks
    /// without a stack their name, or thread, stream and size.
    pub path: Vec<Step>,
    /// Place in the program.
    pub site: String,
    /// Names of the scopes around it, outermost first.
    pub scope: Vec<String>,
    /// Where the memory is: process, device, resource, outermost first.
    pub place: Vec<String>,
    /// Allocations over the whole time; between the first and the last of instants that were asked for.
    pub allocations: u64,
    /// Bytes of those.
    pub allocated_bytes: u64,
    /// What was held from which instant on; nothing before the first.
    pub held: Vec<Held>,
    /// What was allocated up to which instant; empty if that is not known, or nothing came after the first.
    pub cumulative: Vec<CumulativeAllocations>,
    pub(super) stack_id: StackId,
    /// What its blocks have in common; none for a group of groups.
    like: Option<u32>,
}

impl HolderGroup {
    /// What was held at an instant.
    pub fn at(&self, snapshot: usize) -> Held {
        let after = self.held.partition_point(|held| held.snapshot <= snapshot);
        after.checked_sub(1).map_or_else(Held::default, |at| self.held[at])
    }

    /// The most that was held.
    pub fn most_bytes(&self) -> u64 {
        self.held.iter().map(|held| held.bytes).max().unwrap_or(0)
    }
}

/// What is held from an instant on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Index of the instant.
    pub snapshot: usize,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

impl Held {
    fn same(self, (bytes, blocks): (u64, u64)) -> bool {
        (self.bytes, self.blocks) == (bytes, blocks)
    }
}

/// What blocks of a group have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Likeness {
    origin: BlockOrigin,
    scope: u32,
    space: u32,
}

/// Counts allocations by group.
#[derive(Clone, Debug)]
pub(super) struct Allocated {
    /// The sum that is looked at; none if nothing is counted.
    tally: Option<u8>,
    scopes: ScopePaths,
    ids: FxHashMap<Likeness, u32>,
    likes: Vec<Likeness>,
    counts: Vec<(u64, u64)>,
    /// Groups that allocated since the last instant.
    fresh: Vec<u32>,
    is_fresh: Vec<bool>,
}

impl Allocated {
    pub(super) fn new(tally: Option<u8>, scopes: ScopePaths) -> Self {
        Self {
            tally,
            scopes,
            ids: FxHashMap::default(),
            likes: Vec::new(),
            counts: Vec::new(),
            fresh: Vec::new(),
            is_fresh: Vec::new(),
        }
    }

    /// Counts this sum from now on; none, nothing.
    pub(super) fn count(&mut self, tally: Option<u8>) {
        self.tally = tally;
    }

    /// Groups that allocated since this was called before, with what they have allocated in all.
    pub(super) fn drain_fresh(&mut self) -> impl Iterator<Item = (usize, (u64, u64))> + '_ {
        let (counts, is_fresh) = (&self.counts, &mut self.is_fresh);
        self.fresh.drain(..).map(move |group| {
            let at = group as usize;
            is_fresh[at] = false;
            (at, counts[at])
        })
    }

    /// The group of a block.
    #[inline]
    pub(super) fn group(&mut self, block: &Block) -> u32 {
        let scope = self.scopes.path(block.scope);
        let like = Likeness { origin: BlockOrigin::of(block), scope, space: block.space };
        let (likes, counts, is_fresh) = (&mut self.likes, &mut self.counts, &mut self.is_fresh);
        *self.ids.entry(like).or_insert_with(|| {
            likes.push(like);
            counts.push((0, 0));
            is_fresh.push(false);
            likes.len() as u32 - 1
        })
    }
}

impl Allocated {
    /// Gives a group its texts.
    pub(super) fn describe(
        &self,
        group: &mut HolderGroup,
        rules: &PathRules,
        scopes: &ScopePaths,
        describe: &mut Describe<'_>,
        end: &End<'_>,
    ) {
        let Some(like) = group.like.and_then(|at| self.likes.get(at as usize)) else { return };
        let site = describe.site_id(like.origin.stack, like.origin.name);
        group.stack = describe.stack(like.origin.stack);
        group.path = rules.path(&like.origin, end.tables);
        describe.site(site).clone_into(&mut group.site);
        group.scope = scopes.names(like.scope);
        group.place = place(like, end);
    }
}

impl Fold for Allocated {
    type Output = ();

    #[inline]
    fn alloc(&mut self, block: &Block, _level: &Level) {
        if Some(block.tally) == self.tally {
            let group = self.group(block);
            let (allocations, bytes) = &mut self.counts[group as usize];
            *allocations += 1;
            *bytes = bytes.saturating_add(block.bytes);
            if !std::mem::replace(&mut self.is_fresh[group as usize], true) {
                self.fresh.push(group);
            }
        }
    }

    fn finish(&self, _end: &End<'_>) {}
}

/// What groups held over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    held: Vec<Vec<Held>>,
    /// Sums of the instant at hand, and the groups that have any.
    now: Vec<(u64, u64)>,
    touched: Vec<u32>,
    /// Groups that held something at the instant before.
    before: Vec<u32>,
    changes: usize,
}

impl Groups {
    /// Counts a block of the instant at hand.
    #[inline]
    pub(super) fn add(&mut self, group: u32, bytes: u64) {
        let at = group as usize;
        if at >= self.now.len() {
            self.now.resize(at + 1, (0, 0));
            self.held.resize(at + 1, Vec::new());
        }
        let (sum, blocks) = &mut self.now[at];
        if *blocks == 0 {
            self.touched.push(group);
        }
        *sum = sum.saturating_add(bytes);
        *blocks += 1;
    }

    /// Keeps the sums of the instant.
    pub(super) fn keep(&mut self, snapshot: usize) {
        self.touched.sort_unstable();
        for group in &self.touched {
            let sums = std::mem::take(&mut self.now[*group as usize]);
            self.changes += set(&mut self.held[*group as usize], snapshot, sums);
        }
        for group in &self.before {
            let held = &mut self.held[*group as usize];
            // Those that were touched have a value of this instant, or one that still holds.
            if self.touched.binary_search(group).is_err() {
                self.changes += set(held, snapshot, (0, 0));
            }
        }
        self.before = std::mem::take(&mut self.touched);
    }

    /// Forgets the sums of the instant.
    pub(super) fn drop_now(&mut self) {
        for group in self.touched.drain(..) {
            self.now[group as usize] = (0, 0);
        }
    }

    /// Returns what each group held.
    pub(super) fn into_held(self) -> Vec<Vec<Held>> {
        self.held
    }

    pub(super) fn changes(&self) -> usize {
        self.changes
    }

    /// Gives up instants: `below` says how many are kept before each.
    pub(super) fn thin(&mut self, below: &[usize]) {
        self.changes = 0;
        for held in &mut self.held {
            let old = std::mem::take(held);
            for Held { snapshot, bytes, blocks } in old {
                set(held, below[snapshot], (bytes, blocks));
            }
            self.changes += held.len();
        }
    }

    /// Returns the groups, the one that held most first and still without texts, and where each of the old numbers is now.
    pub(super) fn finish(
        mut self,
        allocated: &Allocated,
        mut cumulative: Vec<Vec<CumulativeAllocations>>,
    ) -> (Vec<HolderGroup>, Vec<u32>) {
        self.held.resize(allocated.likes.len(), Vec::new());
        let most = |held: &[Held]| held.iter().map(|held| held.bytes).max().unwrap_or(0);
        let mut order: Vec<u32> = (0..self.held.len() as u32).collect();
        order.sort_by_key(|at| {
            let held = &self.held[*at as usize];
            (Reverse(most(held)), held.is_empty(), *at)
        });
        let mut new_at = vec![0; order.len()];
        let mut groups = Vec::with_capacity(order.len());
        for at in order {
            new_at[at as usize] = groups.len() as u32;
            let (allocations, allocated_bytes) = allocated.counts[at as usize];
            groups.push(HolderGroup {
                allocations,
                allocated_bytes,
                held: std::mem::take(&mut self.held[at as usize]),
                cumulative: cumulative.get_mut(at as usize).map(std::mem::take).unwrap_or_default(),
                stack_id: allocated.likes[at as usize].origin.stack,
                like: Some(at),
                ..HolderGroup::default()
            });
        }
        (groups, new_at)
    }
}

/// Sets a value from an instant on; by how many entries that grows.
fn set(held: &mut Vec<Held>, snapshot: usize, sums: (u64, u64)) -> usize {
    let before = held.len();
    // A value of the same instant was one of instants that were given up.
    if held.last().is_some_and(|last| last.snapshot == snapshot) {
        held.pop();
    }
    let same = held.last().map_or(sums == (0, 0), |last| last.same(sums));
    if !same {
        held.push(Held { snapshot, bytes: sums.0, blocks: sums.1 });
    }
    held.len().saturating_sub(before)
}

fn place(like: &Likeness, end: &End<'_>) -> Vec<String> {
    let space = end.live.space(like.space);
    let process = end.tables.process(space.process);
    let mut place =
        vec![process.map_or_else(|| format!("process {}", space.process.0), crate::describe::process_text)];
    if space.device != NO_DEVICE {
        place.push(format!("device {}", space.device));
    }
    let resource = end.tables.string(space.resource);
    if !resource.is_empty() {
        place.push(resource.to_owned());
    }
    place
}

/// Makes one of all groups beyond the first `limit`; none if there are no more.
pub(super) fn join_rest(groups: &mut Vec<HolderGroup>, limit: usize, snapshots: usize) -> Option<u32> {
    if groups.len() <= limit {
        return None;
    }
    let rest = groups.split_off(limit.max(1) - 1);
    let mut sums = vec![(0u64, 0u64); snapshots];
    let site = format!("{} others", rest.len());
    let path = vec![Step::Call(site.clone())];
    let mut joined =
        HolderGroup { path, site, cumulative: cumulative::joined(&rest), ..HolderGroup::default() };
    for group in rest {
        joined.allocations += group.allocations;
        joined.allocated_bytes = joined.allocated_bytes.saturating_add(group.allocated_bytes);
        let ends = group.held.iter().skip(1).map(|held| held.snapshot).chain([snapshots]);
        for (held, end) in group.held.iter().zip(ends) {
            for sum in &mut sums[held.snapshot.min(snapshots)..end.min(snapshots)] {
                *sum = (sum.0.saturating_add(held.bytes), sum.1 + held.blocks);
            }
        }
    }
    for (snapshot, sum) in sums.into_iter().enumerate() {
        set(&mut joined.held, snapshot, sum);
    }
    groups.push(joined);
    Some(groups.len() as u32 - 1)
}
