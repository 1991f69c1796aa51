//! The events of a snapshot: those of all devices in the order of time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{Action, Event, EventBatch, Kind, StackId, Tables};
use floodmark_store::{Losses, Progress, Result, Source};

use super::shape::{Did, Entry};
use super::snapshot::{Place, Snapshot};
use super::start::{Before, start_of};
use crate::pieces::Pieces;

/// Hands out the events of a snapshot.
pub(super) struct SnapshotEvents {
    snapshot: Arc<Snapshot>,
    lanes: Vec<Lane>,
    /// Time of the next event of every lane that has one.
    next: BinaryHeap<Reverse<(i64, usize)>>,
    losses: Losses,
    done: u64,
}

/// The events of one place.
struct Lane {
    /// How many entries were taken.
    at: usize,
    /// How many changes of scopes were passed.
    scopes_at: usize,
    scope: u64,
    mapped: Pieces<StackId>,
    ready: VecDeque<Event>,
}

impl SnapshotEvents {
    pub(super) fn new(snapshot: Arc<Snapshot>) -> Self {
        let mut losses = snapshot.losses.clone();
        let mut lanes = Vec::with_capacity(snapshot.places.len());
        let mut next = BinaryHeap::new();
        for place in &snapshot.places {
            let start = start_of(place, &snapshot.entries);
            losses.extend(&start.losses);
            let mut lane = Lane {
                at: 0,
                scopes_at: 0,
                scope: 0,
                mapped: Pieces::default(),
                ready: VecDeque::with_capacity(start.blocks.len() + start.segments.len()),
            };
            lane.begin(&start.segments, &start.blocks, place, &snapshot);
            if let Some(time_ns) = lane.next_ns(place, &snapshot.entries) {
                next.push(Reverse((time_ns, lanes.len())));
            }
            lanes.push(lane);
        }
        Self { snapshot, lanes, next, losses, done: 0 }
    }
}

impl Lane {
    fn next_ns(&self, place: &Place, entries: &[Entry]) -> Option<i64> {
        let traced = || place.trace.get(self.at).and_then(|at| entries[*at as usize].time_ns);
        self.ready.front().map(|event| event.time_ns).or_else(traced)
    }

    /// What was there before the trace.
    fn begin(&mut self, segments: &[Before], blocks: &[Before], place: &Place, snapshot: &Snapshot) {
        let event = |before: &Before| Event {
            time_ns: place.first_ns,
            process: snapshot.process,
            address: before.address,
            bytes: before.bytes,
            device: place.device,
            stream: before.stream,
            scope: snapshot.scopes.before,
            stack: before.stack,
            ..Event::default()
        };
        for segment in segments {
            self.mapped.insert(segment.address, segment.bytes, segment.stack);
            self.ready.push_back(Event { kind: Kind::Reserved, resource: place.segments, ..event(segment) });
        }
        for block in blocks {
            self.ready.push_back(Event { kind: place.kind, resource: place.blocks, ..event(block) });
        }
    }

    /// Turns the next entry into events.
    fn take(&mut self, place: &Place, snapshot: &Snapshot) {
        let entry = snapshot.entries[place.trace[self.at] as usize];
        self.at += 1;
        let time_ns = entry.time_ns.unwrap_or(0);
        let changes = snapshot.scopes.on(place.device);
        while let Some(change) = changes.get(self.scopes_at).filter(|change| change.time_ns <= time_ns) {
            self.scope = change.innermost;
            self.scopes_at += 1;
        }
        let event = Event {
            time_ns,
            process: snapshot.process,
            address: entry.address,
            bytes: entry.bytes,
            device: place.device,
            stream: entry.stream,
            kind: place.kind,
            resource: place.blocks,
            scope: self.scope,
            stack: entry.stack,
            name: entry.name,
            ..Event::default()
        };
        let segment = Event { kind: Kind::Reserved, resource: place.segments, ..event };
        match entry.did {
            Did::Alloc => self.ready.push_back(event),
            Did::FreeRequested => self.ready.push_back(Event { action: Action::Free, ..event }),
            Did::OutOfMemory => {
                self.ready.push_back(Event { action: Action::Failure, address: 0, ..event });
            }
            Did::SegmentAlloc => {
                // What was there must have ended.
                self.unmap(&segment);
                self.mapped.insert(entry.address, entry.bytes, entry.stack);
                self.ready.push_back(segment);
            }
            Did::SegmentFree => self.unmap(&segment),
            Did::FreeCompleted | Did::Snapshot | Did::Annotate | Did::Unknown => {}
        }
    }

    /// Ends what lies where `event` says; of a piece that is only touched the rest goes on as a new one.
    fn unmap(&mut self, event: &Event) {
        for cut in self.mapped.cut(event.address, event.bytes) {
            let (address, bytes) = (cut.whole.start, cut.whole.bytes());
            self.ready.push_back(Event { action: Action::Free, address, bytes, ..*event });
            for rest in cut.rest.into_iter().flatten() {
                let (address, bytes, stack) = (rest.start, rest.bytes(), rest.value);
                self.ready.push_back(Event { action: Action::Alloc, address, bytes, stack, ..*event });
            }
        }
    }
}

impl Source for SnapshotEvents {
    fn tables(&self) -> &Tables {
        &self.snapshot.tables
    }

    fn next(&mut self, batch: &mut EventBatch) -> Result<bool> {
        *batch = EventBatch::new();
        while batch.len() < BATCH_ROWS {
            let Some(Reverse((_, number))) = self.next.pop() else { break };
            let (lane, place) = (&mut self.lanes[number], &self.snapshot.places[number]);
            if let Some(event) = lane.ready.pop_front() {
                batch.push(&event);
            } else {
                lane.take(place, &self.snapshot);
                self.done += 1;
            }
            if let Some(time_ns) = lane.next_ns(place, &self.snapshot.entries) {
                self.next.push(Reverse((time_ns, number)));
            }
        }
        Ok(!batch.is_empty())
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }

    fn progress(&self) -> Progress {
        Progress { done: self.done, total: Some(self.snapshot.entries.len() as u64) }
    }
}
