//! What samplers record: subjects, samples, output, stacks of other processes.
//!
//! Times are given as [`When`]. They are stored as they are given, nanosecond for nanosecond, even
//! where one is earlier than that of the record before it on the same thread; readers get these rows of a
//! thread in the order in which they were recorded.

use crate::clock::When;
use crate::record::{NumbersPayload, RecordType, SubjectEntry};
use crate::values::zigzag;
use crate::writer::Writer;
use floodmark_event::sample::{Metric, OutputStream, StackSeen, Subject, SubjectEnd, SubjectId};

impl Writer {
    /// Returns a new id for something that is to be observed; 0 while nothing is recorded.
    ///
    /// Like interning, this and [`subject_ended`](Self::subject_ended) write into a lane that all threads
    /// share under a lock, because they are rare. A forked child goes on with the ids of its parent.
    pub fn subject(&self, subject: &Subject) -> SubjectId {
        let entry = SubjectEntry {
            kind: subject.kind,
            number: subject.number,
            start_ns: subject.start_ns,
            parent: subject.parent,
            name: self.intern(&subject.name),
            detail: self.intern(&subject.detail),
        };
        self.define(|interner, write| interner.subject(&entry, write)).map_or(SubjectId(0), SubjectId)
    }

    /// Records that something ended. If it is recorded more than once, the last one counts.
    pub fn subject_ended(&self, subject: SubjectId, end: SubjectEnd, when: When) {
        let status = end.wait_status.map_or(0, |status| zigzag(i64::from(status)) + 1);
        let mut record = NumbersPayload::new(RecordType::SubjectEnded)
            .number(u64::from(subject.0))
            .number(when.monotonic_ns())
            .number(status)
            .number(end.peak_rss_bytes.map_or(0, |bytes| bytes.saturating_add(1)));
        self.define(|_, write| {
            // If there is no room, that has been counted.
            write(record.finish());
            Some(0)
        });
    }

    /// Records one value of a subject.
    pub fn sample(&self, subject: SubjectId, metric: Metric, value: u64, when: When) {
        self.samples(subject, &[(metric, value)], when);
    }

    /// Records values of a subject that were read at one instant.
    pub fn samples(&self, subject: SubjectId, values: &[(Metric, u64)], when: When) {
        self.with_lane(|lane| lane.samples(subject, values, when, self));
    }

    /// Ends the chunk that the calling thread writes, so that a reader which ships chunks to another host gets it now
    /// and does not get it again.
    ///
    /// Costs some bytes, because the values of samples are stored as differences within a chunk.
    pub fn end_chunk(&self) {
        self.with_lane(|lane| lane.end_chunk(self));
    }

    /// Records output of what is observed, whatever its length; output of one thread stays in order.
    pub fn output(&self, stream: OutputStream, bytes: &[u8], when: When) {
        self.with_lane(|lane| lane.output(stream, bytes, when, self));
    }

    /// Records a stack of a thread of `subject`. The stack's id is one of this recording, from
    /// [`intern_stack`](Self::intern_stack).
    pub fn stack_sample(&self, subject: SubjectId, seen: &StackSeen, when: When) {
        self.with_lane(|lane| lane.stack_sample(subject, seen, when, self));
    }
}
