//! The live blocks at many instants: what time travel is made of.
//!
//! A first pass knows where memory rose and fell ([`Usage`](crate::Usage)); [`Cuts`] chooses instants from that, and a
//! second pass, [`SnapshotPass`], stops at each of them and looks at what is live. Blocks that are alike (same
//! stack, scope, process, device) are one group, whose bytes are a step function over the instants; the
//! largest blocks of every instant are listed one by one. What is shown at an instant equals what a
//! [`Watermark`](crate::Watermark) at that time says, because both count the same: all events up to it.
//!
//! Memory depends on the limits of [`SnapshotOptions`], not on events: where instants differ too much, every
//! other one is given up, but never the peak, and the result says that it is not exact.

mod breakdown;
mod cumulative;
mod cuts;
mod groups;
mod map;
mod profile;

use std::ops::Range;

use floodmark_event::{Action, EventBatch, Kind, Tables};
use rustc_hash::FxHashMap;

use crate::block::BlockInfo;
use crate::change::Block;
use crate::describe::{Describe, largest_first};
use crate::fold::End;
use crate::live::{KeptLive, LiveSet};
use crate::paths::PathRules;
use crate::scopes::ScopePaths;
use crate::site::SiteRules;
use floodmark_event::filter::Filter;

use self::breakdown::Divided;
pub use self::breakdown::{Band, Breakdown, BreakdownBy};
use self::cumulative::Arrivals;
pub use self::cumulative::CumulativeAllocations;
pub use self::cuts::Cuts;
use self::cuts::PeakCut;
use self::groups::{Allocated, Groups, join_rest};
pub use self::groups::{Held, HolderGroup};
use self::map::MapRows;
pub use self::map::{AddressBand, AddressSeries};
pub use self::profile::FunctionProfile;
use self::profile::functions;

/// How much to keep.
#[derive(Clone, Debug)]
pub struct SnapshotOptions {
    /// Blocks that are listed of an instant, the largest ones; all if none.
    pub blocks: Option<usize>,
    /// Changes of groups and listed blocks, beyond which instants are given up; and counts of allocations
    /// between instants, beyond which those are.
    pub changes: usize,
    /// Groups that are kept, those that held most; the rest is merged into one.
    pub groups: usize,
    /// Names of scopes.
    pub scopes: ScopePaths,
    /// Which frames cannot be sites.
    pub sites: SiteRules,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self {
            blocks: Some(100),
            changes: 120_000,
            groups: 5000,
            scopes: ScopePaths::default(),
            sites: SiteRules::default(),
        }
    }
}

/// What was live at some instants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshots {
    /// Kinds of memory that are covered.
    pub kinds: Vec<Kind>,
    /// Whether between two instants nothing changed.
    pub exact: bool,
    /// The instants, in order. The peak may share its time with the one after it: what happened at that
    /// time after the peak.
    pub snapshots: Vec<Snapshot>,
    /// Index of the peak.
    pub peak: Option<usize>,
    /// Groups of blocks, the one that held most first.
    pub groups: Vec<HolderGroup>,
    /// Whether groups say what was allocated between instants; there may have been too much of it.
    pub counts_cumulative: bool,
    /// Live bytes as bands that add up, divided in several ways.
    pub breakdowns: Vec<Breakdown>,
    /// Bytes that functions held and allocated, the one that held most first; empty without stacks.
    pub functions: Vec<FunctionProfile>,
    /// Blocks that are listed, in order of age.
    pub blocks: Vec<SeenBlock>,
    /// Most blocks that are listed of an instant; all if none.
    pub blocks_limit: Option<usize>,
    /// Addresses over time, by process and device.
    pub maps: Vec<AddressSeries>,
}

/// An instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// When: all events up to and at this time count.
    pub time_ns: i64,
    /// Live bytes.
    pub bytes: u64,
    /// Live blocks.
    pub blocks: u64,
    /// Order number of the newest block.
    order: u64,
    is_peak: bool,
}

/// A block, and the instants at which it was live.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenBlock {
    /// The block.
    pub block: BlockInfo,
    /// Index of its group.
    pub group: u32,
    /// First instant, and the one after the last.
    pub live: Range<usize>,
}

/// A block that is listed, while the pass goes on.
#[derive(Clone, Copy, Debug)]
struct Listed {
    block: Block,
    group: u32,
    /// Last instant at which it was live.
    last: usize,
    first: usize,
}

/// How the instants are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chosen {
    /// [`Cuts`], from a whole trace: what was allocated over time is counted too.
    FromTrace,
    /// The caller, for what was live then and what was allocated in between. Results do not depend on where
    /// reading began or ended.
    ByCaller,
}

/// Looks at the live blocks at instants.
#[derive(Debug)]
pub struct SnapshotPass {
    live: LiveSet,
    chosen: Chosen,
    options: SnapshotOptions,
    /// The sum that is looked at.
    tally: u8,
    times: Vec<i64>,
    next: usize,
    peak: Option<PeakCut>,
    exact: bool,
    /// One in this many instants is taken.
    stride: usize,
    snapshots: Vec<Snapshot>,
    allocated: Allocated,
    groups: Groups,
    divided: Divided,
    arrivals: Arrivals,
    listed: FxHashMap<u64, Listed>,
    map: MapRows,
}

