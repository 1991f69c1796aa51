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

mod select;
mod table;

use floodmark_event::{Action, Column, EventBatch, Kind, ProcessId, StackId, StringId};
use rustc_hash::FxHashMap;

use crate::change::{Block, Ending, Failure, Space, UnmatchedFree};
use crate::fold::Fold;
use crate::level::Tallies;
use crate::live::select::{Select, UNSELECTED};
use crate::live::table::{AddressTable, Found};
use crate::narrow::{Narrow, resolve};

/// What was counted of all selected events, whatever their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Selected events in the window.
    pub events: u64,
    /// Time of the first of them.
    pub first_time_ns: Option<i64>,
    /// Time of the last of them.
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
    /// Blocks by slot; a slot that is not in use has order 0.
    blocks: Vec<Block>,
    unused: Vec<u32>,
    spaces: Vec<SpaceState>,
    space_ids: FxHashMap<Space, u32>,
    /// Allocations so far, selected or not.
    order: u64,
    tallies: Tallies,
    counters: Counters,
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
    /// Latest time of any row up to the end of the window.
    last_ns: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Before,
    Inside,
    Past,
}

impl LiveSet {
    /// Returns an empty set that looks at what `narrow` selects.
    pub fn new(narrow: &Narrow) -> Self {
        let select = Select::new(narrow);
        Self {
            tallies: Tallies::new(select.kinds.clone()),
            select,
            window: Window::default(),
            blocks: Vec::new(),
            unused: Vec::new(),
            spaces: Vec::new(),
            space_ids: FxHashMap::default(),
            order: 0,
            counters: Counters::default(),
        }
    }

    /// Takes in events and tells `fold` what they change.
    pub fn update<F: Fold>(&mut self, batch: &EventBatch, fold: &mut F) {
        if batch.is_empty() || self.window.phase == Phase::Past {
            return;
        }
        let rows = Rows::new(batch);
        self.begin(&rows, fold);
        let mut start = 0;
        if self.window.phase == Phase::Before {
            let from_ns = self.window.from_ns;
            start = (0..rows.len)
                .find(|row| from_ns.is_none_or(|from| rows.time_ns.at(*row) >= from))
                .unwrap_or(rows.len);
            self.run::<F, true>(&rows, 0..start, fold);
            if start == rows.len {
                return;
            }
            self.open_window(fold);
        }
        let to_ns = self.window.to_ns;
        let past = to_ns.and_then(|to| (start..rows.len).find(|row| rows.time_ns.at(*row) > to));
        self.run::<F, false>(&rows, start..past.unwrap_or(rows.len), fold);
        if past.is_some() {
            self.window.phase = Phase::Past;
            self.window.last_ns = to_ns;
        }
    }

    /// Opens the window if no event has done so yet.
    pub fn open_window<F: Fold>(&mut self, fold: &mut F) {
        if self.window.phase != Phase::Before
            || (self.window.first_ns.is_none() && self.select.from.is_some())
        {
            return;
        }
        self.window.phase = Phase::Inside;
        let Some(from_ns) = self.window.from_ns else { return };
        self.window.last_ns = self.window.last_ns.max(Some(from_ns));
        let mut slots: Vec<u32> =
            (0..self.blocks.len() as u32).filter(|slot| self.is_reported(*slot)).collect();
        slots.sort_unstable_by_key(|slot| self.blocks[*slot as usize].order);
        for slot in slots {
            let block = &self.blocks[slot as usize];
            fold.carried(block, from_ns, self.tallies.carry(block, from_ns, self.order));
        }
    }

    /// Whether an event after the window has been seen: what follows is ignored.
    pub fn is_past_window(&self) -> bool {
        self.window.phase == Phase::Past
    }

