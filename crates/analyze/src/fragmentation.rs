//! Fragmentation: the gaps between live blocks, and what would have fitted into them.
//!
//! Blocks are cut from an *address space*. Where the source says which segments an allocator held (blocks of
//! kind `reserved`), those of one process, device and resource are the address space of all blocks inside
//! them. Other blocks have an inferred address space per process, device, resource and kind: all addresses
//! that blocks have covered *so far*, and holes up to [`FragmentationOptions::join_bytes`] between them,
//! which are padding. What an allocator held beyond that is unknown, so free bytes of an inferred address space
//! are a lower bound, and "does not fit" means "would have needed memory not handed out before".
//!
//! Gaps do not reach over the end of a segment. That an allocator may keep gaps for one stream or size
//! class is not known here.
//!
//! Blocks of no bytes or without an address take no place. A block that overlaps a live one, or the end
//! of its segment, is bad input: it is counted and left out.

mod address_space;
mod history;
mod map;
mod pieces;
mod result;

use std::collections::BTreeMap;

use floodmark_event::units::Instant;
use floodmark_event::{Kind, NO_DEVICE, ProcessId, StringId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::change::{Block, Failure, Space};
use crate::describe::Describe;
use crate::fold::{End, Fold};
use crate::fragmentation::address_space::AddressSpace;
use crate::fragmentation::history::History;
use crate::fragmentation::map::Snapshot;
pub use crate::fragmentation::result::{
    AddressMap, AddressSpaceReport, Basis, FailedRequest, FailureCause, Fragmentation, GapInfo, MapGap,
    MapSegment, Occupancy, RequestAnswer, Spell,
};
use crate::level::Level;
use crate::site::SiteRules;
use floodmark_event::filter::resolve;

/// Holes up to this size count as padding: a page of device memory, which is the least that a driver
/// hands out, so nothing else of any size fits in between.
pub const JOIN_BYTES: u64 = 2 << 20;

/// Failures that are remembered without a limit.
const FAILURES: usize = 10_000;

/// When to look at addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapAt {
    /// After all that happened up to an instant.
    Time(Instant),
    /// After a change, as [`Occupancy::change`] counts them.
    Change(u64),
}

/// How to report fragmentation.
#[derive(Clone, Debug)]
pub struct FragmentationOptions {
    /// A size of which to tell when it would have fitted.
    pub request_bytes: Option<u64>,
    /// When to look at addresses, if at all.
    pub map: Option<MapAt>,
    /// Holes up to this size between blocks count as inferred address space.
    pub join_bytes: u64,
    /// How many failures and gaps to list; all if none.
    pub limit: Option<usize>,
    /// Which frames cannot be sites.
    pub sites: SiteRules,
}

impl Default for FragmentationOptions {
    fn default() -> Self {
        Self {
            request_bytes: None,
            map: None,
            join_bytes: JOIN_BYTES,
            limit: None,
            sites: SiteRules::default(),
        }
    }
}

/// What an address space belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Owner {
    space: u32,
    /// Kind of the blocks; reserved for segments.
    kind: Kind,
}

#[derive(Clone, Debug)]
struct State {
    owner: Owner,
    address_space: AddressSpace,
    history: History,
}

/// A process and a device, in which an address means one thing.
type Place = (ProcessId, i32);

/// Where a segment ends, the order number of its block, and its address space.
type Segment = (u64, u64, usize);

/// A segment that went while blocks were live in it.
#[derive(Clone, Copy, Debug)]
struct Gone {
    place: Place,
    start: u64,
    end: u64,
    /// Order numbers of the blocks that may have been in it.
    orders: (u64, u64),
    blocks: u64,
}

/// Folds events into [`Fragmentation`].
#[derive(Clone, Debug, Default)]
pub struct FragmentationFold {
    options: FragmentationOptions,
    places: Vec<Place>,
    address_spaces: Vec<State>,
    of_owner: FxHashMap<Owner, usize>,
    segments: FxHashMap<Place, BTreeMap<u64, Segment>>,
    /// The address space that blocks of a space were put into last.
    latest: FxHashMap<Owner, usize>,
    /// Order numbers of live blocks that have no place because they overlap.
    unplaced: FxHashSet<u64>,
    gone: Vec<Gone>,
    failures: Vec<(Failure, u64, u64)>,
    map_ns: Option<i64>,
    snapshot: Option<Snapshot>,
    newest: u64,
    changes: u64,
    counts: Fragmentation,
}

impl FragmentationFold {
    /// Starts to look at gaps.
    pub fn new(options: FragmentationOptions) -> Self {
        let counts = Fragmentation { join_bytes: options.join_bytes, ..Fragmentation::default() };
        Self { options, counts, ..Self::default() }
    }

    fn place(&self, space: u32) -> Place {
        self.places.get(space as usize).copied().unwrap_or((ProcessId(0), NO_DEVICE))
    }

    /// The address space of an owner; begins one if need be.
    fn address_space_of(&mut self, owner: Owner, time_ns: i64) -> usize {
        *self.of_owner.entry(owner).or_insert_with(|| {
            let history = History::new(time_ns, self.options.request_bytes);
            self.address_spaces.push(State { owner, address_space: AddressSpace::default(), history });
            self.address_spaces.len() - 1
        })
    }

