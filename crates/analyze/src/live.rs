//! Which blocks are live: matches frees to allocations and tells folds what changes.
//!
//! A block is found by process, device, resource and address. Invariants:
//! - An allocation at an address that is still live ends the earlier block there and then: its free
//!   was not seen.
//! - The null address is none: zero-size blocks have it, any number of them may be live, and a free
//!   of it ends the newest. A free of it while none is live means nothing.
//! - Blocks that are not selected because of their thread, stream or kind are tracked all the same,
//!   so that their frees are not taken for unmatched ones; folds never see them.
//! - The window is a run of rows: from the first at or after its start to the last before the first
//!   row after its end. Before it blocks are tracked and nothing is counted.

mod kept;
pub(crate) mod partial;
mod rows;
mod select;
mod slab;
mod table;

use std::ops::Range;

use floodmark_event::{Action, EventBatch, Kind};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::change::{Block, Ending, Failure, Space, UnmatchedFree};
use crate::fold::Fold;
use crate::level::Tallies;
use crate::live::rows::{EachExtras, Extras, ProcessExtras, Rows, SameExtras, WrittenOut};
use crate::live::select::{Select, UNSELECTED};
use crate::live::slab::Slab;
use crate::live::table::{AddressTable, Found};
use crate::merge::SpaceMap;
use floodmark_event::filter::Filter;

pub use self::kept::{KeptLive, Tracker};

/// What was counted of all selected events, whatever their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Time of the first selected event in the window.
    pub first_time_ns: Option<i64>,
    /// Time of the last one.
    pub last_time_ns: Option<i64>,
    /// Frees of blocks whose allocation was not seen.
    pub unmatched_frees: u64,
    /// Frees of the null address while no null block was live.
    pub null_frees: u64,
}

/// The live blocks of a selection of events.
#[derive(Clone, Debug)]
pub struct LiveSet {
    select: Select,
    window: Window,
    slab: Slab,
    spaces: Vec<SpaceState>,
    space_ids: FxHashMap<Space, u32>,
    /// Spaces that the fold was told of.
    told: usize,
    /// Events so far, selected or not.
    rows: u64,
    /// Order of the newest block, selected or not.
    order: u64,
    tallies: Tallies,
    counters: Counters,
    written_out: WrittenOut,
}

#[derive(Clone, Debug)]
struct SpaceState {
    space: Space,
    selected: bool,
    table: AddressTable,
    /// Slots of live blocks that have no address.
    nulls: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    phase: Phase,
    from_ns: Option<i64>,
    to_ns: Option<i64>,
    /// Time of the first row, selected or not.
    first_ns: Option<i64>,
    /// Instant that elapsed times count from.
    origin_ns: Option<i64>,
    /// Time of the last row up to the end of the window.
    last_ns: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Before,
    Inside,
    Past,
}

fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.into_iter().chain(other).min()
}

/// How many rows are looked at ahead of time when blocks are many.
const AHEAD: usize = 32;

/// Spaces of a batch whose ids are known: one for every remainder of a process id.
#[derive(Default)]
struct KnownSpaces([(Space, Option<u32>); 16]);

impl KnownSpaces {
    /// Returns the id of a space. Events of processes that ran at the same time mix row by row, and a hash
    /// table costs 17 ns for each.
    #[inline]
    fn get_or_insert_with(&mut self, space: Space, id_of: impl FnOnce() -> u32) -> u32 {
        let known = &mut self.0[space.process.0 as usize % 16];
        match known {
            (same, Some(id)) if *same == space => *id,
            _ => {
                let id = id_of();
                *known = (space, Some(id));
                id
            }
        }
    }
}

impl LiveSet {
    /// Returns an empty set of what `filter` selects.
    pub fn new(filter: &Filter) -> Self {
        let select = Select::new(filter);
        Self {
            tallies: Tallies::new(select.kinds()),
            select,
            window: Window::default(),
            slab: Slab::default(),
            spaces: Vec::new(),
            space_ids: FxHashMap::default(),
            told: 0,
            rows: 0,
            order: 0,
            counters: Counters::default(),
            written_out: WrittenOut::default(),
        }
    }

