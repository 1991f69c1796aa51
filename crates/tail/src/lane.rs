//! A thread's writing end of the ring: the recording path itself.
//!
//! Invariants: a lane is written by one thread at a time (the one that holds it, see `recorder`); a
//! record becomes visible only by the store to its chunk's commit word; what is committed is never
//! given up, so when no space is left it is *new* events that are counted as lost; a lane's memory
//! reads as zeros in a forked child, which makes its generation wrong and sends the child's first
//! event to the slow path; a chunk in which time goes back, or before which it did, is marked as disordered
//! before the record that does so is committed.
#![expect(unsafe_code, reason = "writes records into memory shared with other processes")]

mod observed;
mod stamped;
mod traced;

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::record::{
    AllocDomain, BlockEvent, Body, DOMAIN_SLOTS, MAX_CONTEXT_BYTES, MAX_DOMAIN_BYTES, MAX_EVENT_BYTES,
    MAX_NUMBERS_BYTES, NumbersInPlace, NumbersPayload, Previous, RecordType, domain_payload, encode_event,
    time_record,
};
use super::ring::{CHUNK_HEADER_BYTES, CHUNK_PAYLOAD_BYTES, LossReason, Ring};
use super::segment::{self, Frame};
use super::values::Slots;
use crate::clock::{self, When};
use crate::protocol::{CHUNK_DISORDERED, ChunkHeader, Contents, Entry, Gate};
use crate::ticks::{TickAnchor, ticks};
use floodmark_event::event::{Action, Kind, StackId, StringId};

/// Most chunks one lane keeps: what a burst may hold before it goes to disk.
const MAX_LANE_CHUNKS: usize = 8;
/// A segment file this long is followed by another, so that sealed ones can be deleted.
const SPILL_FILE_BYTES: u64 = 16 << 20;
/// A chunk with no more than this is not ended early: every chunk begins with a few records.
const LEAST_ENDED_BYTES: u32 = 64;
/// How many events a lane without space loses before it tries the disk again.
const RETRY_EVENTS: u64 = 4096;

/// Bytes that must fit a chunk for an event to go into it with everything that may go before it.
const EVENT_ROOM: usize = MAX_EVENT_BYTES + MAX_DOMAIN_BYTES + MAX_CONTEXT_BYTES;

/// A domain that equals no other, so that the first event of a chunk defines its own.
const NO_DOMAIN: AllocDomain = AllocDomain {
    device: i32::MIN,
    kind: Kind::Unknown,
    stream: u64::MAX,
    resource: StringId(u32::MAX),
    name: StringId(0),
};

#[derive(Clone, Copy)]
struct Slot {
    domain: AllocDomain,
    /// Chunk of the lane in which the slot was defined; 0 for never.
    chunk: u32,
}

/// What a lane needs of its process when it runs out of room.
pub(crate) trait Surroundings {
    /// Recording that is going on.
    fn generation(&self) -> u32;
    fn ring(&self) -> &Ring;
    /// Path of the ring's file.
    fn ring_path(&self) -> &CStr;
    /// Whether a lane may take a further chunk although it has some.
    fn may_grow(&self) -> bool;
    /// Calls `with` with the path of segment file `number` of `lane`.
    fn with_segment_path(&self, lane: u32, number: u32, with: &mut dyn FnMut(&CStr));
}

