//! Records of a file: their bytes and what they say.

use std::io::{BufRead as _, BufReader, ErrorKind, Read};
use std::path::PathBuf;

use floodmark_event::units::NS_PER_S;
use floodmark_store::{Error, Losses, Progress, Result};

use super::MAGIC;
use crate::reopen::StreamInput;
use crate::{Mode, OpenProps};

/// A longer text is not believed.
const TEXT_BYTES_MAX: u64 = if cfg!(fuzzing) { 256 } else { 1 << 20 };
/// A longer table of lines is not believed.
const TABLE_BYTES_MAX: u64 = if cfg!(fuzzing) { 256 } else { 16 << 20 };
/// Addresses that a record can refer to by their place in a list.
const RECENT_ADDRESSES: usize = 15;

/// What the beginning of a file says.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) python_version: u32,
    pub(super) has_native_stacks: bool,
    pub(super) start_ns: i64,
    pub(super) command: String,
    pub(super) pid: u32,
    pub(super) main_thread: u64,
    /// Frames of memray itself at the outer end of stacks of the main thread.
    pub(super) skipped_frames: u64,
}

/// Why a record could not be read.
#[derive(Debug)]
pub(super) enum Fault {
    Io(std::io::Error),
    /// The file ends in it.
    End,
    Bad(String),
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == ErrorKind::UnexpectedEof { Self::End } else { Self::Io(error) }
    }
}

type Parsed<T> = std::result::Result<T, Fault>;

/// A record.
#[derive(Debug)]
pub(super) enum Record {
    /// Resident bytes, from now on.
    Memory {
        rss_bytes: u64,
    },
    /// What follows happened on this thread.
    Thread(u64),
    ThreadName(String),
    Code {
        id: u64,
        code: Code,
    },
    Push {
        code: u64,
        instruction: i64,
    },
    Pop(u64),
    Allocation(Allocation),
    /// The next native frame: an address and the number of the frame it was called from.
    NativeFrame {
        address: u64,
        parent: u64,
    },
    /// The list of modules begins anew.
    ModulesBegin,
    Module {
        path: String,
        bias: u64,
        segments: Vec<(u64, u64)>,
    },
    /// A Python object began or ended.
    Object,
}

/// A function of Python.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    pub(super) function: String,
    pub(super) file: String,
    pub(super) first_line: i32,
    pub(super) line_table: Vec<u8>,
}

/// An allocation or free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allocation {
    pub(super) allocator: Allocator,
    /// Whether it was made by a call that grows or shrinks a block; its free came just before.
    pub(super) is_realloc: bool,
    pub(super) address: u64,
    /// Bytes; 0 for those that only give an address.
    pub(super) bytes: u64,
    pub(super) native_frame: u64,
}

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allocator {
    Malloc,
    Free,
    Pymalloc,
    PymallocFree,
    Mmap,
    Munmap,
}

impl Allocator {
    fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::PymallocFree,
            2..=4 => Self::Pymalloc,
            5 => Self::Free,
            6..=13 => Self::Malloc,
            14 => Self::Mmap,
            15 => Self::Munmap,
            _ => return None,
        })
    }
}

/// Reads a file record by record.
pub(super) struct Records {
    input: BufReader<Box<dyn Read + Send>>,
    path: PathBuf,
    mode: Mode,
    offset: u64,
    total_bytes: Option<u64>,
    pub(super) header: Header,
    /// Time of what follows.
    pub(super) time_ns: i64,
    pub(super) losses: Losses,
    recent: [u64; RECENT_ADDRESSES],
    last_address: u64,
    last_native_frame: u64,
    last_instruction: u64,
    last_first_line: i32,
    is_done: bool,
}

impl Records {
    pub(super) fn open(input: StreamInput, props: &OpenProps) -> Result<Self> {
        let StreamInput { input, path, total_bytes } = input;
        let mut records = Self {
            input: BufReader::with_capacity(1 << 16, input),
            path,
            mode: props.mode,
            offset: 0,
            total_bytes,
            header: Header::default(),
            time_ns: 0,
            losses: Losses::default(),
            recent: [0; RECENT_ADDRESSES],
            last_address: 0,
            last_native_frame: 0,
            last_instruction: 0,
            last_first_line: 0,
            is_done: false,
        };
        records.read_header().map_err(|fault| match fault {
            Fault::End => records.malformed("the file ends in its header".to_owned()),
            fault => records.error(fault),
        })?;
        records.time_ns = records.header.start_ns;
        Ok(records)
    }

