//! What a lane writes for samplers: samples, output, stacks.
//!
//! Invariant: their times are stored as they are given, so several records can have the same one, and
//! one that is earlier than that of the record before stays so. They do not make a chunk disordered:
//! these rows keep the order in which they were recorded. Nor do they hide that another record goes back: one
//! that follows samples which did is compared with the latest record before them.

use super::{Lane, NO_DOMAIN, Surroundings};
use crate::clock::When;
use crate::intern::reserve;
use crate::record::{NumbersPayload, RecordType, time_record};
use crate::ring::{CHUNK_PAYLOAD_BYTES, LossReason};
use crate::values::{MAX_SHORT_BYTES, Seen, ShortRecord, Slots, zigzag};
use floodmark_event::sample::{Metric, OutputStream, StackSeen, SubjectId};

/// Output shorter than this is not divided to fill up a chunk.
const MIN_PIECE_BYTES: usize = 1024;
/// A thread that none is: the kernel's numbers of threads are shorter, and so are those of other recorders.
const NO_THREAD: u64 = u64::MAX;

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
        let difference = time_ns.wrapping_sub(previous.time_ns) as i64;
        if difference < 0 {
            self.ahead_ns.set(self.ahead_ns.get().max(previous.time_ns));
            // No thread and no domain: what follows other than samples takes the way on which threads and domains
            // change, so that the ordinary one needs no check of its own.
            self.written_thread.set(NO_THREAD);
            self.last_domain.set(NO_DOMAIN);
        }
        previous.time_ns = time_ns;
        self.previous.set(previous);
        zigzag(difference)
    }

    /// Writes that times count from the latest record before samples that went back, unless the samples have caught up
    /// with it. There must be room.
    pub(super) fn skip_samples(&self, around: &impl Surroundings) {
        let ahead_ns = self.ahead_ns.replace(0);
        let mut previous = self.previous.get();
        if ahead_ns > previous.time_ns {
            let (record, len) = time_record((ahead_ns - previous.time_ns) as i64);
            self.put(&record[..len], around);
            previous.time_ns = ahead_ns;
            self.previous.set(previous);
        }
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
