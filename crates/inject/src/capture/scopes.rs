//! Scopes of the calling thread, on the lane that its events go to.

use floodmark_tail::{When, enter_scope_on, exit_scope_on, intern};

use super::Entered;
use super::lanes::take_lane;
use crate::cold::run_cold;

impl Entered {
    /// Enters a scope of the thread; none if it has no lane.
    pub(crate) fn enter_scope(&self, name: &str) -> Option<u32> {
        let mut outer = None;
        run_cold(&mut || {
            let name = intern(name);
            // SAFETY: the thread took the lane and has not given it back.
            let enter = |lane| unsafe { enter_scope_on(lane, name, When::Now) };
            outer = self.thread.lane.get().and_then(enter);
            if outer.is_none() {
                take_lane(self.thread, self.started, |lane| outer = enter(lane));
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