impl SnapshotPass {
    /// Starts over what `narrow` selects, which must be what the cuts were chosen from.
    pub fn new(filter: &Filter, cuts: Cuts, options: SnapshotOptions) -> Self {
        let allocated = Allocated::new(Some(cuts.tally), options.scopes.clone());
        Self::start(LiveSet::new(filter), allocated, Chosen::FromTrace, cuts, options)
    }

    /// Starts with instants that the caller asks for; `tally` is the sum to look at. What was allocated before
    /// the first and after the last of them is not counted. With `kept` it goes on after the events that led to that, none of which may be
    /// later than any of the instants or the window; but for its window `narrow` has to select what it
    /// selected then.
    pub fn at(
        filter: &Filter,
        tally: u8,
        times: Vec<i64>,
        options: SnapshotOptions,
        kept: Option<&KeptLive>,
    ) -> Self {
        let mut allocated = Allocated::new(None, options.scopes.clone());
        let live = match kept {
            None => LiveSet::new(filter),
            Some(kept) => LiveSet::resume(filter, kept, &mut allocated),
        };
        Self::start(live, allocated, Chosen::ByCaller, Cuts::at(tally, times), options)
    }

    fn start(
        live: LiveSet,
        allocated: Allocated,
        chosen: Chosen,
        cuts: Cuts,
        options: SnapshotOptions,
    ) -> Self {
        let map = MapRows::new(&cuts);
        Self {
            live,
            chosen,
            tally: cuts.tally,
            times: cuts.times,
            next: 0,
            peak: cuts.peak,
            exact: cuts.exact,
            stride: 1,
            snapshots: Vec::new(),
            allocated,
            groups: Groups::default(),
            divided: Divided::default(),
            arrivals: Arrivals::default(),
            listed: FxHashMap::default(),
            map,
            options,
        }
    }

    /// Takes in more events.
    pub fn update(&mut self, batch: &EventBatch) {
        let mut row = 0;
        let mut peak = self.peak_row(batch);
        loop {
            let time = self.time_row(batch, row);
            if let Some(before) = peak.filter(|peak| time.is_none_or(|time| *peak <= time)) {
                self.run(batch, row..before);
                row = before;
                peak = None;
                self.take_peak();
            } else if let Some(before) = time {
                self.run(batch, row..before);
                row = before;
                self.take_next();
            } else {
                break;
            }
        }
        self.run(batch, row..batch.len());
    }

    /// Whether nothing is left to be looked at, so that reading on is of no use unless allocations are
    /// to be counted to the end.
    pub fn is_done(&self) -> bool {
        self.next == self.times.len() && self.peak.is_none()
    }

    /// Returns what was found.
    pub fn finish(mut self, tables: &Tables) -> Snapshots {
        self.live.open_window(&mut self.allocated);
        if self.peak.is_some_and(|peak| self.live.order() >= peak.order) {
            self.take_peak();
        }
        while self.next < self.times.len() {
            self.take_next();
        }
        let Self {
            live,
            chosen,
            groups,
            divided,
            arrivals,
            allocated,
            listed,
            snapshots,
            options,
            map,
            tally,
            exact,
            stride,
            ..
        } = self;
        let end = End { live: &live, tables };
        let mut describe = Describe::new(&end, &options.sites);
        let mut seen: Vec<Listed> = listed.into_values().collect();
        seen.sort_unstable_by_key(|listed| listed.block.order);
        let cumulative = arrivals.finish();
        let counts_cumulative = cumulative.is_some();
        let (mut groups, new_at) = groups.finish(&allocated, cumulative.unwrap_or_default());
        let peak = snapshots.iter().position(|snapshot| snapshot.is_peak);
        let rules = PathRules { sites: options.sites.clone(), ..PathRules::default() };
        let functions = match chosen {
            Chosen::FromTrace => functions(&groups, (peak, snapshots.len()), &rules, tables),
            Chosen::ByCaller => Vec::new(),
        };
        // Those that were neither live at an instant nor came after the first say nothing here.
        groups.retain(|group| !group.held.is_empty() || group.came_later());
        let rest = join_rest(&mut groups, options.groups, snapshots.len());
        for group in &mut groups {
            allocated.describe(group, &rules, &options.scopes, &mut describe, &end);
        }
        let breakdowns = match chosen {
            Chosen::FromTrace => divided.finish(&groups),
            Chosen::ByCaller => Vec::new(),
        };
        let blocks = seen
            .iter()
            .map(|listed| {
                let group = new_at[listed.group as usize];
                SeenBlock {
                    block: describe.info(&listed.block),
                    group: rest.map_or(group, |rest| group.min(rest)),
                    live: listed.first..listed.last + 1,
                }
            })
            .collect();
        Snapshots {
            kinds: live.tallies().kinds_of(tally),
            exact: exact && stride == 1,
            peak,
            maps: map.finish(&end),
            snapshots,
            groups,
            counts_cumulative,
            breakdowns,
            functions,
            blocks,
            blocks_limit: options.blocks,
        }
    }

