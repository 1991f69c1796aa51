//! Reads a log as a source of events.
//!
//! Rows become the columns of a batch one by one. A line that cannot be read is an error or is counted,
//! as [`Mode`] says; rows before it are handed out first.

use std::io::Read;
use std::path::{Path, PathBuf};

use floodmark_event::tables::Process;
use floodmark_event::{Column, EventBatch, Kind, ProcessId, Tables};
use floodmark_store::{Error, Losses, Progress, Result, Source};

use super::ReadProps;
use super::columns::Columns;
use super::lines::{LINE_BYTES_MAX, Lines, More};
use super::numbers::LineNumbers;
use super::parser::{Parser, long_line};
use super::rows::{Rows, TimedRow};
use crate::{Mode, device_of};

/// Reads a log. See [the module](super) for what it accepts and what the events carry.
#[derive(Debug)]
pub struct Reader<R> {
    lines: Lines<R>,
    path: PathBuf,
    mode: Mode,
    tables: Tables,
    process: ProcessId,
    device: i32,
    total_bytes: Option<u64>,
    parser: Parser,
    rows: Rows,
    /// How many lines were passed.
    line_count: u64,
    /// How many rows were handed out.
    row_count: u64,
    numbers: LineNumbers,
    skipped_lines: u64,
    is_cut_off: bool,
    is_done: bool,
    /// Found behind rows that had to be handed out first.
    error: Option<Error>,
}

impl<R: Read> Reader<R> {
    /// Reads the header of `input`; `path` is what messages call it and what names the device.
    ///
    /// # Errors
    /// [`Error::Unrecognized`] if the first line is not the header of a log, and [`Error::Io`].
    pub fn open(input: R, path: impl AsRef<Path>, props: &ReadProps) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let mut lines = Lines::of(input);
        let (columns, line_count) = read_header(&mut lines, &path)?;
        let mut tables = Tables::default();
        let name = path.file_name().unwrap_or(path.as_os_str());
        let command = name.to_string_lossy().into_owned();
        tables.processes.push(Process { id: props.process, command, ..Process::default() });
        Ok(Self {
            lines,
            mode: props.mode,
            tables,
            process: props.process,
            device: device_of(&path).or(props.device).unwrap_or(0),
            path,
            total_bytes: None,
            parser: Parser::new(columns, props.date),
            rows: Rows::default(),
            line_count,
            row_count: 0,
            numbers: LineNumbers::default(),
            skipped_lines: 0,
            is_cut_off: false,
            is_done: false,
            error: None,
        })
    }

    /// States how long the input is, if that is known, for [`Source::progress`].
    #[must_use]
    pub fn with_total_bytes(mut self, total_bytes: Option<u64>) -> Self {
        self.total_bytes = total_bytes;
        self
    }

    /// Fills `rows`; `Ok` when they are full or the input has ended.
    fn read_rows(&mut self) -> Result<()> {
        while !self.rows.is_full() && !self.is_done {
            if self.parser.columns.canonical {
                self.read_usual_rows();
                if self.rows.is_full() {
                    break;
                }
            }
            if let Some((line, len)) = self.lines.line() {
                let read = self.parser.read_line(line);
                self.lines.pass(len);
                self.line_count += 1;
                match read {
                    Ok(Some(row)) => self.push(&row, self.line_count),
                    Ok(None) => {}
                    Err(reason) => self.complain(reason)?,
                }
                continue;
            }
            match self.lines.more().map_err(Error::io("reading", &self.path))? {
                More::Lines => {}
                More::LongLine => {
                    self.line_count += 1;
                    self.complain(long_line())?;
                }
                More::Unfinished => self.read_unfinished(),
                More::End => self.is_done = true,
            }
        }
        Ok(())
    }

    /// Reads rows as long as they are usual.
    fn read_usual_rows(&mut self) {
        let (text, lines_len) = self.lines.rest();
        // A copy that the compiler can keep in registers.
        let mut usual = self.parser.usual.clone();
        let before = self.rows.count;
        let mut at = 0;
        self.rows.fill(|| {
            if at >= lines_len {
                return None;
            }
            let (row, len) = usual.parse(text.get(at..)?.first_chunk()?)?;
            at += len;
            Some(row)
        });
        if self.rows.count > before {
            self.numbers.note(self.row_count + before as u64, self.line_count + 1);
        }
        self.line_count += (self.rows.count - before) as u64;
        self.lines.pass(at);
        self.parser.usual = usual;
    }

    /// Reads a last line that has no end: it may be whole, or the writer died in it.
    fn read_unfinished(&mut self) {
        self.is_done = true;
        let line = self.lines.unfinished();
        // Nothing is left of a line that was too long, and an empty line is never unfinished.
        let is_gone = line.is_empty();
        match self.parser.read_line(line.strip_suffix(b"\r").unwrap_or(line)) {
            Ok(Some(row)) => self.push(&row, self.line_count + 1),
            Ok(None) => self.is_cut_off = is_gone,
            Err(_) => self.is_cut_off = true,
        }
        self.lines.pass_unfinished();
    }

    /// Takes the row of a line.
    fn push(&mut self, row: &TimedRow, line: u64) {
        self.numbers.note(self.row_count + self.rows.count as u64, line);
        self.rows.push(row);
    }

    /// Counts the line just passed as malformed, or makes it an error.
    fn complain(&mut self, reason: String) -> Result<()> {
        match self.mode {
            Mode::Lenient => {
                self.skipped_lines += 1;
                Ok(())
            }
            Mode::Strict => {
                let place = format!("line {}", self.line_count);
                Err(Error::Malformed { path: self.path.clone(), place, reason })
            }
        }
    }
}