/// The state of one lane, a page of its own that forked children see as zeros.
#[repr(C, align(64))]
pub(crate) struct Lane {
    pub(crate) gate: Gate,
    last_slot: Cell<u8>,
    /// Bytes written into the current chunk, committed or not.
    position: Cell<u32>,
    number: Cell<u32>,
    chunk: Cell<*mut ChunkHeader>,
    previous: Cell<Previous>,
    last_domain: Cell<AllocDomain>,
    /// How many chunks were begun: tells whether a slot was defined in this one.
    begun: Cell<u32>,
    scope: Cell<u32>,
    sequence: Cell<u64>,
    thread: Cell<u64>,
    /// Thread whose records those that follow are, as far as the chunk says: another one than `thread`
    /// after an event was recorded on its behalf.
    written_thread: Cell<u64>,
    /// Time of the latest record before samples went back in time; 0 if they did not since.
    ahead_ns: Cell<u64>,
    /// Resident pages that calls gave last, plus 1; 0 for none.
    rss: Cell<u64>,
    /// Chunk of the lane that says so, as in `begun`.
    rss_chunk: Cell<u32>,
    /// Turns readings of the tick counter into times.
    ticks: TickAnchor,
    chunk_count: Cell<u32>,
    spill_number: Cell<u32>,
    spilled_bytes: Cell<u64>,
    /// Events lost since the last try to find space.
    stalled: Cell<u64>,
    /// Latest values of samples, mapped when the first one comes.
    values: Cell<*mut Slots>,
    /// Chunk of the lane to which they belong, as in `begun`.
    values_chunk: Cell<u32>,
    chunks: [Cell<u32>; MAX_LANE_CHUNKS],
    slots: [Cell<Slot>; DOMAIN_SLOTS],
}

const _: () = assert!(size_of::<Lane>() <= 4096);

// SAFETY: the cells are touched only by the thread that holds the lane; the gate hands it over with
// acquire and release.
unsafe impl Sync for Lane {}

impl Lane {
    /// A lane that belongs to no recording; what every thread starts with.
    pub(crate) const fn nowhere() -> Self {
        Self {
            gate: Gate {
                generation: AtomicU32::new(0),
                busy: AtomicBool::new(false),
                vacant: AtomicBool::new(false),
            },
            last_slot: Cell::new(0),
            position: Cell::new(CHUNK_PAYLOAD_BYTES as u32),
            number: Cell::new(0),
            chunk: Cell::new(std::ptr::null_mut()),
            previous: Cell::new(Previous { time_ns: 0, address: 0 }),
            last_domain: Cell::new(NO_DOMAIN),
            begun: Cell::new(0),
            scope: Cell::new(0),
            sequence: Cell::new(0),
            thread: Cell::new(0),
            written_thread: Cell::new(0),
            ahead_ns: Cell::new(0),
            rss: Cell::new(0),
            rss_chunk: Cell::new(0),
            ticks: TickAnchor::never(),
            chunk_count: Cell::new(0),
            spill_number: Cell::new(0),
            spilled_bytes: Cell::new(0),
            stalled: Cell::new(0),
            values: Cell::new(std::ptr::null_mut()),
            values_chunk: Cell::new(0),
            chunks: [const { Cell::new(0) }; MAX_LANE_CHUNKS],
            slots: [const { Cell::new(Slot { domain: NO_DOMAIN, chunk: 0 }) }; DOMAIN_SLOTS],
        }
    }

    /// Readies a zeroed page as lane `number` of recording `generation`.
    pub(crate) fn initialize(&self, number: u32, generation: u32) {
        self.position.set(CHUNK_PAYLOAD_BYTES as u32);
        self.last_domain.set(NO_DOMAIN);
        self.number.set(number);
        self.gate.generation.store(generation, Ordering::Relaxed);
    }

    /// Writes that the lane's records are from now on those of `thread`.
    pub(crate) fn take(&self, thread: u64, around: &impl Surroundings) {
        self.thread.set(thread);
        self.scope.set(0);
        // What the chunk says of the resident size stays valid: it is that of the process.
        // A chunk begins with its thread; only one that goes on needs the record.
        if !self.chunk.get().is_null() {
            self.exclusively(0, around, || self.write_thread(thread, 0, around));
        }
    }

    /// Writes that the records that follow are those of `thread`, in `scope`, and that their times count from the
    /// latest record before samples that went back.
    fn write_thread(&self, thread: u64, scope: u32, around: &impl Surroundings) {
        self.skip_samples(around);
        self.put(NumbersPayload::new(RecordType::Thread).number(thread).finish(), around);
        self.put(NumbersPayload::new(RecordType::Scope).number(u64::from(scope)).finish(), around);
        self.written_thread.set(thread);
    }

