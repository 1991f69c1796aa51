//! The lane that a thread keeps for its records, from its first event to its end.

use floodmark_event::StackId;
use floodmark_tail::{AllocDomain, BlockEvent, ThreadLane, event_on, global};

use super::Started;
use crate::cold::{ThreadMemory, run_cold};
use crate::fence::fence;
use crate::thread::{Guard, Thread, current};

/// Takes a lane for the thread and records its event: the first one of a thread, or of a forked child.
#[cold]
#[inline(never)]
pub(super) fn event_without_lane(
    thread: &'static Thread,
    started: &'static Started,
    domain: &AllocDomain,
    what: BlockEvent,
    stack: StackId,
    before: Option<u64>,
) {
    run_cold(&mut || {
        take_lane(thread, started, |lane| {
            // SAFETY: taken by this thread just now.
            unsafe { event_on(lane, what, domain, stack, before) };
        });
    });
}

/// Takes a lane for the thread, calls `with` with it, and keeps it unless the thread is ending.
pub(super) fn take_lane(thread: &'static Thread, started: &'static Started, with: impl FnOnce(ThreadLane)) {
    // A lane of the parent process or of an ended recording is not given back: its recording does not know it.
    thread.lane.set(None);
    let Some(lane) = global().take_lane() else { return };
    with(lane);
    if register_end(thread, started) {
        thread.lane.set(Some(lane));
    } else {
        // While a thread ends nothing would give the lane back later.
        // SAFETY: taken by this thread just now, and not kept.
        unsafe { global().give_back_lane(lane) };
    }
}

/// Arranges that the thread's lane is given back when the thread ends; `false` if it is ending.
fn register_end(thread: &'static Thread, started: &'static Started) -> bool {
    if thread.has_ended.get() {
        return false;
    }
    if !thread.is_registered.get() {
        // The value only has to be another one than null.
        let value = std::ptr::from_ref(thread).cast();
        // SAFETY: the key was made when the recording started.
        thread.is_registered.set(unsafe { libc::pthread_setspecific(started.key, value) } == 0);
    }
    thread.is_registered.get()
}

/// Gives back what the thread has. Runs after the destructors of its thread-local variables, which may free memory.
pub(super) unsafe extern "C" fn thread_ends(_: *mut libc::c_void) {
    fence(|| {
        let thread = current();
        let _guard = Guard::preparing(thread);
        thread.has_ended.set(true);
        if let Some(lane) = thread.lane.take() {
            // SAFETY: this thread took it and does not use it any more.
            unsafe { global().give_back_lane(lane) };
        }
        thread.replay.set(std::ptr::null_mut());
        let python = thread.python.replace(std::ptr::null_mut());
        if !python.is_null() {
            // SAFETY: made by this thread, from a box, and not used any more.
            drop(unsafe { Box::from_raw(python) });
        }
        thread.memory.replace(ThreadMemory::NONE).give_back();
    });
}
