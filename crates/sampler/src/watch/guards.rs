//! State of this process that a watch changes, and restores at its end.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::output::OutputControl;
use crate::sys::limit::Limit;
use crate::sys::wait::{self, Adopt};

/// The right to watch, which can be taken once per process, because signals and orphans cannot be shared.
/// While it is held, the limit of descriptors is raised to the highest that the system allows.
pub(super) struct WatchLock {
    pub(super) descriptors: Limit,
}

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

impl WatchLock {
    pub(super) fn take() -> Result<Self> {
        if IS_TAKEN.swap(true, Ordering::AcqRel) {
            return Err(Error::Busy);
        }
        let descriptors = Limit::descriptors();
        descriptors.highest().set();
        Ok(Self { descriptors })
    }
}

impl Drop for WatchLock {
    fn drop(&mut self) {
        self.descriptors.set();
        IS_TAKEN.store(false, Ordering::Release);
    }
}

/// Makes this process the parent of orphans until dropped.
pub(super) struct Orphans {
    before: Adopt,
}

impl Orphans {
    pub(super) fn adopt() -> io::Result<Self> {
        wait::adopt_orphans(Adopt::Yes).map(|before| Self { before })
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        // Setting it succeeded, so resetting it does too.
        let _ = wait::adopt_orphans(self.before);
    }
}

/// Ends the threads of the streams when it is dropped.
pub(super) struct CloseOnDrop<'a>(pub(super) &'a OutputControl);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
