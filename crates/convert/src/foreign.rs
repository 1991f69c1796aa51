//! Opens foreign files: recognizes the format, and parses a file once if its format must be parsed whole.
//!
//! A [`Foreign`] file can be read any number of times, unless it is a pipe in a format that is read as a
//! stream. Formats that are read as a stream (logs) open their file again for a second pass; formats that
//! must be parsed whole keep what they parsed.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use floodmark_event::ProcessId;
use floodmark_event::units::Date;
use floodmark_store::{Error, Result, RowSource, Source};

use crate::cut_off::{CutEvents, CutRows};
use crate::decompress::CutOff;
use crate::recognize::{Candidate, Format, Known};
use crate::{Mode, memory_logger, mprof, psrecord, pymemtrace, rmm, smi};

/// How to read a foreign file, whatever its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenProps {
    /// Whether unreadable parts of a file are errors or counted losses.
    pub mode: Mode,
    /// Day of the first event in formats that carry no date.
    pub date: Option<Date>,
    /// How far the clock was ahead of UTC, in seconds, in formats that show local times.
    pub utc_offset_s: i32,
    /// Device of the events in formats that carry none.
    pub device: Option<i32>,
    /// Process of the events in formats that carry none.
    pub process: ProcessId,
}

impl Default for OpenProps {
    fn default() -> Self {
        Self { mode: Mode::Strict, date: None, utc_offset_s: 0, device: None, process: ProcessId(1) }
    }
}

/// A file that was parsed whole.
pub(crate) trait Parsed: Send + Sync {
    /// Starts to yield its events.
    fn events(&self) -> Result<Box<dyn Source>>;
    /// Starts to yield its scopes, samples and messages.
    fn rows(&self) -> Result<Box<dyn RowSource>>;
}

/// Events of a file, and its other rows.
pub type EventsAndRows = (Box<dyn Source>, Box<dyn RowSource>);

/// Starts to yield both the events and the rows of a file that was parsed whole.
pub(crate) fn both(parsed: &dyn Parsed) -> Result<EventsAndRows> {
    Ok((parsed.events()?, parsed.rows()?))
}

/// How a format is opened.
#[derive(Clone, Copy)]
pub(crate) enum Opener {
    /// A stream of allocations and frees.
    Events(fn(Candidate, &OpenProps) -> Result<Box<dyn Source>>),
    /// A stream of samples and other rows.
    Rows(fn(Candidate, &OpenProps) -> Result<Box<dyn RowSource>>),
    /// A format that has both and is parsed whole.
    Whole(fn(Candidate, &OpenProps) -> Result<Box<dyn Parsed>>),
    /// A trace of our own, which `floodmark-store` opens.
    Trace,
}

/// A foreign file that was opened.
pub struct Foreign {
    path: PathBuf,
    known: &'static Known,
    props: OpenProps,
    can_rewind: bool,
    content: Content,
}

enum Content {
    Events(Stream, fn(Candidate, &OpenProps) -> Result<Box<dyn Source>>),
    Rows(Stream, fn(Candidate, &OpenProps) -> Result<Box<dyn RowSource>>),
    Parsed(Box<dyn Parsed>, Option<CutOff>),
}

/// The bytes of a format that is read as a stream: those that were opened first, until they are taken.
struct Stream(Mutex<Option<Candidate>>);

/// Opens a foreign file of any format; `-` is standard input.
///
/// # Errors
/// [`Unrecognized`](Error::Unrecognized) says what the file looks like instead; others are those of its
/// format. A trace is not a foreign file.
pub fn open(path: &Path, props: &OpenProps) -> Result<Foreign> {
    let candidate = if path == Path::new("-") {
        Candidate::of(Box::new(io::stdin()), path)?
    } else {
        Candidate::at(path)?
    };
    Foreign::of(candidate, props)
}

/// Opens bytes in any format; messages call them `path`.
///
/// # Errors
/// As those of [`open`].
pub fn open_input(input: Box<dyn Read + Send>, path: &Path, props: &OpenProps) -> Result<Foreign> {
    Foreign::of(Candidate::of(input, path)?, props)
}

impl Foreign {
    fn of(candidate: Candidate, props: &OpenProps) -> Result<Self> {
        let known = candidate.recognize()?;
        let (path, is_file) = (candidate.path.clone(), candidate.is_file);
        let (content, can_rewind) = match known.opener {
            Opener::Events(open) => (Content::Events(Stream::of(candidate), open), is_file),
            Opener::Rows(open) => (Content::Rows(Stream::of(candidate), open), is_file),
            Opener::Whole(parse) => {
                let cut_off = candidate.cut_off.clone();
                (Content::Parsed(parse(candidate, props)?, cut_off), true)
            }
            Opener::Trace => {
                let reason = "it is a trace, not a foreign file".to_owned();
                return Err(Error::Unrecognized { path, reason });
            }
        };
        Ok(Self { path, known, props: props.clone(), can_rewind, content })
    }

    /// Path as the user named it; `-` for standard input.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Format that was recognized.
    pub fn format(&self) -> Format {
        self.known.format
    }

    /// Whether the format has allocations and frees.
    pub fn has_events(&self) -> bool {
        !matches!(self.content, Content::Rows(..))
    }

    /// Whether the format has samples, scopes, output or messages.
    pub fn has_rows(&self) -> bool {
        !matches!(self.content, Content::Events(..))
    }

