//! The scopes that a thread has open, one stack per thread and statistics adaptor.
//!
//! Invariants: only the thread that opened a level changes what it counts, and only the innermost one
//! counts; the others catch up when it closes, as for one thread nothing happens in between. A level that
//! another thread closed stays where it is until its own thread comes by. A stack without levels is kept for
//! the next scope, until the thread opens one on another adaptor.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::handle::State;
use super::{Counter, Counters, traced};
use crate::spin::Spin;

/// One open scope.
pub(super) struct Level {
    /// None for one that was pushed.
    pub(super) name: Option<Arc<str>>,
    /// Identifies what the scope was opened for; 0 for nothing in particular.
    pub(super) purpose: usize,
    /// The nearest scope around it that has a name.
    pub(super) around: Option<Arc<Level>>,
    /// Counts what several levels hold together, for a scope that is entered piece by piece.
    pub(super) whole: Option<Arc<Level>>,
    pub(super) relative: Own,
    /// What was allocated here or further in and is live.
    pub(super) held: Spin<Counters>,
    closed: AtomicBool,
}

impl Level {
    /// Creates a level that is on no thread: it holds what the levels that name it as their whole hold.
    pub(super) fn detached(name: Arc<str>, purpose: usize) -> Arc<Self> {
        Arc::new(Self::new(Some(name), purpose, None, None))
    }

