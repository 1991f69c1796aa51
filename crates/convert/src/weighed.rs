//! Stacks with what they hold: what profiles of other tools are written from.

use floodmark_event::tables::Frame;
use floodmark_event::{StackId, Tables};

/// What a stack holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackTotals {
    /// The stack.
    pub stack: StackId,
    /// What stands for the frames of blocks without a stack, outermost first.
    pub steps: Vec<String>,
    /// Bytes and blocks live at the instant the profile is about.
    pub held: [u64; 2],
    /// Bytes and blocks live at the end.
    pub left: [u64; 2],
    /// Bytes and blocks ever allocated.
    pub allocated: [u64; 2],
}

/// One entry of a path: a frame, or a text that stands for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Entry<'a> {
    Frame(Frame),
    Step(&'a str),
}

impl StackTotals {
    /// The entries of the path, outermost first; `buffer` is reused.
    pub(crate) fn path<'a>(&'a self, tables: &Tables, buffer: &mut Vec<Entry<'a>>) {
        buffer.clear();
        buffer.extend(tables.frames_of(self.stack).map(Entry::Frame));
        buffer.reverse();
        if buffer.is_empty() {
            buffer.extend(self.steps.iter().map(|step| Entry::Step(step)));
        }
    }
}
