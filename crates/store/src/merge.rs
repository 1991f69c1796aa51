//! Merges the lanes of a tail into one sequence in the order of time.
//!
//! Memory: one chunk and some thousand rows per lane, fewer if there are many lanes, whatever the tail's length; of a
//! lane whose times go back, the chunks that overlap in time. Rows are decoded and put in order by the thousand, and
//! events are gathered column by column: taking one row at a time from a heap of lanes costs several times as much.
//! Each table is in an order of its own. At equal times a free goes before an allocation of another
//! lane, because a re-used address is freed first. Rows that a sampler recorded stay in the order in
//! which it recorded them, even where their times do not grow; all others are in the order of their
//! times, and at equal times in the order in which their lane recorded them.

mod lane;
mod record_rows;
mod sorted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{
    Action, CallRow, Event, EventBatch, LogRow, OutputRow, ProcessId, SampleRow, ScopeRow, StackSampleRow,
};

use self::lane::{Lane, TimeOffsets};
use self::record_rows::RowChoice;
use crate::manifest::{Manifest, Position};
use crate::planned::Planned;
use crate::registry::Registry;
use crate::small_tables::Definitions;
use crate::source::Losses;
use crate::stages::{SealStage, stage};
use crate::table::Table;
use crate::tail::{DAMAGED, TailSnapshot};

/// Bytes of output that a lane decodes at once.
const OUTPUT_BYTES: usize = 1 << 20;
/// Rows that all lanes together decode at once, and the fewest that one does.
const PLANNED_ROWS: usize = 4 * BATCH_ROWS;
const LEAST_ROWS: usize = 256;

/// Rows that come next, by table.
#[derive(Debug, Default)]
pub struct TailRows {
    pub(crate) events: EventBatch,
    pub(crate) scopes: Vec<ScopeRow>,
    pub(crate) samples: Vec<SampleRow>,
    pub(crate) output: Vec<OutputRow>,
    pub(crate) stack_samples: Vec<StackSampleRow>,
    pub(crate) calls: Vec<CallRow>,
    /// Always empty: messages come from importers alone.
    pub(crate) logs: Vec<LogRow>,
    rows: usize,
}

impl TailRows {
    fn clear(&mut self) {
        self.events.clear();
        self.scopes.clear();
        self.samples.clear();
        self.output.clear();
        self.stack_samples.clear();
        self.calls.clear();
        self.rows = 0;
    }

    #[inline]
    fn push(&mut self, item: Item) {
        self.rows += 1;
        match item {
            Item::Event(event) => self.events.push(&event),
            Item::Scope(row) => self.scopes.push(row),
            Item::Sample(row) => self.samples.push(row),
            Item::Output(row) => self.output.push(row),
            Item::StackSample(row) => self.stack_samples.push(row),
            Item::Call(_, row) => self.calls.push(row),
        }
    }
}

/// Chunks that hold nothing but events, by process and lane.
///
/// A scan of all events finds them; scans of other tables then need not decode them again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventChunks(BTreeMap<(String, u32), BTreeSet<u64>>);

impl EventChunks {
    /// Whether none are known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A decoded record waiting for its turn.
#[derive(Clone, Debug)]
enum Item {
    Event(Event),
    Scope(ScopeRow),
    Sample(SampleRow),
    Output(OutputRow),
    StackSample(StackSampleRow),
    /// With its time in nanoseconds: the row has whole microseconds.
    Call(i64, CallRow),
}

/// Rank of an event among those of the same time.
fn event_rank(action: Action) -> u8 {
    u8::from(action != Action::Free)
}

impl Item {
    /// Time, and rank among equal times.
    fn turn(&self) -> (i64, u8) {
        match self {
            Self::Event(event) => (event.time_ns, event_rank(event.action)),
            Self::Scope(row) => (row.time_ns, 0),
            Self::Sample(row) => (row.time_ns, 0),
            Self::Output(row) => (row.time_ns, 0),
            Self::StackSample(row) => (row.time_ns, 0),
            Self::Call(time_ns, _) => (*time_ns, 0),
        }
    }

