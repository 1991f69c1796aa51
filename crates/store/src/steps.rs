//! Points of sealing at which tests make it fail, to show that nothing is lost or doubled wherever it ends.
//!
//! Outside of this crate's own tests they are nothing.

use crate::error::Result;

/// Passes a point at which sealing could end.
#[cfg(not(test))]
#[inline(always)]
#[expect(clippy::inline_always, clippy::unnecessary_wraps, reason = "nothing is left of it outside of tests")]
pub(crate) const fn reach() -> Result<()> {
    Ok(())
}

#[cfg(test)]
pub(crate) use self::failing::{How, fail_at, reach, reached};

#[cfg(test)]
mod failing {
    use std::cell::Cell;

    use super::Result;
    use crate::error::Error;

    thread_local! {
        static REACHED: Cell<u64> = const { Cell::new(0) };
        static FAIL_AT: Cell<Option<(u64, How)>> = const { Cell::new(None) };
    }

    /// What happens at the chosen point.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum How {
        /// The call fails, as it does when a disk is full.
        Error,
        /// The process ends on the spot, as it does when it is killed.
        Exit,
    }

    /// Makes this thread fail at the point with this number, counting from 1 from now on.
    pub(crate) fn fail_at(at: Option<(u64, How)>) {
        REACHED.set(0);
        FAIL_AT.set(at);
    }

    /// Number of points that this thread has passed since.
    pub(crate) fn reached() -> u64 {
        REACHED.get()
    }

    pub(crate) fn reach() -> Result<()> {
        REACHED.set(REACHED.get() + 1);
        match FAIL_AT.get() {
            Some((at, How::Error)) if at == REACHED.get() => {
                Err(Error::Internal(format!("told to fail at step {at}")))
            }
            #[expect(unsafe_code, reason = "ends the process as a kill does")]
            // SAFETY: nothing runs after it.
            Some((at, How::Exit)) if at == REACHED.get() => unsafe { libc::_exit(0) },
            _ => Ok(()),
        }
    }
}