    fn read_header(&mut self) -> Parsed<()> {
        if self.bytes::<{ MAGIC.len() }>()? != MAGIC {
            return Err(Fault::Bad("the file does not begin as memray's do".to_owned()));
        }
        let version = u32::from_le_bytes(self.bytes()?);
        if !(12..=13).contains(&version) {
            return Err(Fault::Bad(format!(
                "the file has format {version}; formats 12 and 13 (memray 1.18 to 1.20) can be read"
            )));
        }
        self.header.python_version = u32::from_le_bytes(self.bytes()?);
        self.header.has_native_stacks = self.byte()? != 0;
        if self.byte()? != 0 {
            let reason = "it was recorded with --aggregate and holds no events; record without it";
            return Err(Fault::Bad(reason.to_owned()));
        }
        let [_allocations, _frames, start_ms, _end_ms] =
            [self.word()?, self.word()?, self.word()?, self.word()?];
        self.header.start_ns = time_ns(start_ms, 0)?;
        self.header.command = self.text()?;
        self.header.pid = u32::from_le_bytes(self.bytes()?);
        self.header.main_thread = self.word()?;
        self.header.skipped_frames = self.word()?;
        let [_allocator, _traces_python, _tracks_objects] = self.bytes()?;
        if version >= 13 {
            // Where modules were searched: the standard library, and two lists that end with an empty text.
            self.text()?;
            for _ in 0..2 {
                while !self.text()?.is_empty() {}
            }
        }
        Ok(())
    }

