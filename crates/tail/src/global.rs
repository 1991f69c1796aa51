//! The global writer as free functions, for code that is injected or linked without knowing of a recorder.
//!
//! Each does what the method of [`Writer`](crate::Writer) of the same name does.

use crate::clock::When;
use crate::record::{AllocDomain, TracedCall};
use crate::writer::{global, global_event, global_traced_call};
use floodmark_event::event::{Action, StackId, StringId};
use floodmark_event::sample::{Metric, OutputStream, StackSeen, Subject, SubjectEnd, SubjectId};
use floodmark_event::tables::Frame;

/// Records that a block came to life. Call it after the memory was handed out.
#[inline]
pub fn alloc(address: u64, bytes: u64, domain: &AllocDomain, stack: StackId) {
    global_event(Action::Alloc, address, bytes, domain, stack);
}

/// Records that a block ends. Call it before the memory is given back.
///
/// `bytes` is what the caller of the free passes, or [`UNKNOWN_BYTES`](floodmark_event::UNKNOWN_BYTES).
#[inline]
pub fn free(address: u64, bytes: u64, domain: &AllocDomain) {
    global_event(Action::Free, address, bytes, domain, StackId(0));
}

/// Records that an allocation of `bytes` failed.
#[inline]
pub fn failure(bytes: u64, domain: &AllocDomain, stack: StackId) {
    global_event(Action::Failure, 0, bytes, domain, stack);
}

/// Records that a function was called or ended, as a tracer sees it that calls this millions of times a second.
#[inline]
pub fn traced_call(call: &TracedCall) {
    global_traced_call(call);
}

/// Whether the global writer records at the moment.
#[inline]
pub fn is_recording() -> bool {
    global().is_recording()
}

/// Returns a number for the global recording that goes on; 0 while nothing is recorded.
#[inline]
pub fn recording() -> u32 {
    global().recording()
}

/// Enters a scope on this thread; give the result to [`exit_scope`].
pub fn enter_scope(name: StringId) -> u32 {
    global().enter_scope(name)
}

/// Leaves the innermost scope of this thread; `outer` is what [`enter_scope`] returned.
pub fn exit_scope(outer: u32) {
    global().exit_scope(outer);
}

/// Records that the program came to a point worth remembering.
pub fn mark(name: StringId) {
    global().mark(name);
}

/// Returns the id of `text` in the global recording; 0 while nothing is recorded.
pub fn intern(text: &str) -> StringId {
    global().intern(text)
}

/// Returns the id of `frame` in the global recording; 0 while nothing is recorded.
pub fn intern_frame(frame: &Frame) -> u32 {
    global().intern_frame(frame)
}

/// Returns the id of the stack that is `frame` called from `parent`.
pub fn intern_stack(parent: StackId, frame: u32) -> StackId {
    global().intern_stack(parent, frame)
}

/// Returns a new id for something that is to be observed; 0 while nothing is recorded.
pub fn subject(subject: &Subject) -> SubjectId {
    global().subject(subject)
}

/// Records that something ended. If it is recorded more than once, the last one counts.
pub fn subject_ended(subject: SubjectId, end: SubjectEnd, when: When) {
    global().subject_ended(subject, end, when);
}

/// Records one value of a subject.
pub fn sample(subject: SubjectId, metric: Metric, value: u64, when: When) {
    global().sample(subject, metric, value, when);
}

/// Records values of a subject that were read at one instant.
pub fn samples(subject: SubjectId, values: &[(Metric, u64)], when: When) {
    global().samples(subject, values, when);
}

/// Ends the chunk that the calling thread writes, for readers that ship chunks to another host.
pub fn end_chunk() {
    global().end_chunk();
}

/// Records output of what is observed, whatever its length.
pub fn output(stream: OutputStream, bytes: &[u8], when: When) {
    global().output(stream, bytes, when);
}

/// Records a stack of a thread of `subject`.
pub fn stack_sample(subject: SubjectId, seen: &StackSeen, when: When) {
    global().stack_sample(subject, seen, when);
}
