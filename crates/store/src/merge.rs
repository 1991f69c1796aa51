//! Merges the lanes of a tail into one sequence in the order of time.
//!
//! Memory: one chunk and one pending record per lane, whatever the tail's length. At equal times a
//! free goes before an allocation, because a re-used address is freed first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::tables::Frame;
use floodmark_event::tail::record::{Decoder, Record};
use floodmark_event::{Action, Event, EventBatch, ProcessId, StackId, StringId};

use crate::manifest::{Manifest, Position};
use crate::registry::{Definitions, Registry, key};
use crate::source::Losses;
use crate::tail::{ChunkRef, DAMAGED, MISSING, TailSnapshot};

/// A scope entered or left, or a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScopeRow {
    pub(crate) time_ns: i64,
    pub(crate) process: ProcessId,
    pub(crate) thread: u64,
    pub(crate) action: ScopeAction,
    pub(crate) scope: u64,
    pub(crate) parent: u64,
    pub(crate) name: StringId,
}

/// What happened to a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScopeAction {
    Enter,
    Exit,
    Mark,
}

/// A decoded record waiting for its turn.
#[derive(Clone, Debug)]
enum Item {
    Event(Event),
    Scope(ScopeRow),
}

/// Reads one lane.
struct Lane {
    process: ProcessId,
    number: u32,
    utc_offset_ns: i64,
    chunks: std::vec::IntoIter<ChunkRef>,
    current: Option<Current>,
    /// Up to where the lane has been read.
    position: Position,
    /// The next in turn; `None` once the lane is at its end.
    pending: Option<Item>,
}

/// The chunk that is being read.
struct Current {
    payload: Vec<u8>,
    decoder: Decoder,
    /// Records that are in parts already.
    skip: u64,
    /// Whether its thread is done with it.
    complete: bool,
}

/// Merges what [`TailSnapshot`] found.
pub(crate) struct TailMerge {
    lanes: Vec<Lane>,
    /// Time, rank among equal times, index of the lane.
    heap: BinaryHeap<Reverse<(i64, u8, usize)>>,
    pub(crate) losses: Losses,
    /// Definitions met, for whoever seals.
    pub(crate) definitions: Definitions,
}

