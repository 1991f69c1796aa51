//! Stacks for the recording of this process.
//!
//! A frame is recorded as its module and the address of the call as the module's file counts, which is
//! the same in every run and is what symbol tools take.
#![expect(unsafe_code, reason = "reads the registers a walk starts from")]

use std::sync::atomic::{AtomicU32, Ordering};

use floodmark_event::clock::monotonic_ns;
use floodmark_event::tables::Frame;
use floodmark_event::tail::{intern, intern_frame, intern_stack, is_recording};
use floodmark_event::{StackId, StringId};

use super::Stack;
use super::loader::{Loads, NamedModule, find_named, named_modules};
use super::walk::{registers, with_walker};

/// The stack of the function that calls this one, for an event of the recording; none (0) while nothing
/// is recorded.
#[inline(never)]
pub fn recorded_stack() -> StackId {
    if !is_recording() {
        return StackId(0);
    }
    let registers = registers!();
    let id = with_walker(|walker| {
        let found = walker.walk(registers);
        let frames = &walker.frames[..found.count];
        let stack = walker.known.intern(frames, found.hash);
        walker.recorded.id_of(stack, frames)
    });
    id.unwrap_or(StackId(0))
}

const REMEMBERED: usize = 2048;

/// Ids that a thread's stacks have in the recording.
#[derive(Default)]
pub(super) struct Recorded {
    marks: Marks,
    /// Stack and id, at the place that the stack's number leads to; empty before the first.
    ids: Vec<Option<(Stack, StackId)>>,
    loads: Loads,
    modules: Vec<NamedModule>,
    /// What the modules are called in the recording; none where nobody has asked yet.
    module_names: Vec<Option<StringId>>,
}

impl Recorded {
    #[inline]
    fn id_of(&mut self, stack: Option<Stack>, frames: &[u64]) -> StackId {
        match self.marks.look() {
            Recording::Same => {}
            Recording::Other => self.forget(),
            Recording::None => return StackId(0),
        }
        match stack.and_then(|stack| self.ids.get(place_of(stack))) {
            Some(Some((known, id))) if Some(*known) == stack => *id,
            _ => self.meet(stack, frames),
        }
    }

    #[cold]
    fn meet(&mut self, stack: Option<Stack>, frames: &[u64]) -> StackId {
        let loads = Loads::now();
        if self.modules.is_empty() || loads != self.loads {
            self.modules = named_modules();
            self.module_names = vec![None; self.modules.len()];
            self.loads = loads;
        }
        let mut id = StackId(0);
        for frame in frames.iter().rev() {
            let frame = match self.frame(*frame) {
                0 => return StackId(0),
                frame => frame,
            };
            id = intern_stack(id, frame);
            if id == StackId(0) {
                return id;
            }
        }
        if let Some(stack) = stack {
            if self.ids.is_empty() {
                self.ids = vec![None; REMEMBERED];
            }
            self.ids[place_of(stack)] = Some((stack, id));
        }
        id
    }

    fn frame(&mut self, return_address: u64) -> u32 {
        // A return address is after the call and may belong to the next function.
        let address = return_address.wrapping_sub(1);
        let Some(at) = find_named(&self.modules, address) else {
            return intern_frame(&Frame { address, ..Frame::default() });
        };
        let NamedModule { bias, path, .. } = &self.modules[at];
        let module = *self.module_names[at].get_or_insert_with(|| intern(&path.to_string_lossy()));
        intern_frame(&Frame { module, address: address.wrapping_sub(*bias), ..Frame::default() })
    }

    fn forget(&mut self) {
        self.ids.fill(None);
        self.module_names.fill(None);
    }
}

const fn place_of(stack: Stack) -> usize {
    stack.number() as usize % REMEMBERED
}

/// Tells whether the recording is still the same: ids of one mean something else in the next.
///
/// Ids count up in the order in which things are interned. So two frames that mean nothing are always
/// looked up in the order opposite to the one in which this recording has met them. A new recording
/// meets them in that order, and gives the smaller id to the other one.
///
/// Looking takes two system calls, so it is not done again for [`LASTS_NS`].
struct Marks {
    frames: [Frame; 2],
    ids: [u32; 2],
    looked_ns: u64,
}

/// No recording ends and no other begins within this time: that takes files to be made and moved.
const LASTS_NS: u64 = 10_000;

#[derive(PartialEq, Eq)]
enum Recording {
    Same,
    Other,
    None,
}

impl Default for Marks {
    fn default() -> Self {
        // Threads have marks of their own, since each meets a recording at its own time.
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let line = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = |address| Frame { line, address, ..Frame::default() };
        Self { frames: [mark(1), mark(2)], ids: [0; 2], looked_ns: 0 }
    }
}

impl Marks {
    #[inline]
    fn look(&mut self) -> Recording {
        let now = monotonic_ns();
        if now.wrapping_sub(self.looked_ns) < LASTS_NS {
            return Recording::Same;
        }
        self.look_again(now)
    }

    fn look_again(&mut self, now: u64) -> Recording {
        let second = intern_frame(&self.frames[1]);
        let first = intern_frame(&self.frames[0]);
        if first == 0 || second == 0 {
            return Recording::None;
        }
        self.looked_ns = now;
        if [first, second] == self.ids {
            return Recording::Same;
        }
        // The one that was looked up first is the one that was met first.
        self.frames.swap(0, 1);
        self.ids = [second, first];
        Recording::Other
    }
}
