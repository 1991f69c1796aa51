//! The small tables of a trace in memory, and the mapping from ids at rest to ids in memory.
//!
//! At rest an id is 64 bits: the process in the upper half, the process's own number in the lower
//! (imported traces have one numbering and 0 in the upper half). So a process's numbers go into parts
//! as they are, and nothing has to be remembered between two sealings. In memory ids are dense and
//! equal contents have equal ids.

use std::sync::Arc;

use floodmark_event::tables::{BUILD_ID, Frame};
use floodmark_event::{ProcessId, StackId, StringId, SubjectRow, Tables};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::codec::AtRest;
use crate::error::Result;
use crate::frame_names::{FrameNames, NameFrames, RecordedModule};
use crate::manifest::Manifest;
use crate::part::PartFiles;
use crate::rows::Columns;
use crate::small_tables::{DeviceRow, FrameRow, StackRow, StringRow, processes};
use crate::source::Losses;

/// Puts a process and one of its own numbers together.
pub(crate) fn key(process: ProcessId, number: u32) -> u64 {
    u64::from(process.0) << 32 | u64::from(number)
}

/// Returns the process in the upper half of an id at rest.
pub(crate) fn process_of(key: u64) -> ProcessId {
    ProcessId((key >> 32) as u32)
}

/// Which of the small tables a reader needs; processes, subjects and devices go with the names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// No ids are translated.
    #[default]
    Nothing,
    /// Names of subjects and scopes, which a tail may give by id.
    Names,
    /// Stacks as well.
    Everything,
}

/// Tables in memory, and how to get there from ids at rest.
///
/// A clone shares what was loaded before [`Self::share`], so that several scans of a trace load it once.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    pub(crate) tables: Tables,
    ids: Arc<Ids>,
    loaded: Needs,
    /// Names frames that were recorded as addresses.
    names: Option<Arc<dyn NameFrames>>,
}

/// Ids in memory by ids at rest, and back.
#[derive(Clone, Debug, Default)]
struct Ids {
    strings: FxHashMap<u64, StringId>,
    frames: FxHashMap<u64, u32>,
    /// Frames in memory of frames at rest that stand for several, because functions were inlined, or for
    /// none, because the frame is left out of stacks; innermost first.
    expanded: FxHashMap<u64, Box<[u32]>>,
    /// Frames at rest of the recorder, and of helpers that it may call.
    recorder_frames: FxHashSet<u64>,
    helper_frames: FxHashSet<u64>,
    /// Stacks at rest that end in the recorder.
    recorder_stacks: FxHashSet<u64>,
    stacks: FxHashMap<u64, StackId>,
    /// Ids at rest of stacks in memory.
    stack_keys: Keys,
    /// Ids at rest of frames in memory.
    frame_keys: Keys,
    /// Build ids of modules.
    module_builds: FxHashMap<(ProcessId, StringId), StringId>,
    /// Remarks on frames that have no names.
    remarks: Losses,
}

/// Ids at rest by ids in memory.
#[derive(Clone, Debug, Default)]
struct Keys {
    /// The first one of each.
    first: Vec<u64>,
    /// Those that other processes have for the same.
    of_others: FxHashMap<(ProcessId, u32), u64>,
}

impl Keys {
    fn add(&mut self, id: u32, key: u64) {
        if self.first.len() <= id as usize {
            self.first.resize(id as usize + 1, 0);
        }
        let first = &mut self.first[id as usize];
        if *first == 0 {
            *first = key;
        } else if process_of(*first) != process_of(key) {
            self.of_others.entry((process_of(key), id)).or_insert(key);
        }
    }

    /// Returns the one that `process` defined, if it did.
    fn of(&self, process: ProcessId, id: u32) -> u64 {
        let first = self.first.get(id as usize).copied().unwrap_or(0);
        if process_of(first) == process {
            return first;
        }
        self.of_others.get(&(process, id)).copied().unwrap_or(first)
    }
}