    /// Takes in events and tells `fold` what they change.
    pub fn update<F: Fold>(&mut self, batch: &EventBatch, fold: &mut F) {
        self.update_rows(batch, 0..batch.len(), fold);
    }

    /// Takes in some rows of a batch, for callers that look at the live blocks in between.
    pub(crate) fn update_rows<F: Fold>(&mut self, batch: &EventBatch, rows: Range<usize>, fold: &mut F) {
        if rows.is_empty() || self.window.phase == Phase::Past {
            return;
        }
        self.begin(batch.time_ns.at(rows.start), fold);
        let Range { mut start, end } = rows;
        if self.window.phase == Phase::Before {
            let from_ns = self.window.from_ns.unwrap_or(i64::MIN);
            let inside = (start..end).find(|row| batch.time_ns.at(*row) >= from_ns).unwrap_or(end);
            self.run::<F, true>(batch, start..inside, fold);
            start = inside;
            if start == end {
                return;
            }
            self.open_window(fold);
        }
        let to_ns = self.window.to_ns;
        let past = to_ns.and_then(|to| (start..end).find(|row| batch.time_ns.at(*row) > to));
        self.run::<F, false>(batch, start..past.unwrap_or(end), fold);
        if past.is_some() {
            self.window.phase = Phase::Past;
            self.window.last_ns = to_ns;
        }
    }

    /// The first row of the next batch that lies in the window; 0 if it is open.
    pub(crate) fn opening<F: Fold>(&mut self, batch: &EventBatch, fold: &mut F) -> usize {
        if batch.is_empty() || self.window.phase != Phase::Before {
            return 0;
        }
        self.begin(batch.time_ns.at(0), fold);
        let from_ns = self.window.from_ns.unwrap_or(i64::MIN);
        (0..batch.len()).find(|row| batch.time_ns.at(*row) >= from_ns).unwrap_or(batch.len())
    }

    /// Opens the window if no event has done so yet.
    pub fn open_window<F: Fold>(&mut self, fold: &mut F) {
        if self.window.phase != Phase::Before
            || (self.window.first_ns.is_none() && self.select.filter.from_ns.is_some())
        {
            return;
        }
        self.window.phase = Phase::Inside;
        let Some(from_ns) = self.window.from_ns else { return };
        self.window.last_ns = Some(from_ns);
        let mut blocks: Vec<&Block> = self.slab.blocks().filter(|block| block.tally != UNSELECTED).collect();
        blocks.sort_unstable_by_key(|block| block.order);
        for block in blocks {
            fold.carried(block, from_ns, self.tallies.carry(block, from_ns, self.order));
        }
    }

    /// Whether an event after the window has been seen: what follows is ignored.
    pub fn is_past_window(&self) -> bool {
        self.window.phase == Phase::Past
    }

