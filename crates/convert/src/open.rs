//! Opens anything that can be recognized, as a source of events or of samples.

use std::io::{self, Read};
use std::path::Path;

use floodmark_event::ProcessId;
use floodmark_event::units::Date;
use floodmark_store::{Error, Result, ScanProps, Source, Trace};

use crate::recognize::{Candidate, Known};
use crate::{Mode, kineto, memory_logger, mprof, pprof, psrecord, rmm, smi, torch};
use floodmark_store::RowSource;

/// How to read a file, whatever its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenProps {
    /// What to do about a part that cannot be read.
    pub mode: Mode,
    /// Day of the first event in formats that carry no date.
    pub date: Option<Date>,
    /// How far the clock was ahead of UTC, in seconds, in formats that show local times.
    pub utc_offset_s: i32,
    /// Device of the events in formats that carry none.
    pub device: Option<i32>,
    /// Process of the events in formats that carry none.
    pub process: ProcessId,
    /// What to read of a trace; other formats are read whole.
    pub scan: ScanProps,
}

impl Default for OpenProps {
    fn default() -> Self {
        Self {
            mode: Mode::Strict,
            date: None,
            utc_offset_s: 0,
            device: None,
            process: ProcessId(1),
            scan: ScanProps::default(),
        }
    }
}

/// What a file holds.
pub enum Opened {
    /// Allocations and frees.
    Events(Box<dyn Source>),
    /// What was seen from outside.
    Samples(Box<dyn RowSource>),
    /// Allocations and frees, and what was seen beside them: scopes, levels, messages.
    Both(Box<dyn Source>, Box<dyn RowSource>),
}

/// The events of a file, and what was seen beside them.
pub type Halves = (Box<dyn Source>, Box<dyn RowSource>);

/// The events of a file, and what was seen beside them if there is anything.
pub type EventsAndRows = (Box<dyn Source>, Option<Box<dyn RowSource>>);

/// How a format is opened.
#[derive(Clone, Copy)]
pub(crate) enum Opener {
    Events(fn(Candidate, &OpenProps) -> Result<Box<dyn Source>>),
    Samples(fn(Candidate, &OpenProps) -> Result<Box<dyn RowSource>>),
    /// A format that holds both, whose halves are read apart.
    Both(fn(Candidate, &OpenProps) -> Result<Halves>),
    /// A trace can hold both; its events are opened unless its samples are asked for.
    Trace,
}

/// Opens a trace, or a file of any format that holds events; `-` is standard input, which cannot be a
/// trace.
///
/// # Errors
/// [`Unrecognized`](floodmark_store::Error::Unrecognized) says what the file looks like instead; others are those of its format.
pub fn open(path: &Path, props: &OpenProps) -> Result<Box<dyn Source>> {
    open_events_and_rows(path, props).map(|(source, _)| source)
}

/// As [`open`], with what a file other than a trace has beside its events.
///
/// # Errors
/// As those of [`open`].
pub fn open_events_and_rows(path: &Path, props: &OpenProps) -> Result<EventsAndRows> {
    let candidate = candidate(path)?;
    let known = candidate.recognize()?;
    match open_known(known, candidate, props)? {
        Opened::Events(source) => Ok((source, None)),
        Opened::Both(source, rows) => Ok((source, Some(rows))),
        Opened::Samples(_) => {
            Err(holds_other(path, known, "samples of memory and no single allocations; see 'floodmark read'"))
        }
    }
}

/// Opens a trace, or a file of any format that holds samples, as a source of what was seen from outside.
///
/// # Errors
/// As those of [`open`].
pub fn open_samples(path: &Path, props: &OpenProps) -> Result<Box<dyn RowSource>> {
    let candidate = candidate(path)?;
    let known = candidate.recognize()?;
    if matches!(known.opener, Opener::Trace) {
        return Trace::open(path)?.all_rows(&props.scan);
    }
    match open_known(known, candidate, props)? {
        Opened::Samples(source) | Opened::Both(_, source) => Ok(source),
        Opened::Events(_) => Err(holds_other(path, known, "single allocations and no samples of memory")),
    }
}

/// Opens a file as what it holds; of a trace, its events.
///
/// # Errors
/// As those of [`open`].
pub fn open_any(path: &Path, props: &OpenProps) -> Result<Opened> {
    let candidate = candidate(path)?;
    open_known(candidate.recognize()?, candidate, props)
}

