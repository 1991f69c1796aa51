//! Scopes and room on a lane that the caller keeps: events carry the innermost scope of their lane, so code that records
//! events with [`event_on`](crate::event_on) has to enter scopes on the same lane.
#![expect(unsafe_code, reason = "uses a lane that the caller says is its own")]

use std::sync::atomic::Ordering;

use floodmark_event::event::StringId;

use crate::clock::When;
use crate::writer::{ThreadLane, Writer, global};

/// Enters a scope of the thread that has `lane`; give the result to [`exit_scope_on`]. None if the lane is not one of the
/// recording that goes on, and nothing was recorded.
///
/// # Safety
/// As for [`event_on`](crate::event_on).
pub unsafe fn enter_scope_on(lane: ThreadLane, name: StringId, when: When) -> Option<u32> {
    let writer = global();
    // SAFETY: lanes are statics or never freed, and the calling thread holds this one.
    let lane = unsafe { &*lane.get() };
    is_current(lane.gate.generation.load(Ordering::Relaxed), writer)
        .then(|| lane.enter(writer.next_scope(), name, when, writer))
}

/// Leaves the innermost scope of the thread that has `lane`; `outer` is what [`enter_scope_on`] returned.
///
/// # Safety
/// As for [`event_on`](crate::event_on).
pub unsafe fn exit_scope_on(lane: ThreadLane, outer: u32, when: When) {
    let writer = global();
    // SAFETY: as above.
    let lane = unsafe { &*lane.get() };
    if is_current(lane.gate.generation.load(Ordering::Relaxed), writer) {
        lane.exit(outer, when, writer);
    }
}

/// Whether the next event of the thread that has `lane` may begin a chunk, see [`make_room_on`].
///
/// # Safety
/// As for [`event_on`](crate::event_on).
#[inline]
pub unsafe fn is_nearly_full(lane: ThreadLane) -> bool {
    // SAFETY: as above.
    unsafe { &*lane.get() }.is_nearly_full()
}

/// Sees to it that the next event of the thread that has `lane` fits its chunk. A time that is read now and recorded later
/// is then not before the beginning of the event's chunk, which would make the chunk disordered and slow to read.
///
/// # Safety
/// As for [`event_on`](crate::event_on).
pub unsafe fn make_room_on(lane: ThreadLane) {
    let writer = global();
    // SAFETY: as above.
    let lane = unsafe { &*lane.get() };
    if is_current(lane.gate.generation.load(Ordering::Relaxed), writer) {
        lane.make_room(writer);
    }
}

fn is_current(generation: u32, writer: &Writer) -> bool {
    generation == writer.current.generation()
}
