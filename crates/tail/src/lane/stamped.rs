//! Records that carry a time or a thread of their own, and calls.

use super::{EVENT_ROOM, Lane, NO_DOMAIN, Surroundings};
use crate::clock::Stamp;
use crate::record::{
    AllocDomain, BlockEvent, Body, Call, CallRecord, MAX_CALL_BYTES, MAX_CONTEXT_BYTES, NumbersPayload,
};
use crate::ring::LossReason;
use crate::values::zigzag;
use floodmark_event::event::{Action, StackId};

impl Lane {
    /// Records one event with a time and thread of its own.
    pub(crate) fn event_at(
        &self,
        (action, address, bytes): (Action, u64, u64),
        domain: &AllocDomain,
        stack: StackId,
        stamp: Stamp,
        around: &impl Surroundings,
    ) {
        self.exclusively(1, around, || {
            if !self.has_room(EVENT_ROOM, around) {
                around.ring().lose(LossReason::NoSpace, 1);
                return;
            }
            self.switch_thread(stamp, around);
            let slot = self.slot_of(domain, around);
            let what = BlockEvent { action, address, bytes, is_named: false };
            let body = Body { what, time_ns: stamp.when.monotonic_ns(), stack };
            self.write_event(slot, &body, around);
            self.forget_domain_of_others();
        });
    }

    /// Records something that is not an event, with a time and thread of its own; `build` gets the
    /// difference to the time of the previous record.
    pub(crate) fn other_at(
        &self,
        stamp: Stamp,
        around: &impl Surroundings,
        build: impl FnOnce(u64) -> NumbersPayload,
    ) {
        self.exclusively(1, around, || {
            if !self.has_room(size_of::<NumbersPayload>() + MAX_CONTEXT_BYTES, around) {
                around.ring().lose(LossReason::NoSpace, 1);
                return;
            }
            self.switch_thread(stamp, around);
            let time_ns = stamp.when.monotonic_ns();
            // Going back is recorded apart, so that the chunk is known to be disordered.
            let elapsed = self.elapsed_until(time_ns, around);
            self.put(build(zigzag(elapsed as i64)).finish(), around);
            self.set_time(time_ns);
            self.forget_domain_of_others();
        });
    }

    /// Records a call.
    #[inline]
    pub(crate) fn call(&self, call: &Call, stamp: Stamp, around: &impl Surroundings) {
        self.exclusively(1, around, || {
            if !self.has_room(MAX_CALL_BYTES + MAX_CONTEXT_BYTES, around) {
                around.ring().lose(LossReason::NoSpace, 1);
                return;
            }
            self.switch_thread(stamp, around);
            let time_ns = stamp.when.monotonic_ns();
            let elapsed = self.elapsed_until(time_ns, around);
            // A new chunk knows nothing of the resident bytes, and gets what was known before.
            let known = self.rss.get().checked_sub(1);
            let mut written = known.filter(|_| self.rss_chunk.get() == self.begun.get());
            let rss_bytes = call.rss_bytes.or(known.map(|pages| pages.wrapping_mul(4096)));
            let record = CallRecord::new(&Call { rss_bytes, ..*call }, elapsed, &mut written);
            self.put(record.bytes(), around);
            self.set_time(time_ns);
            if let Some(pages) = written {
                self.rss.set(pages + 1);
                self.rss_chunk.set(self.begun.get());
            }
            self.forget_domain_of_others();
        });
    }

    /// Makes the records that follow those of the stamp's thread.
    #[inline]
    fn switch_thread(&self, stamp: Stamp, around: &impl Surroundings) {
        let own = self.thread.get();
        let thread = stamp.thread.unwrap_or(own);
        if self.written_thread.get() != thread {
            // Which scope another thread is in is not known.
            self.write_thread(thread, if thread == own { self.scope.get() } else { 0 }, around);
        }
    }

    /// Sends the next event of the lane's own thread to where its thread is written again.
    #[inline]
    fn forget_domain_of_others(&self) {
        if self.written_thread.get() != self.thread.get() {
            self.last_domain.set(NO_DOMAIN);
        }
    }
}
