//! Reading one lane: its definitions, then its rows.

use std::collections::BTreeSet;

use floodmark_event::tables::Frame;
use floodmark_event::{
    CallRow, Event, OutputRow, ProcessId, SampleRow, ScopeAction, ScopeRow, StackId, StackSampleRow,
    StringId, SubjectRow,
};
use floodmark_tail::record::{Decoder, Record};

use super::Item;
use super::sorted::SortedChunks;
use crate::manifest::Position;
use crate::registry::{Registry, key};
use crate::small_tables::{Definitions, FrameRow, StackRow, StringRow};
use crate::source::Losses;
use crate::table::Table;
use crate::tail::{ChunkRef, DAMAGED, MISSING};

/// Times of calls are whole multiples of this.
const CALL_TIME_NS: i64 = 1000;

/// What to add to the times of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeOffsets {
    /// To monotonic times, for UTC on the reference clock.
    pub(super) utc_ns: i64,
    /// To the UTC of its host, for that of the reference clock.
    pub(super) clock_ns: i64,
}

/// Reads one lane.
pub(super) struct Lane {
    pub(super) process: ProcessId,
    /// Name of the process's files.
    pub(super) stem: String,
    pub(super) number: u32,
    /// Chunks that need not be read.
    passed_over: BTreeSet<u64>,
    /// Chunks that had nothing but events.
    pub(super) of_events: BTreeSet<u64>,
    times: TimeOffsets,
    chunks: std::vec::IntoIter<ChunkRef>,
    current: Option<Current>,
    /// The chunks in the order of time, if times go back in the lane.
    sorted: Option<SortedChunks>,
    /// Up to where the lane has been read.
    pub(super) position: Position,
    /// The next in turn; `None` once the lane is at its end.
    pub(super) pending: Option<Item>,
    /// Time at which the next one sorts: a sampler may step back in time, and what it recorded later
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

impl Lane {
    pub(super) fn new(
        process: ProcessId,
        ((stem, number), times): ((String, u32), TimeOffsets),
        chunks: Vec<ChunkRef>,
        position: Position,
        passed_over: BTreeSet<u64>,
    ) -> Self {
        Self {
            process,
            stem,
            number,
            passed_over,
            of_events: BTreeSet::new(),
            times,
            chunks: chunks.into_iter(),
            current: None,
            sorted: None,
            position,
            pending: None,
            sorts_ns: i64::MIN,
        }
    }

    /// Puts the chunks of the lane in the order of time, if times go back in it.
    pub(super) fn prepare(&mut self, only: Option<Table>, losses: &mut Losses) {
        if self.number != 0 && self.chunks.as_slice().iter().any(|chunk| chunk.is_disordered) {
            self.sorted = Some(self.survey(only, losses));
        }
    }

    /// Decodes all chunks once, to learn when the rows of each begin. Records count as read afterwards.
    fn survey(&mut self, only: Option<Table>, losses: &mut Losses) -> SortedChunks {
        let mut sorted = SortedChunks::new(self.process, self.times.utc_ns, only);
        while let Some(chunk) = self.next_ref(losses) {
            let Some((base_time_ns, payload)) = chunk.read() else {
                losses.add(1, DAMAGED);
                self.pass_chunk();
                continue;
            };
            let skip = self.position.records;
            let mut decoder = Decoder::new(base_time_ns);
            let (mut records, mut has_only_events) = (0, true);
            let is_sound = loop {
                match decoder.next(&payload) {
                    Ok(Some(record)) => {
                        records += 1;
                        if records > skip {
                            has_only_events &= matches!(record, Record::Event(_));
                            sorted.survey(&record);
                        }
                    }
                    end => break end.is_ok(),
                }
            };
            self.position.records = self.position.records.max(records);
            let (sequence, complete) = (chunk.sequence, chunk.complete);
            sorted.end_chunk(chunk, skip);
            if is_sound && !complete {
                // More may come into the last chunk of a thread that is not done with it.
                break;
            }
            if !is_sound {
                losses.add(1, DAMAGED);
            } else if has_only_events {
                self.of_events.insert(sequence);
            }
            self.pass_chunk();
        }
        sorted
    }