    /// Iterates over the live blocks that are selected, in no particular order.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.slab.blocks().filter(|block| block.tally != UNSELECTED)
    }

    /// Process, device and resource of a block.
    pub fn space(&self, space: u32) -> Space {
        self.spaces[space as usize].space
    }

    /// The sums by tally.
    pub fn tallies(&self) -> &Tallies {
        &self.tallies
    }

    /// Selected events in the window.
    pub fn events(&self) -> u64 {
        self.tallies.events() + self.counters.unmatched_frees + self.counters.null_frees
    }

    /// What was counted of all selected events.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Order of the newest block, selected or not.
    pub fn order(&self) -> u64 {
        self.order
    }

    /// Events read up to the end of the window, selected or not.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns whether a block with this address is live, selected or not; the null address never is.
    pub fn is_live(&self, space: Space, address: u64) -> bool {
        let id = self.space_ids.get(&space);
        address != 0 && id.is_some_and(|id| self.spaces[*id as usize].table.is_live(address))
    }

    /// Instant that elapsed times count from: the filter's, or the first row of all.
    pub fn origin_ns(&self) -> Option<i64> {
        self.select.filter.origin_ns.or(self.window.origin_ns)
    }

    /// Time of the first event of the trace, selected or not.
    pub fn first_ns(&self) -> Option<i64> {
        self.window.first_ns
    }

    /// The end of the window, or of the events if that comes first.
    pub fn end_ns(&self) -> Option<i64> {
        self.window.last_ns
    }

    /// Whether no address was forgotten, so that every re-use was noticed.
    pub fn remembers_all_addresses(&self) -> bool {
        self.spaces.iter().all(|space| space.table.remembers_all())
    }

    /// Takes in the blocks and sums of a set that selected other blocks; ignores events from then on.
    pub(crate) fn merge(&mut self, other: &Self) -> SpaceMap {
        self.window.phase = Phase::Past;
        self.window.first_ns = earlier(self.window.first_ns, other.window.first_ns);
        self.window.origin_ns = earlier(self.window.origin_ns, other.window.origin_ns);
        self.window.last_ns = self.window.last_ns.max(other.window.last_ns);
        let spaces = other.spaces.iter().map(|state| self.space_id(state.space)).collect();
        // Blocks are numbered by the rows that allocated them.
        let spaces = SpaceMap { spaces, orders: self.rows.max(self.order) };
        for (state, into) in other.spaces.iter().zip(&spaces.spaces) {
            if !state.table.remembers_all() {
                self.spaces[*into as usize].table.forget();
            }
        }
        for block in other.blocks() {
            let slot = self.slab.reserve();
            self.slab.put(slot, spaces.moved(block));
        }
        self.order = spaces.orders + other.order;
        self.rows += other.rows;
        self.tallies.merge(&other.tallies);
        let (ours, theirs) = (&mut self.counters, other.counters);
        ours.first_time_ns = earlier(ours.first_time_ns, theirs.first_time_ns);
        ours.last_time_ns = ours.last_time_ns.max(theirs.last_time_ns);
        ours.unmatched_frees += theirs.unmatched_frees;
        ours.null_frees += theirs.null_frees;
        spaces
    }

    /// Resolves the window at the first row of all.
    fn begin<F: Fold>(&mut self, first_ns: i64, fold: &mut F) {
        if self.window.first_ns.is_some() {
            return;
        }
        self.window.first_ns = Some(first_ns);
        let origin_ns = self.select.filter.origin_ns.unwrap_or(first_ns);
        self.window.origin_ns = Some(origin_ns);
        let window = self.select.filter.window(first_ns);
        (self.window.from_ns, self.window.to_ns) = (window.from_ns, window.to_ns);
        fold.start(first_ns, origin_ns);
    }

    /// Takes in a run of rows. A quiet run is before the window: blocks change, but folds get nothing.
    fn run<F: Fold, const QUIET: bool>(&mut self, batch: &EventBatch, range: Range<usize>, fold: &mut F) {
        if range.is_empty() {
            return;
        }
        let mut written_out = std::mem::take(&mut self.written_out);
        let rows = Rows::new(batch, &range, &mut written_out);
        self.window.last_ns = rows.time_ns.last().copied();
        if let Some(extras) = SameExtras::new(batch) {
            self.run_rows::<F, _, QUIET>(&rows, &extras, fold);
        } else if let Some(extras) = ProcessExtras::new(batch, &range) {
            self.run_rows::<F, _, QUIET>(&rows, &extras, fold);
        } else {
            self.run_rows::<F, _, QUIET>(&rows, &EachExtras::new(batch, &range), fold);
        }
        self.rows += range.len() as u64;
        self.written_out = written_out;
    }

    fn run_rows<F: Fold, X: Extras, const QUIET: bool>(&mut self, rows: &Rows<'_>, extras: &X, fold: &mut F) {
        let count = rows.time_ns.len();
        let (times, actions) = (&rows.time_ns[..count], &rows.action[..count]);
        let (addresses, sizes) = (&rows.address[..count], &rows.bytes[..count]);
        let (threads, streams) = (&rows.thread[..count], &rows.stream[..count]);
        let mut space_ids = [self.told_space(extras.space(0), fold); AHEAD];
        let mut known = KnownSpaces::default();
        let (narrows, mixes_spaces) = (!self.select.filter.selects_all(), extras.mixes_spaces());
        let (mut first, mut last) = if narrows { (usize::MAX, 0) } else { (0, count - 1) };
        let first_order = self.rows + 1;
        for row in 0..count {
            let order = first_order + row as u64;
            if !QUIET {
                fold.event(order, times[row]);
            }
            if row % AHEAD == 0 {
                let ahead = row..count.min(row + AHEAD);
                if mixes_spaces {
                    for (id, row) in space_ids.iter_mut().zip(ahead.clone()) {
                        let space = extras.space(row);
                        *id = known.get_or_insert_with(space, || self.told_space(space, fold));
                    }
                    let table_of = |at: usize| &self.spaces[space_ids[at] as usize].table;
                    self.look_ahead(&addresses[ahead], table_of);
                } else if self.spaces[space_ids[0] as usize].table.is_large() {
                    self.look_ahead(&addresses[ahead], |_| &self.spaces[space_ids[0] as usize].table);
                }
            }
            let space_id = if mixes_spaces { space_ids[row % AHEAD] } else { space_ids[0] };
            let (time_ns, thread, stream) = (times[row], threads[row], streams[row]);
            let (address, bytes) = (addresses[row], sizes[row]);
            let counted = match actions[row] {
                Action::Alloc => {
                    let kind = extras.kind(row);
                    let block = Block {
                        address,
                        bytes,
                        time_ns,
                        thread,
                        stream,
                        order,
                        stack: extras.stack(row),
                        name: extras.name(row),
                        scope: extras.scope(row),
                        space: space_id,
                        kind,
                        tally: self.select.tally(kind),
                    };
                    self.alloc::<F, QUIET>(block, narrows, fold)
                }
                Action::Free => {
                    let ending = Ending { time_ns, thread, stream, bytes, scope: extras.scope(row) };
                    match self.free::<F, QUIET>(space_id, address, &ending, fold) {
                        Some(counted) => counted,
                        None if QUIET => false,
                        None => {
                            let free = UnmatchedFree { time_ns, address, bytes, thread, space: space_id };
                            self.unmatched(&free, stream, extras.kind(row), fold)
                        }
                    }
                }
                Action::Failure if QUIET => false,
                Action::Failure => {
                    let (kind, stack) = (extras.kind(row), extras.stack(row));
                    let (space, tally) = (space_id, self.select.tally(kind));
                    self.failure(&Failure { time_ns, bytes, thread, stream, stack, space, kind, tally }, fold)
                }
            };
            if narrows && counted {
                (first, last) = (first.min(row), row);
            }
        }
        if !QUIET && first < count {
            self.counters.first_time_ns.get_or_insert(times[first]);
            self.counters.last_time_ns = Some(times[last]);
        }
    }

    /// Reads the entries and blocks of the next rows at once, so that waiting for memory overlaps
    /// instead of adding up row by row; `table_of` returns the table of a row.
    #[inline]
    fn look_ahead<'a>(&'a self, addresses: &[u64], table_of: impl Fn(usize) -> &'a AddressTable) {
        let mut slots = [0; AHEAD];
        for (row, (slot, address)) in slots.iter_mut().zip(addresses).enumerate() {
            *slot = table_of(row).guess(*address);
        }
        std::hint::black_box(slots.iter().fold(0, |all, slot| all ^ self.slab.touch(*slot)));
    }

    /// The index of a space, of which `fold` knows.
    #[inline]
    fn told_space<F: Fold>(&mut self, space: Space, fold: &mut F) -> u32 {
        let id = self.space_id(space);
        while self.told < self.spaces.len() {
            fold.space(self.told as u32, self.spaces[self.told].space);
            self.told += 1;
        }
        id
    }

    fn space_id(&mut self, space: Space) -> u32 {
        *self.space_ids.entry(space).or_insert_with(|| {
            let selected = self.select.selects_space(space.process, space.device);
            let (table, nulls) = (AddressTable::default(), Vec::new());
            self.spaces.push(SpaceState { space, selected, table, nulls });
            // At powers of two, so that many spaces do not take time that grows with their square.
            let tables = self.spaces.len().next_power_of_two();
            let is_next = self.spaces.len().is_power_of_two();
            let first = if is_next { 0 } else { self.spaces.len() - 1 };
            self.spaces[first..].iter_mut().for_each(|state| state.table.share(tables));
            self.spaces.len() as u32 - 1
        })
    }

    /// Begins a block; whether it counts.
    #[expect(clippy::inline_always, reason = "a call would copy the block once more: 2 ns of 20 per event")]
    #[inline(always)]
    fn alloc<F: Fold, const QUIET: bool>(&mut self, mut block: Block, narrows: bool, fold: &mut F) -> bool {
        self.order = block.order;
        let state = &mut self.spaces[block.space as usize];
        if narrows {
            if !state.selected {
                return false;
            }
            if !self.select.selects_origin(block.thread, block.stream) {
                block.tally = UNSELECTED;
            }
        }
        let slot = self.slab.reserve();
        let mut found = Found::New;
        if block.address == 0 {
            state.nulls.push(slot);
        } else {
            found = state.table.insert(block.address, slot);
        }
        if let Found::Live(earlier) = found {
            self.replace::<F, QUIET>(earlier, block.time_ns, fold);
        }
        let stored = self.slab.put(slot, block);
        let counted = !QUIET && block.tally != UNSELECTED;
        if counted {
            fold.alloc(stored, self.tallies.alloc(stored, found == Found::Ended));
        }
        counted
    }

    #[cold]
    fn replace<F: Fold, const QUIET: bool>(&mut self, slot: u32, time_ns: i64, fold: &mut F) {
        self.slab.end(slot, |block| {
            if !QUIET && block.tally != UNSELECTED {
                fold.replaced(block, time_ns, self.tallies.replace(block));
            }
        });
    }

    /// Ends a block; whether it counts, or none if there is no such block.
    #[expect(clippy::inline_always, reason = "as for alloc")]
    #[inline(always)]
    fn free<F: Fold, const QUIET: bool>(
        &mut self,
        space: u32,
        address: u64,
        ending: &Ending,
        fold: &mut F,
    ) -> Option<bool> {
        let state = &mut self.spaces[space as usize];
        let slot = if address == 0 { state.nulls.pop() } else { state.table.end(address) }?;
        Some(self.slab.end(slot, |block| {
            let counted = !QUIET && block.tally != UNSELECTED;
            if counted {
                fold.free(block, ending, self.tallies.free(block));
            }
            counted
        }))
    }

    #[cold]
    fn unmatched<F: Fold>(&mut self, free: &UnmatchedFree, stream: u64, kind: Kind, fold: &mut F) -> bool {
        if !self.spaces[free.space as usize].selected
            || !self.select.selects_kind_of_free(kind)
            || !self.select.selects_origin(free.thread, stream)
        {
            return false;
        }
        if free.address == 0 {
            self.counters.null_frees += 1;
        } else {
            self.counters.unmatched_frees += 1;
            fold.unmatched_free(free);
        }
        true
    }

    #[cold]
    fn failure<F: Fold>(&mut self, failure: &Failure, fold: &mut F) -> bool {
        if !self.spaces[failure.space as usize].selected
            || failure.tally == UNSELECTED
            || !self.select.selects_origin(failure.thread, failure.stream)
        {
            return false;
        }
        self.tallies.fail(failure.tally);
        fold.failure(failure);
        true
    }
}