    /// Makes the records that follow those of the lane's own thread, if others went before.
    #[inline]
    fn resume_own_thread(&self, around: &impl Surroundings) {
        if self.written_thread.get() != self.thread.get() {
            self.write_thread(self.thread.get(), self.scope.get(), around);
        }
    }

    /// Writes that the time of the records that follow counts from `time_ns`, which is earlier than that of
    /// the previous record. There must be room.
    #[cold]
    #[inline(never)]
    fn step_back(&self, time_ns: u64, around: &impl Surroundings) {
        let mut previous = self.previous.get();
        let (record, len) = time_record(time_ns.wrapping_sub(previous.time_ns) as i64);
        // SAFETY: a lane that has room has a chunk, which stays mapped.
        unsafe { (*self.chunk.get()).mark_disordered() };
        self.put(&record[..len], around);
        previous.time_ns = time_ns;
        self.previous.set(previous);
    }

    /// Sees to it that the previous record is not later than `time_ns`, and returns how much earlier it
    /// is. There must be room.
    #[inline]
    fn elapsed_until(&self, time_ns: u64, around: &impl Surroundings) -> u64 {
        let elapsed = time_ns.wrapping_sub(self.previous.get().time_ns);
        if (elapsed as i64) < 0 {
            self.step_back(time_ns, around);
            return 0;
        }
        elapsed
    }

    /// Records one event. Its bytes are committed when this returns.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is around it is a constant on the global recording path")]
    pub(crate) fn event(
        &self,
        action: Action,
        address: u64,
        bytes: u64,
        domain: &AllocDomain,
        stack: StackId,
        around: &impl Surroundings,
    ) {
        let what = BlockEvent { action, address, bytes, is_named: false };
        self.event_read(what, domain, stack, clock::monotonic_ns, around);
    }

    /// Records one event at the time that `time_ns` returns, which is not earlier than that of the lane's previous
    /// record unless the lane is to be disordered.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is around it is a constant on the global recording path")]
    pub(crate) fn event_read(
        &self,
        what: BlockEvent,
        domain: &AllocDomain,
        stack: StackId,
        time_ns: impl FnOnce() -> u64,
        around: &impl Surroundings,
    ) {
        match self.gate.enter(|| around.generation()) {
            Entry::Entered => {}
            Entry::Nested => return around.ring().lose(LossReason::Nested, 1),
            // The recording ended since the caller looked.
            Entry::Ended => return,
        }
        if self.position.get() as usize <= CHUNK_PAYLOAD_BYTES - EVENT_ROOM || self.next_chunk(around) {
            let slot = if *domain == self.last_domain.get() {
                self.last_slot.get()
            } else {
                // After an event on behalf of another thread no domain equals the last one.
                self.resume_own_thread(around);
                self.slot_of(domain, around)
            };
            let body = Body { what, time_ns: time_ns(), stack };
            self.write_event(slot, &body, around);
        } else {
            around.ring().lose(LossReason::NoSpace, 1);
        }
        self.gate.leave();
    }

    /// Records an event if that takes nothing but writing it: there is room, the previous event had the same domain, and
    /// its time is known and not before that of the previous record. Returns whether it did. Never panics.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the recording path of injected code")]
    pub(crate) fn plain_event(
        &self,
        what: BlockEvent,
        domain: &AllocDomain,
        stack: StackId,
        before: Option<u64>,
        around: &impl Surroundings,
    ) -> bool {
        if self.gate.enter(|| around.generation()) != Entry::Entered {
            return false;
        }
        let last_ns = self.previous.get().time_ns;
        let time_ns = match before {
            Some(ticks) => self.ticks.known_ns(ticks).filter(|time_ns| *time_ns >= last_ns),
            None => self.ticks.known_ns(ticks()).map(|time_ns| time_ns.max(last_ns)),
        };
        let has_room = self.position.get() as usize <= CHUNK_PAYLOAD_BYTES - EVENT_ROOM;
        let mut is_plain = false;
        if let Some(time_ns) = time_ns
            && has_room
            && *domain == self.last_domain.get()
        {
            self.append_event(self.last_slot.get(), &Body { what, time_ns, stack });
            is_plain = true;
        }
        self.gate.leave();
        is_plain
    }

