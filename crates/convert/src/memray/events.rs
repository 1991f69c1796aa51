//! Allocations and frees of a file.

use floodmark_event::tables::{Frame, Process, Thread};
use floodmark_event::{
    Action, Event, EventBatch, Kind, NO_DEVICE, ProcessId, REALLOC, StackId, StringId, Tables, UNKNOWN_BYTES,
};
use floodmark_store::{Losses, Progress, Result, Source};
use rustc_hash::FxHashMap;

use super::lines::line_of;
use super::records::{Allocation, Allocator, Code, Record, Records};
use crate::OpenProps;
use crate::filling::Filling;
use crate::pieces::Pieces;
use crate::reopen::StreamInput;

/// Remark on native frames that are left out.
const NATIVE: &str =
    "native frames are left out of stacks that have Python frames: the file has no names for them";

/// Yields the events of a file.
pub(super) struct FileEvents {
    records: Records,
    tables: Tables,
    process: ProcessId,
    malloc: StringId,
    pymalloc: StringId,
    mmap: StringId,
    /// Name of blocks that grew out of others.
    realloc: StringId,
    /// Python stacks of threads: the stack at every depth.
    threads: FxHashMap<u64, Vec<StackId>>,
    /// The thread that records are about, and its stack at every depth.
    thread: u64,
    depths: Vec<StackId>,
    codes: FxHashMap<u64, Code>,
    /// Frames by code and instruction.
    frames: FxHashMap<(u64, i64), u32>,
    /// Native frames by their number, from 1: the address and the number of the caller.
    native: Vec<(u64, u64)>,
    native_stacks: FxHashMap<u64, StackId>,
    modules: Vec<(u64, u64, u64, StringId)>,
    mapped: Pieces<StackId>,
    remarks: Losses,
    filling: Filling,
}

impl FileEvents {
    pub(super) fn open(input: StreamInput, props: &OpenProps) -> Result<Self> {
        let records = Records::open(input, props)?;
        let header = &records.header;
        let mut tables = Tables::default();
        tables.processes.push(Process {
            id: props.process,
            pid: header.pid,
            command: header.command.clone(),
            start_ns: header.start_ns,
            ..Process::default()
        });
        let [malloc, pymalloc, mmap, realloc] =
            ["malloc", "pymalloc", "mmap", REALLOC].map(|name| tables.intern(name));
        let mut remarks = Losses::default();
        if header.has_native_stacks {
            remarks.remark(NATIVE);
        }
        Ok(Self {
            records,
            tables,
            process: props.process,
            malloc,
            pymalloc,
            mmap,
            realloc,
            threads: FxHashMap::default(),
            thread: 0,
            depths: Vec::new(),
            codes: FxHashMap::default(),
            frames: FxHashMap::default(),
            native: Vec::new(),
            native_stacks: FxHashMap::default(),
            modules: Vec::new(),
            mapped: Pieces::default(),
            remarks,
            filling: Filling::default(),
        })
    }

    fn take(&mut self, record: Record, batch: &mut EventBatch) {
        match record {
            Record::Memory { .. } | Record::Object => {}
            Record::Thread(thread) => self.switch(thread),
            Record::ThreadName(name) => {
                let (process, thread) = (self.process, self.thread);
                self.tables.threads.retain(|known| known.thread != thread);
                self.tables.threads.push(Thread { process, thread, name });
            }
            Record::Code { id, code } => {
                self.codes.insert(id, code);
            }
            Record::Push { code, instruction } => self.push(code, instruction),
            Record::Pop(count) => {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                self.depths.truncate(self.depths.len().saturating_sub(count));
            }
            Record::Allocation(allocation) => self.allocation(allocation, batch),
            Record::NativeFrame { address, parent } => self.native.push((address, parent)),
            Record::ModulesBegin => {
                self.modules.clear();
                self.native_stacks.clear();
            }
            Record::Module { path, bias, segments } => {
                let path = self.tables.intern(&path);
                for (start, bytes) in segments {
                    let start = bias.wrapping_add(start);
                    self.modules.push((start, start.saturating_add(bytes), bias, path));
                }
            }
        }
    }

    fn switch(&mut self, thread: u64) {
        let depths = self.threads.remove(&thread).unwrap_or_default();
        let last = std::mem::replace(&mut self.depths, depths);
        self.threads.insert(self.thread, last);
        self.thread = thread;
    }

    fn push(&mut self, code: u64, instruction: i64) {
        let parent = self.depths.last().copied().unwrap_or_default();
        let header = &self.records.header;
        // Stacks of the main thread begin with frames of memray itself.
        if self.thread == header.main_thread && (self.depths.len() as u64) < header.skipped_frames {
            self.depths.push(StackId(0));
            return;
        }
        let frame = match self.frames.get(&(code, instruction)) {
            Some(frame) => *frame,
            None => self.new_frame(code, instruction),
        };
        self.depths.push(self.tables.intern_stack(parent, frame));
    }

