//! Merges the lanes of a tail into one sequence in the order of time.
//!
//! Memory: one chunk and one pending record per lane, whatever the tail's length; of a lane whose times
//! go back, the chunks that overlap in time. At equal times a free goes before an allocation of another
//! lane, because a re-used address is freed first. Rows that a sampler recorded stay in the order in
//! which it recorded them, even where their times do not grow; all others are in the order of their
//! times, and at equal times in the order in which their lane recorded them.

mod lane;
mod sorted;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{
    Action, CallRow, Event, EventBatch, LogRow, OutputRow, ProcessId, SampleRow, ScopeRow, StackSampleRow,
};

use self::lane::{Lane, TimeOffsets};
use crate::manifest::{Manifest, Position};
use crate::registry::Registry;
use crate::small_tables::Definitions;
use crate::source::Losses;
use crate::table::Table;
use crate::tail::{DAMAGED, TailSnapshot};

/// Bytes of output after which a batch of rows ends.
const OUTPUT_BYTES: usize = 1 << 20;

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
    output_bytes: usize,
}

impl TailRows {
    fn clear(&mut self) {
        self.events.clear();
        self.scopes.clear();
        self.samples.clear();
        self.output.clear();
        self.stack_samples.clear();
        self.calls.clear();
        (self.rows, self.output_bytes) = (0, 0);
    }

    fn is_full(&self) -> bool {
        self.rows >= BATCH_ROWS || self.output_bytes >= OUTPUT_BYTES
    }

    #[inline]
    fn push(&mut self, item: Item) {
        self.rows += 1;
        match item {
            Item::Event(event) => self.events.push(&event),
            Item::Scope(row) => self.scopes.push(row),
            Item::Sample(row) => self.samples.push(row),
            Item::Output(row) => {
                self.output_bytes += row.bytes.len();
                self.output.push(row);
            }
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

impl Item {
    /// Time, and rank among equal times.
    fn turn(&self) -> (i64, u8) {
        match self {
            Self::Event(event) => (event.time_ns, u8::from(event.action != Action::Free)),
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
}

impl TailWanted {
    /// Only definitions.
    pub(crate) fn definitions() -> Self {
        Self { only: Some(Table::Subject), ..Self::default() }
    }
}

/// Merges what [`TailSnapshot`] found.
pub(crate) struct TailMerge {
    lanes: Vec<Lane>,
    /// Time, rank among equal times, index of the lane.
    heap: BinaryHeap<Reverse<(i64, u8, usize)>>,
    /// Only rows of this table are wanted.
    only: Option<Table>,
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
        let TailWanted { from_ns, only, ref event_chunks } = *wanted;
        let event_chunks = event_chunks.as_deref().filter(|_| only.is_some_and(|only| only != Table::Event));
        let mut merge = Self {
            lanes: Vec::new(),
            heap: BinaryHeap::new(),
            only,
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
        for index in 0..merge.lanes.len() {
            merge.lanes[index].prepare(only, &mut merge.losses);
            merge.advance(index, registry);
        }
        merge
    }

    /// Makes the next row of a lane wait for its turn.
    fn advance(&mut self, index: usize, registry: &Registry) {
        let lane = &mut self.lanes[index];
        lane.advance(registry, self.only, &mut self.losses);
        if let Some((time_ns, rank)) = lane.turn() {
            self.heap.push(Reverse((time_ns, rank, index)));
        }
    }

    /// Replaces `rows` by the next ones; `false` if there are no more.
    pub(crate) fn next(&mut self, rows: &mut TailRows, registry: &Registry) -> bool {
        rows.clear();
        while !rows.is_full() {
            let Some(Reverse((.., index))) = self.heap.pop() else { break };
            if let Some(item) = self.lanes[index].pending.take() {
                rows.push(item);
            }
            self.advance(index, registry);
        }
        rows.rows > 0
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