impl Registry {
    /// Returns an empty registry that names frames with `names`.
    pub(crate) fn named_by(names: Option<Arc<dyn NameFrames>>) -> Self {
        Self { names, ..Self::default() }
    }

    /// Remarks on frames that have no names.
    pub(crate) fn remarks(&self) -> &Losses {
        &self.ids.remarks
    }

    /// Reads tables of a trace that are needed and not loaded yet.
    ///
    /// # Errors
    /// If a part cannot be read. The registry may then hold some of its rows already.
    pub(crate) fn load(&mut self, files: &PartFiles, manifest: &Manifest, needs: Needs) -> Result<()> {
        if self.loaded < Needs::Names && needs >= Needs::Names {
            self.set_processes(manifest);
            self.read::<SubjectRow>(files, manifest, |registry, row| {
                registry.tables.subjects.insert(row.subject, row);
            })?;
            self.read::<DeviceRow>(files, manifest, |registry, row| {
                registry.tables.devices.insert((row.process, row.device), row.uuid);
            })?;
            self.read::<StringRow>(files, manifest, |registry, row| {
                registry.add_string(row.string, &row.text);
            })?;
            self.loaded = Needs::Names;
        }
        if self.loaded < Needs::Everything && needs >= Needs::Everything {
            self.read::<FrameRow>(files, manifest, |registry, row| {
                registry.add_frame(row.frame, row.to_frame());
            })?;
            self.read::<StackRow>(files, manifest, |registry, row| {
                registry.add_stack(row.stack, row.parent, row.frame);
            })?;
            self.loaded = Needs::Everything;
        }
        Ok(())
    }

    /// Reads all rows of a table. Rows with words that this version does not know are left out.
    fn read<T: Columns>(
        &mut self,
        files: &PartFiles,
        manifest: &Manifest,
        mut add: impl FnMut(&mut Self, T),
    ) -> Result<()> {
        let mut rows = Vec::new();
        for part in manifest.parts_of(T::TABLE.name()) {
            files.read_all(part, |records| {
                T::from_records(records, self, &mut rows)?;
                rows.drain(..).for_each(|row| add(self, row));
                Some(())
            })?;
        }
        Ok(())
    }

    /// Whether what is needed was loaded.
    pub(crate) fn has(&self, needs: Needs) -> bool {
        self.loaded >= needs
    }

    /// Shares everything loaded so far with clones made from now on.
    pub(crate) fn share(&mut self) {
        self.tables.share();
    }

    /// Takes over the processes of the manifest.
    pub(crate) fn set_processes(&mut self, manifest: &Manifest) {
        self.tables.processes = processes(manifest);
    }

    pub(crate) fn add_string(&mut self, key: u64, text: &str) -> StringId {
        let id = self.tables.intern(text);
        Arc::make_mut(&mut self.ids).strings.insert(key, id);
        id
    }

    pub(crate) fn add_frame(&mut self, key: u64, frame: Frame) {
        if self.tables.string(frame.function) == BUILD_ID {
            let module = (process_of(key), frame.module);
            Arc::make_mut(&mut self.ids).module_builds.insert(module, frame.file);
        }
        let id = self.named(key, frame).unwrap_or_else(|| self.tables.intern_frame(frame));
        let ids = Arc::make_mut(&mut self.ids);
        ids.frames.insert(key, id);
        ids.frame_keys.add(id, key);
    }

