//! Reads a log of samples block by block; what a block means is up to its format.
//!
//! Memory does not grow with the log: rows are handed out after every block, and a line longer than
//! [`LINE_BYTES_MAX`] is passed over instead of being held. A part that cannot be read is an error or is
//! counted, as [`Mode`] says; rows before it are handed out first.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use floodmark_event::tables::Process;
use floodmark_event::{Metric, ProcessId, SampleRow, Subject, SubjectId, SubjectKind, SubjectRow, Tables};
use floodmark_store::{Error, Losses, Progress, Result};

use crate::line_end::{CR_REMARK, LineEnd};
use crate::{Mode, OpenProps};
use floodmark_event::Row;
use floodmark_store::RowSource;

/// How much is read at a time. The fuzzer has small limits, so that it is fast and meets them.
const BLOCK_BYTES: usize = if cfg!(fuzzing) { 512 } else { 64 << 10 };
/// A longer line is passed over.
pub(crate) const LINE_BYTES_MAX: usize = if cfg!(fuzzing) { 256 } else { 64 << 10 };

/// A format of samples.
pub(crate) trait Parse: Send {
    /// Takes the next bytes, which may begin and end anywhere.
    fn block(&mut self, bytes: &[u8], out: &mut Out) -> Result<()>;
    /// The log is over.
    fn end(&mut self, out: &mut Out) -> Result<()>;
}

/// Where a format puts what it has read.
#[derive(Debug)]
pub(crate) struct Out {
    pub(crate) rows: Vec<Row>,
    pub(crate) tables: Tables,
    pub(crate) losses: Losses,
    /// Process that stands for the writer of the log.
    pub(crate) process: ProcessId,
    mode: Mode,
    path: PathBuf,
}

impl Out {
    fn new(path: &Path, props: &OpenProps) -> Self {
        let mut tables = Tables::default();
        let command = file_name(path);
        tables.processes.push(Process { id: props.process, command, ..Process::default() });
        let (mode, process) = (props.mode, props.process);
        Self { rows: Vec::new(), tables, losses: Losses::default(), process, mode, path: path.to_owned() }
    }

    /// What the log is called.
    pub(crate) fn log_name(&self) -> String {
        file_name(&self.path)
    }

    /// Counts something that cannot be read, or makes it an error.
    pub(crate) fn complain(&mut self, line: u64, reason: impl Into<String>) -> Result<()> {
        match self.mode {
            Mode::Lenient => {
                self.losses.add(1, "malformed lines skipped");
                Ok(())
            }
            Mode::Strict => Err(self.malformed(line, reason)),
        }
    }

    /// The error for something that cannot be read, whatever the mode.
    pub(crate) fn malformed(&self, line: u64, reason: impl Into<String>) -> Error {
        Error::Malformed { path: self.path.clone(), place: format!("line {line}"), reason: reason.into() }
    }

    /// Whether parts that cannot be read are passed over.
    pub(crate) fn is_lenient(&self) -> bool {
        self.mode == Mode::Lenient
    }

    /// Adds a subject, and returns its number.
    pub(crate) fn subject(&mut self, subject: Subject) -> u64 {
        let number = self.numbered(self.tables.subjects.len() as u64 + 1);
        let Subject { kind, number: own, start_ns, parent: SubjectId(parent), name, detail } = subject;
        let parent = if parent == 0 { 0 } else { self.numbered(u64::from(parent)) };
        let row = SubjectRow {
            start_ns: (start_ns != 0).then_some(start_ns),
            parent,
            detail,
            ..SubjectRow::new(number, kind, own, name)
        };
        self.tables.subjects.insert(number, row);
        number
    }

    /// A number of the log's own with its process in the upper half.
    pub(crate) fn numbered(&self, own: u64) -> u64 {
        u64::from(self.process.0) << 32 | own
    }

    /// Says that something observed was gone at `time_ns`.
    pub(crate) fn ended(&mut self, subject: u64, time_ns: i64) {
        if let Some(row) = self.tables.subjects.get_mut(&subject) {
            row.end_ns = Some(time_ns);
        }
    }

