//! Tables that ids in rows point to: processes, subjects, devices, strings, frames, stacks.
//!
//! Strings, frames and stacks only grow. Processes, subjects and devices are written as a whole whenever one
//! is new or changed, so each is one row.

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::tables::{Frame, Process};
use floodmark_event::{ProcessId, StackId, StringId, SubjectKind, SubjectRow, Tables};

use crate::codec::{
    Device, InternedText, NonZero, Number, Number32, OptionalNumber, OptionalStatus, OptionalTime,
    ProcessNumber, Text, Time, Word,
};
use crate::manifest::{Manifest, ProcessEntry};
use crate::rows::table_columns;
use crate::table::Table;

table_columns! {
    Process in Table::Process, rows BATCH_ROWS;
    "process": id as ProcessNumber,
    "pid": pid as Number32,
    "parent_pid": parent_pid as Number32,
    "host": host as Text,
    "command": command as Text,
    "start": start_ns as Time,
    process |row| row.id
}

/// Returns the processes of a manifest as rows.
pub(crate) fn processes(manifest: &Manifest) -> Vec<Process> {
    let process = |entry: &ProcessEntry| Process {
        id: ProcessId(entry.id),
        pid: entry.pid,
        parent_pid: entry.parent_pid,
        host: entry.host.clone(),
        command: entry.command.clone(),
        start_ns: entry.start_ns,
    };
    manifest.processes.iter().map(process).collect()
}

table_columns! {
    SubjectRow in Table::Subject, rows BATCH_ROWS;
    "subject": subject as Number,
    "kind": kind as Word<SubjectKind>,
    "number": number as Number,
    "start_time": start_ns as OptionalTime,
    "parent": parent as NonZero,
    "name": name as Text,
    "detail": detail as Text,
    "end_time": end_ns as OptionalTime,
    "wait_status": wait_status as OptionalStatus,
    "peak_rss_bytes": peak_rss_bytes as OptionalNumber,
}

/// Which device a number stands for in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceRow {
    /// The process.
    pub(crate) process: ProcessId,
    /// Number of the device there.
    pub(crate) device: i32,
    /// UUID of the device.
    pub(crate) uuid: String,
}

table_columns! {
    DeviceRow in Table::Device, rows BATCH_ROWS;
    "process": process as ProcessNumber,
    "device": device as Device,
    "uuid": uuid as Text,
    process |row| row.process
}

/// Returns the devices of `tables` as rows.
pub(crate) fn devices(tables: &Tables) -> Vec<DeviceRow> {
    let row = |((process, device), uuid): (&(ProcessId, i32), &String)| DeviceRow {
        process: *process,
        device: *device,
        uuid: uuid.clone(),
    };
    tables.devices.iter().map(row).collect()
}

/// Text that an id at rest points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StringRow {
    /// Its id.
    pub(crate) string: u64,
    /// The text.
    pub(crate) text: String,
}

table_columns! {
    StringRow in Table::String, rows BATCH_ROWS;
    "string": string as Number,
    "text": text as Text,
}

/// An entry of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameRow {
    /// Its id at rest.
    pub(crate) frame: u64,
    /// Function.
    pub(crate) function: StringId,
    /// Source file.
    pub(crate) file: StringId,
    /// Line in the source file.
    pub(crate) line: u32,
    /// Library or executable.
    pub(crate) module: StringId,
    /// Instruction address.
    pub(crate) address: u64,
}

table_columns! {
    FrameRow in Table::Frame, rows BATCH_ROWS;
    "frame": frame as Number,
    "function": function as InternedText,
    "file": file as InternedText,
    "line": line as Number32,
    "module": module as InternedText,
    "address": address as Number,
}

impl FrameRow {
    pub(crate) fn new(key: u64, frame: Frame) -> Self {
        let Frame { function, file, line, module, address } = frame;
        Self { frame: key, function, file, line, module, address }
    }

    pub(crate) fn to_frame(self) -> Frame {
        let Self { function, file, line, module, address, .. } = self;
        Frame { function, file, line, module, address }
    }
}

/// A stack: an entry and the stack of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackRow {
    /// Its id at rest.
    pub(crate) stack: u64,
    /// Stack of the caller; 0 at the root.
    pub(crate) parent: u64,
    /// Innermost entry.
    pub(crate) frame: u64,
}

table_columns! {
    StackRow in Table::Stack, rows BATCH_ROWS;
    "stack": stack as Number,
    "parent": parent as NonZero,
    "frame": frame as Number,
}

/// Definitions that are not in parts yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions {
    pub(crate) strings: Vec<StringRow>,
    pub(crate) frames: Vec<FrameRow>,
    pub(crate) stacks: Vec<StackRow>,
    /// Whether subjects are new or ended. Their table is written as a whole.
    pub(crate) has_subjects: bool,
    /// Whether devices are new. Their table is written as a whole.
    pub(crate) has_devices: bool,
}

impl Definitions {
    /// Collects everything of `tables`, whose ids become those at rest.
    pub(crate) fn of_tables(tables: &Tables) -> Self {
        let (_, frames, stacks) = tables.counts();
        let stack = |id: u32| {
            let (parent, frame) = tables.stack(StackId(id))?;
            Some(StackRow { stack: id.into(), parent: parent.0.into(), frame: frame.into() })
        };
        Self {
            strings: Vec::new(),
            frames: (1..frames as u32).map(|id| FrameRow::new(id.into(), tables.frame(id))).collect(),
            stacks: (1..stacks as u32).filter_map(stack).collect(),
            has_subjects: !tables.subjects.is_empty(),
            has_devices: !tables.devices.is_empty(),
        }
    }

    /// Returns `also` and the tables that are written as a whole because of these definitions.
    pub(crate) fn rewritten(&self, also: impl IntoIterator<Item = Table>) -> Vec<Table> {
        let subjects = self.has_subjects.then_some(Table::Subject);
        also.into_iter().chain(subjects).chain(self.has_devices.then_some(Table::Device)).collect()
    }
}