    /// Finds names for a frame that a process recorded as an address in a module, and returns the frame of the
    /// outermost function. Addresses in imported traces, which belong to no process, need not be those of
    /// the module's file.
    fn named(&mut self, key: u64, frame: Frame) -> Option<u32> {
        let (process, module) = (process_of(key), frame.module);
        if frame.function.0 != 0 || module.0 == 0 || process.0 == 0 {
            return None;
        }
        let build_id = self.ids.module_builds.get(&(process, module)).map(|id| self.tables.string(*id));
        let path = self.tables.string(module);
        let recorded = RecordedModule { process: self.tables.process(process)?, path, build_id };
        let names = match self.names.as_ref()?.names(&recorded, frame.address) {
            FrameNames::Known(names) => names,
            FrameNames::Recorder => {
                let ids = Arc::make_mut(&mut self.ids);
                ids.recorder_frames.insert(key);
                ids.expanded.insert(key, Box::default());
                return None;
            }
            FrameNames::Unknown => return None,
            FrameNames::Unavailable(reason) => {
                let remark = format!("frames in {path} have no names: {reason}");
                Arc::make_mut(&mut self.ids).remarks.remark(remark);
                return None;
            }
        };
        let frames = names.iter().map(|name| {
            let (function, file) = (self.tables.intern(&name.function), self.tables.intern(&name.file));
            self.tables.intern_frame(Frame { function, file, line: name.line, ..frame })
        });
        let frames: Box<[u32]> = frames.collect();
        let outermost = frames.last().copied();
        let ids = Arc::make_mut(&mut self.ids);
        if names.iter().all(|name| name.is_helper) {
            ids.helper_frames.insert(key);
        }
        if frames.len() != 1 {
            ids.expanded.insert(key, frames);
        }
        outermost
    }

    pub(crate) fn add_stack(&mut self, key: u64, parent: u64, frame: u64) {
        let ids = Arc::make_mut(&mut self.ids);
        let is_helper = ids.recorder_stacks.contains(&parent) && ids.helper_frames.contains(&frame);
        if is_helper || ids.recorder_frames.contains(&frame) {
            ids.recorder_stacks.insert(key);
        }
        let parent = ids.stacks.get(&parent).copied().unwrap_or_default();
        let single = ids.frames.get(&frame).copied().unwrap_or_default();
        let frames = ids.expanded.get(&frame).map_or(std::slice::from_ref(&single), |frames| &**frames);
        let frames = if is_helper { &[] } else { frames };
        let tables = &mut self.tables;
        let id = frames.iter().rev().fold(parent, |caller, frame| tables.intern_stack(caller, *frame));
        ids.stacks.insert(key, id);
        // A stack of which every frame is left out is none.
        if id != StackId(0) {
            ids.stack_keys.add(id.0, key);
        }
    }

    /// Returns the id in memory of a string.
    pub(crate) fn string(&self, key: u64) -> StringId {
        self.ids.strings.get(&key).copied().unwrap_or_default()
    }

    /// Returns the id in memory of a stack.
    #[inline]
    pub(crate) fn stack(&self, key: u64) -> StackId {
        self.ids.stacks.get(&key).copied().unwrap_or_default()
    }

    /// Returns the id in memory of a frame.
    #[inline]
    pub(crate) fn frame(&self, key: u64) -> u32 {
        self.ids.frames.get(&key).copied().unwrap_or_default()
    }