    /// Reads the next record; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Record>> {
        if self.is_done {
            return Ok(None);
        }
        match self.record() {
            Ok(Some(record)) => Ok(Some(record)),
            Ok(None) => {
                self.is_done = true;
                Ok(None)
            }
            Err(Fault::End) => {
                self.is_done = true;
                self.losses.add(0, "the file has no end: the program was killed, or the copy is not whole");
                Ok(None)
            }
            Err(Fault::Bad(_)) if self.mode == Mode::Lenient => {
                self.is_done = true;
                self.losses.add(0, "the rest of the file cannot be read");
                Ok(None)
            }
            Err(fault) => {
                self.is_done = true;
                Err(self.error(fault))
            }
        }
    }

    fn record(&mut self) -> Parsed<Option<Record>> {
        let sort = self.byte()?;
        Ok(Some(match sort {
            // Space that was reserved and never written.
            0 => return self.filler(),
            1 => return Ok(None),
            2 => self.memory()?,
            5 => {
                self.last_instruction = self.last_instruction.wrapping_add(self.signed()? as u64);
                self.last_native_frame = self.last_native_frame.wrapping_add(self.signed()? as u64);
                Record::NativeFrame { address: self.last_instruction, parent: self.last_native_frame }
            }
            6 => Record::ModulesBegin,
            7 => self.module()?,
            10 => Record::ThreadName(self.text()?),
            12 => Record::Thread(self.word()?),
            14 => self.code()?,
            16..=31 => Record::Pop(u64::from(sort & 15) + 1),
            32..=63 => {
                self.address(sort >> 1 & 15)?;
                if self.header.has_native_stacks && sort & 1 == 1 {
                    self.native_frame()?;
                }
                Record::Object
            }
            64..=127 => Record::Push { code: self.number()?, instruction: self.signed()? },
            128.. => self.allocation(sort)?,
            _ => return Err(Fault::Bad(format!("{sort} is no sort of record"))),
        }))
    }

    /// Reads on from a byte that is no record. A killed program leaves nothing but such bytes.
    fn filler(&mut self) -> Parsed<Option<Record>> {
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return Err(Fault::End);
            }
            if buffer.iter().any(|byte| *byte != 0) {
                return Err(Fault::Bad("0 is no sort of record".to_owned()));
            }
            let count = buffer.len();
            self.input.consume(count);
            self.offset += count as u64;
        }
    }

    fn memory(&mut self) -> Parsed<Record> {
        let (rss_bytes, ms) = (self.number()?, self.number()?);
        let time_ns = time_ns(ms, self.header.start_ns)?;
        // The clock of a host may be set back.
        self.time_ns = self.time_ns.max(time_ns);
        Ok(Record::Memory { rss_bytes })
    }

    fn module(&mut self) -> Parsed<Record> {
        let path = self.text()?;
        let (count, bias) = (self.number()?, self.word()?);
        let mut segments = Vec::new();
        for _ in 0..count {
            let sort = self.byte()?;
            if sort != 8 {
                return Err(Fault::Bad(format!("{sort} is no segment of a module")));
            }
            segments.push((self.word()?, self.number()?));
        }
        Ok(Record::Module { path, bias, segments })
    }

    fn code(&mut self) -> Parsed<Record> {
        let id = self.number()?;
        let (function, file) = (self.text()?, self.text()?);
        self.last_first_line = self.last_first_line.wrapping_add(self.signed()? as i32);
        let len = self.number()?;
        if len > TABLE_BYTES_MAX {
            return Err(Fault::Bad(format!("a table of lines has {len} bytes")));
        }
        let mut line_table = Vec::new();
        self.input.by_ref().take(len).read_to_end(&mut line_table)?;
        self.offset += line_table.len() as u64;
        if (line_table.len() as u64) < len {
            return Err(Fault::End);
        }
        Ok(Record::Code { id, code: Code { function, file, first_line: self.last_first_line, line_table } })
    }

    fn allocation(&mut self, sort: u8) -> Parsed<Record> {
        let address = self.address(sort >> 3 & 15)?;
        let number = match sort & 7 {
            0 => self.byte()?,
            number => number,
        };
        let allocator = Allocator::of(number);
        let allocator = allocator.ok_or_else(|| Fault::Bad(format!("{number} is no allocator")))?;
        let (mut native_frame, mut bytes) = (0, 0);
        if !matches!(allocator, Allocator::Free | Allocator::PymallocFree) {
            if self.header.has_native_stacks {
                native_frame = self.native_frame()?;
            }
            bytes = self.number()?;
        }
        Ok(Record::Allocation(Allocation {
            allocator,
            is_realloc: matches!(number, 4 | 7),
            address,
            bytes,
            native_frame,
        }))
    }

    fn native_frame(&mut self) -> Parsed<u64> {
        self.last_native_frame = self.last_native_frame.wrapping_add(self.signed()? as u64);
        Ok(self.last_native_frame)
    }

    /// Reads an address, unless it is one of the recent ones.
    fn address(&mut self, recent: u8) -> Parsed<u64> {
        if let Some(address) = self.recent.get(usize::from(recent)) {
            return Ok(*address);
        }
        self.last_address = self.last_address.wrapping_add(self.signed()? as u64);
        let address = self.last_address << 3;
        self.recent.copy_within(..RECENT_ADDRESSES - 1, 1);
        self.recent[0] = address;
        Ok(address)
    }

    fn byte(&mut self) -> Parsed<u8> {
        self.bytes().map(|[byte]: [u8; 1]| byte)
    }

    fn word(&mut self) -> Parsed<u64> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn bytes<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        self.offset += N as u64;
        Ok(bytes)
    }

    /// Reads a number of variable length.
    fn number(&mut self) -> Parsed<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
            shift += 7;
            if shift >= 64 {
                return Err(Fault::Bad("a number has more than 64 bits".to_owned()));
            }
        }
    }

    fn signed(&mut self) -> Parsed<i64> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Reads a text up to the zero byte behind it.
    fn text(&mut self) -> Parsed<String> {
        let mut bytes = Vec::new();
        let count = self.input.by_ref().take(TEXT_BYTES_MAX).read_until(0, &mut bytes)?;
        self.offset += count as u64;
        match bytes.pop() {
            Some(0) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            _ if count as u64 == TEXT_BYTES_MAX => {
                Err(Fault::Bad(format!("a text is longer than {TEXT_BYTES_MAX} bytes")))
            }
            _ => Err(Fault::End),
        }
    }

    fn error(&self, fault: Fault) -> Error {
        match fault {
            Fault::Io(error) => Error::io("reading", &self.path)(error),
            Fault::End => self.malformed("the file ends too early".to_owned()),
            Fault::Bad(reason) => self.malformed(reason),
        }
    }

    fn malformed(&self, reason: String) -> Error {
        Error::Malformed { path: self.path.clone(), place: format!("byte {}", self.offset), reason }
    }

    pub(super) fn progress(&self) -> Progress {
        Progress { done: self.offset, total: self.total_bytes }
    }
}

fn time_ns(ms: u64, since_ns: i64) -> Parsed<i64> {
    let ns = i64::try_from(ms).ok().and_then(|ms| ms.checked_mul(NS_PER_S / 1000));
    ns.and_then(|ns| ns.checked_add(since_ns))
        .ok_or_else(|| Fault::Bad("a time is beyond all times".to_owned()))
}