    /// The time of an event: of now, which is never before the lane's previous record, or of an earlier reading of the
    /// tick counter.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) fn time_of(&self, before: Option<u64>) -> u64 {
        match before {
            Some(ticks) => self.ticks.monotonic_ns(ticks),
            None => self.ticks.monotonic_ns(ticks()).max(self.previous.get().time_ns),
        }
    }

    /// Appends an event and commits it. There must be room for [`EVENT_ROOM`] bytes.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    fn write_event(&self, slot: u8, body: &Body, around: &impl Surroundings) {
        self.elapsed_until(body.time_ns, around);
        self.append_event(slot, body);
    }

    /// Appends an event that is not earlier than the previous record, and commits it. There must be room for
    /// [`EVENT_ROOM`] bytes.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    fn append_event(&self, slot: u8, body: &Body) {
        let position = self.position.get();
        let mut previous = self.previous.get();
        // SAFETY: the chunk is backed by the file, MAX_EVENT_BYTES fit behind `position` (the caller made
        // room for more than that and what went before it), and nothing reads or writes beyond the
        // committed bytes but the thread that holds the lane.
        let out = unsafe { &mut *self.payload().add(position as usize).cast::<[u8; MAX_EVENT_BYTES]>() };
        let len = encode_event(out, &mut previous, slot, body);
        self.previous.set(previous);
        self.commit(position + len as u32);
    }

    /// Records something that is not an event; `build` gets the time since the previous record.
    pub(crate) fn other(
        &self,
        when: When,
        around: &impl Surroundings,
        build: impl FnOnce(&mut [u8; MAX_NUMBERS_BYTES], u64) -> usize,
    ) {
        self.exclusively(1, around, || {
            let time_ns = when.monotonic_ns();
            // A chunk without room for all of it is ended first: times count from the chunk's own previous
            // record.
            if !self.has_room(MAX_NUMBERS_BYTES + MAX_CONTEXT_BYTES, around) {
                around.ring().lose(LossReason::NoSpace, 1);
                return;
            }
            self.resume_own_thread(around);
            let elapsed = self.elapsed_until(time_ns, around);
            let position = self.position.get();
            // SAFETY: as in `event`; the room was checked for the longest record of numbers.
            let record =
                unsafe { &mut *self.payload().add(position as usize).cast::<[u8; MAX_NUMBERS_BYTES]>() };
            let len = build(record, elapsed);
            self.commit(position + len as u32);
            self.set_time(time_ns);
        });
    }

    fn set_time(&self, time_ns: u64) {
        self.previous.set(Previous { time_ns, ..self.previous.get() });
    }

    /// Calls `write` unless this thread is in the middle of a record, in which case `records` are lost,
    /// or the recording has ended.
    fn exclusively(&self, records: u64, around: &impl Surroundings, write: impl FnOnce()) {
        match self.gate.enter(|| around.generation()) {
            Entry::Entered => {
                write();
                self.gate.leave();
            }
            Entry::Nested => around.ring().lose(LossReason::Nested, records),
            Entry::Ended => {}
        }
    }

    /// Writes a definition into the lane, which the caller has locked; returns whether it was written.
    pub(crate) fn definition(&self, record: &[u8], around: &impl Surroundings) -> bool {
        let mut written = false;
        self.exclusively(0, around, || written = self.put(record, around));
        written
    }

    /// Sees to it that `bytes` fit the current chunk; `false` if there is no space anywhere.
    fn has_room(&self, bytes: usize, around: &impl Surroundings) -> bool {
        self.position.get() as usize + bytes <= CHUNK_PAYLOAD_BYTES || self.next_chunk(around)
    }

    /// Whether the next event may begin a chunk.
    #[inline]
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.position.get() as usize > CHUNK_PAYLOAD_BYTES - EVENT_ROOM
    }

    /// Begins a chunk if the next event may not fit the current one.
    pub(crate) fn make_room(&self, around: &impl Surroundings) {
        self.exclusively(0, around, || {
            // Without space the event itself counts as lost.
            let _ = self.has_room(EVENT_ROOM, around);
        });
    }

    /// Enters scope `scope` and returns the one around it.
    pub(crate) fn enter(&self, scope: u32, name: StringId, when: When, around: &impl Surroundings) -> u32 {
        self.other(when, around, |record, elapsed| {
            let record = NumbersInPlace::new(record, RecordType::EnterScope).number(elapsed);
            record.number(u64::from(scope)).number(u64::from(name.0)).finish()
        });
        self.scope.replace(scope)
    }

    /// Leaves the innermost scope for `parent`.
    pub(crate) fn exit(&self, parent: u32, when: When, around: &impl Surroundings) {
        self.other(when, around, |record, elapsed| {
            NumbersInPlace::new(record, RecordType::ExitScope)
                .number(elapsed)
                .number(u64::from(parent))
                .finish()
        });
        self.scope.set(parent);
    }

    /// Returns the slot of `domain`, defining it if this chunk does not know it.
    #[inline(never)]
    fn slot_of(&self, domain: &AllocDomain, around: &impl Surroundings) -> u8 {
        let mix = domain.stream
            ^ u64::from(domain.resource.0) << 24
            ^ (domain.device as u64) << 8
            ^ domain.kind as u64;
        let first = (mix.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
        let begun = self.begun.get();
        // Two domains that take turns must not evict each other, so a taken slot sends on to the next.
        let mut number = first;
        for probe in (first..first + 8).map(|probe| probe % DOMAIN_SLOTS) {
            let slot = self.slots[probe].get();
            if slot.chunk != begun || slot.domain == *domain {
                number = probe;
                break;
            }
        }
        let slot = self.slots[number].get();
        if slot.domain != *domain || slot.chunk != begun {
            self.slots[number].set(Slot { domain: *domain, chunk: begun });
            self.put(domain_payload(number as u8, domain).finish(), around);
        }
        self.last_domain.set(*domain);
        self.last_slot.set(number as u8);
        number as u8
    }

    /// Appends an encoded record and commits it; counts it as lost if there is no room. Returns
    /// whether there was.
    pub(crate) fn put(&self, record: &[u8], around: &impl Surroundings) -> bool {
        if !self.has_room(record.len(), around) {
            around.ring().lose(LossReason::NoSpace, 1);
            return false;
        }
        let position = self.position.get();
        // SAFETY: as in `event`; the length was checked above.
        unsafe {
            self.payload().add(position as usize).copy_from_nonoverlapping(record.as_ptr(), record.len());
        };
        self.commit(position + record.len() as u32);
        true
    }

    #[inline]
    fn payload(&self) -> *mut u8 {
        self.chunk.get().cast::<u8>().wrapping_add(CHUNK_HEADER_BYTES)
    }

    #[inline]
    fn commit(&self, position: u32) {
        self.position.set(position);
        // SAFETY: a lane whose position leaves room has a chunk, which stays mapped.
        unsafe { (*self.chunk.get()).commit(position) };
    }

    /// Finds room: a free chunk, a new one, or the current one once it is on disk.
    #[cold]
    fn next_chunk(&self, around: &impl Surroundings) -> bool {
        let ring = around.ring();
        let count = self.chunk_count.get() as usize;
        let free = self.chunks[..count].iter().map(|index| ring.chunk(index.get() as usize)).find(|chunk| {
            // SAFETY: the lane's chunks are mapped and backed.
            unsafe { (**chunk).is_free() }
        });
        if let Some(chunk) = free {
            self.leave_chunk();
            self.begin(chunk, around);
            return true;
        }
        let stalled = self.stalled.get();
        self.stalled.set(stalled + 1);
        if !stalled.is_multiple_of(RETRY_EVENTS) {
            return false;
        }
        let wants_more = count == 0 || (count < MAX_LANE_CHUNKS && around.may_grow());
        if wants_more && let Ok(index) = ring.grow(around.ring_path()) {
            self.chunks[count].set(index as u32);
            self.chunk_count.set(count as u32 + 1);
            self.leave_chunk();
            self.begin(ring.chunk(index), around);
            return true;
        }
        if self.chunk.get().is_null() || !self.spill(around) {
            return false;
        }
        self.begin(self.chunk.get(), around);
        true
    }

    /// Ends the current chunk although it has room, unless it holds hardly anything: what follows goes into the
    /// next one.
    pub(crate) fn end_chunk(&self, around: &impl Surroundings) {
        self.exclusively(0, around, || {
            let is_open = !self.chunk.get().is_null() && (self.position.get() as usize) < CHUNK_PAYLOAD_BYTES;
            if is_open && self.position.get() > LEAST_ENDED_BYTES {
                let stalled = self.stalled.get();
                if !self.next_chunk(around) {
                    // There is room left, so no event is lost for it.
                    self.stalled.set(stalled);
                }
            }
        });
    }

    /// Hands the current chunk to the sealer.
    fn leave_chunk(&self) {
        if !self.chunk.get().is_null() {
            // SAFETY: the lane's chunks are mapped and backed.
            unsafe { (*self.chunk.get()).hand_over() };
        }
    }

    /// Appends the current chunk to the lane's segment file.
    fn spill(&self, around: &impl Surroundings) -> bool {
        if self.spilled_bytes.get() >= SPILL_FILE_BYTES {
            self.spill_number.set(self.spill_number.get() + 1);
            self.spilled_bytes.set(0);
        }
        // SAFETY: the bytes below `position` are committed and no longer written to by anybody.
        let payload = unsafe { std::slice::from_raw_parts(self.payload(), self.position.get() as usize) };
        // SAFETY: the lane's chunks are mapped and backed.
        let base_time_ns = unsafe { (*self.chunk.get()).base_time_ns.load(Ordering::Relaxed) };
        let frame = Frame {
            lane: self.number.get(),
            sequence: self.sequence.get() - 1,
            base_time_ns,
            utc_offset_ns: around.ring().utc_offset_ns(),
            is_open: false,
            // SAFETY: as above.
            is_disordered: unsafe { (*self.chunk.get()).flags.load(Ordering::Relaxed) } & CHUNK_DISORDERED
                != 0,
            payload,
        };
        let mut length = None;
        around.with_segment_path(self.number.get(), self.spill_number.get(), &mut |path| {
            length = segment::append(path, &frame).ok();
        });
        self.spilled_bytes.set(length.unwrap_or(self.spilled_bytes.get()));
        length.is_some()
    }

    /// Starts over in `chunk`, whose contents are stored elsewhere.
    fn begin(&self, chunk: *mut ChunkHeader, around: &impl Surroundings) {
        let last_ns = self.previous.get().time_ns.max(self.ahead_ns.replace(0));
        let now = clock::monotonic_ns();
        // A lane whose times come from the tick counter goes on with them. They differ from the clock's by some hundred
        // nanoseconds to either side, which would make chunks disordered in which the order is fine.
        let base_time_ns =
            self.ticks.known_ns(ticks()).map_or(now, |ticks_ns| ticks_ns.max(last_ns.min(now)));
        // SAFETY: the chunk is mapped, backed and this lane's.
        let header = unsafe { &*chunk };
        header.begin(&Contents {
            lane: self.number.get(),
            sequence: self.sequence.get(),
            base_time_ns,
            is_disordered: base_time_ns < last_ns,
        });
        self.sequence.set(self.sequence.get() + 1);
        self.chunk.set(chunk);
        self.position.set(0);
        self.stalled.set(0);
        self.previous.set(Previous { time_ns: base_time_ns, address: 0 });
        self.last_domain.set(NO_DOMAIN);
        self.begun.set(self.begun.get() + 1);
        self.written_thread.set(self.thread.get());
        self.put(NumbersPayload::new(RecordType::Thread).number(self.thread.get()).finish(), around);
        if self.scope.get() != 0 {
            self.put(
                NumbersPayload::new(RecordType::Scope).number(u64::from(self.scope.get())).finish(),
                around,
            );
        }
    }
}
