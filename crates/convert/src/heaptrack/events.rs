//! Allocations and frees of a log.

use floodmark_event::tables::{Frame, Process};
use floodmark_event::{Action, Event, EventBatch, Kind, ProcessId, StackId, StringId, Tables, UNKNOWN_BYTES};
use floodmark_store::{Losses, Progress, Result, Source};

use super::RESOURCE;
use super::lines::LogLines;
use crate::OpenProps;
use crate::filling::Filling;
use crate::reopen::StreamInput;

/// Remark on the choice among blocks that are alike.
const ALIKE: &str = "heaptrack's file does not say which of several blocks of one size and stack was freed; the newest is taken";
/// Remark on frames without names.
const RAW: &str =
    "a raw file of heaptrack names no functions; 'heaptrack --interpret FILE' writes one that does";
/// More functions at one address are not believed.
const INLINED_MAX: usize = 256;

/// Yields the events of a log.
pub(super) struct LogEvents {
    lines: LogLines,
    tables: Tables,
    process: ProcessId,
    resource: StringId,
    /// Strings by their number, from 1.
    strings: Vec<StringId>,
    /// Frames of instructions by their number, from 1; innermost first.
    instructions: Vec<Vec<u32>>,
    /// Stacks by their number, from 1.
    stacks: Vec<StackId>,
    modules: Vec<Module>,
    /// Whether the list of modules is being read.
    modules_begun: bool,
    /// Sorts of blocks by their number, from 0.
    sorts: Vec<BlockSort>,
    /// Address of the newest block; blocks of interpreted files are numbered.
    address: u64,
    filling: Filling,
    remarks: Losses,
}

/// A loaded module: a segment of it.
#[derive(Clone, Copy, Debug)]
struct Module {
    start: u64,
    end: u64,
    bias: u64,
    path: StringId,
}

/// Blocks of one size and stack.
#[derive(Debug)]
struct BlockSort {
    bytes: u64,
    stack: StackId,
    /// Addresses of the live ones, the newest last.
    live: Vec<u64>,
}

type Taken = std::result::Result<(), String>;

impl LogEvents {
    pub(super) fn open(input: StreamInput, props: &OpenProps) -> Result<Self> {
        let lines = LogLines::open(input, props)?;
        let mut tables = Tables::default();
        let mut command = lines.header.command.clone();
        if command.is_empty() {
            command = lines.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        }
        tables.processes.push(Process { id: props.process, command, ..Process::default() });
        let resource = tables.intern(RESOURCE);
        let mut remarks = Losses::default();
        if lines.header.is_raw {
            remarks.remark(RAW);
        }
        Ok(Self {
            lines,
            tables,
            process: props.process,
            resource,
            strings: Vec::new(),
            instructions: Vec::new(),
            stacks: Vec::new(),
            modules: Vec::new(),
            modules_begun: false,
            sorts: Vec::new(),
            address: 0,
            filling: Filling::default(),
            remarks,
        })
    }

    /// Takes the current line.
    fn take(&mut self, sort: u8, batch: &mut EventBatch) -> Taken {
        let is_raw = self.lines.header.is_raw;
        match sort {
            b'+' if is_raw => {
                let [bytes, stack, address] = self.lines.numbers()?;
                let stack = self.stack(stack)?;
                batch.push(&Event { address, bytes, stack, ..self.event() });
            }
            b'-' if is_raw => {
                let [address] = self.lines.numbers()?;
                let event = Event { action: Action::Free, address, bytes: UNKNOWN_BYTES, ..self.event() };
                batch.push(&event);
            }
            b'+' | b'-' => self.take_sort(sort == b'+', batch)?,
            b'a' => {
                let [bytes, stack] = self.lines.numbers()?;
                let stack = self.stack(stack)?;
                self.sorts.push(BlockSort { bytes, stack, live: Vec::new() });
            }
            b't' => self.take_stack(is_raw)?,
            b's' => {
                let text = self.lines.text()?;
                self.strings.push(self.tables.intern(&text));
            }
            b'i' => self.take_instruction()?,
            b'm' => self.take_module()?,
            b'c' => self.lines.take_time()?,
            // The resident set, comments, suppressions, and that heaptrack was attached.
            b'R' | b'#' | b'S' | b'A' => {}
            b'v' | b'x' | b'X' | b'I' => {
                return Err("the line belongs to the beginning of the file".to_owned());
            }
            _ => return Err("the line begins with no letter that heaptrack writes".to_owned()),
        }
        Ok(())
    }

    fn event(&self) -> Event {
        Event {
            time_ns: self.lines.time_ns,
            process: self.process,
            kind: Kind::Pageable,
            device: floodmark_event::NO_DEVICE,
            resource: self.resource,
            ..Event::default()
        }
    }

