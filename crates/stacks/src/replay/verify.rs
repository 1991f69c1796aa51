//! Checks stacks that were replayed: every one is walked anew by rules alone, and some by the unwinder of the language
//! runtime. For tests; it costs microseconds per stack.

use floodmark_event::StackId;

use super::{Found, Position, Replay, position};
use crate::{MAX_FRAMES, system};

/// Every how manyth stack is compared with that of the language runtime's unwinder.
const SYSTEM_EVERY: u64 = 64;

/// What checks found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ReplayCheck {
    /// Stacks that were walked anew.
    pub walked: u64,
    /// Those of them that were another stack.
    pub wrong: u64,
    /// Stacks that were compared with the language runtime's unwinder.
    pub compared: u64,
    /// Those of them that differed.
    pub different: u64,
}

impl Replay {
    /// What checks found so far.
    pub fn check(&self) -> ReplayCheck {
        self.check
    }

    /// Does what [`stack`](Self::stack) does, and checks the result.
    ///
    /// # Safety
    /// As for [`stack`](Self::stack).
    #[inline(never)]
    pub unsafe fn checked_stack(&mut self, stack: u64, base: u64) -> StackId {
        // SAFETY: as the caller guarantees.
        let id = unsafe { self.stack(stack, base) };
        // SAFETY: as the caller guarantees.
        let at = unsafe { position(stack, base) };
        if at.sp < self.low || at.sp >= self.high {
            return id;
        }
        // Where no rule leads on, the other unwinder was asked already.
        let Some(count) = self.walk_anew(at) else { return id };
        let node = (0..count).rev().fold(0, |node, frame| self.node(node, self.fresh[frame]));
        self.check.walked += 1;
        self.check.wrong += u64::from(node != id.0);
        if self.check.walked.is_multiple_of(SYSTEM_EVERY) {
            self.compare_with_system(stack, count);
        }
        id
    }

    /// Walks by rules alone; returns the number of frames, none if there is no rule for one of them.
    fn walk_anew(&mut self, mut at: Position) -> Option<usize> {
        for count in 0..self.depth {
            self.fresh[count] = at.ra;
            match self.step(at).1 {
                Found::Caller(caller) => at = caller,
                Found::End => return Some(count + 1),
                Found::NoRule => return None,
            }
        }
        Some(self.depth)
    }

    fn compare_with_system(&mut self, stack: u64, count: usize) {
        let mut theirs = [0; MAX_FRAMES];
        let their_count = system::walk(stack, &mut theirs);
        let count = count.min(MAX_FRAMES);
        // The address of a function that a signal interrupted is one more here.
        let is_same = |(ours, theirs): (&u64, &u64)| ours == theirs || *ours == *theirs + 1;
        let are_same = self.fresh.iter().zip(&theirs).take(count).all(is_same);
        let is_cut = self.depth < MAX_FRAMES;
        self.check.compared += 1;
        self.check.different += u64::from(!are_same || (count != their_count && !is_cut));
    }
}