    /// Whether its lane keeps the order in which such rows were recorded, whatever their times.
    fn keeps_order(&self) -> bool {
        matches!(self, Self::Sample(_) | Self::Output(_) | Self::StackSample(_))
    }
}

/// What is wanted of a tail.
#[derive(Clone, Debug, Default)]
pub(crate) struct TailWanted {
    /// Not what came before.
    pub(crate) from_ns: Option<i64>,
    /// No other tables.
    pub(crate) only: Option<Table>,
    /// Not these chunks, unless it is events that are wanted.
    pub(crate) event_chunks: Option<Arc<EventChunks>>,
    /// Whether stacks keep the numbers of their process, as they are at rest.
    pub(crate) has_own_stacks: bool,
}

impl TailWanted {
    /// Everything, to be written to parts.
    pub(crate) fn everything() -> Self {
        Self { has_own_stacks: true, ..Self::default() }
    }

    /// Only definitions.
    pub(crate) fn definitions() -> Self {
        Self { only: Some(Table::Subject), ..Self::default() }
    }
}

/// Merges what [`TailSnapshot`] found.
pub(crate) struct TailMerge {
    lanes: Vec<Lane>,
    /// Events that come next, as rows of lanes.
    planned: Planned,
    choice: RowChoice,
    pub(crate) losses: Losses,
    /// Definitions met, for the sealer.
    pub(crate) definitions: Definitions,
}

impl TailMerge {
    /// Takes over a snapshot whose processes the manifest knows (see [`TailSnapshot::adopt`]), and
    /// adds what it defines to `registry`. What is not wanted it may leave out.
    pub(crate) fn new(
        snapshot: TailSnapshot,
        manifest: &Manifest,
        registry: &mut Registry,
        wanted: &TailWanted,
    ) -> Self {
        let TailWanted { from_ns, only, ref event_chunks, has_own_stacks } = *wanted;
        let event_chunks = event_chunks.as_deref().filter(|_| only.is_some_and(|only| only != Table::Event));
        let mut merge = Self {
            lanes: Vec::new(),
            planned: Planned::default(),
            choice: RowChoice { only, has_own_stacks },
            losses: Losses::default(),
            definitions: Definitions::default(),
        };
        for (stem, mut tail) in snapshot.processes {
            let Some(entry) = manifest.processes.iter().find(|process| process.stem == stem) else {
                continue;
            };
            if tail.damaged() > 0 {
                merge.losses.add(tail.damaged(), DAMAGED);
            }
            let utc_offset_ns = tail.utc_offset_ns(entry, manifest);
            let clock = manifest.clocks.iter().find(|clock| clock.boot == entry.boot);
            let clock_ns = clock.map_or(0, |clock| clock.offset_ns);
            if let Some(from_ns) = from_ns {
                tail.drop_before(from_ns, utc_offset_ns);
            }
            // Messages come from importers alone, and lanes other than 0 hold no definitions.
            let has_rows = only.is_none_or(|only| only != Table::Log && only.has_time());
            for (lane, chunks) in tail.lanes.into_iter().filter(|(lane, _)| has_rows || *lane == 0) {
                let mut position = entry.lanes.get(&lane).copied().unwrap_or_default();
                // What was left out on purpose is not missing.
                if let Some(first) =
                    chunks.first().filter(|first| from_ns.is_some() && first.sequence > position.sequence)
                {
                    position = Position { sequence: first.sequence, records: 0 };
                }
                let key = (stem.clone(), lane);
                let passed_over = event_chunks.and_then(|of| of.0.get(&key).cloned()).unwrap_or_default();
                let times = TimeOffsets { utc_ns: utc_offset_ns, clock_ns };
                let (process, place) = (ProcessId(entry.id), (key, times));
                merge.lanes.push(Lane::new(process, place, chunks, position, passed_over));
            }
        }
        // Definitions first: lane 0 of each process holds nothing else.
        for index in 0..merge.lanes.len() {
            if merge.lanes[index].number == 0 {
                merge.lanes[index].define(registry, &mut merge.definitions, &mut merge.losses);
            }
        }
        for lane in &mut merge.lanes {
            lane.prepare(merge.choice, &mut merge.losses);
        }
        merge
    }