    pub(crate) fn sample(&mut self, time_ns: i64, subject: u64, metric: Metric, value: u64) {
        self.rows.push(Row::Sample(SampleRow { time_ns, subject, metric, value }));
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// A subject of which little is known.
pub(crate) fn subject(kind: SubjectKind, number: u64, name: impl Into<String>) -> Subject {
    let (parent, detail) = (SubjectId(0), String::new());
    Subject { kind, number, start_ns: 0, parent, name: name.into(), detail }
}

/// Reads a log.
pub(crate) struct LogReader<R, P> {
    input: R,
    parse: P,
    out: Out,
    block: Vec<u8>,
    read_bytes: u64,
    total_bytes: Option<u64>,
    is_done: bool,
    /// Found behind rows that had to be handed out first.
    error: Option<Error>,
}

impl<R: Read, P: Parse> LogReader<R, P> {
    pub(crate) fn new(input: R, parse: P, path: &Path, props: &OpenProps) -> Self {
        Self {
            input,
            parse,
            out: Out::new(path, props),
            block: vec![0; BLOCK_BYTES],
            read_bytes: 0,
            total_bytes: None,
            is_done: false,
            error: None,
        }
    }

    /// Begins with tables that ids of rows to come point to.
    pub(crate) fn with_tables(mut self, tables: Tables) -> Self {
        self.out.tables = tables;
        self
    }

    /// Returns what ids of rows point to.
    pub(crate) fn into_tables(self) -> Tables {
        self.out.tables
    }

    /// States how long the input is, if that is known.
    pub(crate) fn with_total_bytes(mut self, total_bytes: Option<u64>) -> Self {
        self.total_bytes = total_bytes;
        self
    }

    fn read_block(&mut self) -> Result<()> {
        let count = loop {
            match self.input.read(&mut self.block) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result.map_err(Error::io("reading", &self.out.path))?,
            }
        };
        // A reader that claims more than it was given room for is broken; do not believe it.
        let count = count.min(self.block.len());
        self.read_bytes += count as u64;
        if count == 0 {
            self.is_done = true;
            return self.parse.end(&mut self.out);
        }
        self.parse.block(&self.block[..count], &mut self.out)
    }
}

impl<R: Read + Send, P: Parse> RowSource for LogReader<R, P> {
    fn tables(&self) -> &Tables {
        &self.out.tables
    }

    fn next(&mut self, rows: &mut Vec<Row>) -> Result<bool> {
        rows.clear();
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        while self.out.rows.is_empty() && !self.is_done {
            if let Err(error) = self.read_block() {
                self.is_done = true;
                if self.out.rows.is_empty() {
                    return Err(error);
                }
                self.error = Some(error);
            }
        }
        std::mem::swap(rows, &mut self.out.rows);
        Ok(!rows.is_empty())
    }

    fn losses(&self) -> Losses {
        self.out.losses.clone()
    }

    fn progress(&self) -> Progress {
        Progress { done: self.read_bytes, total: self.total_bytes }
    }
}

/// A format of samples that has a row, or part of one, in every line.
pub(crate) trait ParseLine: Send {
    /// Takes a line, without its end. Blank lines are passed over.
    ///
    /// # Errors
    /// What is wrong with it.
    fn line(&mut self, line: &str, out: &mut Out) -> std::result::Result<(), String>;
    /// The log is over.
    fn end(&mut self, out: &mut Out);
}

/// Cuts blocks into lines.
#[derive(Debug)]
pub(crate) struct Lines<F> {
    format: F,
    /// The beginning of a line whose end has not come yet.
    begun: Vec<u8>,
    is_too_long: bool,
    line: u64,
    line_end: LineEnd,
}

impl<F: ParseLine> Lines<F> {
    pub(crate) fn of(format: F) -> Self {
        Self { format, begun: Vec::new(), is_too_long: false, line: 0, line_end: LineEnd::default() }
    }

    fn begin(&mut self, bytes: &[u8]) {
        self.is_too_long |= self.begun.len() + bytes.len() > LINE_BYTES_MAX;
        if self.is_too_long {
            self.begun.clear();
        } else {
            self.begun.extend_from_slice(bytes);
        }
    }

    fn finish_line(&mut self, out: &mut Out) -> Result<()> {
        self.line += 1;
        if std::mem::take(&mut self.is_too_long) {
            return out.complain(self.line, format!("the line is longer than {LINE_BYTES_MAX} bytes"));
        }
        let line = std::mem::take(&mut self.begun);
        let result = self.take_line(&line, out);
        self.begun = line;
        self.begun.clear();
        result
    }

    fn take_line(&mut self, line: &[u8], out: &mut Out) -> Result<()> {
        let line = if self.line == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        let Ok(line) = str::from_utf8(line) else {
            return out.complain(self.line, "the line is not text in UTF-8");
        };
        if line.trim().is_empty() {
            return Ok(());
        }
        self.format.line(line.trim_end_matches('\r'), out).or_else(|reason| out.complain(self.line, reason))
    }
}

impl<F: ParseLine> Parse for Lines<F> {
    fn block(&mut self, mut bytes: &[u8], out: &mut Out) -> Result<()> {
        let was_cr = self.line_end.is_cr();
        self.line_end.learn(bytes);
        if self.line_end.is_cr() && !was_cr {
            out.losses.remark(CR_REMARK);
            // The CR may have been the last byte of the block before.
            if self.begun.ends_with(b"\r") {
                self.finish_line(out)?;
            }
        }
        while let Some(at) = memchr::memchr(self.line_end.byte(), bytes) {
            self.begin(&bytes[..at]);
            bytes = &bytes[at + 1..];
            self.finish_line(out)?;
        }
        self.begin(bytes);
        Ok(())
    }

    fn end(&mut self, out: &mut Out) -> Result<()> {
        if self.is_too_long || !self.begun.trim_ascii().is_empty() {
            // A number that lacks its last digits looks like any other.
            out.losses.add(1, "the last line has no end and was left out");
        }
        self.format.end(out);
        Ok(())
    }
}
