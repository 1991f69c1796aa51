//! What was opened: a trace, a foreign file or a pipe.
//!
//! An [`Input`] is opened once and read any number of times, unless it is a pipe in a format that is read as
//! a stream. Formats that must be parsed whole are parsed once; the small tables of a trace (names, stacks,
//! scopes) are loaded once.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use floodmark_convert::{Foreign, Format, OpenProps};
use floodmark_event::{Row, SubjectKind, Tables};
use floodmark_store::{Follow, Losses, Manifest, RowSource, Run, ScanProps, Source, Table, Trace, is_trace};

use crate::error::{Error, Result};
use crate::scopes::{Paths, ScopeTable};
use crate::symbols::{frame_names, open_trace};

/// How long to wait before a growing log is read again.
const GROWTH_POLL: Duration = Duration::from_millis(100);

/// What an input contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four independent facts")]
pub struct Contents {
    /// Whether there may be allocations and frees.
    pub has_events: bool,
    /// Whether there may be samples, scopes, output, stacks or messages.
    pub has_rows: bool,
    /// Whether it can be read more than once.
    pub can_rewind: bool,
    /// Whether it is still being recorded.
    pub is_growing: bool,
}

/// A trace, a foreign file or a pipe that was opened.
pub struct Input {
    path: PathBuf,
    name: String,
    opened: Opened,
    scopes: Mutex<Option<ScopeTable>>,
    /// Instant that elapsed times count from, once it was asked for.
    pub(crate) origin: OnceLock<Option<i64>>,
}

enum Opened {
    Trace(Trace),
    Foreign(Foreign),
}

impl Input {
    /// Opens a trace or a foreign file of any format that is recognized; `-` is standard input.
    ///
    /// # Errors
    /// [`Error::Trace`] names the file, what is wrong with it or what it looks like.
    pub fn open(path: impl AsRef<Path>, props: &OpenProps) -> Result<Self> {
        let path = path.as_ref();
        let opened =
            if is_trace(path) {
                Opened::Trace(open_trace(path)?)
            } else {
                let foreign = floodmark_convert::open(path, props);
                Opened::Foreign(foreign.map_err(|error| {
                    if is_stdin(path) { Error::Stdin(error) } else { Error::Trace(error) }
                })?)
            };
        Ok(Self {
            path: path.to_owned(),
            name: path.display().to_string(),
            opened,
            scopes: Mutex::new(None),
            origin: OnceLock::new(),
        })
    }

    /// Path as the user gave it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Name as the user gave it; `-` for standard input.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the input contains. What a trace that is still being recorded, or a stream, contains is
    /// known only after reading it.
    pub fn contents(&self) -> Contents {
        match &self.opened {
            Opened::Foreign(foreign) => Contents {
                has_events: foreign.has_events(),
                has_rows: foreign.has_rows(),
                can_rewind: foreign.can_rewind(),
                is_growing: false,
            },
            Opened::Trace(trace) => {
                let is_growing = trace.is_live();
                let has = |table: &Table| trace.manifest().rows_of(*table) > 0;
                let rows = [Table::Scope, Table::Sample, Table::Output, Table::StackSample, Table::Log];
                Contents {
                    has_events: trace.has_tail() || has(&Table::Event),
                    has_rows: trace.has_tail() || rows.iter().any(has),
                    can_rewind: true,
                    is_growing,
                }
            }
        }
    }

