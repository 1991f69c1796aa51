//! Opens anything that can be recognized as a source of events.

use std::io;
use std::path::Path;

use floodmark_event::ProcessId;
use floodmark_event::units::Date;
use floodmark_store::{Result, ScanProps, Source, Trace};

use crate::recognize::Candidate;
use crate::{Mode, rmm};

/// How to read a file, whatever its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenProps {
    /// What to do about a part that cannot be read.
    pub mode: Mode,
    /// Day of the first event in formats that carry no date.
    pub date: Option<Date>,
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
            device: None,
            process: ProcessId(1),
            scan: ScanProps::default(),
        }
    }
}

/// Opens a trace or a file of any known format; `-` is standard input, which cannot be a trace.
///
/// # Errors
/// [`Unrecognized`](floodmark_store::Error::Unrecognized) says what the file looks like instead; others are those of its format.
pub fn open(path: &Path, props: &OpenProps) -> Result<Box<dyn Source>> {
    let candidate = if path == Path::new("-") {
        Candidate::of(Box::new(io::stdin()), path)?
    } else {
        Candidate::at(path)?
    };
    let known = candidate.recognize()?;
    (known.open)(candidate, props)
}

/// Opens a trace directory.
#[expect(clippy::needless_pass_by_value, reason = "the table of formats has one signature for all")]
pub(crate) fn open_trace(candidate: Candidate, props: &OpenProps) -> Result<Box<dyn Source>> {
    Ok(Box::new(Trace::open(candidate.path)?.scan(&props.scan)?))
}

/// Opens a log of RMM.
pub(crate) fn open_rmm_csv(candidate: Candidate, props: &OpenProps) -> Result<Box<dyn Source>> {
    let OpenProps { mode, date, device, process, .. } = *props;
    let (path, total_bytes) = (candidate.path, candidate.total_bytes);
    let props = rmm::ReadProps { mode, date, device, process };
    let reader = rmm::Reader::open(candidate.into_input(), path, &props)?;
    Ok(Box::new(reader.with_total_bytes(total_bytes)))
}
