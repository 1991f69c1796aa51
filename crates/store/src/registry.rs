//! The small tables of a trace: what ids at rest and ids in memory have to do with each other.
//!
//! At rest an id is 64 bits: the process in the upper half, the process's own number in the lower
//! (imported traces have one numbering and 0 in the upper half). So a process's numbers go into parts
//! as they are, and nothing has to be remembered between two sealings. In memory ids are dense and
//! equal contents have equal ids.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use floodmark_event::tables::{Frame, Process};
use floodmark_event::{ProcessId, StackId, StringId, Tables};
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::manifest::{Manifest, ProcessEntry};
use crate::part;
use crate::subjects;
use crate::table::Table;

/// Puts a process and one of its own numbers together.
pub(crate) fn key(process: ProcessId, number: u32) -> u64 {
    u64::from(process.0) << 32 | u64::from(number)
}

/// Which of the small tables a reader needs; processes and subjects it always gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Names of subjects and scopes, which a tail may give by id.
    Names,
    /// Stacks as well.
    Everything,
}

/// Tables in memory, and how to get there from ids at rest.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    pub(crate) tables: Tables,
    pub(crate) strings: FxHashMap<u64, StringId>,
    pub(crate) frames: FxHashMap<u64, u32>,
    pub(crate) stacks: FxHashMap<u64, StackId>,
    /// An id at rest for each stack in memory.
    stack_keys: Vec<u64>,
}

/// Definitions that are not in parts yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions {
    pub(crate) strings: Vec<(u64, String)>,
    pub(crate) frames: Vec<(u64, Frame)>,
    pub(crate) stacks: Vec<(u64, u64, u64)>,
    /// Whether subjects are new or ended. Their table is written as a whole.
    pub(crate) has_subjects: bool,
}

impl Registry {
    /// Reads the tables of the trace at `trace`.
    ///
    /// # Errors
    /// If a part cannot be read.
    pub(crate) fn load(trace: &Path, manifest: &Manifest, needs: Needs) -> Result<Self> {
        let mut registry = Self::default();
        registry.set_processes(manifest);
        for part in manifest.parts_of(Table::Subject.name()) {
            part::read_all(&part.path(trace), |records| subjects::read(records, &mut registry.tables))?;
        }
        for part in manifest.parts_of(Table::String.name()) {
            part::read_all(&part.path(trace), |records| registry.read_strings(records))?;
        }
        if needs == Needs::Names {
            return Ok(registry);
        }
        for part in manifest.parts_of(Table::Frame.name()) {
            part::read_all(&part.path(trace), |records| registry.read_frames(records))?;
        }
        for part in manifest.parts_of(Table::Stack.name()) {
            part::read_all(&part.path(trace), |records| registry.read_stacks(records))?;
        }
        Ok(registry)
    }

    /// Takes over the processes of the manifest.
    pub(crate) fn set_processes(&mut self, manifest: &Manifest) {
        let process = |entry: &ProcessEntry| Process {
            id: ProcessId(entry.id),
            pid: entry.pid,
            parent_pid: entry.parent_pid,
            host: entry.host.clone(),
            command: entry.command.clone(),
            start_ns: entry.start_ns,
        };
        self.tables.processes = manifest.processes.iter().map(process).collect();
    }

    pub(crate) fn add_string(&mut self, key: u64, text: &str) -> StringId {
        let id = self.tables.intern(text);
        self.strings.insert(key, id);
        id
    }

    pub(crate) fn add_frame(&mut self, key: u64, frame: Frame) {
        let id = self.tables.intern_frame(frame);
        self.frames.insert(key, id);
    }

    pub(crate) fn add_stack(&mut self, key: u64, parent: u64, frame: u64) {
        let parent = self.stacks.get(&parent).copied().unwrap_or_default();
        let frame = self.frames.get(&frame).copied().unwrap_or_default();
        let id = self.tables.intern_stack(parent, frame);
        self.stacks.insert(key, id);
        if self.stack_keys.len() <= id.0 as usize {
            self.stack_keys.resize(id.0 as usize + 1, 0);
        }
        self.stack_keys[id.0 as usize] = key;
    }

    /// Returns an id at rest for a stack in memory.
    pub(crate) fn stack_key(&self, stack: StackId) -> u64 {
        self.stack_keys.get(stack.0 as usize).copied().unwrap_or(0)
    }

    fn read_strings(&mut self, records: &RecordBatch) -> Option<()> {
        let keys = column::<UInt64Type>(records, "string")?;
        let texts = text_column(records, "text")?;
        for row in 0..records.num_rows() {
            self.add_string(keys.value(row), texts.value(row));
        }
        Some(())
    }

    fn read_frames(&mut self, records: &RecordBatch) -> Option<()> {
        let keys = column::<UInt64Type>(records, "frame")?;
        let [functions, files, modules] =
            ["function", "file", "module"].map(|name| text_column(records, name).cloned());
        let (functions, files, modules) = (functions?, files?, modules?);
        let lines = column::<UInt32Type>(records, "line")?;
        let addresses = column::<UInt64Type>(records, "address")?;
        for row in 0..records.num_rows() {
            let frame = Frame {
                function: self.tables.intern(functions.value(row)),
                file: self.tables.intern(files.value(row)),
                line: lines.value(row),
                module: self.tables.intern(modules.value(row)),
                address: addresses.value(row),
            };
            self.add_frame(keys.value(row), frame);
        }
        Some(())
    }