    fn run(&mut self, batch: &EventBatch, rows: Range<usize>) {
        self.live.update_rows(batch, rows, &mut self.allocated);
    }

    /// The row before which the next instant lies, if it lies in this batch.
    fn time_row(&self, batch: &EventBatch, from: usize) -> Option<usize> {
        let at_ns = *self.times.get(self.next)?;
        (from..batch.len()).find(|row| batch.time_ns.at(*row) > at_ns)
    }

    /// The row before which the peak lies, if it lies in this batch and is still ahead.
    fn peak_row(&mut self, batch: &EventBatch) -> Option<usize> {
        let peak = self.peak?;
        let opening = self.live.opening(batch, &mut self.allocated);
        let mut order = self.live.order();
        (0..batch.len()).find(|row| {
            let is_here = *row >= opening && order >= peak.order;
            if batch.action.at(*row) == Action::Alloc {
                order = self.live.rows() + *row as u64 + 1;
            }
            is_here
        })
    }

    fn take_peak(&mut self) {
        if let Some(peak) = self.peak.take() {
            self.take(peak.time_ns, true);
        }
    }

    fn take_next(&mut self) {
        let at = self.next;
        self.next += 1;
        let is_last = self.next == self.times.len();
        if at.is_multiple_of(self.stride) || is_last {
            self.take(self.times[at], false);
        }
    }

    /// Looks at what is live now.
    fn take(&mut self, time_ns: i64, is_peak: bool) {
        self.live.open_window(&mut self.allocated);
        // A clock may go back; instants do not.
        let time_ns = self.snapshots.last().map_or(time_ns, |last| last.time_ns.max(time_ns));
        let mut snapshot = Snapshot { time_ns, order: self.live.order(), is_peak, ..Snapshot::default() };
        let mut live: Vec<&Block> = self.live.blocks().filter(|block| block.tally == self.tally).collect();
        if self.chosen == Chosen::ByCaller {
            live.sort_unstable_by_key(|block| block.order);
        }
        let mut blocks: Vec<(&Block, u32)> = Vec::with_capacity(live.len());
        for block in live {
            let group = self.allocated.group(block);
            self.groups.add(group, block.bytes);
            if self.chosen == Chosen::FromTrace {
                self.divided.add(block);
            }
            snapshot.bytes = snapshot.bytes.saturating_add(block.bytes);
            snapshot.blocks += 1;
            blocks.push((block, group));
        }
        if self.snapshots.last().is_some_and(|last| last.is_same_peak(&snapshot)) {
            self.groups.drop_now();
            self.divided.drop_now();
            return;
        }
        let at = self.snapshots.len();
        self.groups.keep(at);
        self.divided.keep(at);
        self.arrivals.keep(at, &mut self.allocated, self.options.changes);
        if self.chosen == Chosen::ByCaller {
            self.allocated.count((!self.is_done()).then_some(self.tally));
        }
        self.map.take(&snapshot, at, &self.live, &blocks);
        self.snapshots.push(snapshot);
        for (block, _) in &blocks {
            if let Some(listed) = self.listed.get_mut(&block.order) {
                listed.last = at;
            }
        }
        let most = self.options.blocks.unwrap_or(usize::MAX);
        if blocks.len() > most {
            blocks.select_nth_unstable_by_key(most, |(block, _)| largest_first(block));
            blocks.truncate(most);
        }
        let snapshots = &self.snapshots;
        for (block, group) in blocks {
            self.listed.entry(block.order).or_insert_with(|| Listed {
                block: *block,
                group,
                first: snapshots.partition_point(|snapshot| snapshot.order < block.order),
                last: at,
            });
        }
        if self.groups.changes() + self.listed.len() > self.options.changes {
            self.thin();
        }
    }

    /// Gives up every other instant.
    fn thin(&mut self) {
        if self.snapshots.len() < 16 {
            return;
        }
        self.stride *= 2;
        let mut below = Vec::with_capacity(self.snapshots.len() + 1);
        let mut kept = Vec::with_capacity(self.snapshots.len() / 2 + 2);
        let last = if self.is_done() { self.snapshots.len() - 1 } else { usize::MAX };
        for (at, snapshot) in self.snapshots.iter().enumerate() {
            below.push(kept.len());
            if at % 2 == 0 || at == last || snapshot.is_peak {
                kept.push(*snapshot);
            }
        }
        below.push(kept.len());
        self.snapshots = kept;
        self.groups.thin(&below);
        self.divided.thin(&below);
        self.arrivals.thin(&below);
        self.map.thin(&below);
        self.listed.retain(|_, listed| {
            let (first, after) = (below[listed.first], below[listed.last + 1]);
            (listed.first, listed.last) = (first, after.saturating_sub(1));
            first < after
        });
    }
}

impl Snapshot {
    /// Whether this is the peak and `next` the end of its instant, at which nothing had changed.
    fn is_same_peak(&self, next: &Self) -> bool {
        let same = |snapshot: &Self| (snapshot.time_ns, snapshot.order, snapshot.bytes, snapshot.blocks);
        self.is_peak && same(self) == same(next)
    }
}
