//! Scopes of the calling thread, on the lane that its events go to.

use floodmark_tail::{When, enter_scope_on, exit_scope_on, global, intern};

use super::{Entered, Started, register_end};
use crate::cold::run_cold;
use crate::thread::Thread;

impl Entered {
    /// Enters a scope of the thread; none if it has no lane.
    pub(crate) fn enter_scope(&self, name: &str) -> Option<u32> {
        let mut outer = None;
        run_cold(&mut || {
            let name = intern(name);
            // SAFETY: the thread took the lane and has not given it back.
            let enter = |lane| unsafe { enter_scope_on(lane, name, When::Now) };
            outer = self.thread.lane.get().and_then(enter);
            if outer.is_none() && take_lane(self.thread, self.started) {
                outer = self.thread.lane.get().and_then(enter);
            }
        });
        outer
    }

    /// Leaves the innermost scope of the thread.
    pub(crate) fn exit_scope(&self, outer: u32) {
        if let Some(lane) = self.thread.lane.get() {
            // SAFETY: the thread took the lane and has not given it back.
            unsafe { exit_scope_on(lane, outer, When::Now) };
        }
    }
}

/// Takes a lane that the thread keeps; `false` if there is none, or the thread is ending.
fn take_lane(thread: &'static Thread, started: &'static Started) -> bool {
    // A lane of the parent process or of an ended recording is not given back: its recording does not know it.
    thread.lane.set(None);
    let Some(lane) = global().take_lane() else { return false };
    if register_end(thread, started) {
        thread.lane.set(Some(lane));
    } else {
        // SAFETY: taken by this thread just now, and not kept.
        unsafe { global().give_back_lane(lane) };
    }
    thread.lane.get().is_some()
}
