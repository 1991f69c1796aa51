//! Lines of a log, and the fields in them.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use floodmark_event::units::NS_PER_S;
use floodmark_store::{Error, Losses, Progress, Result};

use super::{VERSION_MAX, start_ns};
use crate::reopen::StreamInput;
use crate::{Mode, OpenProps};

/// A longer line is refused. Names of C++ functions can have tens of kilobytes.
const LINE_BYTES_MAX: u64 = if cfg!(fuzzing) { 512 } else { 4 << 20 };

/// What the first lines say.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) version: u64,
    /// Whether stacks are addresses and blocks have addresses.
    pub(super) is_raw: bool,
    /// Path of the program; only in raw files.
    pub(super) program: String,
    pub(super) command: String,
    pub(super) page_bytes: u64,
}

/// Reads a log line by line.
pub(super) struct LogLines {
    input: BufReader<Box<dyn Read + Send>>,
    path: PathBuf,
    mode: Mode,
    line: Vec<u8>,
    number: u64,
    read_bytes: u64,
    total_bytes: Option<u64>,
    /// The current line was read ahead and is handed out again.
    is_kept: bool,
    start_ns: i64,
    /// Time of what follows.
    pub(super) time_ns: i64,
    pub(super) header: Header,
    pub(super) losses: Losses,
}

impl LogLines {
    /// Reads the first lines, which tell what sort of file it is.
    pub(super) fn open(input: StreamInput, props: &OpenProps) -> Result<Self> {
        let StreamInput { input, path, total_bytes } = input;
        let start_ns = start_ns(props);
        let mut lines = Self {
            input: BufReader::with_capacity(1 << 16, input),
            path,
            mode: props.mode,
            line: Vec::new(),
            number: 0,
            read_bytes: 0,
            total_bytes,
            is_kept: false,
            start_ns,
            time_ns: start_ns,
            header: Header { page_bytes: 4096, ..Header::default() },
            losses: Losses::default(),
        };
        while lines.next()?.is_some() {
            if !lines.take_header()? {
                lines.is_kept = true;
                break;
            }
        }
        Ok(lines)
    }

