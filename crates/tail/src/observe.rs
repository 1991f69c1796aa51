//! What samplers call: subjects, samples, output, stacks of other processes.
//!
//! Times are given as [`When`]. They are stored as they are given, nanosecond for nanosecond, even
//! where one is earlier than that of the record before it on the same thread; a reader then gets the
//! rows of the thread in the order in which they were recorded. Records without a time of their own
//! (events, scopes, marks) never go back: after a time ahead of the clock they have that one until the
//! clock has caught up.

use super::record::{NumbersPayload, RecordType, SubjectEntry};
use super::recorder::{Current, define, intern, with_lane};
use super::values::zigzag;
use crate::clock::When;
use floodmark_event::sample::{Metric, OutputStream, StackSeen, Subject, SubjectEnd, SubjectId};

/// Returns a new id for something that is to be observed; 0 while nothing is recorded.
///
/// Like interning, this and [`subject_ended`] write where all threads do, under a lock: they are rare.
/// A forked child goes on with the ids of its parent.
pub fn subject(subject: &Subject) -> SubjectId {
    let entry = SubjectEntry {
        kind: subject.kind,
        number: subject.number,
        start_ns: subject.start_ns,
        parent: subject.parent,
        name: intern(&subject.name),
        detail: intern(&subject.detail),
    };
    define(|interner, write| interner.subject(&entry, write)).map_or(SubjectId(0), SubjectId)
}

/// Records that something ended. If it is said more than once, the last one counts.
pub fn subject_ended(subject: SubjectId, end: SubjectEnd, when: When) {
    let status = end.wait_status.map_or(0, |status| zigzag(i64::from(status)) + 1);
    let mut record = NumbersPayload::new(RecordType::SubjectEnded)
        .number(u64::from(subject.0))
        .number(when.monotonic_ns())
        .number(status)
        .number(end.peak_rss_bytes.map_or(0, |bytes| bytes.saturating_add(1)));
    define(|_, write| {
        // If there is no room, that has been counted.
        write(record.finish());
        Some(0)
    });
}

/// Records one value of a subject.
pub fn sample(subject: SubjectId, metric: Metric, value: u64, when: When) {
    samples(subject, &[(metric, value)], when);
}

/// Records values of a subject that were read at one instant.
pub fn samples(subject: SubjectId, values: &[(Metric, u64)], when: When) {
    with_lane(|lane| lane.samples(subject, values, when, &Current));
}

/// Records output of what is observed, whatever its length; what one thread records stays in order.
pub fn output(stream: OutputStream, bytes: &[u8], when: When) {
    with_lane(|lane| lane.output(stream, bytes, when, &Current));
}

/// Records a stack of a thread of `subject`. The stack's id is one of this process, from
/// [`intern_stack`](super::intern_stack).
pub fn stack_sample(subject: SubjectId, seen: &StackSeen, when: When) {
    with_lane(|lane| lane.stack_sample(subject, seen, when, &Current));
}
