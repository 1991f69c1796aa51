//! Native call stacks of the calling thread: unwound fast, interned once, symbolized on demand.
//!
//! | module | what lives there |
//! |---|---|
//! | `walk` | from frame to frame by remembered rules, inside of the thread's own stack |
//! | `remembered` | rules that a thread has met |
//! | `rules` | the rule at one instruction, from the unwind tables of its module |
//! | `loader` | the modules in memory |
//! | `system` | the language runtime's unwinder, for what no rule describes |
//! | `table` | every stack once, under a small number |
//! | `names` | what frames are called |
//! | `forking` | no fork while a thread asks the dynamic loader |
//! | `build_id` | build ids in files of modules |
//! | `symbols` | functions in the files of modules, of this or another process |
//! | `replay` | stacks for recorders that ask millions of times a second, by comparing with the last one |
//! | `allocator` | a global allocator for Rust programs that records what they allocate |
//! | `recorded` | stacks for the events of a recording |
#![expect(unsafe_code, reason = "reads the registers a walk starts from")]

mod allocator;
#[cfg(feature = "symbols")]
mod build_id;
mod forking;
mod loader;
mod names;
mod recorded;
mod remembered;
mod replay;
mod rules;
#[cfg(feature = "symbols")]
mod symbols;
mod system;
mod table;
mod walk;

use std::num::NonZeroU32;

pub use allocator::{RUST_RESOURCE, RecordedAllocator};
#[cfg(feature = "symbols")]
pub use build_id::build_id;
pub use names::FrameName;
pub use names::{Detail, Names};
pub use recorded::recorded_stack;
pub use replay::{MAX_REPLAY_FRAMES, Replay, ReplayCheck, ReplayProps};
#[cfg(feature = "symbols")]
pub use symbols::{Function, Symbols};
pub use table::StackTable;
pub use walk::Registers;
use walk::with_walker;

/// Returns the files of the program and its libraries, in order of address.
pub fn module_files() -> Vec<std::path::PathBuf> {
    loader::named_modules().into_iter().map(|module| module.path).collect()
}

/// The most frames of a stack that are found; what is further out is cut.
pub const MAX_FRAMES: usize = 64;

/// Finds the return addresses on the calling thread's stack, innermost first; returns how many.
///
/// The first is in the function that calls this one. None are found on a stack that is not the
/// thread's own (a signal handler's, a coroutine's) and while the thread is at finding them already.
/// A thread that asks for the first time allocates, so signal handlers should not be the first.
#[inline(never)]
pub fn capture(frames: &mut [u64; MAX_FRAMES]) -> usize {
    let registers = registers!();
    let count = with_walker(|walker| {
        let found = walker.walk(registers);
        frames[..found.count].copy_from_slice(&walker.frames[..found.count]);
        found.count
    });
    count.unwrap_or(0)
}

/// An interned stack of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stack(NonZeroU32);

impl Stack {
    /// The stack of the function that calls this one; see [`capture`].
    #[inline(never)]
    pub fn capture() -> Option<Self> {
        Self::above(registers!())
    }

    /// The stack of the callers of the function with these registers.
    #[inline]
    pub fn above(registers: Registers) -> Option<Self> {
        with_walker(|walker| {
            let found = walker.walk(registers);
            walker.known.intern(&walker.frames[..found.count], found.hash)
        })?
    }

    /// Its number, from 1.
    pub const fn number(self) -> u32 {
        self.0.get()
    }

    /// Its return addresses, innermost first.
    pub fn frames(self) -> &'static [u64] {
        StackTable::shared().frames(self)
    }

    /// What its frames are called, innermost first; a function that was inlined is a frame too.
    pub fn names(self) -> Vec<FrameName> {
        Names::of([self], Detail::Lines).frames(self).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways from the same registers.
    #[inline(never)]
    fn compare(depth: u32) -> usize {
        if std::hint::black_box(depth) > 0 {
            return std::hint::black_box(compare(depth - 1));
        }
        let registers = registers!();
        let mut theirs = [0; MAX_FRAMES];
        let count = system::walk(registers.stack, &mut theirs);
        let ours = with_walker(|walker| {
            let count = walker.walk(registers).count;
            walker.frames[..count].to_vec()
        });
        assert_eq!(ours.as_deref(), Some(&theirs[..count]));
        count
    }

    #[test]
    fn what_is_left_to_the_system_is_what_would_have_been_found() {
        assert!(compare(0) > 0);
        assert_eq!(compare(10), compare(0) + 10);
        assert_eq!(compare(100), MAX_FRAMES);
    }

    #[test]
    fn a_walk_inside_of_a_walk_finds_nothing() {
        let mut frames = [0; MAX_FRAMES];
        assert_eq!(with_walker(|_| (capture(&mut frames), Stack::capture())), Some((0, None)));
        assert!(capture(&mut frames) > 0);
    }
}