    /// The segment that has an address, unless it is younger than `order`.
    #[inline]
    fn segment_at(&self, space: u32, address: u64, order: u64) -> Option<Segment> {
        if self.segments.is_empty() {
            return None;
        }
        let segments = self.segments.get(&self.place(space))?;
        let (_, segment) = segments.range(..=address).next_back()?;
        (segment.0 > address && segment.1 < order).then_some(*segment)
    }

    #[inline]
    fn changed(&mut self, at: usize, time_ns: i64) {
        self.changes += 1;
        let state = &mut self.address_spaces[at];
        state.history.change(time_ns, self.changes, state.address_space.fill());
        if self.options.map == Some(MapAt::Change(self.changes)) {
            self.take_snapshot(time_ns);
        }
    }

    /// Looks at addresses if the instant that was asked for lies before `time_ns`.
    #[inline]
    fn pass(&mut self, time_ns: i64) {
        if let Some(map_ns) = self.map_ns
            && time_ns > map_ns
        {
            self.map_ns = None;
            self.take_snapshot(map_ns);
        }
    }

    #[cold]
    fn take_snapshot(&mut self, time_ns: i64) {
        let address_spaces = self.address_spaces.iter().map(|state| state.address_space.clone()).collect();
        self.snapshot = Some(Snapshot::new(time_ns, self.newest, address_spaces));
    }

    fn begin(&mut self, block: &Block, time_ns: i64) {
        self.pass(time_ns);
        self.newest = self.newest.max(block.order);
        let end = block.address.checked_add(block.bytes);
        let (Some(end), false) = (end, block.address == 0 || block.bytes == 0) else {
            self.counts.placeless_blocks += 1;
            return;
        };
        match block.kind {
            Kind::Reserved => self.begin_segment(block, end, time_ns),
            // Variables live in the image of their module, which no allocator divides.
            Kind::Static => {}
            _ => self.begin_block(block, end, time_ns),
        }
    }

    fn begin_segment(&mut self, block: &Block, end: u64, time_ns: i64) {
        let place = self.place(block.space);
        let segments = self.segments.entry(place).or_default();
        if segments.range(..end).next_back().is_some_and(|(_, segment)| segment.0 > block.address) {
            self.counts.overlapping_segments += 1;
            return;
        }
        let at = self.address_space_of(Owner { space: block.space, kind: Kind::Reserved }, time_ns);
        if self.address_spaces[at].address_space.add_segment(block.address, end, block.order).is_ok() {
            let segments = self.segments.entry(place).or_default();
            segments.insert(block.address, (end, block.order, at));
            self.changed(at, time_ns);
        }
    }

    fn begin_block(&mut self, block: &Block, end: u64, time_ns: i64) {
        let owner = Owner { space: block.space, kind: block.kind };
        let (at, placed) = if let Some((_, _, at)) = self.segment_at(block.space, block.address, u64::MAX) {
            self.latest.insert(owner, at);
            (at, self.address_spaces[at].address_space.place(block.address, end))
        } else {
            let at = self.address_space_of(owner, time_ns);
            let join_bytes = self.options.join_bytes;
            (at, self.address_spaces[at].address_space.place_anywhere(block.address, end, join_bytes))
        };
        if placed.is_err() {
            self.counts.overlapping_blocks += 1;
            self.unplaced.insert(block.order);
            return;
        }
        self.changed(at, time_ns);
    }

    fn end(&mut self, block: &Block, time_ns: i64) {
        self.pass(time_ns);
        let Some(end) = block.address.checked_add(block.bytes) else { return };
        if block.address == 0 || block.bytes == 0 || block.kind == Kind::Static {
            return;
        }
        if !self.unplaced.is_empty() && self.unplaced.remove(&block.order) {
            return;
        }
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.ended(block);
        }
        if block.kind == Kind::Reserved {
            self.end_segment(block, time_ns);
            return;
        }
        if !self.gone.is_empty() && self.was_orphaned(block) {
            return;
        }
        let at = match self.segment_at(block.space, block.address, block.order) {
            Some((_, _, at)) => Some(at),
            None => self.of_owner.get(&Owner { space: block.space, kind: block.kind }).copied(),
        };
        if let Some(at) = at {
            self.address_spaces[at].address_space.remove(block.address, end);
            self.changed(at, time_ns);
        }
    }

    fn end_segment(&mut self, block: &Block, time_ns: i64) {
        let place = self.place(block.space);
        let Some(segments) = self.segments.get_mut(&place) else { return };
        let Some((end, order, at)) = segments.get(&block.address).copied() else { return };
        if order != block.order {
            return;
        }
        segments.remove(&block.address);
        let blocks = self.address_spaces[at].address_space.remove_segment(block.address, order).unwrap_or(0);
        if blocks > 0 {
            self.counts.orphaned_blocks += blocks;
            let orders = (order, self.newest);
            self.gone.push(Gone { place, start: block.address, end, orders, blocks });
        }
        self.changed(at, time_ns);
    }

    /// Whether a block lost its place when its segment went.
    #[cold]
    fn was_orphaned(&mut self, block: &Block) -> bool {
        let place = self.place(block.space);
        let lost = |gone: &Gone| {
            gone.place == place
                && (gone.start..gone.end).contains(&block.address)
                && gone.orders.0 < block.order
                && block.order <= gone.orders.1
        };
        let Some(at) = self.gone.iter().position(lost) else { return false };
        self.gone[at].blocks -= 1;
        if self.gone[at].blocks == 0 {
            self.gone.swap_remove(at);
        }
        true
    }

    /// The address spaces in the order of the report.
    fn order(&self, end_ns: i64) -> Vec<(usize, history::Told)> {
        let tell = |(at, state): (usize, &State)| (at, state.history.finish(end_ns, self.changes));
        let mut told: Vec<(usize, history::Told)> =
            self.address_spaces.iter().enumerate().map(tell).collect();
        told.sort_by_key(|(at, told)| (std::cmp::Reverse(told.peak.live_bytes), *at));
        told
    }
}

