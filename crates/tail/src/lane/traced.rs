//! Calls that a tracer sees by the million: the shortest way into a chunk.
//!
//! Nearly all records are one store of 8 bytes: type, length, up to two bytes of time, and two bytes each of
//! function and line. Whatever does not fit (a long time, a changed resident size) takes the general way.

use super::{Lane, NO_DOMAIN, Surroundings};
use crate::protocol::Entry;
use crate::record::{Call, CallRecord, MAX_CALL_BYTES, MAX_CONTEXT_BYTES, TracedCall, plain_call};
use crate::ring::{CHUNK_PAYLOAD_BYTES, LossReason};

const ROOM: usize = MAX_CALL_BYTES + MAX_CONTEXT_BYTES;

impl Lane {
    /// Records a call at a reading of the tick counter. A call is never earlier than the lane's previous record.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is around it is a constant on the global recording path")]
    pub(crate) fn traced_call(&self, call: &TracedCall, around: &impl Surroundings) {
        match self.gate.enter(|| around.generation()) {
            Entry::Entered => {}
            Entry::Nested => return around.ring().lose(LossReason::Nested, 1),
            Entry::Ended => return,
        }
        if self.position.get() as usize <= CHUNK_PAYLOAD_BYTES - ROOM || self.next_chunk(around) {
            let mut previous = self.previous.get();
            let elapsed = self.ticks.monotonic_ns(call.ticks).saturating_sub(previous.time_ns);
            let is_rss_known =
                self.rss.get() == u64::from(call.rss_pages) + 1 && self.rss_chunk.get() == self.begun.get();
            let is_own = self.written_thread.get() == self.thread.get();
            match plain_call(call, elapsed) {
                Some((record, len)) if is_rss_known && is_own => {
                    let position = self.position.get();
                    // SAFETY: the chunk is backed by the file, ROOM bytes fit behind `position`, and nothing reads or
                    // writes beyond the committed bytes but the thread that holds the lane.
                    unsafe { self.payload().add(position as usize).cast::<u64>().write_unaligned(record) };
                    previous.time_ns += elapsed;
                    self.previous.set(previous);
                    self.commit(position + len);
                }
                _ => self.full_call(call, elapsed, around),
            }
        } else {
            around.ring().lose(LossReason::NoSpace, 1);
        }
        self.gate.leave();
    }

    /// Appends a call that is not plain. There must be room.
    #[inline(never)]
    fn full_call(&self, call: &TracedCall, elapsed: u64, around: &impl Surroundings) {
        let mut elapsed = elapsed;
        if self.written_thread.get() != self.thread.get() {
            let before_ns = self.previous.get().time_ns;
            self.write_thread(self.thread.get(), self.scope.get(), around);
            elapsed = elapsed.saturating_sub(self.previous.get().time_ns - before_ns);
            self.last_domain.set(NO_DOMAIN);
        }
        let pages = u64::from(call.rss_pages);
        let mut written = self.rss.get().checked_sub(1).filter(|_| self.rss_chunk.get() == self.begun.get());
        let general =
            Call { action: call.action, code: call.code, line: call.line, rss_bytes: Some(pages * 4096) };
        self.put(CallRecord::new(&general, elapsed, &mut written).bytes(), around);
        self.set_time(self.previous.get().time_ns + elapsed);
        self.rss.set(pages + 1);
        self.rss_chunk.set(self.begun.get());
    }

    /// Takes all chunks that the lane may have and backs them with memory, so that recording faults no page in.
    pub(crate) fn reserve(&self, around: &impl Surroundings) {
        self.exclusively(0, around, || {
            let ring = around.ring();
            while (self.chunk_count.get() as usize) < self.chunks.len()
                && (self.chunk_count.get() == 0 || around.may_grow())
                && let Ok(index) = ring.grow(around.ring_path())
            {
                self.chunks[self.chunk_count.get() as usize].set(index as u32);
                self.chunk_count.set(self.chunk_count.get() + 1);
                ring.populate(index);
            }
            self.has_room(ROOM, around);
        });
    }
}
