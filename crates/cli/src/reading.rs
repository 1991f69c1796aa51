//! Shows samples, output, stacks and scopes of a trace or a log, line by line.
//!
//! Anything that holds samples is looked through first for its highest total, unless it can be read only
//! once or still grows; then bars are drawn to the highest so far.

pub(crate) mod events;
mod lines;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use floodmark_convert::levels::{Extent, Survey};
use floodmark_convert::{OpenProps, Opened, open_input, open_samples};
use floodmark_event::Row;
use floodmark_event::units::Instant;
use floodmark_event::{Metric, SubjectKind};
use floodmark_store::{RowSource, follow_rows};
use floodmark_store::{Table, Trace, is_trace};
use floodmark_view::samples::Separate;

use self::lines::Lines;
use crate::error::hinted;
use crate::importing::file_bytes;
use crate::pass::losses;
use crate::printer::Printer;

/// How to take times that carry no zone.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Reading")]
pub(crate) struct ZoneArgs {
    /// Take times that carry no zone, such as those of nvidia-smi, as so far ahead of UTC
    #[arg(long, value_name = "+HH:MM", value_parser = parse_offset, default_value = "+00:00", allow_hyphen_values = true)]
    pub(crate) utc_offset: i32,
}

fn parse_offset(text: &str) -> Result<i32, String> {
    let bad = || "write an offset such as +02:00 or -05:30".to_owned();
    let (sign, clock) = match text.split_at_checked(1).ok_or_else(bad)? {
        ("+", clock) => (1, clock),
        ("-", clock) => (-1, clock),
        _ => return Err(bad()),
    };
    let (hours, minutes) = clock.split_once(':').unwrap_or((clock, "0"));
    let number =
        |text: &str, most: i32| text.parse::<u8>().ok().map(i32::from).filter(|number| *number <= most);
    let (hours, minutes) = number(hours, 15).zip(number(minutes, 59)).ok_or_else(bad)?;
    Ok(sign * (hours * 3600 + minutes * 60))
}

/// How lines of memory look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutName {
    /// As `memory_logger --read` prints them.
    #[value(help = "As memory_logger --read prints them")]
    Original,
    /// Seconds since the start, sizes with units, marks
    Compact,
}

/// What else to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Leave it out.
    No,
    /// Show it.
    Yes,
}

impl From<bool> for Show {
    fn from(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

/// Form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleForm {
    /// For people; the layout is that of the tool the samples come from, unless it is named.
    Text(Option<LayoutName>),
    /// Samples as CSV.
    Csv,
    /// All rows as lines of JSON.
    Json,
}

/// What to show and how.
#[derive(Clone, Debug)]
pub(crate) struct SampleProps {
    pub(crate) form: SampleForm,
    /// Name who reported.
    pub(crate) separate: Separate,
    pub(crate) output: Show,
    pub(crate) stacks: Show,
    /// Which samples to add up; the usual ones if none.
    pub(crate) metric: Option<Metric>,
    pub(crate) limit: Option<usize>,
    pub(crate) from: Option<Instant>,
    pub(crate) to: Option<Instant>,
    /// Go on while it grows.
    pub(crate) follow: Show,
}

/// Shows what the trace or log at `path` holds of samples. What can be read only once must have been
/// opened.
pub(crate) fn read_samples(
    path: &Path,
    opened: Option<Box<dyn RowSource>>,
    open: &OpenProps,
    props: &SampleProps,
    printer: &Printer,
) -> Result<()> {
    let is_file = is_trace(path) || file_bytes(path).is_some();
    if props.follow == Show::Yes && is_file {
        let mut source =
            if is_trace(path) { follow_rows(path, &open.scan)? } else { follow_log(path, open)? };
        return show(source.as_mut(), path, None, props, printer);
    }
    let needs_survey = is_file && matches!(props.form, SampleForm::Text(_));
    let extent = if needs_survey { survey(path, open, props.metric)? } else { None };
    let mut source = opened.map_or_else(|| open_samples(path, open), Ok)?;
    show(source.as_mut(), path, extent, props, printer)
}

/// Whether samples are what there is to show of a trace.
pub(crate) fn is_of_samples(path: &Path) -> Result<bool> {
    let trace = Trace::open(path)?;
    Ok(is_watched(&trace)? || (trace.manifest().rows_of(Table::Event) == 0 && !trace.subjects()?.is_empty()))
}

/// Whether somebody watched what a trace is about. Devices and pools stand beside events too.
pub(crate) fn is_watched(trace: &Trace) -> Result<bool> {
    let is_beside = |kind| matches!(kind, SubjectKind::Device | SubjectKind::Pool);
    Ok(trace.subjects()?.values().any(|subject| !is_beside(subject.kind)))
}

/// Looks through everything.
fn survey(path: &Path, open: &OpenProps, metric: Option<Metric>) -> Result<Option<Extent>> {
    let mut source = open_samples(path, open)?;
    let (mut survey, mut rows) = (Survey::default(), Vec::new());
    // What is wrong is told when it is shown.
    while let Ok(true) = source.next(&mut rows) {
        for row in &rows {
            if let Row::Sample(row) = row {
                survey.add(row, source.tables());
            }
        }
    }
    let extent = survey.finish(metric);
    match (metric, extent) {
        (Some(metric), None) => Err(hinted(
            format!("{} has no samples of {}", path.display(), metric.name()),
            "leave --metric out to see what it has",
        )),
        _ => Ok(extent),
    }
}

fn show(
    source: &mut dyn RowSource,
    path: &Path,
    extent: Option<Extent>,
    props: &SampleProps,
    printer: &Printer,
) -> Result<()> {
    let mut lines = Lines::new(path, extent, props, printer)?;
    printer.data(&lines.begin())?;
    let mut rows = Vec::new();
    while source.next(&mut rows)? {
        let end = rows.iter().try_for_each(|row| lines.row(row, source.tables()));
        printer.data(&lines.take())?;
        if end.is_break() {
            break;
        }
    }
    lines.end(source.tables());
    printer.data(&lines.take())?;
    printer.lost(&losses(&source.losses()));
    Ok(())
}

/// Follows a log that somebody still writes.
fn follow_log(path: &Path, open: &OpenProps) -> Result<Box<dyn RowSource>> {
    let file = File::open(path).map_err(floodmark_store::Error::io("opening", path))?;
    match open_input(Box::new(Growing(file)), path, open)? {
        Opened::Samples(source) | Opened::Both(_, source) => Ok(source),
        Opened::Events(_) => Err(hinted("--follow needs a trace", "leave it out, or import the log first")),
    }
}

/// A file that has no end.
struct Growing(File);

impl Read for Growing {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.0.read(room)?;
            if count > 0 || room.is_empty() {
                return Ok(count);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