    /// Iterates over the live blocks that are selected, in no particular order.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.order != 0 && block.tally != UNSELECTED)
    }

    /// Process, device and resource of a block.
    pub fn space(&self, space: u32) -> Space {
        self.spaces[space as usize].space
    }

    /// Number of spaces met so far; their indexes count up to it.
    pub fn space_count(&self) -> usize {
        self.spaces.len()
    }

    /// The sums by tally.
    pub fn tallies(&self) -> &Tallies {
        &self.tallies
    }

    /// What was counted of all selected events.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Order number of the newest block, selected or not.
    pub fn order(&self) -> u64 {
        self.order
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

    fn is_reported(&self, slot: u32) -> bool {
        let block = &self.blocks[slot as usize];
        block.order != 0 && block.tally != UNSELECTED
    }

    /// Resolves the window at the first row of all.
    fn begin<F: Fold>(&mut self, rows: &Rows<'_>, fold: &mut F) {
        if self.window.first_ns.is_some() {
            return;
        }
        let first_ns = rows.time_ns.at(0);
        self.window.first_ns = Some(first_ns);
        self.window.from_ns = self.select.from.map(|from| resolve(from, first_ns));
        self.window.to_ns = self.select.to.map(|to| resolve(to, first_ns));
        fold.start(first_ns);
    }

    /// Takes in a run of rows. A quiet run is before the window: blocks change, nothing is told.
    fn run<F: Fold, const QUIET: bool>(
        &mut self,
        rows: &Rows<'_>,
        range: std::ops::Range<usize>,
        fold: &mut F,
    ) {
        let fixed = rows.fixed_space().map(|space| self.space_id(space));
        let last_ns = range.clone().map(|row| rows.time_ns.at(row)).max();
        self.window.last_ns = self.window.last_ns.max(last_ns);
        let mut previous = None;
        for row in range {
            let space_id = if let Some(id) = fixed {
                id
            } else {
                let space = rows.space(row);
                match previous {
                    Some((known, id)) if known == space => id,
                    _ => {
                        let id = self.space_id(space);
                        previous = Some((space, id));
                        id
                    }
                }
            };
            if !self.spaces[space_id as usize].selected {
                continue;
            }
            match rows.action.at(row) {
                Action::Alloc => self.alloc::<F, QUIET>(rows, row, space_id, fold),
                Action::Free => self.free::<F, QUIET>(rows, row, space_id, fold),
                Action::Failure if QUIET => {}
                Action::Failure => self.failure(rows, row, space_id, fold),
            }
        }
    }

    fn space_id(&mut self, space: Space) -> u32 {
        *self.space_ids.entry(space).or_insert_with(|| {
            let selected = self.select.selects_space(space.process, space.device);
            self.spaces.push(SpaceState {
                space,
                selected,
                table: AddressTable::default(),
                nulls: Vec::new(),
            });
            self.spaces.len() as u32 - 1
        })
    }

    #[inline]
    fn count(&mut self, time_ns: i64) {
        if self.counters.events == 0 {
            self.counters.first_time_ns = Some(time_ns);
        }
        self.counters.events += 1;
        self.counters.last_time_ns = Some(time_ns);
    }

    #[inline]
    fn alloc<F: Fold, const QUIET: bool>(&mut self, rows: &Rows<'_>, row: usize, space: u32, fold: &mut F) {
        self.order += 1;
        let kind = rows.kind.at(row);
        let mut block = Block {
            address: rows.address.at(row),
            bytes: rows.bytes.at(row),
            time_ns: rows.time_ns.at(row),
            thread: rows.thread.at(row),
            stream: rows.stream.at(row),
            order: self.order,
            stack: rows.stack.at(row),
            name: rows.name.at(row),
            scope: rows.scope.at(row),
            space,
            kind,
            tally: self.select.tally(kind),
        };
        if self.select.looks_at_origin() && !self.select.selects_origin(block.thread, block.stream) {
            block.tally = UNSELECTED;
        }
        let slot = if let Some(slot) = self.unused.pop() {
            slot
        } else {
            self.blocks.push(Block::default());
            self.blocks.len() as u32 - 1
        };
        let state = &mut self.spaces[space as usize];
        let mut found = Found::New;
        if block.address == 0 {
            state.nulls.push(slot);
        } else {
            found = state.table.insert(block.address, slot);
        }
        if let Found::Live(earlier) = found {
            self.replace::<F, QUIET>(earlier, block.time_ns, fold);
        }
        let stored = &mut self.blocks[slot as usize];
        *stored = block;
        if !QUIET && block.tally != UNSELECTED {
            let level = self.tallies.alloc(stored, found == Found::Ended);
            fold.alloc(stored, level);
            self.count(block.time_ns);
        }
    }

    #[cold]
    fn replace<F: Fold, const QUIET: bool>(&mut self, slot: u32, time_ns: i64, fold: &mut F) {
        let block = &mut self.blocks[slot as usize];
        if !QUIET && block.tally != UNSELECTED {
            fold.replaced(block, time_ns, self.tallies.replace(block));
        }
        block.order = 0;
        self.unused.push(slot);
    }

    #[inline]
    fn free<F: Fold, const QUIET: bool>(&mut self, rows: &Rows<'_>, row: usize, space: u32, fold: &mut F) {
        let address = rows.address.at(row);
        let state = &mut self.spaces[space as usize];
        let slot = if address == 0 { state.nulls.pop() } else { state.table.end(address) };
        let Some(slot) = slot else {
            if !QUIET {
                self.unmatched(rows, row, space, fold);
            }
            return;
        };
        let block = &mut self.blocks[slot as usize];
        if !QUIET && block.tally != UNSELECTED {
            let ending = Ending {
                time_ns: rows.time_ns.at(row),
                thread: rows.thread.at(row),
                stream: rows.stream.at(row),
                bytes: rows.bytes.at(row),
            };
            fold.free(block, &ending, self.tallies.free(block));
            block.order = 0;
            self.unused.push(slot);
            self.count(ending.time_ns);
        } else {
            block.order = 0;
            self.unused.push(slot);
        }
    }

    #[cold]
    fn unmatched<F: Fold>(&mut self, rows: &Rows<'_>, row: usize, space: u32, fold: &mut F) {
        let free = UnmatchedFree {
            time_ns: rows.time_ns.at(row),
            address: rows.address.at(row),
            bytes: rows.bytes.at(row),
            thread: rows.thread.at(row),
            space,
        };
        if !self.select.selects_kind_of_free(rows.kind.at(row))
            || !self.select.selects_origin(free.thread, rows.stream.at(row))
        {
            return;
        }
        self.count(free.time_ns);
        if free.address == 0 {
            self.counters.null_frees += 1;
        } else {
            self.counters.unmatched_frees += 1;
            fold.unmatched_free(&free);
        }
    }

    #[cold]
    fn failure<F: Fold>(&mut self, rows: &Rows<'_>, row: usize, space: u32, fold: &mut F) {
        let kind = rows.kind.at(row);
        let failure = Failure {
            time_ns: rows.time_ns.at(row),
            bytes: rows.bytes.at(row),
            thread: rows.thread.at(row),
            stream: rows.stream.at(row),
            stack: rows.stack.at(row),
            space,
            kind,
            tally: self.select.tally(kind),
        };
        if failure.tally == UNSELECTED || !self.select.selects_origin(failure.thread, failure.stream) {
            return;
        }
        self.count(failure.time_ns);
        self.tallies.fail(failure.tally);
        fold.failure(&failure);
    }
}

