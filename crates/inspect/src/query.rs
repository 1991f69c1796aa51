//! Queries of an input: which events count, and the listener of progress.

use floodmark_event::Filter;

use crate::progress::ProgressListener;

/// What all questions have in common.
#[derive(Clone)]
pub struct Query<'a> {
    /// Selects events.
    pub filter: Filter,
    /// Receives progress.
    pub progress: &'a dyn ProgressListener,
}

impl Default for Query<'_> {
    fn default() -> Self {
        Self { filter: Filter::default(), progress: &() }
    }
}

impl<'a> Query<'a> {
    /// Asks about the events that `filter` selects.
    pub fn new(filter: Filter, progress: &'a dyn ProgressListener) -> Self {
        Self { filter, progress }
    }
}

impl std::fmt::Debug for Query<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Query").field("filter", &self.filter).finish_non_exhaustive()
    }
}
