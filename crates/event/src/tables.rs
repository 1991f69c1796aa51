//! The small tables that ids in events and samples point to: strings, processes, threads, frames,
//! stacks, subjects.
//!
//! Invariants: index 0 of strings, frames and stacks is the "none" entry; a stack's parent has a
//! smaller id than the stack itself, so that walking to the root always ends. Entries are added and
//! never removed, and nothing but the end of a subject is ever changed, so an id stays good while a
//! source goes on reading.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use crate::event::{ProcessId, StackId, StringId};
use crate::rows::SubjectRow;

/// A process that recorded, or was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its id in the trace.
    pub id: ProcessId,
    /// Operating system's process number; 0 if not known.
    pub pid: u32,
    /// Process number of its parent; 0 if not known.
    pub parent_pid: u32,
    /// Host on which it ran; empty if not known.
    pub host: String,
    /// Its command line or name; empty if not known.
    pub command: String,
    /// When it started to record, nanoseconds since 1970-01-01 UTC; 0 if not known.
    pub start_ns: i64,
}

/// A thread that has a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Process of the thread.
    pub process: ProcessId,
    /// Operating system's thread number.
    pub thread: u64,
    /// Its name.
    pub name: String,
}

/// Function of the frame that holds a build id: `file` is the build id of `module` in hexadecimal, and the
/// frame is in no stack.
pub const BUILD_ID: &str = "(build id)";

/// One entry of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Function, as its language spells it.
    pub function: StringId,
    /// Source file.
    pub file: StringId,
    /// Line in the source file; 0 if not known.
    pub line: u32,
    /// Library or executable.
    pub module: StringId,
    /// Instruction address; 0 if not known.
    pub address: u64,
}

/// Everything ids of a source point to.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Entries that are shared with clones and never change; their ids come first.
    shared: Arc<Interned>,
    /// Entries that were added since.
    own: Interned,
    /// Processes, in the order of their ids.
    pub processes: Vec<Process>,
    /// Threads that have names.
    pub threads: Vec<Thread>,
    /// What was observed, by number.
    pub subjects: BTreeMap<u64, SubjectRow>,
    /// UUIDs of devices, by process and the number that the device has there.
    pub devices: BTreeMap<(ProcessId, i32), String>,
}

/// Strings, frames and stacks, each stored once.
#[derive(Clone, Debug, Default)]
struct Interned {
    strings: Vec<String>,
    string_ids: HashMap<String, StringId>,
    frames: Vec<Frame>,
    frame_ids: HashMap<Frame, u32>,
    stacks: Vec<(StackId, u32)>,
    stack_ids: HashMap<(StackId, u32), StackId>,
}

impl Default for Tables {
    fn default() -> Self {
        let own = Interned {
            strings: vec![String::new()],
            string_ids: HashMap::from([(String::new(), StringId(0))]),
            frames: vec![Frame::default()],
            stacks: vec![(StackId(0), 0)],
            ..Interned::default()
        };
        Self {
            shared: Arc::default(),
            own,
            processes: Vec::new(),
            threads: Vec::new(),
            subjects: BTreeMap::new(),
            devices: BTreeMap::new(),
        }
    }
}

/// Returns the entry at `index` of two lists that follow one another.
fn entry<'a, T>(shared: &'a [T], own: &'a [T], index: u32) -> Option<&'a T> {
    let index = index as usize;
    shared.get(index).or_else(|| own.get(index - shared.len()))
}

impl Tables {
    /// Shares all strings, frames and stacks with clones made from now on, so that cloning costs little
    /// however many there are. Ids stay as they are; what a clone adds is its own.
    pub fn share(&mut self) {
        let own = std::mem::take(&mut self.own);
        let shared = Arc::make_mut(&mut self.shared);
        shared.strings.extend(own.strings);
        shared.string_ids.extend(own.string_ids);
        shared.frames.extend(own.frames);
        shared.frame_ids.extend(own.frame_ids);
        shared.stacks.extend(own.stacks);
        shared.stack_ids.extend(own.stack_ids);
    }

    /// Returns the id of `text`, adding it if it is new.
    pub fn intern(&mut self, text: &str) -> StringId {
        if let Some(id) = self.shared.string_ids.get(text).or_else(|| self.own.string_ids.get(text)) {
            return *id;
        }
        let id = StringId(self.counts().0 as u32);
        self.own.strings.push(text.to_owned());
        self.own.string_ids.insert(text.to_owned(), id);
        id
    }

    /// Returns the id of `frame`, adding it if it is new.
    pub fn intern_frame(&mut self, frame: Frame) -> u32 {
        if let Some(id) = self.shared.frame_ids.get(&frame) {
            return *id;
        }
        let new = self.counts().1 as u32;
        let Interned { frames, frame_ids, .. } = &mut self.own;
        *frame_ids.entry(frame).or_insert_with(|| {
            frames.push(frame);
            new
        })
    }

