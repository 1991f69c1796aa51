//! Reading one lane: its definitions, then its rows.

use std::collections::{BTreeSet, VecDeque};

use floodmark_event::tables::Frame;
use floodmark_event::{EventBatch, ProcessId, RowPick, StringId, SubjectRow};
use floodmark_tail::record::{Decoder, EventRun, Record};

use super::record_rows::{RowChoice, key_or_none, row, stack, string};
use super::sorted::SortedChunks;
use super::{Item, OUTPUT_BYTES, TailRows, event_rank};
use crate::manifest::Position;
use crate::registry::{Registry, key};
use crate::small_tables::{Definitions, FrameRow, StackRow, StringRow};
use crate::source::Losses;
use crate::table::Table;
use crate::tail::{ChunkRef, DAMAGED, MISSING};

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
    /// Decoded events, of which those before `passed` were handed out.
    pub(super) events: EventBatch,
    passed: usize,
    /// When it is each event's turn.
    turns: Vec<i64>,
    /// Decoded rows of other tables, each with its turn.
    items: VecDeque<(i64, Item)>,
    /// Turn of the row that was decoded last. What was recorded later still comes later, even where a sampler
    /// steps back in time.
    latest: i64,
    /// Whether everything is decoded.
    is_at_end: bool,
    /// Memory for decoding.
    run: EventRun,
}

/// Turns a time, and the rank among equal times, into a number that sorts as both do.
fn turn((time_ns, rank): (i64, u8)) -> i64 {
    time_ns.clamp(i64::MIN / 2, i64::MAX / 2) * 2 + i64::from(rank)
}