impl TailMerge {
    /// Takes over a snapshot whose processes the manifest knows (see [`TailSnapshot::adopt`]), and
    /// adds what it defines to `registry`. With `from_ns` it may leave out what came before.
    pub(crate) fn new(
        snapshot: TailSnapshot,
        manifest: &Manifest,
        registry: &mut Registry,
        from_ns: Option<i64>,
    ) -> Self {
        let mut merge = Self {
            lanes: Vec::new(),
            heap: BinaryHeap::new(),
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
            for (lane, chunks) in tail.lanes {
                let mut position = entry.lanes.get(&lane).copied().unwrap_or_default();
                // What was left out on purpose is not missing.
                if let Some(first) =
                    chunks.first().filter(|first| from_ns.is_some() && first.sequence > position.sequence)
                {
                    position = Position { sequence: first.sequence, records: 0 };
                }
                merge.lanes.push(Lane {
                    process: ProcessId(entry.id),
                    number: lane,
                    utc_offset_ns,
                    chunks: chunks.into_iter(),
                    current: None,
                    position,
                    pending: None,
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
            merge.lanes[index].advance(registry, &mut merge.losses);
            merge.queue(index);
        }
        merge
    }

    fn queue(&mut self, index: usize) {
        let key = match &self.lanes[index].pending {
            Some(Item::Event(event)) => (event.time_ns, u8::from(event.action != Action::Free), index),
            Some(Item::Scope(row)) => (row.time_ns, 0, index),
            None => return,
        };
        self.heap.push(Reverse(key));
    }

    /// Replaces the rows of `batch`, appends to `scopes`; `false` when both got nothing more.
    pub(crate) fn next(
        &mut self,
        batch: &mut EventBatch,
        scopes: &mut Vec<ScopeRow>,
        registry: &Registry,
    ) -> bool {
        batch.clear();
        let before = scopes.len();
        while batch.len() < BATCH_ROWS && scopes.len() - before < BATCH_ROWS {
            let Some(Reverse((.., index))) = self.heap.pop() else { break };
            match self.lanes[index].pending.take() {
                Some(Item::Event(event)) => batch.push(&event),
                Some(Item::Scope(row)) => scopes.push(row),
                None => {}
            }
            self.lanes[index].advance(registry, &mut self.losses);
            self.queue(index);
        }
        !batch.is_empty() || scopes.len() > before
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
                    if let Some(taken) = take(self.process, self.utc_offset_ns, record) {
                        return Some(taken);
                    }
                }
                // More may come into the last chunk of a thread that is not done with it.
                Ok(None) if !current.complete => return None,
                end => {
                    if end.is_err() {
                        losses.add(1, DAMAGED);
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
            let (complete, skip) = (chunk.complete, self.position.records);
            if let Some((base_time_ns, payload)) = chunk.load() {
                return Some(Current { payload, decoder: Decoder::new(base_time_ns), skip, complete });
            }
            losses.add(1, DAMAGED);
            self.pass_chunk();
        }
    }

    /// Takes in the definitions of a process.
    fn define(&mut self, registry: &mut Registry, definitions: &mut Definitions, losses: &mut Losses) {
        self.read(losses, |process, _, record| {
            match record {
                Record::String { id, text } => {
                    let text = String::from_utf8_lossy(text).into_owned();
                    registry.add_string(key(process, id.0), &text);
                    definitions.strings.push((key(process, id.0), text));
                }
                Record::Frame { id, frame } => {
                    let string =
                        |id: StringId| registry.strings.get(&key(process, id.0)).copied().unwrap_or_default();
                    let frame = Frame {
                        function: string(frame.function),
                        file: string(frame.file),
                        module: string(frame.module),
                        ..frame
                    };
                    registry.add_frame(key(process, id), frame);
                    definitions.frames.push((key(process, id), frame));
                }
                Record::Stack { id, parent, frame } => {
                    let row = (key(process, id.0), key(process, parent.0), key(process, frame));
                    registry.add_stack(row.0, row.1, row.2);
                    definitions.stacks.push(row);
                }
                _ => {}
            }
            None::<()>
        });
    }

    /// Makes the next event or scope row of the lane the pending one.
    fn advance(&mut self, registry: &Registry, losses: &mut Losses) {
        let string = |process, id: StringId| match id.0 {
            0 => id,
            local => registry.strings.get(&key(process, local)).copied().unwrap_or_default(),
        };
        let scope_key = |process, scope: u32| if scope == 0 { 0 } else { key(process, scope) };
        self.pending = self.read(losses, |process, utc_offset_ns, record| {
            let utc = |time_ns: u64| (time_ns as i64).wrapping_add(utc_offset_ns);
            let row = |time_ns, thread, action, scope, parent, name| {
                Some(Item::Scope(ScopeRow {
                    time_ns: utc(time_ns),
                    process,
                    thread,
                    action,
                    scope: scope_key(process, scope),
                    parent: scope_key(process, parent),
                    name: string(process, name),
                }))
            };
            match record {
                Record::Event(event) => Some(Item::Event(Event {
                    time_ns: utc(event.time_ns as u64),
                    process,
                    resource: string(process, event.resource),
                    scope: scope_key(process, event.scope as u32),
                    stack: match event.stack.0 {
                        0 => StackId(0),
                        local => registry.stacks.get(&key(process, local)).copied().unwrap_or_default(),
                    },
                    ..event
                })),
                Record::EnterScope { time_ns, scope, parent, name, thread } => {
                    row(time_ns, thread, ScopeAction::Enter, scope, parent, name)
                }
                Record::ExitScope { time_ns, scope, thread } => {
                    row(time_ns, thread, ScopeAction::Exit, scope, 0, StringId(0))
                }
                Record::Mark { time_ns, name, thread } => row(time_ns, thread, ScopeAction::Mark, 0, 0, name),
                _ => None,
            }
        });
    }
}