/// Opens an input that is a file of any format; `path` is what messages call it.
///
/// # Errors
/// As those of [`open`].
pub fn open_input(input: Box<dyn Read + Send>, path: &Path, props: &OpenProps) -> Result<Opened> {
    let candidate = Candidate::of(input, path)?;
    open_known(candidate.recognize()?, candidate, props)
}

fn candidate(path: &Path) -> Result<Candidate<'_>> {
    if path == Path::new("-") { Candidate::of(Box::new(io::stdin()), path) } else { Candidate::at(path) }
}

fn open_known(known: &Known, candidate: Candidate, props: &OpenProps) -> Result<Opened> {
    match known.opener {
        Opener::Events(open) => open(candidate, props).map(Opened::Events),
        Opener::Samples(open) => open(candidate, props).map(Opened::Samples),
        Opener::Both(open) => open(candidate, props).map(|(events, samples)| Opened::Both(events, samples)),
        Opener::Trace => Ok(Opened::Events(Box::new(Trace::open(candidate.path)?.scan(&props.scan)?))),
    }
}

fn holds_other(path: &Path, known: &Known, what: &str) -> Error {
    let reason = format!("for this it should hold something else; it is a {} and holds {what}", known.name);
    Error::Unrecognized { path: path.to_owned(), reason }
}

/// Opens a log of RMM.
pub(crate) fn open_rmm_csv(candidate: Candidate, props: &OpenProps) -> Result<Box<dyn Source>> {
    let OpenProps { mode, date, device, process, .. } = *props;
    let (path, total_bytes) = (candidate.path, candidate.total_bytes);
    let props = rmm::ReadProps { mode, date, device, process };
    let reader = rmm::Reader::open(candidate.into_input(), path, &props)?;
    Ok(Box::new(reader.with_total_bytes(total_bytes)))
}

/// Opens a log of `memory_logger`.
pub(crate) fn open_memory_logger(candidate: Candidate, props: &OpenProps) -> Box<dyn RowSource> {
    let (path, total_bytes) = (candidate.path, candidate.total_bytes);
    let reader = memory_logger::reader(candidate.into_input(), path, props);
    Box::new(reader.with_total_bytes(total_bytes))
}

/// Opens what `nvidia-smi` printed.
pub(crate) fn open_smi(candidate: Candidate, props: &OpenProps) -> Box<dyn RowSource> {
    let (path, total_bytes) = (candidate.path, candidate.total_bytes);
    let reader = smi::reader(candidate.into_input(), path, props);
    Box::new(reader.with_total_bytes(total_bytes))
}

/// Opens a file of `mprof`, whose functions are read beforehand where it is a file.
pub(crate) fn open_mprof(candidate: Candidate, props: &OpenProps) -> Result<Box<dyn RowSource>> {
    let (path, total_bytes) = (candidate.path, candidate.total_bytes);
    let input = candidate.into_input();
    let reader = if total_bytes.is_some() {
        mprof::file_reader(input, path, props)?
    } else {
        mprof::reader(input, path, props)
    };
    Ok(Box::new(reader.with_total_bytes(total_bytes)))
}

/// Opens a log of `psrecord`.
pub(crate) fn open_psrecord(candidate: Candidate, props: &OpenProps) -> Box<dyn RowSource> {
    let (path, total_bytes) = (candidate.path, candidate.total_bytes);
    let reader = psrecord::reader(candidate.into_input(), path, props);
    Box::new(reader.with_total_bytes(total_bytes))
}

/// Opens a memory snapshot of `PyTorch`.
pub(crate) fn open_torch(candidate: Candidate, props: &OpenProps) -> Result<Halves> {
    let path = candidate.path;
    torch::open(candidate.into_input(), path, props)
}

/// Opens a trace of `PyTorch`'s profiler.
pub(crate) fn open_kineto(candidate: Candidate, props: &OpenProps) -> Result<Halves> {
    let path = candidate.path;
    kineto::open(candidate.into_input(), path, props)
}

/// Opens a memory profile in pprof's format.
pub(crate) fn open_pprof(candidate: Candidate, props: &OpenProps) -> Result<Halves> {
    let path = candidate.path;
    pprof::open(candidate.into_input(), path, props)
}