fn cause(asked: u64, free: u64, largest: u64) -> FailureCause {
    match asked {
        _ if asked <= largest => FailureCause::Other,
        _ if asked <= free => FailureCause::Fragmentation,
        _ => FailureCause::Exhaustion,
    }
}

impl Fold for FragmentationFold {
    type Output = Fragmentation;

    fn start(&mut self, _first_ns: i64, origin_ns: i64) {
        if let Some(MapAt::Time(at)) = self.options.map {
            self.map_ns = Some(resolve(at, origin_ns));
        }
    }

    fn space(&mut self, _index: u32, space: Space) {
        self.places.push((space.process, space.device));
    }

    #[inline]
    fn begins(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.begin(block, time_ns);
    }

    #[inline]
    fn ends(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.end(block, time_ns);
    }

    fn failure(&mut self, failure: &Failure) {
        self.pass(failure.time_ns);
        let owner = Owner { space: failure.space, kind: failure.kind };
        let place = self.place(failure.space);
        let at = self.latest.get(&owner).or_else(|| self.of_owner.get(&owner)).copied();
        let only = || self.segments.get(&place)?.values().next().map(|(_, _, at)| *at);
        let fill =
            at.or_else(only).map(|at| self.address_spaces[at].address_space.fill()).unwrap_or_default();
        match cause(failure.bytes, fill.free_bytes, fill.largest_bytes) {
            FailureCause::Fragmentation => self.counts.failed_by_fragmentation += 1,
            FailureCause::Exhaustion => self.counts.failed_by_exhaustion += 1,
            FailureCause::Other => {}
        }
        if self.failures.len() < self.options.limit.unwrap_or(FAILURES) {
            self.failures.push((*failure, fill.free_bytes, fill.largest_bytes));
        } else {
            self.counts.failures_omitted += 1;
        }
    }

    fn finish(&self, end: &End<'_>) -> Fragmentation {
        let mut describe = Describe::new(end, &self.options.sites);
        let told = self.order(end.live.end_ns().unwrap_or(0));
        let failures = self.failures.iter().map(|(failure, free, largest)| {
            let site = describe.site_id(failure.stack, StringId(0));
            FailedRequest {
                time_ns: failure.time_ns,
                asked_bytes: failure.bytes,
                free_bytes: *free,
                largest_gap_bytes: *largest,
                cause: cause(failure.bytes, *free, *largest),
                site: describe.site(site).to_owned(),
            }
        });
        let failures = failures.collect();
        let order: Vec<(usize, u32)> =
            told.iter().map(|(at, _)| (*at, self.address_spaces[*at].owner.space)).collect();
        let asked = self.map_ns.map(|map_ns| {
            let address_spaces =
                self.address_spaces.iter().map(|state| state.address_space.clone()).collect();
            Snapshot::new(map_ns, self.newest, address_spaces)
        });
        let snapshot = self.snapshot.as_ref().or(asked.as_ref());
        let map = snapshot.map(|snapshot| {
            let blocks = end.live.blocks().filter(|block| !self.unplaced.contains(&block.order));
            let places = |space| self.place(space);
            snapshot.map(&order, blocks, &places, &mut describe, self.options.limit)
        });
        let report = |(at, told): (usize, history::Told)| {
            let owner = self.address_spaces[at].owner;
            let space = end.live.space(owner.space);
            let resource = end.tables.string(space.resource);
            AddressSpaceReport {
                process: space.process.0,
                device: (space.device != NO_DEVICE).then_some(space.device),
                resource: (!resource.is_empty()).then(|| resource.to_owned()),
                kind: owner.kind,
                basis: if owner.kind == Kind::Reserved { Basis::Segments } else { Basis::Inferred },
                first_time_ns: told.first_ns,
                end_time_ns: told.end_ns,
                peak: told.peak,
                worst: told.worst,
                end: told.end,
                mean_fragmentation: told.mean_fragmentation,
                request: told.request,
                timeline: told.timeline,
            }
        };
        let address_spaces = told.into_iter().map(report).collect();
        Fragmentation { address_spaces, failures, map, ..self.counts.clone() }
    }
}
