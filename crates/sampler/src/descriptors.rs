//! More open descriptors than this process began with, for callers that talk to many processes.

use crate::sys::limit::Limit;

/// Raises the limit of open descriptors to the highest that the system allows, until it is dropped. A command that is
/// started by [`run`](crate::run) after that has the limit from before.
#[derive(Debug)]
pub struct MoreDescriptors {
    before: Limit,
}

impl MoreDescriptors {
    /// Raises the limit.
    pub fn raise() -> Self {
        let before = Limit::descriptors();
        before.highest().set();
        Self { before }
    }

    /// Returns how many descriptors can be open now.
    pub fn count(&self) -> u64 {
        Limit::descriptors().count()
    }
}

impl Drop for MoreDescriptors {
    fn drop(&mut self) {
        self.before.set();
    }
}