    /// Replaces `rows` by the next ones; `false` if there are no more.
    pub(crate) fn next(&mut self, rows: &mut TailRows, registry: &Registry) -> bool {
        rows.clear();
        let open = self.lanes.iter().filter(|lane| !lane.is_done()).count().max(1);
        let most = (PLANNED_ROWS / open).clamp(LEAST_ROWS, BATCH_ROWS);
        for lane in &mut self.lanes {
            stage(SealStage::Decode, || lane.fill(most, self.choice, registry, &mut self.losses));
        }
        stage(SealStage::Merge, || self.pass(rows));
        rows.rows > 0
    }

    /// Hands out the rows that come before all that is not decoded yet. Every lane has rows or is at its end.
    fn pass(&mut self, rows: &mut TailRows) {
        self.lanes.iter_mut().for_each(Lane::close_if_done);
        let mut open = self.lanes.iter_mut().filter(|lane| !lane.is_done());
        if let (Some(lane), None) = (open.next(), open.next()) {
            lane.pass_all(rows);
            return;
        }
        let mut turns = self.lanes.iter().filter_map(Lane::next_event_turn);
        let Some(first) = turns.next().map(|first| turns.fold(first, i64::min)) else {
            let bound = self.bound();
            return self.pass_items(rows, bound);
        };
        let longest = self.lanes.iter().map(Lane::events_left).max().unwrap_or(0);
        let last = self.planned.begin(self.lanes.len(), longest, first);
        let bound = self.bound().min((last, usize::MAX));
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let (start, turns) = lane.pass_events(|turn| (turn, index) <= bound);
            self.planned.add(index, start, turns);
        }
        self.planned.sort();
        if let Some((picks, _)) = self.planned.take(usize::MAX) {
            let batches: Vec<&EventBatch> =
                self.planned.runs().iter().map(|index| &self.lanes[*index].events).collect();
            rows.events.gather(&batches, &picks);
            rows.rows += picks.len();
            self.planned.reuse(picks);
        }
        self.pass_items(rows, bound);
    }

    /// Turn and lane up to which all rows are known.
    fn bound(&self) -> (i64, usize) {
        let lanes = self.lanes.iter().enumerate();
        let bounds = lanes.filter_map(|(index, lane)| Some((lane.reached()?, index)));
        bounds.min().unwrap_or((i64::MAX, usize::MAX))
    }

    /// Hands out rows of tables other than events.
    fn pass_items(&mut self, rows: &mut TailRows, bound: (i64, usize)) {
        let mut items: Vec<(i64, usize, Item)> = Vec::new();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            lane.pass_items(|turn| (turn, index) <= bound, |turn, item| items.push((turn, index, item)));
        }
        // Stable: rows of a lane keep their order.
        items.sort_by_key(|(turn, index, _)| (*turn, *index));
        for (.., item) in items {
            rows.push(item);
        }
    }

    /// Chunks that had nothing but events, as far as they have been read to their end.
    pub(crate) fn event_chunks(&mut self) -> EventChunks {
        let lanes = self.lanes.iter_mut().filter(|lane| !lane.of_events.is_empty());
        let chunks =
            |lane: &mut Lane| ((lane.stem.clone(), lane.number), std::mem::take(&mut lane.of_events));
        EventChunks(lanes.map(chunks).collect())
    }

    /// Up to where each lane has been read, by process and lane. Only meaningful at the end.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (ProcessId, u32, Position)> + '_ {
        self.lanes.iter().map(|lane| (lane.process, lane.number, lane.position))
    }
}