    /// Whether it can be read more than once.
    pub fn can_rewind(&self) -> bool {
        self.can_rewind
    }

    /// Starts to yield events.
    ///
    /// # Errors
    /// [`WrongContent`](Error::WrongContent) if the format has none, [`ReadOnce`](Error::ReadOnce) if it is
    /// a pipe that was read already, and what is wrong with the file.
    pub fn events(&self) -> Result<Box<dyn Source>> {
        match &self.content {
            Content::Events(stream, open) => {
                let candidate = stream.take(self)?;
                let cut_off = candidate.cut_off.clone();
                Ok(CutEvents::over(open(candidate, &self.props)?, cut_off))
            }
            Content::Parsed(parsed, cut_off) => Ok(CutEvents::over(parsed.events()?, cut_off.clone())),
            Content::Rows(..) => Err(self.wrong_content("samples but no allocations")),
        }
    }

    /// Starts to yield samples, scopes, output and messages.
    ///
    /// # Errors
    /// As those of [`events`](Self::events).
    pub fn rows(&self) -> Result<Box<dyn RowSource>> {
        match &self.content {
            Content::Rows(stream, open) => {
                let candidate = stream.take(self)?;
                let cut_off = candidate.cut_off.clone();
                Ok(CutRows::over(open(candidate, &self.props)?, cut_off))
            }
            Content::Parsed(parsed, cut_off) => Ok(CutRows::over(parsed.rows()?, cut_off.clone())),
            Content::Events(..) => Err(self.wrong_content("allocations but no samples")),
        }
    }

    fn wrong_content(&self, content: &'static str) -> Error {
        Error::WrongContent { path: self.path.clone(), format: self.known.name, content }
    }
}

impl Stream {
    fn of(candidate: Candidate) -> Self {
        Self(Mutex::new(Some(candidate)))
    }

    fn take(&self, file: &Foreign) -> Result<Candidate> {
        let first = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match first {
            Some(candidate) => Ok(candidate),
            None if file.can_rewind => Candidate::at(&file.path),
            None => Err(Error::ReadOnce { path: file.path.clone() }),
        }
    }
}

/// Opens a log of RMM.
pub(crate) fn open_rmm_csv(candidate: Candidate, props: &OpenProps) -> Result<Box<dyn Source>> {
    let OpenProps { mode, date, device, process, .. } = *props;
    let props = rmm::ReadProps { mode, date, device, process };
    // Only files: a pipe's lines are handed on as they come. The length of a compressed file is not known.
    let is_large = candidate.is_file && candidate.total_bytes.is_none_or(|bytes| bytes >= PARALLEL_BYTES);
    let (path, total_bytes, input) = candidate.into_parts();
    if !is_large {
        let reader = rmm::Reader::open(input, &path, &props)?;
        return Ok(Box::new(reader.with_total_bytes(total_bytes)));
    }
    // One core folds, which takes about as long as parsing: on two cores a second thread that parses would only keep it
    // waiting (0.73 instead of 0.60 s for 20 million rows).
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let parallel = rmm::ParallelProps::with_threads((cores - 1).clamp(1, PARALLEL_THREADS));
    let reader = rmm::ParallelReader::open(input, &path, &props, &parallel)?;
    Ok(Box::new(reader.with_total_bytes(total_bytes)))
}

/// Length from which on a log is read on several cores.
const PARALLEL_BYTES: u64 = 4 << 20;

/// More threads than this would wait for the one that folds.
const PARALLEL_THREADS: usize = 4;

/// Opens a log of `memory_logger`.
pub(crate) fn open_memory_logger(candidate: Candidate, props: &OpenProps) -> Box<dyn RowSource> {
    let (path, total_bytes, input) = candidate.into_parts();
    Box::new(memory_logger::reader(input, &path, props).with_total_bytes(total_bytes))
}

/// Opens output of `nvidia-smi`.
pub(crate) fn open_smi(candidate: Candidate, props: &OpenProps) -> Box<dyn RowSource> {
    let (path, total_bytes, input) = candidate.into_parts();
    Box::new(smi::reader(input, &path, props).with_total_bytes(total_bytes))
}

/// Opens a file of `mprof`; its functions come last and are read beforehand where it is a file.
pub(crate) fn open_mprof(candidate: Candidate, props: &OpenProps) -> Result<Box<dyn RowSource>> {
    let (path, total_bytes, input) = candidate.into_parts();
    let reader = if total_bytes.is_some() {
        mprof::file_reader(input, &path, props)?
    } else {
        mprof::reader(input, &path, props)
    };
    Ok(Box::new(reader.with_total_bytes(total_bytes)))
}

/// Opens a log of `pymemtrace`.
pub(crate) fn open_pymemtrace(candidate: Candidate, props: &OpenProps) -> Box<dyn RowSource> {
    let (path, total_bytes, input) = candidate.into_parts();
    Box::new(pymemtrace::reader(input, &path, props).with_total_bytes(total_bytes))
}

/// Opens a log of `psrecord`.
pub(crate) fn open_psrecord(candidate: Candidate, props: &OpenProps) -> Box<dyn RowSource> {
    let (path, total_bytes, input) = candidate.into_parts();
    Box::new(psrecord::reader(input, &path, props).with_total_bytes(total_bytes))
}