    /// Returns the id of the stack that is `frame` called from `parent`, adding it if it is new.
    pub fn intern_stack(&mut self, parent: StackId, frame: u32) -> StackId {
        if let Some(id) = self.shared.stack_ids.get(&(parent, frame)) {
            return *id;
        }
        let new = StackId(self.counts().2 as u32);
        let Interned { stacks, stack_ids, .. } = &mut self.own;
        *stack_ids.entry((parent, frame)).or_insert_with(|| {
            stacks.push((parent, frame));
            new
        })
    }

    /// Returns the text of `id`, or an empty one if there is none.
    pub fn string(&self, id: StringId) -> &str {
        entry(&self.shared.strings, &self.own.strings, id.0).map_or("", String::as_str)
    }

    /// Number of strings, frames and stacks, the "none" entries included.
    pub fn counts(&self) -> (usize, usize, usize) {
        let (shared, own) = (&self.shared, &self.own);
        (
            shared.strings.len() + own.strings.len(),
            shared.frames.len() + own.frames.len(),
            shared.stacks.len() + own.stacks.len(),
        )
    }

    /// Returns the frame with this id.
    pub fn frame(&self, id: u32) -> Frame {
        entry(&self.shared.frames, &self.own.frames, id).copied().unwrap_or_default()
    }

    /// Returns parent and frame of a stack.
    pub fn stack(&self, id: StackId) -> Option<(StackId, u32)> {
        (id.0 != 0).then(|| entry(&self.shared.stacks, &self.own.stacks, id.0).copied()).flatten()
    }

    /// Iterates over the frames of `stack`, innermost first.
    pub fn frames_of(&self, stack: StackId) -> impl Iterator<Item = Frame> + '_ {
        let mut at = stack;
        std::iter::from_fn(move || {
            let (parent, frame) = self.stack(at)?;
            // Parents come first; an entry that breaks that would make the walk endless.
            at = if parent.0 < at.0 { parent } else { StackId(0) };
            Some(self.frame(frame))
        })
    }

    /// Returns a frame as one line: `function (file:line)` with what is known of it.
    pub fn frame_text(&self, frame: &Frame) -> String {
        let mut text = self.string(frame.function).to_owned();
        if text.is_empty() {
            text = format!("{:#x}", frame.address);
        }
        let file = self.string(frame.file);
        if file.is_empty() {
            let module = self.string(frame.module);
            if !module.is_empty() {
                let _ = write!(text, " [{module}]");
            }
        } else if frame.line == 0 {
            let _ = write!(text, " ({file})");
        } else {
            let _ = write!(text, " ({file}:{})", frame.line);
        }
        text
    }

    /// Returns the frames of `stack` as text, innermost first.
    pub fn stack_text(&self, stack: StackId) -> Vec<String> {
        self.frames_of(stack).map(|frame| self.frame_text(&frame)).collect()
    }

    /// Returns the process with this id.
    pub fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes.iter().find(|process| process.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_read_innermost_first_and_are_stored_once() {
        let mut tables = Tables::default();
        let mut frame = |name: &str, line| {
            let function = tables.intern(name);
            let file = tables.intern("app.py");
            tables.intern_frame(Frame { function, file, line, ..Frame::default() })
        };
        let (main, load) = (frame("main", 3), frame("load", 9));
        let outer = tables.intern_stack(StackId(0), main);
        let inner = tables.intern_stack(outer, load);
        assert_eq!(tables.intern_stack(outer, load), inner);
        assert_eq!(tables.stack_text(inner), ["load (app.py:9)", "main (app.py:3)"]);
        assert!(tables.stack_text(StackId(0)).is_empty());
        assert!(tables.stack_text(StackId(999)).is_empty());
    }

    #[test]
    fn clones_share_entries_and_add_their_own() {
        let mut tables = Tables::default();
        let main = tables.intern("main");
        let frame = tables.intern_frame(Frame { function: main, ..Frame::default() });
        let stack = tables.intern_stack(StackId(0), frame);
        tables.share();
        let (mut one, mut other) = (tables.clone(), tables);
        assert_eq!((one.intern("main"), one.intern("")), (main, StringId(0)));
        let (pool, buffer) = (one.intern("pool"), other.intern("buffer"));
        assert_eq!((one.string(pool), other.string(buffer)), ("pool", "buffer"));
        assert_eq!(pool, buffer);
        let load = one.intern_frame(Frame { function: pool, ..Frame::default() });
        let inner = one.intern_stack(stack, load);
        assert_eq!(one.stack_text(inner), ["pool", "main"]);
        assert_eq!(other.stack(inner), None);
        // Sharing again keeps ids.
        one.share();
        assert_eq!(one.stack_text(inner), ["pool", "main"]);
        assert_eq!((one.intern("pool"), one.intern_stack(stack, load)), (pool, inner));
        assert_eq!((one.counts(), other.counts()), ((3, 3, 3), (3, 2, 2)));
    }
}
