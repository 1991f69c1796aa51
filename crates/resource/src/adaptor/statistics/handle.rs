//! The counters of a [`Statistics`](super::Statistics), and what can be asked of them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::charge::Charges;
use super::scope::{Scope, SplitScope};
use super::whole::Whole;
use super::{Counters, level};
use crate::error::{AllocError, Holder};
use crate::resource::Address;

/// How many holders an error names.
const ERROR_HOLDERS: usize = 5;

/// What was asked for, whether served or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// The largest request that was served.
    pub largest_bytes: u64,
    /// Requests that were not.
    pub failures: u64,
    /// The largest of those.
    pub largest_failed_bytes: u64,
}

/// There is no scope to pop: the process-wide counters stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoScope;

impl fmt::Display for NoScope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("cannot pop the last counter pair")
    }
}

impl std::error::Error for NoScope {}

/// What a statistics adaptor counts; clones share it.
#[derive(Clone, Default)]
pub struct StatisticsHandle {
    state: Arc<State>,
}

/// Shared by the adaptor, its handles, and the threads that have scopes open.
#[derive(Default)]
pub(super) struct State {
    hot: Hot,
    whole: Whole,
    pub(super) charges: Charges,
}

/// State that every operation reads, on a cache line apart from what is written.
#[derive(Default)]
#[repr(align(128))]
struct Hot {
    /// Scopes that are open on any thread, and live blocks of named ones. While it is 0, operations
    /// skip both.
    watched: AtomicUsize,
}

impl State {
    pub(super) fn watch(&self, more: usize) {
        self.hot.watched.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn unwatch(&self, fewer: usize) {
        self.hot.watched.fetch_sub(fewer, Ordering::Relaxed);
    }

    /// Counts for the calling thread's scopes.
    #[cold]
    fn allocated_in_scope(self: &Arc<Self>, address: Address, bytes: u64) {
        if let Some(named) = level::allocated(self, bytes)
            && !address.is_null()
        {
            self.charges.insert(self, address, bytes, named);
        }
    }

    #[cold]
    fn freed_in_scope(self: &Arc<Self>, address: Address, bytes: u64) {
        level::freed(self, bytes);
        self.charges.remove(self, address);
    }
}

impl StatisticsHandle {
    #[inline]
    pub(super) fn allocated(&self, address: Address, bytes: u64) {
        self.state.whole.allocated(bytes);
        if self.state.hot.watched.load(Ordering::Relaxed) != 0 {
            self.state.allocated_in_scope(address, bytes);
        }
    }

    #[inline]
    pub(super) fn freed(&self, address: Address, bytes: u64) {
        self.state.whole.freed(bytes);
        if self.state.hot.watched.load(Ordering::Relaxed) != 0 {
            self.state.freed_in_scope(address, bytes);
        }
    }

    /// Counts a failure and adds the holders of memory to it, unless it has them already.
    #[cold]
    pub(super) fn failed(&self, bytes: u64, mut error: AllocError) -> AllocError {
        self.state.whole.failed(bytes);
        if let AllocError::OutOfMemory(details) = &mut error
            && details.holders.is_empty()
        {
            details.holders = self.holders(ERROR_HOLDERS);
        }
        error
    }

    /// What the innermost scope of the calling thread counted; the process-wide counters where it has
    /// none open.
    pub fn counters(&self) -> Counters {
        level::innermost(&self.state).unwrap_or_else(|| self.process_counters())
    }

    /// What the whole process did, scopes or not.
    pub fn process_counters(&self) -> Counters {
        self.state.whole.counters()
    }

    /// What was asked for, failures included.
    pub fn requests(&self) -> Requests {
        self.state.whole.requests()
    }

    /// Opens a scope on the calling thread; returns what [`counters`](Self::counters) were.
    pub fn push(&self) -> Counters {
        let before = self.counters();
        self.open();
        before
    }

    /// Opens a scope as [`push`](Self::push) does, without asking what the counters were.
    pub fn open(&self) {
        level::open(&self.state, None);
    }

    /// Closes the scope that [`push`](Self::push) opened last on the calling thread and returns what it
    /// counted. The scope around it has counted that too, from now on.
    ///
    /// # Errors
    /// [`NoScope`] if the thread's innermost scope was not opened by `push`.
    pub fn pop(&self) -> Result<Counters, NoScope> {
        level::pop(&self.state).ok_or(NoScope)
    }

    /// Opens a scope with a name on the calling thread, until the result is finished or dropped.
    pub fn scope(&self, name: impl Into<Arc<str>>) -> Scope {
        Scope::open(&self.state, &name.into())
    }

    /// Opens a scope for `purpose` on the calling thread; none if one with the same name is open for it.
    pub(crate) fn scope_once(&self, name: &Arc<str>, purpose: usize) -> Option<Scope> {
        Scope::open_once(&self.state, name, purpose)
    }

    /// Creates a scope that is entered piece by piece.
    pub(crate) fn split_scope(&self, name: Arc<str>, purpose: usize) -> SplitScope {
        SplitScope::new(&self.state, name, purpose)
    }

    /// Which names hold live blocks, most bytes first, `limit` of them at most: a block counts for the
    /// innermost named scope in which it was allocated, open or not.
    pub fn holders(&self, limit: usize) -> Vec<Holder> {
        self.state.charges.holders(limit)
    }
}

impl fmt::Debug for StatisticsHandle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("StatisticsHandle").field(&self.process_counters()).finish()
    }
}