    /// Name of the format, as in `RMM log (CSV)`.
    pub fn format_name(&self) -> &'static str {
        match &self.opened {
            Opened::Trace(_) => Format::Trace.name(),
            Opened::Foreign(foreign) => foreign.format().name(),
        }
    }

    /// The recorded run: command, host, times, as far as they are known.
    pub fn run(&self) -> Run {
        self.manifest().map_or_else(Run::default, |manifest| manifest.run.clone())
    }

    /// The manifest of a trace.
    pub(crate) fn manifest(&self) -> Option<&Manifest> {
        match &self.opened {
            Opened::Trace(trace) => Some(trace.manifest()),
            Opened::Foreign(_) => None,
        }
    }

    /// The trace behind the input, for those that resume scans of one (checkpoints).
    pub(crate) fn trace(&self) -> Option<&Trace> {
        match &self.opened {
            Opened::Trace(trace) => Some(trace),
            Opened::Foreign(_) => None,
        }
    }

    /// Starts to read events; `scan` says which columns and rows of a trace are needed.
    ///
    /// # Errors
    /// If the input has no events, cannot be read again, or is damaged.
    pub fn events(&self, scan: &ScanProps) -> Result<Box<dyn Source>> {
        match &self.opened {
            Opened::Trace(trace) => Ok(Box::new(trace.scan(scan)?)),
            Opened::Foreign(foreign) => Ok(foreign.events()?),
        }
    }

    /// Starts to read samples, scopes, output, stacks and messages, in the order of time.
    ///
    /// # Errors
    /// If the input has no such rows, cannot be read again, or is damaged.
    pub fn rows(&self, scan: &ScanProps) -> Result<Box<dyn RowSource>> {
        match &self.opened {
            Opened::Trace(trace) => Ok(trace.all_rows(scan)?),
            Opened::Foreign(foreign) => Ok(foreign.rows()?),
        }
    }

    /// As [`rows`](Self::rows), but yields nothing where there are no rows.
    ///
    /// # Errors
    /// If the input cannot be read again or is damaged.
    pub fn rows_if_any(&self, scan: &ScanProps) -> Result<Box<dyn RowSource>> {
        if self.contents().has_rows { self.rows(scan) } else { Ok(Box::new(NoRows::default())) }
    }

    /// Whether an answer needs a second pass that this input does not allow.
    ///
    /// # Errors
    /// [`Error::ReadOnce`] with `question` as the reason.
    pub fn need_rewind(&self, question: &str) -> Result<()> {
        if self.contents().can_rewind {
            return Ok(());
        }
        Err(Error::ReadOnce { question: question.to_owned() })
    }

    /// Reads the scopes and marks, once.
    ///
    /// A stream that can be read only once has none: its events are read instead.
    ///
    /// # Errors
    /// If the input is damaged.
    pub(crate) fn scopes<T>(&self, needed: Paths, with: impl FnOnce(&ScopeTable) -> T) -> Result<T> {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let table = match scopes.take().filter(|table| table.has(needed)) {
            Some(table) => table,
            None => ScopeTable::read(self, needed)?,
        };
        Ok(with(scopes.insert(table)))
    }

    /// Whether processes were sampled from outside. Devices and pools are sampled beside events too.
    pub(crate) fn is_watched(&self) -> Result<bool> {
        let Some(trace) = self.trace() else { return Ok(false) };
        let is_beside = |kind| matches!(kind, SubjectKind::Device | SubjectKind::Pool);
        Ok(trace.subjects()?.values().any(|subject| !is_beside(subject.kind)))
    }

    /// Whether samples, rather than events, are what there is to show.
    ///
    /// # Errors
    /// If the input is damaged.
    pub fn is_about_samples(&self) -> Result<bool> {
        let Some(trace) = self.trace() else { return Ok(!self.contents().has_events) };
        let has_events = trace.manifest().rows_of(Table::Event) > 0;
        Ok(self.is_watched()? || (!has_events && !trace.subjects()?.is_empty()))
    }

    /// Refuses a complete trace of samples alone, for commands that would write nothing from it.
    ///
    /// # Errors
    /// [`Error::NoContent`] if there are samples but no events.
    pub fn require_events(&self) -> Result<()> {
        match self.trace() {
            Some(trace) if !trace.has_tail() && trace.manifest().rows_of(Table::Event) == 0 => {
                self.refuse_samples()
            }
            _ => Ok(()),
        }
    }

    /// Refuses an input that turned out to have samples but no events.
    ///
    /// # Errors
    /// [`Error::NoContent`] if there are samples.
    pub(crate) fn refuse_samples(&self) -> Result<()> {
        let has_subjects = match self.trace() {
            Some(trace) => !trace.subjects()?.is_empty(),
            None => false,
        };
        if !has_subjects {
            return Ok(());
        }
        let name = &self.name;
        let has_stacks = self.trace().is_some_and(|trace| trace.manifest().rows_of(Table::StackSample) > 0);
        let stacks = if has_stacks {
            format!("'floodmark flame {name}' the functions in its stack samples")
        } else {
            "and 'floodmark run --stacks' records which functions run at a peak".to_owned()
        };
        Err(Error::no_content(
            format!("{name} contains process samples but no allocation events, which this command needs"),
            format!(
                "'floodmark info {name}' shows its peaks, 'floodmark read {name}' its timeline (--csv as a \
                 table), {stacks}"
            ),
        ))
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Follows the events of a trace that is still being written, with names for frames that were recorded as addresses.
///
/// # Errors
/// If the trace cannot be read.
pub fn follow_events(path: &Path) -> Result<Follow> {
    Ok(Follow::open(path, ScanProps::default())?.with_frame_names(frame_names()))
}

/// Follows the rows of a trace or log that is still being written. The source waits for new rows; that of a
/// trace ends when its recording has ended.
///
/// # Errors
/// If the input has no rows or cannot be read.
pub fn follow_rows(path: &Path, props: &OpenProps) -> Result<Box<dyn RowSource>> {
    if is_trace(path) {
        return Ok(floodmark_store::follow_rows(path, &ScanProps::default(), Some(frame_names()))?);
    }
    let file = File::open(path).map_err(floodmark_store::Error::io("opening", path))?;
    let foreign = floodmark_convert::open_input(Box::new(GrowingFile(file)), path, props)?;
    if !foreign.has_rows() {
        return Err(Error::unsuitable("--follow needs a trace", "leave it out, or import the log first"));
    }
    Ok(foreign.rows()?)
}

/// A file that has no end: reading waits for more.
struct GrowingFile(File);

impl Read for GrowingFile {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.0.read(room)?;
            if count > 0 || room.is_empty() {
                return Ok(count);
            }
            std::thread::sleep(GROWTH_POLL);
        }
    }
}

/// Whether a path stands for standard input or output.
pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// A source of no rows.
#[derive(Debug, Default)]
struct NoRows {
    tables: Tables,
}

impl RowSource for NoRows {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn next(&mut self, rows: &mut Vec<Row>) -> floodmark_store::Result<bool> {
        rows.clear();
        Ok(false)
    }

    fn losses(&self) -> Losses {
        Losses::default()
    }
}