    fn read_stacks(&mut self, records: &RecordBatch) -> Option<()> {
        let keys = column::<UInt64Type>(records, "stack")?;
        let parents = column::<UInt64Type>(records, "parent")?;
        let frames = column::<UInt64Type>(records, "frame")?;
        for row in 0..records.num_rows() {
            let parent = if parents.is_null(row) { 0 } else { parents.value(row) };
            self.add_stack(keys.value(row), parent, frames.value(row));
        }
        Some(())
    }
}

pub(crate) fn column<'a, P: arrow_array::ArrowPrimitiveType>(
    records: &'a RecordBatch,
    name: &str,
) -> Option<&'a arrow_array::PrimitiveArray<P>> {
    records.column_by_name(name)?.as_primitive_opt::<P>()
}

pub(crate) fn text_column<'a>(records: &'a RecordBatch, name: &str) -> Option<&'a StringArray> {
    records.column_by_name(name)?.as_string_opt::<i32>()
}

impl Definitions {
    /// Collects everything of `tables`, whose ids become those at rest.
    pub(crate) fn of_tables(tables: &Tables) -> Self {
        let (_, frames, stacks) = tables.counts();
        let stack_row = |id: u32| {
            let (parent, frame) = tables.stack(StackId(id))?;
            Some((u64::from(id), u64::from(parent.0), u64::from(frame)))
        };
        Self {
            strings: Vec::new(),
            frames: (1..frames as u32).map(|id| (u64::from(id), tables.frame(id))).collect(),
            stacks: (1..stacks as u32).filter_map(stack_row).collect(),
            has_subjects: !tables.subjects.is_empty(),
        }
    }

    /// Turns the definitions into rows, by table; tables without any are left out.
    pub(crate) fn to_records(&self, tables: &Tables) -> Vec<(Table, RecordBatch)> {
        let mut out = Vec::new();
        let table = |schema: &SchemaRef, columns: Vec<ArrayRef>| {
            RecordBatch::try_new(schema.clone(), columns).expect("columns are built to the schema")
        };
        let keys = |keys: Vec<u64>| Arc::new(UInt64Array::from(keys)) as ArrayRef;
        if !self.strings.is_empty() {
            let schema = schema(&[("string", DataType::UInt64, false), ("text", DataType::Utf8, false)]);
            let ids = keys(self.strings.iter().map(|(key, _)| *key).collect());
            let texts = StringArray::from_iter_values(self.strings.iter().map(|(_, text)| text));
            out.push((Table::String, table(&schema, vec![ids, Arc::new(texts)])));
        }
        if !self.frames.is_empty() {
            let schema = schema(&[
                ("frame", DataType::UInt64, false),
                ("function", DataType::Utf8, false),
                ("file", DataType::Utf8, false),
                ("line", DataType::UInt32, false),
                ("module", DataType::Utf8, false),
                ("address", DataType::UInt64, false),
            ]);
            let text = |of: fn(&Frame) -> StringId| {
                let texts = self.frames.iter().map(|(_, frame)| tables.string(of(frame)));
                Arc::new(StringArray::from_iter_values(texts)) as ArrayRef
            };
            let columns = vec![
                keys(self.frames.iter().map(|(key, _)| *key).collect()),
                text(|frame| frame.function),
                text(|frame| frame.file),
                Arc::new(UInt32Array::from_iter_values(self.frames.iter().map(|(_, frame)| frame.line))),
                text(|frame| frame.module),
                keys(self.frames.iter().map(|(_, frame)| frame.address).collect()),
            ];
            out.push((Table::Frame, table(&schema, columns)));
        }
        if !self.stacks.is_empty() {
            let schema = schema(&[
                ("stack", DataType::UInt64, false),
                ("parent", DataType::UInt64, true),
                ("frame", DataType::UInt64, false),
            ]);
            let parents = self.stacks.iter().map(|(_, parent, _)| (*parent as u32 != 0).then_some(*parent));
            let columns = vec![
                keys(self.stacks.iter().map(|(key, _, _)| *key).collect()),
                Arc::new(parents.collect::<UInt64Array>()),
                keys(self.stacks.iter().map(|(_, _, frame)| *frame).collect()),
            ];
            out.push((Table::Stack, table(&schema, columns)));
        }
        out
    }
}

pub(crate) fn schema(fields: &[(&str, DataType, bool)]) -> SchemaRef {
    let field = |(name, kind, nullable): &(&str, DataType, bool)| Field::new(*name, kind.clone(), *nullable);
    Arc::new(Schema::new(fields.iter().map(field).collect::<Vec<_>>()))
}

/// The process table of a manifest, for readers that know only Parquet.
pub(crate) fn process_records(manifest: &Manifest) -> RecordBatch {
    let schema = schema(&[
        ("process", DataType::UInt32, false),
        ("pid", DataType::UInt32, false),
        ("parent_pid", DataType::UInt32, false),
        ("host", DataType::Utf8, false),
        ("command", DataType::Utf8, false),
        ("start", crate::columns::time_type(), false),
    ]);
    let processes = &manifest.processes;
    let number = |of: fn(&ProcessEntry) -> u32| {
        Arc::new(UInt32Array::from_iter_values(processes.iter().map(of))) as ArrayRef
    };
    let text = |of: fn(&ProcessEntry) -> &String| {
        Arc::new(StringArray::from_iter_values(processes.iter().map(of))) as ArrayRef
    };
    let starts = processes.iter().map(|process| process.start_ns).collect::<Vec<_>>();
    let columns = vec![
        number(|process| process.id),
        number(|process| process.pid),
        number(|process| process.parent_pid),
        text(|process| &process.host),
        text(|process| &process.command),
        Arc::new(arrow_array::TimestampNanosecondArray::from(starts).with_timezone("UTC")),
    ];
    RecordBatch::try_new(schema, columns).expect("columns are built to the schema")
}
