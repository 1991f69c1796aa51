//! Merges the lanes of a tail into one sequence in the order of time.
//!
//! Memory: one chunk and one pending record per lane, whatever the tail's length. At equal times a
//! free goes before an allocation, because a re-used address is freed first. Rows of one lane stay in
//! the order in which they were recorded, even where their times do not grow.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::tables::Frame;
use floodmark_event::{
    Action, Event, EventBatch, LogRow, OutputRow, ProcessId, SampleRow, ScopeAction, ScopeRow, StackId,
    StackSampleRow, StringId, SubjectRow,
};
use floodmark_tail::record::{Decoder, Record};

use crate::manifest::{Manifest, Position};
use crate::registry::{Registry, key};
use crate::small_tables::{Definitions, FrameRow, StackRow, StringRow};
use crate::source::Losses;
use crate::table::Table;
use crate::tail::{ChunkRef, DAMAGED, MISSING, TailSnapshot};

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
        }
    }
}

/// Chunks that hold nothing but events, by process and lane.
///
/// Whoever has read all events knows; who reads other tables then need not decode them again.
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
        }
    }
}

/// Reads one lane.
struct Lane {
    process: ProcessId,
    /// Name of the process's files.
    stem: String,
    number: u32,
    /// Chunks that need not be read.
    passed_over: BTreeSet<u64>,
    /// Chunks that had nothing but events.
    of_events: BTreeSet<u64>,
    utc_offset_ns: i64,
    chunks: std::vec::IntoIter<ChunkRef>,
    current: Option<Current>,
    /// Up to where the lane has been read.
    position: Position,
    /// The next in turn; `None` once the lane is at its end.
    pending: Option<Item>,
    /// Time at which the next one sorts: a recorder may step back in time, and what it recorded later
    /// still comes later.
    sorts_ns: i64,
}

