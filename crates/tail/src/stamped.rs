//! Scopes, ranges, marks and calls, and events that carry a time or a thread of their own.
//!
//! Times may be earlier than those of records made before, on the same thread or another: readers sort
//! events, calls, scopes, ranges and marks by time. A time is never changed.

use std::sync::atomic::Ordering;

use crate::clock::{Stamp, When};
use crate::intern::DeviceEntry;
use crate::record::{AllocDomain, Call, NumbersInPlace, NumbersPayload, RecordType};
use crate::writer::Writer;
use floodmark_event::event::{Action, StackId, StringId};

/// Identifies a range that began, in this recording; 0 stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RangeId(pub u32);

impl Writer {
    /// Records that a block came to life, at a time and on a thread of its own.
    pub fn alloc_at(
        &self,
        address: u64,
        bytes: u64,
        domain: &AllocDomain,
        stack: StackId,
        stamp: impl Into<Stamp>,
    ) {
        self.event_at((Action::Alloc, address, bytes), domain, stack, stamp.into());
    }

    /// Records that a block ended, at a time and on a thread of its own.
    pub fn free_at(&self, address: u64, bytes: u64, domain: &AllocDomain, stamp: impl Into<Stamp>) {
        self.event_at((Action::Free, address, bytes), domain, StackId(0), stamp.into());
    }

    /// Records that an allocation of `bytes` failed, at a time and on a thread of its own.
    pub fn failure_at(&self, bytes: u64, domain: &AllocDomain, stack: StackId, stamp: impl Into<Stamp>) {
        self.event_at((Action::Failure, 0, bytes), domain, stack, stamp.into());
    }

    fn event_at(&self, what: (Action, u64, u64), domain: &AllocDomain, stack: StackId, stamp: Stamp) {
        self.with_lane(|lane| lane.event_at(what, domain, stack, stamp, self));
    }

    /// Enters a scope on this thread; give the result to [`exit_scope`](Self::exit_scope).
    pub fn enter_scope(&self, name: StringId) -> u32 {
        self.enter_scope_at(name, When::Now)
    }

    /// Enters a scope on this thread, at a time of its own.
    pub fn enter_scope_at(&self, name: StringId, when: When) -> u32 {
        self.with_lane(|lane| lane.enter(self.next_scope(), name, when, self)).unwrap_or(0)
    }

    /// Leaves the innermost scope of this thread; `outer` is what [`enter_scope`](Self::enter_scope)
    /// returned.
    pub fn exit_scope(&self, outer: u32) {
        self.exit_scope_at(outer, When::Now);
    }

    /// Leaves the innermost scope of this thread, at a time of its own.
    pub fn exit_scope_at(&self, outer: u32, when: When) {
        self.with_lane(|lane| lane.exit(outer, when, self));
    }

    /// Begins a range: a scope that need not nest and may end on any thread. Give the result to
    /// [`end_range`](Self::end_range).
    pub fn begin_range(&self, name: StringId) -> RangeId {
        self.begin_range_at(name, When::Now)
    }

    /// Begins a range, at a time and on a thread of its own.
    pub fn begin_range_at(&self, name: StringId, stamp: impl Into<Stamp>) -> RangeId {
        let stamp = stamp.into();
        self.with_lane(|lane| {
            let scope = self.next_scope();
            lane.other_at(stamp, self, |time| {
                let payload = NumbersPayload::new(RecordType::BeginRange).number(time);
                payload.number(u64::from(scope)).number(u64::from(name.0))
            });
            RangeId(scope)
        })
        .unwrap_or_default()
    }

    /// Ends a range, from any thread.
    pub fn end_range(&self, range: RangeId) {
        self.end_range_at(range, When::Now);
    }

    /// Ends a range, at a time and on a thread of its own.
    pub fn end_range_at(&self, range: RangeId, stamp: impl Into<Stamp>) {
        let stamp = stamp.into();
        self.with_lane(|lane| {
            lane.other_at(stamp, self, |time| {
                NumbersPayload::new(RecordType::EndRange).number(time).number(u64::from(range.0))
            });
        });
    }

    /// Records that the program came to a point worth remembering.
    pub fn mark(&self, name: StringId) {
        self.mark_at(name, When::Now);
    }

    /// Records a mark, at a time of its own.
    pub fn mark_at(&self, name: StringId, when: When) {
        self.with_lane(|lane| {
            lane.other(when, self, |record, elapsed| {
                NumbersInPlace::new(record, RecordType::Mark)
                    .number(elapsed)
                    .number(u64::from(name.0))
                    .finish()
            });
        });
    }

    /// Records that a function was called or ended.
    #[inline]
    pub fn call(&self, call: &Call) {
        self.call_at(call, When::Now);
    }

    /// Records that a function was called or ended, at a time and on a thread of its own.
    #[inline]
    pub fn call_at(&self, call: &Call, stamp: impl Into<Stamp>) {
        let stamp = stamp.into();
        self.with_lane(|lane| lane.call(call, stamp, self));
    }

    /// Records which device `device` of this process is: its number depends on `CUDA_VISIBLE_DEVICES` and
    /// the like, its UUID does not.
    pub fn define_device(&self, device: i32, uuid: &str) {
        let entry = DeviceEntry { device, uuid: self.intern(uuid) };
        if entry.uuid != StringId(0) {
            self.define(|interner, write| interner.device(entry, write));
        }
    }

    pub(crate) fn next_scope(&self) -> u32 {
        self.session().next_scope.fetch_add(1, Ordering::Relaxed)
    }
}