    fn new_frame(&mut self, id: u64, instruction: i64) -> u32 {
        let python_version = self.records.header.python_version;
        let frame = self.codes.get(&id).map_or_else(Frame::default, |code| Frame {
            function: self.tables.intern(&code.function),
            file: self.tables.intern(&code.file),
            line: line_of(python_version, &code.line_table, code.first_line, instruction),
            ..Frame::default()
        });
        let frame = self.tables.intern_frame(frame);
        self.frames.insert((id, instruction), frame);
        frame
    }

    fn allocation(&mut self, allocation: Allocation, batch: &mut EventBatch) {
        let Allocation { allocator, is_realloc, address, bytes, native_frame } = allocation;
        let mut event = Event {
            time_ns: self.records.time_ns,
            process: self.process,
            thread: self.thread,
            address,
            bytes,
            device: NO_DEVICE,
            kind: Kind::Pageable,
            name: if is_realloc { self.realloc } else { StringId(0) },
            ..Event::default()
        };
        event.resource = match allocator {
            Allocator::Malloc | Allocator::Free => self.malloc,
            Allocator::Pymalloc | Allocator::PymallocFree => self.pymalloc,
            Allocator::Mmap | Allocator::Munmap => self.mmap,
        };
        match allocator {
            Allocator::Malloc | Allocator::Pymalloc => {
                event.stack = self.stack(native_frame);
                batch.push(&event);
            }
            Allocator::Free | Allocator::PymallocFree => {
                batch.push(&Event { action: Action::Free, bytes: UNKNOWN_BYTES, ..event });
            }
            Allocator::Mmap => {
                // A mapping may replace what was mapped there.
                self.unmap(&event, batch);
                event.stack = self.stack(native_frame);
                self.mapped.insert(address, bytes, event.stack);
                batch.push(&event);
            }
            Allocator::Munmap => self.unmap(&event, batch),
        }
    }

    /// Ends what is mapped in a range; what is left of a block goes on as blocks of its own.
    fn unmap(&mut self, event: &Event, batch: &mut EventBatch) {
        for cut in self.mapped.cut(event.address, event.bytes) {
            let (address, bytes) = (cut.whole.start, cut.whole.bytes());
            batch.push(&Event { action: Action::Free, address, bytes, ..*event });
            for piece in cut.rest.into_iter().flatten() {
                let (address, bytes, stack) = (piece.start, piece.bytes(), piece.value);
                batch.push(&Event { address, bytes, stack, ..*event });
            }
        }
    }

    /// The Python stack; the native one where there is none.
    fn stack(&mut self, native_frame: u64) -> StackId {
        match self.depths.last() {
            Some(stack) if *stack != StackId(0) => *stack,
            _ => self.native_stack(native_frame),
        }
    }

    fn native_stack(&mut self, number: u64) -> StackId {
        if let Some(stack) = self.native_stacks.get(&number) {
            return *stack;
        }
        let (mut addresses, mut at) = (Vec::new(), number);
        while let Some(frame) = at.checked_sub(1).and_then(|at| self.native.get(usize::try_from(at).ok()?)) {
            addresses.push(frame.0);
            // Callers come first; a file that breaks that would make the walk endless.
            at = if frame.1 < at { frame.1 } else { 0 };
        }
        let mut stack = StackId(0);
        for address in addresses.into_iter().rev() {
            let module = self.modules.iter().find(|(start, end, ..)| (*start..*end).contains(&address));
            let (module, address) =
                module.map_or((StringId(0), address), |module| (module.3, address.wrapping_sub(module.2)));
            let frame = self.tables.intern_frame(Frame { module, address, ..Frame::default() });
            stack = self.tables.intern_stack(stack, frame);
        }
        self.native_stacks.insert(number, stack);
        stack
    }

    /// Reads one record; returns whether there was one.
    fn read_record(&mut self, batch: &mut EventBatch) -> Result<bool> {
        let Some(record) = self.records.next()? else { return Ok(false) };
        self.take(record, batch);
        Ok(true)
    }
}

impl Source for FileEvents {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn next(&mut self, batch: &mut EventBatch) -> Result<bool> {
        let mut filling = std::mem::take(&mut self.filling);
        let result = filling.next(batch, |batch| self.read_record(batch));
        self.filling = filling;
        result
    }

    fn losses(&self) -> Losses {
        let mut losses = self.records.losses.clone();
        losses.extend(&self.remarks);
        losses
    }

    fn progress(&self) -> Progress {
        self.records.progress()
    }
}