/// The chunk that is being read.
struct Current {
    payload: Vec<u8>,
    decoder: Decoder,
    /// Records that are in parts already.
    skip: u64,
    /// Whether its thread is done with it.
    complete: bool,
    /// Whether it had nothing but events so far.
    has_only_events: bool,
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
    /// Definitions met, for whoever seals.
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
                merge.lanes.push(Lane {
                    process: ProcessId(entry.id),
                    number: lane,
                    passed_over: event_chunks.and_then(|of| of.0.get(&key).cloned()).unwrap_or_default(),
                    of_events: BTreeSet::new(),
                    stem: key.0,
                    utc_offset_ns,
                    chunks: chunks.into_iter(),
                    current: None,
                    position,
                    pending: None,
                    sorts_ns: i64::MIN,
                });
            }
        }
        // Definitions first: lane 0 of each process holds nothing else.
        for index in 0..merge.lanes.len() {
            if merge.lanes[index].number == 0 {
                merge.lanes[index].define(registry, &mut merge.definitions, &mut merge.losses);
            }
        }
        for index in 0..merge.lanes.len() {
            merge.advance(index, registry);
        }
        merge
    }

    /// Makes the next row of a lane wait for its turn.
    fn advance(&mut self, index: usize, registry: &Registry) {
        let lane = &mut self.lanes[index];
        lane.advance(registry, self.only, &mut self.losses);
        let Some((time_ns, rank)) = lane.pending.as_ref().map(Item::turn) else { return };
        lane.sorts_ns = lane.sorts_ns.max(time_ns);
        self.heap.push(Reverse((lane.sorts_ns, rank, index)));
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

impl Lane {
    /// Calls `take` with records until it returns something or the lane ends.
    fn read<T>(
        &mut self,
        losses: &mut Losses,
        mut take: impl FnMut(ProcessId, i64, Record<'_>) -> Option<T>,
    ) -> Option<T> {
        loop {
            if self.current.is_none() {
                self.current = Some(self.next_chunk(losses)?);
            }
            let current = self.current.as_mut()?;
            match current.decoder.next(&current.payload) {
                Ok(Some(_)) if current.skip > 0 => current.skip -= 1,
                Ok(Some(record)) => {
                    self.position.records += 1;
                    current.has_only_events &= matches!(record, Record::Event(_));
                    if let Some(taken) = take(self.process, self.utc_offset_ns, record) {
                        return Some(taken);
                    }
                }
                // More may come into the last chunk of a thread that is not done with it.
                Ok(None) if !current.complete => return None,
                end => {
                    if end.is_err() {
                        losses.add(1, DAMAGED);
                    } else if current.has_only_events {
                        self.of_events.insert(self.position.sequence);
                    }
                    self.pass_chunk();
                }
            }
        }
    }

    fn pass_chunk(&mut self) {
        self.current = None;
        self.position = Position { sequence: self.position.sequence.saturating_add(1), records: 0 };
    }

    fn next_chunk(&mut self, losses: &mut Losses) -> Option<Current> {
        loop {
            let chunk = self.chunks.next()?;
            if chunk.sequence > self.position.sequence {
                losses.add(chunk.sequence - self.position.sequence, MISSING);
                self.position = Position { sequence: chunk.sequence, records: 0 };
            }
            if self.passed_over.contains(&chunk.sequence) {
                self.pass_chunk();
                continue;
            }
            let (complete, skip) = (chunk.complete, self.position.records);
            if let Some((base_time_ns, payload)) = chunk.load() {
                let decoder = Decoder::new(base_time_ns);
                return Some(Current { payload, decoder, skip, complete, has_only_events: true });
            }
            losses.add(1, DAMAGED);
            self.pass_chunk();
        }
    }

    /// Takes in the definitions of a process.
    fn define(&mut self, registry: &mut Registry, definitions: &mut Definitions, losses: &mut Losses) {
        self.read(losses, |process, utc_offset_ns, record| {
            match record {
                Record::String { id, text } => {
                    let text = String::from_utf8_lossy(text).into_owned();
                    registry.add_string(key(process, id.0), &text);
                    definitions.strings.push(StringRow { string: key(process, id.0), text });
                }
                Record::Frame { id, frame } => {
                    let string = |id: StringId| registry.string(key(process, id.0));
                    let frame = Frame {
                        function: string(frame.function),
                        file: string(frame.file),
                        module: string(frame.module),
                        ..frame
                    };
                    registry.add_frame(key(process, id), frame);
                    definitions.frames.push(FrameRow::new(key(process, id), frame));
                }
                Record::Stack { id, parent, frame } => {
                    let (stack, frame) = (key(process, id.0), key(process, frame));
                    let row = StackRow { stack, parent: key_or_none(process, parent.0), frame };
                    registry.add_stack(row.stack, row.parent, row.frame);
                    definitions.stacks.push(row);
                }
                Record::Subject { id, entry } => {
                    let text =
                        |id: StringId| registry.tables.string(registry.string(key(process, id.0))).to_owned();
                    let subject = SubjectRow {
                        start_ns: Some(entry.start_ns).filter(|start| *start != 0),
                        parent: key_or_none(process, entry.parent.0),
                        detail: text(entry.detail),
                        ..SubjectRow::new(key(process, id.0), entry.kind, entry.number, text(entry.name))
                    };
                    registry.tables.subjects.insert(subject.subject, subject);
                    definitions.has_subjects = true;
                }
                Record::SubjectEnded { id, time_ns, end } => {
                    if let Some(subject) = registry.tables.subjects.get_mut(&key(process, id.0)) {
                        subject.end_ns = Some((time_ns as i64).wrapping_add(utc_offset_ns));
                        subject.wait_status = end.wait_status;
                        subject.peak_rss_bytes = end.peak_rss_bytes;
                        definitions.has_subjects = true;
                    }
                }
                _ => {}
            }
            None::<()>
        });
    }

    /// Makes the next row of the lane the pending one.
    fn advance(&mut self, registry: &Registry, only: Option<Table>, losses: &mut Losses) {
        let wants = |table| only.is_none_or(|only| only == table);
        self.pending = self.read(losses, |process, utc_offset_ns, record| match record {
            Record::Event(event) if wants(Table::Event) => {
                Some(Item::Event(event_row(&event, process, utc_offset_ns, registry)))
            }
            Record::EnterScope { .. } | Record::ExitScope { .. } | Record::Mark { .. }
                if wants(Table::Scope) =>
            {
                scope_row(&record, process, utc_offset_ns, registry).map(Item::Scope)
            }
            Record::Sample { time_ns, subject, metric, value } if wants(Table::Sample) => {
                let time_ns = utc(time_ns, utc_offset_ns);
                let subject = key_or_none(process, subject.0);
                Some(Item::Sample(SampleRow { time_ns, subject, metric, value }))
            }
            Record::Output { time_ns, stream, bytes } if wants(Table::Output) => {
                let (time_ns, bytes) = (utc(time_ns, utc_offset_ns), bytes.to_vec());
                Some(Item::Output(OutputRow { time_ns, process, stream, bytes }))
            }
            Record::StackSample { time_ns, subject, seen } if wants(Table::StackSample) => {
                Some(Item::StackSample(StackSampleRow {
                    time_ns: utc(time_ns, utc_offset_ns),
                    subject: key_or_none(process, subject.0),
                    thread: seen.thread,
                    stack: stack(seen.stack, process, registry),
                    reason: seen.reason,
                    pause_ns: seen.pause_ns,
                }))
            }
            // Definitions were read before everything else.
            _ => None,
        });
    }
}

fn utc(time_ns: u64, utc_offset_ns: i64) -> i64 {
    (time_ns as i64).wrapping_add(utc_offset_ns)
}

/// Puts a process and one of its own numbers together; 0 stays 0.
fn key_or_none(process: ProcessId, number: u32) -> u64 {
    if number == 0 { 0 } else { key(process, number) }
}

fn string(id: StringId, process: ProcessId, registry: &Registry) -> StringId {
    match id.0 {
        0 => id,
        local => registry.string(key(process, local)),
    }
}

fn stack(id: StackId, process: ProcessId, registry: &Registry) -> StackId {
    match id.0 {
        0 => id,
        local => registry.stack(key(process, local)),
    }
}

fn event_row(event: &Event, process: ProcessId, utc_offset_ns: i64, registry: &Registry) -> Event {
    Event {
        time_ns: utc(event.time_ns as u64, utc_offset_ns),
        process,
        resource: string(event.resource, process, registry),
        scope: key_or_none(process, event.scope as u32),
        stack: stack(event.stack, process, registry),
        ..*event
    }
}

fn scope_row(
    record: &Record<'_>,
    process: ProcessId,
    utc_offset_ns: i64,
    registry: &Registry,
) -> Option<ScopeRow> {
    let row = |time_ns, thread, action, scope, parent, name| ScopeRow {
        time_ns: utc(time_ns, utc_offset_ns),
        process,
        thread,
        action,
        scope: key_or_none(process, scope),
        parent: key_or_none(process, parent),
        name: string(name, process, registry),
    };
    match *record {
        Record::EnterScope { time_ns, scope, parent, name, thread } => {
            Some(row(time_ns, thread, ScopeAction::Enter, scope, parent, name))
        }
        Record::ExitScope { time_ns, scope, thread } => {
            Some(row(time_ns, thread, ScopeAction::Exit, scope, 0, StringId(0)))
        }
        Record::Mark { time_ns, name, thread } => Some(row(time_ns, thread, ScopeAction::Mark, 0, 0, name)),
        _ => None,
    }
}