/// A column read without asking for each row which form it has.
#[derive(Clone, Copy)]
struct Reader<'a, T> {
    values: &'a [T],
    /// All ones for a column with a value per row, 0 for one with the same value for all.
    mask: usize,
}

impl<'a, T: Copy> Reader<'a, T> {
    fn new(column: &'a Column<T>) -> Self {
        match column {
            Column::Same(value) => Self { values: std::slice::from_ref(value), mask: 0 },
            Column::Each(values) => Self { values, mask: usize::MAX },
        }
    }

    #[inline]
    fn at(&self, row: usize) -> T {
        self.values[row & self.mask]
    }
}

/// The columns of a batch.
struct Rows<'a> {
    len: usize,
    time_ns: Reader<'a, i64>,
    process: Reader<'a, ProcessId>,
    thread: Reader<'a, u64>,
    action: Reader<'a, Action>,
    address: Reader<'a, u64>,
    bytes: Reader<'a, u64>,
    device: Reader<'a, i32>,
    stream: Reader<'a, u64>,
    kind: Reader<'a, Kind>,
    resource: Reader<'a, StringId>,
    scope: Reader<'a, u32>,
    stack: Reader<'a, StackId>,
    name: Reader<'a, StringId>,
}

impl<'a> Rows<'a> {
    fn new(batch: &'a EventBatch) -> Self {
        Self {
            len: batch.len(),
            time_ns: Reader::new(&batch.time_ns),
            process: Reader::new(&batch.process),
            thread: Reader::new(&batch.thread),
            action: Reader::new(&batch.action),
            address: Reader::new(&batch.address),
            bytes: Reader::new(&batch.bytes),
            device: Reader::new(&batch.device),
            stream: Reader::new(&batch.stream),
            kind: Reader::new(&batch.kind),
            resource: Reader::new(&batch.resource),
            scope: Reader::new(&batch.scope),
            stack: Reader::new(&batch.stack),
            name: Reader::new(&batch.name),
        }
    }

    #[inline]
    fn space(&self, row: usize) -> Space {
        Space { process: self.process.at(row), device: self.device.at(row), resource: self.resource.at(row) }
    }

    /// The space of all rows, if the form of the columns says that they share one.
    fn fixed_space(&self) -> Option<Space> {
        (self.process.mask | self.device.mask | self.resource.mask == 0).then(|| self.space(0))
    }
}
