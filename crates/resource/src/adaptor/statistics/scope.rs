//! Scopes with a name.

use std::fmt;
use std::sync::Arc;

use super::Counters;
use super::handle::State;
use super::level::{self, Level};

/// A scope with a name, open until it is finished or dropped.
///
/// It counts what the thread that opened it does. It may be finished on another thread, and then counts
/// what its own thread did until that moment. Scopes that were opened inside it and are still open close
/// with it. While the process records, it is a scope of the recording too.
#[must_use = "a scope closes when dropped"]
pub struct Scope {
    state: Arc<State>,
    level: Arc<Level>,
    /// Whether dropping it has to close it.
    is_open: bool,
}

/// What a scope counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeFigures {
    /// What its thread did while it was open: frees of blocks from before it count against it, and what
    /// other threads do does not count at all.
    pub relative: Counters,
    /// What it allocated, scopes inside it included: its value is what of that is live, whichever thread frees it,
    /// and its peak the most that was live at any time. Blocks of no bytes hold nothing and do not count.
    pub held: Counters,
}

impl Scope {
    pub(super) fn open(state: &Arc<State>, name: &Arc<str>) -> Self {
        Self { state: Arc::clone(state), level: level::open(state, Some(name)), is_open: true }
    }

    /// Opens a scope for `purpose`, unless the calling thread has one with the same name and purpose open.
    pub(super) fn open_once(state: &Arc<State>, name: &Arc<str>, purpose: usize) -> Option<Self> {
        let level = level::open_for(state, name, purpose)?;
        Some(Self { state: Arc::clone(state), level, is_open: true })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.level.name.as_deref().unwrap_or_default()
    }

    /// What it counted so far. Scopes that are open inside it are in `held`, and in `relative` once they
    /// close.
    pub fn figures(&self) -> ScopeFigures {
        ScopeFigures { relative: self.level.relative.get(), held: *self.level.held.lock() }
    }

    /// Closes it.
    pub fn finish(mut self) -> ScopeFigures {
        self.is_open = false;
        let relative = level::close(&self.state, &self.level);
        ScopeFigures { relative, held: *self.level.held.lock() }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.is_open {
            level::close(&self.state, &self.level);
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Scope").field("name", &self.name()).field("figures", &self.figures()).finish()
    }
}

/// A scope with a name that is entered and left any number of times, on any threads, such as that of a generator
/// or a coroutine. It holds what all its pieces hold together.
pub(crate) struct SplitScope {
    state: Arc<State>,
    whole: Arc<Level>,
}

impl SplitScope {
    pub(super) fn new(state: &Arc<State>, name: Arc<str>, purpose: usize) -> Self {
        Self { state: Arc::clone(state), whole: Level::detached(name, purpose) }
    }

    /// Opens a piece on the calling thread, unless that has a scope with the same name and purpose open.
    pub(crate) fn enter(&self) -> Option<Scope> {
        let level = level::open_piece(&self.state, &self.whole)?;
        Some(Scope { state: Arc::clone(&self.state), level, is_open: true })
    }

    /// What its pieces allocated.
    pub(crate) fn held(&self) -> Counters {
        *self.whole.held.lock()
    }
}