    /// Takes the current line if it belongs to the header.
    fn take_header(&mut self) -> Result<bool> {
        match self.line.first() {
            Some(b'v') => self.take_version()?,
            Some(b'x') => {
                self.header.is_raw = true;
                self.header.program = self.text().unwrap_or_default();
            }
            Some(b'X') => {
                let command = self.line.get(2..).unwrap_or_default();
                self.header.command = String::from_utf8_lossy(command).trim().to_owned();
            }
            Some(b'I') => self.header.page_bytes = self.numbers::<1>().map_or(4096, |[bytes]| bytes),
            Some(b'm') => {
                self.header.is_raw = true;
                return Ok(false);
            }
            Some(b'S' | b'#') => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn take_version(&mut self) -> Result<()> {
        let [tool, version] = match self.numbers::<2>() {
            Ok(numbers) => numbers,
            // Files of version 1.0 have one number.
            Err(reason) => self.numbers::<1>().map(|[tool]| [tool, 1]).map_err(|_| self.malformed(reason))?,
        };
        if !(1..=VERSION_MAX).contains(&version) {
            let tool = format!("{}.{}.{}", tool >> 16, tool >> 8 & 0xff, tool & 0xff);
            return Err(self.malformed(format!(
                "the file has format {version} of heaptrack {tool}; formats 1 to {VERSION_MAX} can be read"
            )));
        }
        self.header.version = version;
        Ok(())
    }

    /// Reads the next line and returns what sort it is: its first byte. None at the end.
    pub(super) fn next(&mut self) -> Result<Option<u8>> {
        loop {
            if std::mem::take(&mut self.is_kept) {
                return Ok(self.line.first().copied());
            }
            self.line.clear();
            if !self.append_line()? {
                return Ok(None);
            }
            if let Some(sort) = self.line.first() {
                return Ok(Some(*sort));
            }
        }
    }

    /// Appends a line without its end; false if there is none, or none that ends.
    fn append_line(&mut self) -> Result<bool> {
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len() as u64) + 1;
        let mut limited = self.input.by_ref().take(room);
        let count = limited.read_until(b'\n', &mut self.line).map_err(Error::io("reading", &self.path))?;
        self.read_bytes += count as u64;
        if count > 0 {
            self.number += 1;
        }
        match self.line.last() {
            Some(b'\n') if count > 0 => {
                self.line.pop();
                Ok(true)
            }
            _ if count as u64 == room => {
                Err(self.malformed(format!("the line is longer than {LINE_BYTES_MAX} bytes")))
            }
            _ => {
                if count > 0 {
                    self.losses.add(1, "the last line has no end and was left out");
                }
                Ok(false)
            }
        }
    }

    /// Takes a line with the time.
    pub(super) fn take_time(&mut self) -> std::result::Result<(), String> {
        let [ms] = self.numbers()?;
        let time_ns = i64::try_from(ms).ok().and_then(|ms| ms.checked_mul(NS_PER_S / 1000));
        let time_ns = time_ns.and_then(|time_ns| time_ns.checked_add(self.start_ns));
        let time_ns = time_ns.ok_or("the time is beyond all times")?;
        if time_ns < self.time_ns {
            return Err("the time is earlier than the one before".to_owned());
        }
        self.time_ns = time_ns;
        Ok(())
    }

    /// Returns the first `N` numbers of the line, which are hexadecimal.
    pub(super) fn numbers<const N: usize>(&self) -> std::result::Result<[u64; N], String> {
        let mut numbers = [0; N];
        let mut fields = self.fields();
        for number in &mut numbers {
            *number =
                fields.next().flatten().ok_or_else(|| format!("{N} hexadecimal numbers are expected"))?;
        }
        Ok(numbers)
    }

    /// Iterates over the numbers of the line; none stands for one that cannot be read.
    pub(super) fn fields(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        let rest = self.line.get(2..).unwrap_or_default();
        rest.split(|byte| *byte == b' ').filter(|field| !field.is_empty()).map(hex)
    }

    /// Returns the text of the line; since format 3 its length stands before it, and it may go on in the next line.
    pub(super) fn text(&mut self) -> std::result::Result<String, String> {
        Ok(self.text_and_rest()?.0)
    }

    /// Returns the text of the line and the fields behind it.
    pub(super) fn text_and_rest(&mut self) -> std::result::Result<(String, Vec<u64>), String> {
        let rest = self.line.get(2..).unwrap_or_default();
        let (text, rest) = if self.header.version >= 3 {
            let blank = memchr::memchr(b' ', rest).unwrap_or(rest.len());
            let len = hex(&rest[..blank]).and_then(|len| usize::try_from(len).ok());
            let len = len.ok_or("the length of a text is expected")?;
            let start = 3 + blank;
            while self.line.len() < start.saturating_add(len) {
                self.line.push(b'\n');
                let is_whole = self.append_line().map_err(|error| error.to_string())?;
                if !is_whole {
                    return Err("the text is shorter than it says".to_owned());
                }
            }
            let rest = &self.line[start..];
            rest.split_at(len)
        } else if self.line.first() == Some(&b's') {
            (rest, &b""[..])
        } else {
            rest.split_at(memchr::memchr(b' ', rest).unwrap_or(rest.len()))
        };
        let fields = rest.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        let fields: Option<Vec<u64>> = fields.map(hex).collect();
        Ok((String::from_utf8_lossy(text).into_owned(), fields.ok_or("hexadecimal numbers are expected")?))
    }

    /// Counts something that cannot be read, or makes it an error.
    pub(super) fn complain(&mut self, reason: String) -> Result<()> {
        match self.mode {
            Mode::Strict => Err(self.malformed(reason)),
            Mode::Lenient => {
                self.losses.add(1, "malformed lines skipped");
                Ok(())
            }
        }
    }

    fn malformed(&self, reason: impl Into<String>) -> Error {
        let place = format!("line {}", self.number);
        Error::Malformed { path: self.path.clone(), place, reason: reason.into() }
    }

    pub(super) fn progress(&self) -> Progress {
        Progress { done: self.read_bytes, total: self.total_bytes }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Parses a hexadecimal number.
pub(super) fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |number: u64, digit| {
        let value = char::from(*digit).to_digit(16)?;
        Some(number << 4 | u64::from(value))
    })
}
