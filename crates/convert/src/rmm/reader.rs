//! Reads a log as a source of events.
//!
//! Rows become the columns of a batch one by one. A line that cannot be read is an error or is counted,
//! as [`Mode`] says; rows before it are handed out first.

mod blocks;

use std::io::Read;
use std::path::{Path, PathBuf};

use floodmark_event::tables::Process;
use floodmark_event::units::format_duration_ns;
use floodmark_event::{Column, EventBatch, Kind, ProcessId, Tables};
use floodmark_store::{Error, Losses, Progress, Result, Source};

use super::ReadProps;
use super::columns::Columns;
use super::lines::{LINE_BYTES_MAX, Lines, More};
use super::numbers::LineNumbers;
use super::parser::{ParsedLine, Parser, long_line};
use super::rows::{Rows, TimedRow};
use crate::line_end::CR_REMARK;
use crate::{Mode, device_of};

/// How many runs in one log are told apart.
const RUNS_MAX: u32 = 1000;

/// Reads a log. See [the module](super) for what it accepts and what the events carry.
#[derive(Debug)]
pub struct Reader<R> {
    lines: Lines<R>,
    path: PathBuf,
    mode: Mode,
    tables: Tables,
    /// Process of the run that is being read.
    process: ProcessId,
    runs: Runs,
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

/// Runs of a program that were appended to one log, each with a header.
#[derive(Debug)]
struct Runs {
    count: u32,
    /// How many rows of earlier runs were handed out.
    rows_before: u64,
    /// Whether the next row belongs to another run than those that were not handed out yet.
    is_next: bool,
    /// Line of the header with which the second run begins.
    second_line: u64,
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
            runs: Runs { count: 1, rows_before: 0, is_next: false, second_line: 0 },
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
        while !self.rows.is_full() && !self.is_done && !self.runs.is_next {
            // Usual rows end in LF.
            if self.parser.columns.canonical && !self.lines.line_end().is_cr() {
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
                    Ok(ParsedLine::Row(row)) => self.push(&row, self.line_count),
                    Ok(ParsedLine::Blank) => {}
                    Ok(ParsedLine::Header) => self.end_run(),
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
        let before = self.rows.count;
        let usual = &mut self.parser.usual;
        let at = self.rows.fill(|rows| usual.read(text, lines_len, rows));
        if self.rows.count > before {
            self.parser.note_usual(self.rows.last_ns());
            self.numbers.note(self.row_count + before as u64, self.line_count + 1);
        }
        self.line_count += (self.rows.count - before) as u64;
        self.lines.pass(at);
    }

    /// Reads a last line that has no end. The writer died in it, or an editor took the end away; a number that
    /// lacks its last digits looks like any other, so the row counts only if its last field is surely whole.
    fn read_unfinished(&mut self) {
        self.is_done = true;
        let line = self.lines.unfinished();
        let is_whole = matches!(line.last(), Some(b'\r' | b'"' | b')'));
        self.is_cut_off = match self.parser.read_line(line.strip_suffix(b"\r").unwrap_or(line)) {
            Ok(ParsedLine::Row(row)) if is_whole => {
                self.push(&row, self.line_count + 1);
                false
            }
            // Nothing is left of a line that was too long, and an empty line is never unfinished.
            Ok(ParsedLine::Blank) => line.is_empty(),
            Ok(ParsedLine::Header) => false,
            Ok(ParsedLine::Row(_)) | Err(_) => true,
        };
        self.lines.pass_unfinished();
    }

    /// Takes note of a header in the middle: what follows is another run, unless this one has no rows.
    fn end_run(&mut self) {
        let has_rows = self.row_count + self.rows.count as u64 > self.runs.rows_before;
        if !has_rows || self.runs.count == RUNS_MAX {
            return;
        }
        if self.runs.count == 1 {
            self.runs.second_line = self.line_count;
        }
        self.runs.is_next = true;
        if self.rows.count == 0 {
            self.begin_run();
        }
    }

    /// Begins the next run, which is another process.
    fn begin_run(&mut self) {
        self.runs.is_next = false;
        self.runs.rows_before = self.row_count;
        self.runs.count += 1;
        self.process.0 += 1;
        let command = format!("{} (run {})", self.tables.processes[0].command, self.runs.count);
        self.tables.processes.push(Process { id: self.process, command, ..Process::default() });
        self.parser.begin_run();
    }

    /// Adds what a reader of results should know about the log.
    fn add_remarks(&self, losses: &mut Losses) {
        if self.runs.count > 1 {
            let (first, last) = (self.tables.processes[0].id.0, self.process.0);
            losses.remark(format!(
                "it holds {} runs, one for each header (the second begins at line {}): they are processes {first} to \
                 {last}, and blocks that a run did not free stay live in the sum of all; --process {last} shows \
                 the last run",
                self.runs.count, self.runs.second_line,
            ));
        }
        let steps = self.parser.back_steps;
        if steps.count > 0 {
            let times = if steps.count == 1 { "once".into() } else { format!("{} times", steps.count) };
            losses.remark(format!(
                "its times run backwards {times}, by up to {}; the order of the lines is kept",
                format_duration_ns(steps.most_ns),
            ));
        }
        if self.lines.line_end().is_cr() {
            losses.remark(CR_REMARK);
        }
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
        if self.runs.is_next {
            self.begin_run();
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
        self.add_remarks(&mut losses);
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