    /// Time at which the pending row sorts, and its rank among equal times.
    pub(super) fn turn(&mut self) -> Option<(i64, u8)> {
        let item = self.pending.as_ref()?;
        let (time_ns, rank) = item.turn();
        self.sorts_ns = match &self.sorted {
            Some(sorted) => sorted.latest_ns(),
            None => self.sorts_ns.max(time_ns),
        };
        Some((self.sorts_ns, rank))
    }

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
                    if let Some(taken) = take(self.process, self.times.utc_ns, record) {
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

    /// Returns the next chunk that is to be read, counting those that are missing before it.
    fn next_ref(&mut self, losses: &mut Losses) -> Option<ChunkRef> {
        loop {
            let chunk = self.chunks.next()?;
            if chunk.sequence > self.position.sequence {
                losses.add(chunk.sequence - self.position.sequence, MISSING);
                self.position = Position { sequence: chunk.sequence, records: 0 };
            }
            if !self.passed_over.contains(&chunk.sequence) {
                return Some(chunk);
            }
            self.pass_chunk();
        }
    }

    fn next_chunk(&mut self, losses: &mut Losses) -> Option<Current> {
        loop {
            let chunk = self.next_ref(losses)?;
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
    pub(super) fn define(
        &mut self,
        registry: &mut Registry,
        definitions: &mut Definitions,
        losses: &mut Losses,
    ) {
        let clock_ns = self.times.clock_ns;
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
                        start_ns: Some(entry.start_ns)
                            .filter(|start| *start != 0)
                            .map(|start| start.wrapping_add(clock_ns)),
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
                Record::Device { device, uuid } => {
                    let uuid = registry.tables.string(registry.string(key(process, uuid.0))).to_owned();
                    registry.tables.devices.insert((process, device), uuid);
                    definitions.has_devices = true;
                }
                _ => {}
            }
            None::<()>
        });
    }

    /// Makes the next row of the lane the pending one.
    pub(super) fn advance(&mut self, registry: &Registry, only: Option<Table>, losses: &mut Losses) {
        self.pending = match &mut self.sorted {
            Some(sorted) => sorted.next(registry),
            None => self.read(losses, |process, utc_offset_ns, record| {
                row(&record, process, utc_offset_ns, registry, only)
            }),
        };
    }
}

/// Returns the table of the row that a record becomes; `None` if it becomes none.
pub(super) fn table_of(record: &Record<'_>) -> Option<Table> {
    match record {
        Record::Event(_) => Some(Table::Event),
        Record::EnterScope { .. }
        | Record::ExitScope { .. }
        | Record::Mark { .. }
        | Record::BeginRange { .. }
        | Record::EndRange { .. } => Some(Table::Scope),
        Record::Call { .. } => Some(Table::Call),
        Record::Sample { .. } => Some(Table::Sample),
        Record::Output { .. } => Some(Table::Output),
        Record::StackSample { .. } => Some(Table::StackSample),
        // Definitions were read before everything else.
        _ => None,
    }
}

/// Turns a record into the row it becomes; `None` if it becomes none, or one that is not wanted.
#[inline]
pub(super) fn row(
    record: &Record<'_>,
    process: ProcessId,
    utc_offset_ns: i64,
    registry: &Registry,
    only: Option<Table>,
) -> Option<Item> {
    let table = table_of(record)?;
    if only.is_some_and(|only| only != table) {
        return None;
    }
    Some(match *record {
        Record::Event(event) => Item::Event(event_row(&event, process, utc_offset_ns, registry)),
        Record::Call { time_ns, thread, call } => {
            let time_ns = utc(time_ns, utc_offset_ns);
            let row = CallRow {
                time_ns: time_ns.div_euclid(CALL_TIME_NS).saturating_mul(CALL_TIME_NS),
                process,
                thread,
                action: call.action,
                code: registry.frame(key_or_none(process, call.code)),
                line: call.line,
                rss_bytes: call.rss_bytes,
            };
            Item::Call(time_ns, row)
        }
        Record::Sample { time_ns, subject, metric, value } => {
            let time_ns = utc(time_ns, utc_offset_ns);
            Item::Sample(SampleRow { time_ns, subject: key_or_none(process, subject.0), metric, value })
        }
        Record::Output { time_ns, stream, bytes } => {
            let (time_ns, bytes) = (utc(time_ns, utc_offset_ns), bytes.to_vec());
            Item::Output(OutputRow { time_ns, process, stream, bytes })
        }
        Record::StackSample { time_ns, subject, seen } => Item::StackSample(StackSampleRow {
            time_ns: utc(time_ns, utc_offset_ns),
            subject: key_or_none(process, subject.0),
            thread: seen.thread,
            stack: stack(seen.stack, process, registry),
            reason: seen.reason,
            pause_ns: seen.pause_ns,
        }),
        _ => Item::Scope(scope_row(record, process, utc_offset_ns, registry)?),
    })
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
        Record::BeginRange { time_ns, scope, name, thread } => {
            Some(row(time_ns, thread, ScopeAction::Begin, scope, 0, name))
        }
        Record::EndRange { time_ns, scope, thread } => {
            Some(row(time_ns, thread, ScopeAction::End, scope, 0, StringId(0)))
        }
        Record::Mark { time_ns, name, thread } => Some(row(time_ns, thread, ScopeAction::Mark, 0, 0, name)),
        _ => None,
    }
}