    /// Turns ids in memory back into ids at rest.
    pub(crate) fn at_rest(&self) -> AtRest<'_> {
        AtRest { tables: &self.tables, registry: Some(self), has_own_stacks: false }
    }

    /// Does the same for rows whose stacks have the numbers of their process.
    pub(crate) fn at_rest_with_own_stacks(&self) -> AtRest<'_> {
        AtRest { has_own_stacks: true, ..self.at_rest() }
    }

    /// Returns the id at rest of a stack in memory: the one that `process` defined, if it did.
    pub(crate) fn stack_key(&self, process: ProcessId, stack: StackId) -> u64 {
        self.ids.stack_keys.of(process, stack.0)
    }

    /// Returns the id at rest of a frame in memory: the one that `process` defined, if it did.
    pub(crate) fn frame_key(&self, process: ProcessId, frame: u32) -> u64 {
        self.ids.frame_keys.of(process, frame)
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::tables::Process;

    use super::*;
    use crate::frame_names::FrameName;
    use crate::source::Gap;

    /// Knows the functions at three addresses.
    #[derive(Debug)]
    struct Names;

    impl NameFrames for Names {
        fn names(&self, module: &RecordedModule<'_>, address: u64) -> FrameNames {
            let name = |function: &str| FrameName { function: function.into(), ..FrameName::default() };
            let helper = |function: &str| FrameName { is_helper: true, ..name(function) };
            match (module.build_id, address) {
                (Some("cafe"), 1) => FrameNames::Recorder,
                (Some("cafe"), 5) => FrameNames::Known(vec![helper("map"), helper("map_or")]),
                (Some("cafe"), 6) => FrameNames::Known(vec![]),
                (Some("cafe"), 2) => FrameNames::Known(vec![name("inlined"), name("outer")]),
                (Some("cafe"), 3) => FrameNames::Known(vec![name("main")]),
                (Some("cafe"), _) => FrameNames::Unknown,
                _ => FrameNames::Unavailable("it is another file".into()),
            }
        }
    }

    #[test]
    fn frames_get_names_and_those_to_be_left_out_are_in_no_stack() {
        let mut registry = Registry::named_by(Some(Arc::new(Names)));
        let ours = ProcessId(1);
        registry.tables.processes.push(Process { id: ours, ..Process::default() });
        registry.tables.processes.push(Process { id: ProcessId(2), ..Process::default() });
        let (function, file) = (registry.tables.intern(BUILD_ID), registry.tables.intern("cafe"));
        let module = registry.tables.intern("/opt/app");
        registry.add_frame(key(ours, 9), Frame { function, file, module, ..Frame::default() });
        let mut stacks = 0;
        let mut stack_of = |registry: &mut Registry, process: ProcessId, addresses: &[u64]| {
            let mut parent = 0;
            for address in addresses.iter().rev() {
                let (frame, stack) = (key(process, *address as u32), key(process, 1 + stacks));
                stacks += 1;
                registry.add_frame(frame, Frame { module, address: *address, ..Frame::default() });
                registry.add_stack(stack, parent, frame);
                parent = stack;
            }
            registry.tables.stack_text(registry.stack(parent))
        };
        let address = |number: u64| format!("{number:#x} [/opt/app]");
        let whole = ["inlined [/opt/app]", "outer [/opt/app]", "main [/opt/app]", &address(4)];
        assert_eq!(stack_of(&mut registry, ours, &[1, 2, 3, 4]), whole);
        // Helpers that the recorder calls go with it, those that the program calls stay.
        assert_eq!(stack_of(&mut registry, ours, &[5, 5, 1, 1, 6, 2, 3, 4]), whole);
        let kept = stack_of(&mut registry, ours, &[1, 5, 3]);
        assert_eq!(kept, ["map [/opt/app]", "map_or [/opt/app]", "main [/opt/app]"]);
        assert_eq!(stack_of(&mut registry, ours, &[1, 1]), [""; 0]);
        assert!(registry.remarks().gaps.is_empty());
        // The build id of one process says nothing of the file of another.
        assert_eq!(stack_of(&mut registry, ProcessId(2), &[3]), [address(3)]);
        let remarks: Vec<String> = registry.remarks().gaps.iter().map(Gap::sentence).collect();
        assert_eq!(remarks, ["frames in /opt/app have no names: it is another file"]);
    }

    #[test]
    fn a_stack_keeps_the_id_that_its_own_process_gave_it() {
        let mut registry = Registry::default();
        let stack_of = |registry: &mut Registry, process: u32, number: u32| {
            let process = ProcessId(process);
            let function = registry.add_string(key(process, 1), "main");
            registry.add_frame(key(process, 1), Frame { function, ..Frame::default() });
            registry.add_stack(key(process, number), 0, key(process, 1));
            registry.stack(key(process, number))
        };
        let first = stack_of(&mut registry, 1, 3);
        assert_eq!(stack_of(&mut registry, 2, 5), first);
        assert_eq!(stack_of(&mut registry, 2, 6), first);
        assert_eq!(registry.stack_key(ProcessId(1), first), key(ProcessId(1), 3));
        assert_eq!(registry.stack_key(ProcessId(2), first), key(ProcessId(2), 5));
        // A process that did not define it gets one that means the same.
        assert_eq!(registry.stack_key(ProcessId(3), first), key(ProcessId(1), 3));
    }
}
