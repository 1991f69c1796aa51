//! What a lane writes for samplers: samples, output, stacks.
//!
//! Invariant: their times are stored as they are given, so several records can have the same one, and
//! one that is earlier than that of the record before stays so. They do not make a chunk disordered:
//! these rows keep the order in which they were recorded.

use super::{Lane, Surroundings};
use crate::clock::When;
use crate::intern::reserve;
use crate::record::{NumbersPayload, RecordType};
use crate::ring::{CHUNK_PAYLOAD_BYTES, LossReason};
use crate::values::{MAX_SHORT_BYTES, Seen, ShortRecord, Slots, zigzag};
use floodmark_event::sample::{Metric, OutputStream, StackSeen, SubjectId};

/// Output shorter than this is not divided to fill up a chunk.
const MIN_PIECE_BYTES: usize = 1024;

impl Lane {
    /// Records values that were read at one instant.
    pub(crate) fn samples(
        &self,
        subject: SubjectId,
        values: &[(Metric, u64)],
        when: When,
        around: &impl Surroundings,
    ) {
        self.exclusively(values.len() as u64, around, || {
            let time_ns = when.monotonic_ns();
            let mut rest = values;
            while !rest.is_empty() {
                let seen = self.has_room(MAX_SHORT_BYTES, around).then(|| self.seen()).flatten();
                let Some(mut seen) = seen else {
                    around.ring().lose(LossReason::NoSpace, rest.len() as u64);
                    return;
                };
                let difference = self.shift(time_ns);
                let mut record = if difference == 0 {
                    ShortRecord::new(RecordType::SamplesAtOnce as u8)
                } else {
                    let mut record = ShortRecord::new(RecordType::Samples as u8);
                    record.number(difference);
                    record
                };
                record.number(u64::from(subject.0));
                rest = record.values(subject, rest, &mut seen);
                self.put(record.finish(), around);
            }
        });
    }

    /// Records output, in as many pieces as it takes.
    pub(crate) fn output(&self, stream: OutputStream, bytes: &[u8], when: When, around: &impl Surroundings) {
        self.exclusively(1, around, || {
            let time_ns = when.monotonic_ns();
            let mut rest = bytes;
            while !rest.is_empty() {
                if !self.has_room(size_of::<NumbersPayload>() + rest.len().min(MIN_PIECE_BYTES), around) {
                    around.ring().lose(LossReason::NoSpace, 1);
                    return;
                }
                let numbers = NumbersPayload::new(RecordType::Output).number(self.shift(time_ns));
                let mut head = numbers.number(stream as u64);
                let room = CHUNK_PAYLOAD_BYTES - self.position.get() as usize - head.len();
                let (piece, more) = rest.split_at(rest.len().min(room));
                self.put_both(head.finish_before(piece.len()), piece);
                rest = more;
            }
        });
    }

    /// Records a stack of a thread of another process.
    pub(crate) fn stack_sample(
        &self,
        subject: SubjectId,
        seen: &StackSeen,
        when: When,
        around: &impl Surroundings,
    ) {
        self.exclusively(1, around, || {
            if !self.has_room(size_of::<NumbersPayload>(), around) {
                around.ring().lose(LossReason::NoSpace, 1);
                return;
            }
            let mut record = NumbersPayload::new(RecordType::StackSample)
                .number(self.shift(when.monotonic_ns()))
                .number(u64::from(subject.0))
                .number(seen.thread)
                .number(u64::from(seen.stack.0))
                .number(seen.reason as u64)
                .number(seen.pause_ns);
            self.put(record.finish(), around);
        });
    }

    /// Moves the lane's time to `time_ns`; returns the difference as it is stored.
    fn shift(&self, time_ns: u64) -> u64 {
        let mut previous = self.previous.get();
        let difference = zigzag(time_ns.wrapping_sub(previous.time_ns) as i64);
        previous.time_ns = time_ns;
        self.previous.set(previous);
        difference
    }

    /// The values seen in this chunk; `None` if there is no memory for them.
    fn seen(&self) -> Option<Seen<'_>> {
        if self.values.get().is_null() {
            self.values.set(reserve::<Slots>(1)?);
            self.values_chunk.set(self.begun.get());
        }
        // SAFETY: mapped by `reserve` for this lane and never unmapped; all zeros are valid; only the
        // thread that holds the lane gets here, and only once at a time (`busy`).
        let mut seen = Seen(unsafe { &mut *self.values.get() });
        if self.values_chunk.replace(self.begun.get()) != self.begun.get() {
            seen.clear();
        }
        Some(seen)
    }

    /// Appends a record that stands in two places and commits it. There must be room.
    fn put_both(&self, head: &[u8], rest: &[u8]) {
        let position = self.position.get();
        // SAFETY: as in `put`; the caller made room for both.
        unsafe {
            let at = self.payload().add(position as usize);
            at.copy_from_nonoverlapping(head.as_ptr(), head.len());
            at.add(head.len()).copy_from_nonoverlapping(rest.as_ptr(), rest.len());
        }
        self.commit(position + (head.len() + rest.len()) as u32);
    }
}
