//! What the scope of a block or of its free says about it.
//!
//! Events carry the number of their innermost scope; its name is in another table. Whoever runs a fold
//! reads that table first and tells here which numbers mean something.

use floodmark_event::{BEFORE_CAPTURE, CONTEXT_TEARDOWN};
use rustc_hash::FxHashSet;

/// The scopes whose names say how blocks began or ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeRoles {
    before_capture: FxHashSet<u64>,
    teardown: FxHashSet<u64>,
}

impl ScopeRoles {
    /// Remembers a scope if its name says something.
    pub fn add(&mut self, scope: u64, name: &str) {
        match name {
            BEFORE_CAPTURE => self.before_capture.insert(scope),
            CONTEXT_TEARDOWN => self.teardown.insert(scope),
            _ => false,
        };
    }

    /// Whether blocks allocated in this scope were live before recording began.
    pub fn is_before_capture(&self, scope: u64) -> bool {
        self.before_capture.contains(&scope)
    }

    /// Whether blocks freed in this scope ended with their context.
    #[inline]
    pub fn is_teardown(&self, scope: u64) -> bool {
        !self.teardown.is_empty() && self.teardown.contains(&scope)
    }
}