    fn take_sort(&mut self, is_alloc: bool, batch: &mut EventBatch) -> Taken {
        let [number] = self.lines.numbers()?;
        let mut event = self.event();
        let sort = usize::try_from(number).ok().and_then(|number| self.sorts.get_mut(number));
        let sort = sort.ok_or("there is no block of this number")?;
        event.bytes = sort.bytes;
        if is_alloc {
            self.address += 1;
            sort.live.push(self.address);
            event.address = self.address;
            event.stack = sort.stack;
        } else {
            if sort.live.len() > 1 {
                self.remarks.remark(ALIKE);
            }
            event.action = Action::Free;
            event.address = sort.live.pop().ok_or("no block of this number is live")?;
        }
        batch.push(&event);
        Ok(())
    }

    fn stack(&self, number: u64) -> std::result::Result<StackId, String> {
        let Some(at) = number.checked_sub(1) else { return Ok(StackId(0)) };
        let stack = usize::try_from(at).ok().and_then(|at| self.stacks.get(at));
        stack.copied().ok_or_else(|| "there is no stack of this number".to_owned())
    }

    fn take_stack(&mut self, is_raw: bool) -> Taken {
        let [instruction, parent] = self.lines.numbers()?;
        let mut stack = self.stack(parent)?;
        if is_raw {
            self.modules_begun = false;
            let frame = self.address_frame(instruction);
            stack = self.tables.intern_stack(stack, frame);
        } else {
            let at = instruction.checked_sub(1).and_then(|at| usize::try_from(at).ok());
            let frames = at.and_then(|at| self.instructions.get(at));
            let frames = frames.ok_or("there is no instruction of this number")?;
            for frame in frames.iter().rev() {
                stack = self.tables.intern_stack(stack, *frame);
            }
        }
        self.stacks.push(stack);
        Ok(())
    }

    fn string(&self, number: u64) -> std::result::Result<StringId, String> {
        let Some(at) = number.checked_sub(1) else { return Ok(StringId(0)) };
        let string = usize::try_from(at).ok().and_then(|at| self.strings.get(at));
        string.copied().ok_or_else(|| "there is no text of this number".to_owned())
    }

    /// Takes an instruction: its address, its module, and function, file and line of each function that is
    /// inlined there, innermost first.
    fn take_instruction(&mut self) -> Taken {
        let fields: Option<Vec<u64>> = self.lines.fields().take(2 + 3 * INLINED_MAX).collect();
        let fields = fields.ok_or("hexadecimal numbers are expected")?;
        let [address, module, places @ ..] = &*fields else {
            return Err("an address and a module are expected".to_owned());
        };
        let module = self.string(*module)?;
        let mut frames = Vec::new();
        for place in places.chunks(3) {
            let at = |at: usize| place.get(at).copied().unwrap_or(0);
            let (function, file) = (self.string(at(0))?, self.string(at(1))?);
            // One function at several addresses is one place.
            let address = if function == StringId(0) { *address } else { 0 };
            let line = u32::try_from(at(2)).unwrap_or(0);
            frames.push(self.tables.intern_frame(Frame { function, file, line, module, address }));
        }
        if frames.is_empty() {
            frames.push(self.tables.intern_frame(Frame { module, address: *address, ..Frame::default() }));
        }
        self.instructions.push(frames);
        Ok(())
    }

    /// Takes a module of a raw file: its path, where it was loaded, and its segments. A module called `-` begins a new list.
    fn take_module(&mut self) -> Taken {
        let (name, fields) = self.lines.text_and_rest()?;
        let name = if name == "x" { self.lines.header.program.clone() } else { name };
        if name == "-" || !self.modules_begun {
            self.modules.clear();
            self.modules_begun = true;
        }
        let Some((bias, segments)) = fields.split_first() else { return Ok(()) };
        let path = self.tables.intern(&name);
        for segment in segments.chunks_exact(2) {
            let start = bias.wrapping_add(segment[0]);
            self.modules.push(Module { start, end: start.saturating_add(segment[1]), bias: *bias, path });
        }
        Ok(())
    }

    fn address_frame(&mut self, address: u64) -> u32 {
        let module = self.modules.iter().find(|module| (module.start..module.end).contains(&address));
        let (module, address) =
            module.map_or((StringId(0), address), |module| (module.path, address.wrapping_sub(module.bias)));
        self.tables.intern_frame(Frame { module, address, ..Frame::default() })
    }

    /// Reads one line; returns whether there was one.
    fn read_line(&mut self, batch: &mut EventBatch) -> Result<bool> {
        let Some(sort) = self.lines.next()? else { return Ok(false) };
        self.take(sort, batch).or_else(|reason| self.lines.complain(reason))?;
        Ok(true)
    }
}

impl Source for LogEvents {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn next(&mut self, batch: &mut EventBatch) -> Result<bool> {
        let mut filling = std::mem::take(&mut self.filling);
        let result = filling.next(batch, |batch| self.read_line(batch));
        self.filling = filling;
        result
    }

    fn losses(&self) -> Losses {
        let mut losses = self.lines.losses.clone();
        losses.extend(&self.remarks);
        losses
    }

    fn progress(&self) -> Progress {
        self.lines.progress()
    }
}
