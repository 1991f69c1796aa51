//! Strings, frames and stacks that a partial result uses, numbered densely, and how they get ids of other tables.

use floodmark_event::tables::{Frame, Process};
use floodmark_event::{ProcessId, StackId, StringId, Tables};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::describe::Origin;
use crate::partial::PartialError;

/// What ids in a partial result point to. Entry 0 of each list is "none" and left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct TablesData {
    strings: Vec<String>,
    frames: Vec<FrameData>,
    /// Parent and frame; a parent has a smaller number.
    stacks: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct FrameData {
    function: u32,
    file: u32,
    line: u32,
    module: u32,
    address: u64,
}

/// A process, the input that it is of, and its number there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ProcessData {
    pub(super) source: u32,
    pub(super) number: u32,
    pid: u32,
    parent_pid: u32,
    host: String,
    command: String,
    start_ns: i64,
}

impl ProcessData {
    pub(super) fn new(source: u32, number: u32, process: &Process) -> Self {
        let Process { id: _, pid, parent_pid, host, command, start_ns } = process.clone();
        Self { source, number, pid, parent_pid, host, command, start_ns }
    }

    pub(super) fn process(&self, id: ProcessId) -> Process {
        let Self { source: _, number: _, pid, parent_pid, host, command, start_ns } = self.clone();
        Process { id, pid, parent_pid, host, command, start_ns }
    }
}

/// What blocks of one place and tally have in common, with ids of [`TablesData`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OriginData {
    tally: u8,
    stack: u32,
    name: u32,
}

/// Collects what is used of tables.
pub(crate) struct Compact<'a> {
    tables: &'a Tables,
    strings: FxHashMap<StringId, u32>,
    frames: FxHashMap<u32, u32>,
    stacks: FxHashMap<StackId, u32>,
    data: TablesData,
}

impl<'a> Compact<'a> {
    pub(super) fn new(tables: &'a Tables) -> Self {
        Self {
            tables,
            strings: FxHashMap::default(),
            frames: FxHashMap::default(),
            stacks: FxHashMap::default(),
            data: TablesData::default(),
        }
    }

    pub(crate) fn string(&mut self, id: StringId) -> u32 {
        if id.0 == 0 {
            return 0;
        }
        let strings = &mut self.data.strings;
        *self.strings.entry(id).or_insert_with(|| {
            strings.push(self.tables.string(id).to_owned());
            strings.len() as u32
        })
    }

    fn frame(&mut self, id: u32) -> u32 {
        if let Some(known) = self.frames.get(&id) {
            return *known;
        }
        let Frame { function, file, line, module, address } = self.tables.frame(id);
        let (function, file) = (self.string(function), self.string(file));
        let frame = FrameData { function, file, line, module: self.string(module), address };
        self.data.frames.push(frame);
        let new = self.data.frames.len() as u32;
        self.frames.insert(id, new);
        new
    }

    pub(crate) fn stack(&mut self, id: StackId) -> u32 {
        // Stacks may be deep: callers first, without recursion.
        let (mut path, mut at) = (Vec::new(), id);
        let mut parent = loop {
            if let Some(known) = self.stacks.get(&at) {
                break *known;
            }
            let Some((up, frame)) = self.tables.stack(at) else { break 0 };
            path.push((at, frame));
            at = if up.0 < at.0 { up } else { StackId(0) };
        };
        for (stack, frame) in path.into_iter().rev() {
            let frame = self.frame(frame);
            self.data.stacks.push((parent, frame));
            parent = self.data.stacks.len() as u32;
            self.stacks.insert(stack, parent);
        }
        parent
    }

    pub(crate) fn origin(&mut self, origin: Origin) -> OriginData {
        let Origin { tally, stack, name } = origin;
        OriginData { tally, stack: self.stack(stack), name: self.string(name) }
    }

    pub(super) fn finish(self) -> TablesData {
        self.data
    }
}

/// Gives what a partial result points to ids of other tables.
#[derive(Debug, Default)]
pub(crate) struct Expand {
    strings: Vec<StringId>,
    stacks: Vec<StackId>,
    /// New ids of processes.
    processes: FxHashMap<u32, ProcessId>,
}

impl Expand {
    pub(super) fn new(
        data: &TablesData,
        tables: &mut Tables,
        processes: FxHashMap<u32, ProcessId>,
    ) -> Result<Self, PartialError> {
        let mut strings = vec![StringId(0)];
        strings.extend(data.strings.iter().map(|text| tables.intern(text)));
        let string = |at: u32| strings.get(at as usize).copied().ok_or(PartialError::Damaged("a string"));
        let mut frames = vec![0];
        for FrameData { function, file, line, module, address } in data.frames.iter().copied() {
            let (function, file, module) = (string(function)?, string(file)?, string(module)?);
            frames.push(tables.intern_frame(Frame { function, file, line, module, address }));
        }
        let mut stacks = vec![StackId(0)];
        for (parent, frame) in &data.stacks {
            let parent = stacks.get(*parent as usize).copied();
            let frame = frames.get(*frame as usize).copied();
            let (Some(parent), Some(frame)) = (parent, frame) else {
                return Err(PartialError::Damaged("a stack"));
            };
            stacks.push(tables.intern_stack(parent, frame));
        }
        Ok(Self { strings, stacks, processes })
    }

    pub(crate) fn string(&self, at: u32) -> Result<StringId, PartialError> {
        self.strings.get(at as usize).copied().ok_or(PartialError::Damaged("a string"))
    }

    pub(crate) fn stack(&self, at: u32) -> Result<StackId, PartialError> {
        self.stacks.get(at as usize).copied().ok_or(PartialError::Damaged("a stack"))
    }

    pub(crate) fn process(&self, id: u32) -> Result<ProcessId, PartialError> {
        self.processes.get(&id).copied().ok_or(PartialError::Damaged("a process"))
    }

    /// A scope, whose upper half is the number of its process.
    pub(crate) fn scope(&self, scope: u64) -> u64 {
        match self.processes.get(&((scope >> 32) as u32)) {
            Some(process) => scope & 0xffff_ffff | u64::from(process.0) << 32,
            None => scope,
        }
    }

    pub(crate) fn origin(&self, origin: OriginData) -> Result<Origin, PartialError> {
        let OriginData { tally, stack, name } = origin;
        Ok(Origin { tally: checked_tally(tally)?, stack: self.stack(stack)?, name: self.string(name)? })
    }
}

/// A tally that there is.
pub(crate) fn checked_tally(tally: u8) -> Result<u8, PartialError> {
    let is_known = usize::from(tally) < floodmark_event::Kind::ALL.len();
    if is_known { Ok(tally) } else { Err(PartialError::Damaged("a kind")) }
}
