//! Shows samples, output, stacks and scopes of a trace or a log, line by line.
//!
//! Anything that holds samples is looked through first for its highest total, unless it can be read only
//! once or still grows; then bars are drawn to the highest so far.

pub(crate) mod calls;
pub(crate) mod events;
mod lines;

use anyhow::Result;
use clap::{Args, ValueEnum};
use floodmark_analyze::{SampleState, SeriesKey};
use floodmark_event::units::Instant;
use floodmark_event::{Metric, Row, SubjectKind, Tables};
use floodmark_inspect::input::follow_rows;
use floodmark_inspect::launchers::WithoutLaunchers;
use floodmark_inspect::plot::Show;
use floodmark_inspect::{Input, OpenProps};
use floodmark_store::{RowSource, ScanProps};
use floodmark_view::samples::Separate;

use self::lines::Lines;
use crate::error::hinted;
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

/// Shows the samples of an input, or of what is still being written.
pub(crate) fn read_samples(
    input: &Input,
    open: &OpenProps,
    props: &SampleProps,
    printer: &Printer,
) -> Result<()> {
    let can_rewind = input.contents().can_rewind;
    if props.follow == Show::Yes && can_rewind {
        let mut source = follow_rows(input.path(), open)?;
        return show(source.as_mut(), input, None, props, printer);
    }
    let needs_survey = can_rewind && matches!(props.form, SampleForm::Text(_));
    let extent = if needs_survey { survey(input, props)? } else { None };
    show(rows(input, props)?.as_mut(), input, extent, props, printer)
}

/// Rows to show. Totals in the script's layout are what the script would have counted.
fn rows(input: &Input, props: &SampleProps) -> Result<Box<dyn RowSource>> {
    let rows = input.rows(&ScanProps::default())?;
    let is_original = props.form == SampleForm::Text(Some(LayoutName::Original));
    Ok(if is_original { Box::new(WithoutLaunchers::new(rows)) } else { rows })
}

/// What there is to show of samples.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Sum that is shown.
    key: SeriesKey,
    /// Its highest value.
    highest: u64,
    /// Subjects that report: hosts of a job, else those added up.
    reporters: usize,
}

impl Extent {
    fn new(samples: &SampleState, metric: Option<Metric>) -> Option<Self> {
        let any = || samples.keys().next().filter(|_| metric.is_none());
        let key = samples.main_key(metric).or_else(any)?;
        let hosts = SeriesKey { kind: SubjectKind::Host, ..key };
        let is_of_hosts = key.kind == SubjectKind::Job && samples.reporters(hosts) > 0;
        Some(Self {
            key,
            highest: samples.peak(key).map_or(0, |peak| peak.live_bytes),
            reporters: samples.reporters(if is_of_hosts { hosts } else { key }),
        })
    }
}

/// Reads everything for the highest value, which bars are drawn to.
fn survey(input: &Input, props: &SampleProps) -> Result<Option<Extent>> {
    let mut source = rows(input, props)?;
    let mut samples = SampleState::new(&Tables::default().subjects);
    let (mut rows, mut known) = (Vec::new(), 0);
    // Errors are reported when rows are shown.
    while let Ok(true) = source.next(&mut rows) {
        let subjects = &source.tables().subjects;
        if known != subjects.len() {
            known = subjects.len();
            samples.learn(subjects);
        }
        for row in &rows {
            if let Row::Sample(row) = row {
                samples.push(row, &mut ());
            }
        }
    }
    samples.finish(&mut ());
    let extent = Extent::new(&samples, props.metric);
    match (props.metric, extent) {
        (Some(metric), None) => Err(hinted(
            format!("{} contains no samples of {}", input.name(), metric.name()),
            "leave --metric out to see what it contains",
        )),
        _ => Ok(extent),
    }
}

fn show(
    source: &mut dyn RowSource,
    input: &Input,
    extent: Option<Extent>,
    props: &SampleProps,
    printer: &Printer,
) -> Result<()> {
    let mut lines = Lines::new(input, extent, props, printer)?;
    let write = |text: &str| match props.form {
        SampleForm::Text(_) => printer.text(text),
        SampleForm::Csv | SampleForm::Json => printer.data(text),
    };
    write(&lines.begin())?;
    let mut rows = Vec::new();
    while source.next(&mut rows)? {
        lines.learn(source.tables());
        let end = rows.iter().try_for_each(|row| lines.row(row, source.tables()));
        write(&lines.take())?;
        if end.is_break() {
            break;
        }
    }
    lines.end(source.tables());
    write(&lines.take())?;
    printer.lost(&source.losses().gaps);
    Ok(())
}