    fn new(
        name: Option<Arc<str>>,
        purpose: usize,
        around: Option<Arc<Self>>,
        whole: Option<Arc<Self>>,
    ) -> Self {
        Self {
            name,
            purpose,
            around,
            whole,
            relative: Own::default(),
            held: Spin::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Whether it was opened for this purpose under this name.
    fn is_for(&self, name: Option<&Arc<str>>, purpose: usize) -> bool {
        self.purpose == purpose
            && match (&self.name, name) {
                (Some(one), Some(two)) => Arc::ptr_eq(one, two) || one == two,
                _ => false,
            }
    }

    /// Identifies the level among those that are open.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Counters that one thread writes and any may read.
#[derive(Default)]
pub(super) struct Own([AtomicI64; 6]);

impl Own {
    pub(super) fn get(&self) -> Counters {
        let [value, peak, total, live, most, all] = &self.0;
        let counter = |value: &AtomicI64, peak: &AtomicI64, total: &AtomicI64| Counter {
            value: value.load(Ordering::Relaxed),
            peak: peak.load(Ordering::Relaxed),
            total: total.load(Ordering::Relaxed),
        };
        Counters { bytes: counter(value, peak, total), allocations: counter(live, most, all) }
    }

    fn update(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.get();
        change(&mut counters);
        let Counters { bytes, allocations } = counters;
        let numbers =
            [bytes.value, bytes.peak, bytes.total, allocations.value, allocations.peak, allocations.total];
        for (word, number) in self.0.iter().zip(numbers) {
            word.store(number, Ordering::Relaxed);
        }
    }
}

/// The scopes a thread has open on one adaptor, innermost last.
struct Stack {
    state: Arc<State>,
    levels: Vec<Arc<Level>>,
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.state.unwatch(self.levels.len());
    }
}

impl Stack {
    /// Closes the innermost level: the one around it has counted the same.
    fn close_innermost(&mut self) {
        let Some(inner) = self.levels.pop() else { return };
        self.state.unwatch(1);
        if inner.name.is_some() {
            traced::exit(inner.key());
        }
        if let Some(outer) = self.levels.last() {
            outer.relative.update(|counters| counters.absorb(&inner.relative.get()));
        }
    }

    /// Closes what other threads have closed.
    fn settle(&mut self) {
        while self.levels.last().is_some_and(|level| level.closed.load(Ordering::Acquire)) {
            self.close_innermost();
        }
    }
}

thread_local! {
    /// Few adaptors have scopes open at a time, so they are searched one by one.
    static STACKS: RefCell<Vec<Stack>> = const { RefCell::new(Vec::new()) };
}

/// Calls `with` with the calling thread's stacks; none while its thread-local values are being dropped.
fn stacks<T>(with: impl FnOnce(&mut Vec<Stack>) -> T) -> Option<T> {
    STACKS.try_with(|stacks| stacks.try_borrow_mut().ok().map(|mut stacks| with(&mut stacks))).ok().flatten()
}

/// Calls `with` with the calling thread's settled stack of `state`, if it has one.
fn stack<T>(state: &Arc<State>, with: impl FnOnce(&mut Stack) -> Option<T>) -> Option<T> {
    stacks(|stacks| {
        let at = stacks.iter().position(|stack| Arc::ptr_eq(&stack.state, state))?;
        let stack = &mut stacks[at];
        stack.settle();
        with(stack)
    })
    .flatten()
}

/// Counts an allocation in the calling thread's innermost scope; returns the nearest with a name.
pub(super) fn allocated(state: &Arc<State>, bytes: u64) -> Option<Arc<Level>> {
    stack(state, |stack| {
        let level = stack.levels.last()?;
        level.relative.update(|counters| counters.allocated(bytes));
        if level.name.is_some() { Some(Arc::clone(level)) } else { level.around.clone() }
    })
}

/// Counts a free in the calling thread's innermost scope.
pub(super) fn freed(state: &Arc<State>, bytes: u64) {
    stack(state, |stack| {
        stack.levels.last()?.relative.update(|counters| counters.freed(bytes));
        Some(())
    });
}

/// What the calling thread's innermost scope counted.
pub(super) fn innermost(state: &Arc<State>) -> Option<Counters> {
    stack(state, |stack| stack.levels.last().map(|level| level.relative.get()))
}

/// Opens a level on the calling thread.
pub(super) fn open(state: &Arc<State>, name: Option<&Arc<str>>) -> Arc<Level> {
    open_level(state, name, 0, None).unwrap_or_else(|| Arc::new(Level::new(None, 0, None, None)))
}

/// Opens a level for `purpose` on the calling thread; none if that has one with the same name and purpose open.
pub(super) fn open_for(state: &Arc<State>, name: &Arc<str>, purpose: usize) -> Option<Arc<Level>> {
    open_level(state, Some(name), purpose, None)
}

/// Opens a level on the calling thread that is a piece of `whole`; none if that has one with the same name and
/// purpose open.
pub(super) fn open_piece(state: &Arc<State>, whole: &Arc<Level>) -> Option<Arc<Level>> {
    open_level(state, whole.name.as_ref(), whole.purpose, Some(whole))
}

/// Opens a level; none if it has a purpose for which one with the same name is open.
fn open_level(
    state: &Arc<State>,
    name: Option<&Arc<str>>,
    purpose: usize,
    whole: Option<&Arc<Level>>,
) -> Option<Arc<Level>> {
    let opened = stacks(|stacks| {
        let at = stacks.iter().position(|stack| Arc::ptr_eq(&stack.state, state)).unwrap_or_else(|| {
            stacks.retain(|stack| !stack.levels.is_empty());
            stacks.push(Stack { state: Arc::clone(state), levels: Vec::new() });
            stacks.len() - 1
        });
        let stack = &mut stacks[at];
        stack.settle();
        if purpose != 0 && stack.levels.iter().rev().any(|other| other.is_for(name, purpose)) {
            return None;
        }
        let around = stack.levels.last().and_then(|outer| {
            if outer.name.is_some() { Some(Arc::clone(outer)) } else { outer.around.clone() }
        });
        let level = Arc::new(Level::new(name.cloned(), purpose, around, whole.cloned()));
        stack.levels.push(Arc::clone(&level));
        state.watch(1);
        Some(level)
    });
    // Without stacks, while the thread ends, a level counts nothing.
    let alone = || Some(Arc::new(Level::new(name.cloned(), purpose, None, whole.cloned())));
    let level = opened.unwrap_or_else(alone)?;
    if let Some(name) = &level.name {
        traced::enter(level.key(), name);
    }
    Some(level)
}

/// Closes the innermost scope if it was pushed, and returns what it counted.
pub(super) fn pop(state: &Arc<State>) -> Option<Counters> {
    stack(state, |stack| {
        let level = stack.levels.last().filter(|level| level.name.is_none())?;
        let counters = level.relative.get();
        stack.close_innermost();
        Some(counters)
    })
}

/// Closes `level`, wherever it is open, and returns what it counted. What was left open inside it is
/// closed first.
pub(super) fn close(state: &Arc<State>, level: &Arc<Level>) -> Counters {
    stack(state, |stack| {
        let at = stack.levels.iter().rposition(|other| Arc::ptr_eq(other, level))?;
        while stack.levels.len() > at + 1 {
            stack.close_innermost();
        }
        let counters = level.relative.get();
        stack.close_innermost();
        Some(counters)
    })
    .unwrap_or_else(|| {
        level.closed.store(true, Ordering::Release);
        level.relative.get()
    })
}
