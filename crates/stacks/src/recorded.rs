//! Stacks for the recording of this process.
//!
//! A frame is recorded as its module and the address of the call as the module's file counts, which is
//! the same in every run and is what symbol tools take. The build id of the module goes with it, so that a
//! reader that looks for names knows whether it has the same file.
#![expect(unsafe_code, reason = "reads the registers a walk starts from")]

use floodmark_event::tables::{BUILD_ID, Frame};
use floodmark_event::{StackId, StringId};
use floodmark_tail::{intern, intern_frame, intern_stack, is_recording, recording};

use super::Stack;
use super::loader::{Loads, NamedModule, find_named, named_modules};
use super::walk::with_walker;
use crate::registers;

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
    /// Number of the recording whose ids these are.
    recording: u32,
    /// Stack and id, at the place that the stack's number leads to; empty before the first.
    ids: Vec<Option<(Stack, StackId)>>,
    frames: FrameIds,
}

impl Recorded {
    #[inline]
    fn id_of(&mut self, stack: Option<Stack>, frames: &[u64]) -> StackId {
        let recording = recording();
        if recording != self.recording {
            // Ids of one recording mean something else in the next.
            self.ids.fill(None);
            self.recording = recording;
        }
        if recording == 0 {
            return StackId(0);
        }
        match stack.and_then(|stack| self.ids.get(place_of(stack))) {
            Some(Some((known, id))) if Some(*known) == stack => *id,
            _ => self.meet(stack, frames),
        }
    }

    #[cold]
    fn meet(&mut self, stack: Option<Stack>, frames: &[u64]) -> StackId {
        let mut id = StackId(0);
        for frame in frames.iter().rev() {
            let frame = match self.frames.frame(*frame) {
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
}

/// Gives return addresses their frames in the recording.
#[derive(Default)]
pub(super) struct FrameIds {
    /// Number of the recording whose ids these are.
    recording: u32,
    loads: Loads,
    modules: Vec<NamedModule>,
    /// Ids of the modules in the recording; none before they were needed.
    module_names: Vec<Option<StringId>>,
}

impl FrameIds {
    /// Returns the id of the frame that `return_address` is in; 0 while nothing is recorded.
    pub(super) fn frame(&mut self, return_address: u64) -> u32 {
        let (loads, recording) = (Loads::now(), recording());
        if self.modules.is_empty() || loads != self.loads {
            self.modules = named_modules();
            self.loads = loads;
            self.module_names.clear();
        }
        if recording != self.recording {
            self.module_names.clear();
            self.recording = recording;
        }
        self.module_names.resize(self.modules.len(), None);
        // A return address is after the call and may belong to the next function.
        let address = return_address.wrapping_sub(1);
        let Some(at) = find_named(&self.modules, address) else {
            return intern_frame(&Frame { address, ..Frame::default() });
        };
        let NamedModule { bias, path, build_id, .. } = &self.modules[at];
        let module = *self.module_names[at].get_or_insert_with(|| {
            let module = intern(&path.to_string_lossy());
            if let Some(build_id) = build_id {
                let (function, file) = (intern(BUILD_ID), intern(build_id));
                intern_frame(&Frame { function, file, module, ..Frame::default() });
            }
            module
        });
        intern_frame(&Frame { module, address: address.wrapping_sub(*bias), ..Frame::default() })
    }
}

const fn place_of(stack: Stack) -> usize {
    stack.number() as usize % REMEMBERED
}