impl<R: Read + Send> Source for Reader<R> {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn next(&mut self, batch: &mut EventBatch) -> Result<bool> {
        if let Some(error) = self.error.take() {
            batch.clear();
            return Err(error);
        }
        self.rows.begin(batch);
        let result = self.read_rows();
        let count = self.rows.finish(batch);
        self.row_count += count as u64;
        batch.process = Column::Same(self.process);
        batch.device = Column::Same(self.device);
        batch.kind = Column::Same(Kind::Device);
        if let Err(error) = result {
            self.is_done = true;
            if count == 0 {
                return Err(error);
            }
            self.error = Some(error);
        }
        Ok(count > 0)
    }

    fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        if self.skipped_lines > 0 {
            losses.add(self.skipped_lines, "malformed lines skipped");
        }
        if self.is_cut_off {
            losses.add(1, "the last line is cut off");
        }
        losses
    }

    fn progress(&self) -> Progress {
        Progress { done: self.lines.passed_bytes(), total: self.total_bytes }
    }

    fn place(&self, event: u64) -> Option<String> {
        if event >= self.row_count {
            return None;
        }
        self.numbers.line_of(event).map(|line| format!("line {line}"))
    }
}

/// Reads up to the header; returns it and how many lines were passed.
fn read_header<R: Read>(lines: &mut Lines<R>, path: &Path) -> Result<(Columns, u64)> {
    let refuse = |reason| Error::Unrecognized { path: path.to_owned(), reason };
    let mut line_count = 0;
    loop {
        if let Some((line, len)) = lines.line() {
            line_count += 1;
            let columns = if line.len() <= LINE_BYTES_MAX && line.trim_ascii().is_empty() {
                None
            } else {
                Some(parse_header(line).map_err(refuse)?)
            };
            lines.pass(len);
            if let Some(columns) = columns {
                return Ok((columns, line_count));
            }
            continue;
        }
        match lines.more().map_err(Error::io("reading", path))? {
            More::Lines => {}
            More::LongLine => return Err(refuse(long_line())),
            More::Unfinished => {
                let columns = parse_header(lines.unfinished()).map_err(refuse)?;
                lines.pass_unfinished();
                return Ok((columns, line_count + 1));
            }
            More::End => return Err(refuse("it holds no line, not even a header".into())),
        }
    }
}

/// Parses a first line; nothing is left of one that was too long.
fn parse_header(line: &[u8]) -> std::result::Result<Columns, String> {
    if line.is_empty() || line.len() > LINE_BYTES_MAX {
        return Err(long_line());
    }
    Columns::parse(line.trim_ascii())
}