/// What reading came to.
enum Read<T> {
    /// Something, or nothing that was wanted.
    Taken(Option<T>),
    /// The end of the lane.
    End,
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
            events: EventBatch::new(),
            passed: 0,
            turns: Vec::new(),
            items: VecDeque::new(),
            latest: i64::MIN,
            is_at_end: number == 0,
            run: EventRun::default(),
        }
    }

    /// Puts the chunks of the lane in the order of time, if times go back in it.
    pub(super) fn prepare(&mut self, choice: RowChoice, losses: &mut Losses) {
        if self.number != 0 && self.chunks.as_slice().iter().any(|chunk| chunk.is_disordered) {
            self.sorted = Some(self.survey(choice, losses));
        }
    }

    /// Decodes all chunks once, to learn when the rows of each begin. Records count as read afterwards.
    fn survey(&mut self, choice: RowChoice, losses: &mut Losses) -> SortedChunks {
        let mut sorted = SortedChunks::new(self.process, self.times.utc_ns, choice);
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

    /// Whether everything was handed out.
    pub(super) fn is_done(&self) -> bool {
        self.is_at_end && self.events_left() == 0 && self.items.is_empty()
    }

    /// Gives the memory of a lane back that is done.
    pub(super) fn close_if_done(&mut self) {
        if self.is_done() && self.run.time_ns.capacity() > 0 {
            (self.events, self.passed, self.turns) = (EventBatch::new(), 0, Vec::new());
            (self.items, self.run) = (VecDeque::new(), EventRun::default());
        }
    }

    /// Number of decoded events that were not handed out.
    pub(super) fn events_left(&self) -> usize {
        self.events.len() - self.passed
    }

    /// Turn of the next event.
    pub(super) fn next_event_turn(&self) -> Option<i64> {
        self.turns.get(self.passed).copied()
    }

    /// Turn before which no row is that is not decoded; none if all are.
    pub(super) fn reached(&self) -> Option<i64> {
        (!self.is_at_end).then_some(self.latest)
    }

    /// Hands all decoded rows out.
    pub(super) fn pass_all(&mut self, rows: &mut TailRows) {
        if self.passed == 0 {
            std::mem::swap(&mut rows.events, &mut self.events);
        } else {
            let picks: Vec<RowPick> = (self.passed as u32..self.events.len() as u32)
                .map(|row| RowPick { source: 0, row })
                .collect();
            rows.events.gather(&[&self.events], &picks);
        }
        rows.rows += rows.events.len();
        self.clear_events();
        self.items.drain(..).for_each(|(_, item)| rows.push(item));
    }

    /// Passes the events whose turn has come. Returns the first of them, and the turns of all.
    pub(super) fn pass_events(&mut self, has_come: impl Fn(i64) -> bool) -> (usize, &[i64]) {
        let start = self.passed;
        self.passed += self.turns[start..].partition_point(|turn| has_come(*turn));
        (start, &self.turns[start..self.passed])
    }

    /// Hands out the rows of other tables whose turn has come.
    pub(super) fn pass_items(&mut self, has_come: impl Fn(i64) -> bool, mut take: impl FnMut(i64, Item)) {
        while let Some((turn, item)) = self.items.pop_front_if(|(turn, _)| has_come(*turn)) {
            take(turn, item);
        }
    }

    fn clear_events(&mut self) {
        self.events.clear();
        self.turns.clear();
        self.passed = 0;
    }

    /// Decodes up to about `most` rows, if none are left.
    pub(super) fn fill(&mut self, most: usize, choice: RowChoice, registry: &Registry, losses: &mut Losses) {
        if self.is_at_end || self.events_left() > 0 || !self.items.is_empty() {
            return;
        }
        self.clear_events();
        let mut output_bytes = 0;
        while self.events.len() + self.items.len() < most && output_bytes < OUTPUT_BYTES && !self.is_at_end {
            if let Some(sorted) = &mut self.sorted {
                match sorted.next(registry) {
                    Some(item) => {
                        let (_, rank) = item.turn();
                        let turn = turn((sorted.latest_ns(), rank));
                        self.add(turn, item);
                    }
                    None => self.is_at_end = true,
                }
                continue;
            }
            let room = most - self.events.len() - self.items.len();
            if self.read_events(room, choice, registry, losses) {
                continue;
            }
            let item = self.next_item(choice, registry, losses);
            if let Some(item) = item {
                if let Item::Output(row) = &item {
                    output_bytes += row.bytes.len();
                }
                self.add(turn(item.turn()), item);
            }
        }
    }

    /// Adds a decoded row.
    fn add(&mut self, turn: i64, item: Item) {
        self.latest = self.latest.max(turn);
        match item {
            Item::Event(event) => {
                self.events.push(&event);
                self.turns.push(self.latest);
            }
            item => self.items.push_back((self.latest, item)),
        }
    }

    /// Decodes events that follow one another; `false` if something else comes next.
    fn read_events(
        &mut self,
        room: usize,
        choice: RowChoice,
        registry: &Registry,
        losses: &mut Losses,
    ) -> bool {
        let Some(mut current) = self.current.take_if(|current| current.skip == 0) else { return false };
        self.run.clear();
        let decoded = current.decoder.events(&current.payload, room, &mut self.run);
        self.position.records += self.run.len() as u64;
        if choice.wants(Table::Event) {
            self.add_run(&current.decoder, choice, registry);
        }
        match decoded {
            Ok(()) => self.current = Some(current),
            Err(_) => {
                losses.add(1, DAMAGED);
                self.pass_chunk();
            }
        }
        !self.run.is_empty()
    }

    /// Adds the events of a run to those that are decoded.
    fn add_run(&mut self, decoder: &Decoder, choice: RowChoice, registry: &Registry) {
        let (process, run, rows) = (self.process, &mut self.run, self.events.len());
        let Some(first) = run.slot.first() else { return };
        run.time_ns.iter_mut().for_each(|time_ns| *time_ns = time_ns.wrapping_add(self.times.utc_ns));
        if !choice.has_own_stacks {
            run.stack.iter_mut().for_each(|id| *id = stack(*id, process, registry));
        }
        let batch = &mut self.events;
        batch.time_ns.append(&run.time_ns, rows);
        batch.action.append(&run.action, rows);
        batch.address.append(&run.address, rows);
        batch.bytes.append(&run.bytes, rows);
        batch.stack.append(&run.stack, rows);
        let count = run.len();
        batch.process.append_same(process, count, rows);
        batch.thread.append_same(decoder.thread(), count, rows);
        batch.scope.append_same(key_or_none(process, decoder.scope()), count, rows);
        // Mostly all have the same domain.
        let mut at = 0;
        let mut slot = *first;
        while at < count {
            let until = run.slot[at..].iter().position(|other| *other != slot).map_or(count, |len| at + len);
            let domain = decoder.domain(slot).unwrap_or_default();
            batch.device.append_same(domain.device, until - at, rows + at);
            batch.stream.append_same(domain.stream, until - at, rows + at);
            batch.kind.append_same(domain.kind, until - at, rows + at);
            batch.resource.append_same(string(domain.resource, process, registry), until - at, rows + at);
            batch.name.append_same(string(domain.name, process, registry), until - at, rows + at);
            at = until;
            slot = run.slot.get(at).copied().unwrap_or(0);
        }
        batch.set_len(rows + count);
        let mut latest = self.latest;
        self.turns.extend(run.time_ns.iter().zip(&run.action).map(|(time_ns, action)| {
            latest = latest.max(turn((*time_ns, event_rank(*action))));
            latest
        }));
        self.latest = latest;
    }

    /// Returns the next row that is wanted; `None` at the end of the lane, and where events come first.
    fn next_item(&mut self, choice: RowChoice, registry: &Registry, losses: &mut Losses) -> Option<Item> {
        let item = self.read_one(losses, |process, utc_offset_ns, record| {
            row(&record, process, utc_offset_ns, registry, choice)
        });
        match item {
            Read::Taken(item) => item,
            Read::End => {
                self.is_at_end = true;
                None
            }
        }
    }

    /// Calls `take` with the next record, or with none where a chunk begins or ends.
    fn read_one<T>(
        &mut self,
        losses: &mut Losses,
        take: impl FnOnce(ProcessId, i64, Record<'_>) -> Option<T>,
    ) -> Read<T> {
        if self.current.is_none() {
            self.current = self.next_chunk(losses);
            return if self.current.is_some() { Read::Taken(None) } else { Read::End };
        }
        let Some(current) = self.current.as_mut() else { return Read::End };
        match current.decoder.next(&current.payload) {
            Ok(Some(_)) if current.skip > 0 => current.skip -= 1,
            Ok(Some(record)) => {
                self.position.records += 1;
                current.has_only_events &= matches!(record, Record::Event(_));
                return Read::Taken(take(self.process, self.times.utc_ns, record));
            }
            // More may come into the last chunk of a thread that is not done with it.
            Ok(None) if !current.complete => return Read::End,
            end => {
                if end.is_err() {
                    losses.add(1, DAMAGED);
                } else if current.has_only_events {
                    self.of_events.insert(self.position.sequence);
                }
                self.pass_chunk();
            }
        }
        Read::Taken(None)
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
        let mut define = |process: ProcessId, utc_offset_ns: i64, record: Record<'_>| {
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
        };
        while let Read::Taken(_) = self.read_one(losses, &mut define) {}
    }
}
