//! `floodmark export`

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use floodmark_convert::rmm::Dialect;
use floodmark_event::units::{Instant, format_bytes, format_count, parse_instant};
use floodmark_inspect::export::{
    CountingWriter, EveryEvent, ProfileFormat, write_arrow, write_chrome, write_memory_logger, write_profile,
};
use floodmark_inspect::pass::each_batch;
use floodmark_inspect::select::Select;
use floodmark_inspect::{Input, Loss, Query};
use floodmark_store::{ScanProps, Table};
use floodmark_view::plain;

use crate::args::{FilterArgs, ReadingArgs};
use crate::device_files::DeviceFiles;
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::exporting::{events, live_blocks, timeline};
use crate::flaming::Of;
use crate::printer::Printer;
use crate::progress::Bars;
use crate::whole_file::{Overwrite, fill, is_standard, refuse_existing, say_written};

/// Convert an input to a format of another tool
///
/// Logs of RMM have no column for the device: events of several devices become one file per device, named
/// as RMM names them: out.csv becomes out.dev0.csv and out.dev1.csv. All other formats are one file.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// Trace or log to export; '-' is standard input
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Write to this file; '-' is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Output format; overrides the file extension [default: rmm on standard output]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Include every event (chrome only)
    #[arg(long)]
    events: bool,
    /// Value of each folded stack [default: peak]
    #[arg(long, value_enum, value_name = "WHAT")]
    of: Option<Of>,
    /// Instant to export instead of the peak (speedscope, pprof, folded, csv-blocks)
    #[arg(long, value_name = "TIME", value_parser = parse_instant, allow_hyphen_values = true)]
    at: Option<Instant>,
    /// Table to export: event, sample, scope, stack ... (arrow only) [default: event]
    #[arg(long, value_name = "NAME", value_parser = |name: &str| Table::from_name(name).ok_or(NO_TABLE))]
    table: Option<Table>,
    /// Replace files that exist already
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

const NO_TABLE: &str = "FORMAT.md lists the tables: event, sample, scope, stack, frame, string ...";
const EXAMPLES: &str = "\
Examples:
  floodmark export run.flood -o memory_log.csv
  floodmark export run.flood -o - --format rmm-epoch --device 0 | head
  floodmark export old_log.csv -o new_log.csv        Bring an old log into today's form
  floodmark export run.flood -o run.json             For Perfetto
  floodmark export run.flood -o peak.pb.gz --at +12s For pprof
  floodmark export run.flood -o - --format folded --of allocated | flamegraph.pl > churn.svg";

/// A format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// As RMM writes it: time of day, allocate and free
    Rmm,
    /// As RMM's documents describe it: seconds since 1970, allocate and deallocate
    RmmEpoch,
    /// Chrome's trace events, for Perfetto: memory as counters, scopes, marks
    Chrome,
    /// For speedscope: stacks at the peak, at the end and of all allocations
    Speedscope,
    /// For pprof: stacks with what is in use at the peak and what was allocated
    Pprof,
    /// Lines 'a;b;c bytes', for flamegraph.pl and others
    Folded,
    /// A log of MOOSE's memory logger: memory, output and stacks over time
    #[value(name = "memory_logger")]
    MemoryLogger,
    /// Every event
    CsvEvents,
    /// Live bytes over time, every change
    CsvTimeline,
    /// The blocks live at the peak
    CsvBlocks,
    /// A table of a trace as a stream of Arrow IPC, for pandas, Polars and others
    Arrow,
}

impl Format {
    /// Format that a file extension stands for.
    fn of_extension(output: &Path) -> Option<Self> {
        let name = output.file_name()?.to_str()?.to_lowercase();
        let formats = [
            (".csv", Self::Rmm),
            (".speedscope.json", Self::Speedscope),
            (".json", Self::Chrome),
            (".pb.gz", Self::Pprof),
            (".folded", Self::Folded),
            (".log", Self::MemoryLogger),
            (".arrows", Self::Arrow),
        ];
        formats.iter().find(|(extension, _)| name.ends_with(extension)).map(|(_, format)| *format)
    }
}

impl ExportArgs {
    fn format(&self) -> Result<Format> {
        let usual = || is_standard(&self.output).then_some(Format::Rmm);
        self.format.or_else(usual).or_else(|| Format::of_extension(&self.output)).ok_or_else(|| {
            hinted(
                format!("the extension of '{}' names no format", self.output.display()),
                "end it in .csv (rmm), .json (chrome), .speedscope.json, .pb.gz (pprof), .folded, .log \
                 (memory_logger) or .arrows, or add --format: rmm-epoch, csv-events, csv-timeline, csv-blocks",
            )
        })
    }

    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let format = self.format()?;
        self.refuse_what_does_not_fit(format)?;
        match format {
            Format::Rmm => return self.rmm(Dialect::Rmm, printer),
            Format::RmmEpoch => return self.rmm(Dialect::RmmEpoch, printer),
            _ => {}
        }
        let overwrite = Overwrite::forced(self.force);
        refuse_existing(&self.output, overwrite)?;
        let input = Input::open(&self.input, &self.reading.props())?;
        let bars = Bars::new(printer);
        let query = Query::new(self.filter.props(), &bars);
        let mut bytes = 0;
        let lost = fill(&self.output, overwrite, |out| {
            self.write(format, &input, &query, &mut CountingWriter::new(out, &mut bytes))
        })?;
        say_written(&self.output, &format_bytes(bytes), printer);
        printer.lost(&lost);
        Ok(ExitStatus::Success)
    }

    fn write(&self, format: Format, input: &Input, query: &Query, out: &mut dyn Write) -> Result<Vec<Loss>> {
        let profile = |format, out| write_profile(input, query, (format, self.at), out);
        Ok(match format {
            Format::Speedscope => profile(ProfileFormat::Speedscope, out)?,
            Format::Pprof => profile(ProfileFormat::Pprof, out)?,
            Format::Folded => profile(ProfileFormat::Folded(self.of.unwrap_or(Of::Peak).into()), out)?,
            Format::CsvEvents => {
                input.require_events()?;
                events(out, input, query)?
            }
            Format::MemoryLogger => write_memory_logger(input, query, out)?,
            Format::Arrow => write_arrow(input, query, self.table.unwrap_or(Table::Event), out)?,
            Format::CsvTimeline => timeline(out, input, query)?,
            Format::CsvBlocks => live_blocks(out, input, query, self.at)?,
            Format::Chrome | Format::Rmm | Format::RmmEpoch => {
                let every_event = if self.events { EveryEvent::Include } else { EveryEvent::Omit };
                write_chrome(input, query, every_event, out)?
            }
        })
    }

    fn refuse_what_does_not_fit(&self, format: Format) -> Result<()> {
        let is_of_instant =
            matches!(format, Format::Speedscope | Format::Pprof | Format::Folded | Format::CsvBlocks);
        let wrong = if self.events && format != Format::Chrome {
            Some(("--events", "chrome"))
        } else if self.of.is_some() && format != Format::Folded {
            Some(("--of", "folded"))
        } else if self.table.is_some() && format != Format::Arrow {
            Some(("--table", "arrow"))
        } else if self.at.is_some() && (!is_of_instant || self.of.is_some_and(|of| of != Of::Peak)) {
            Some(("--at", "speedscope, pprof, csv-blocks, and folded at the peak"))
        } else {
            None
        };
        wrong.map_or(Ok(()), |(option, formats)| {
            Err(hinted(format!("{option} is for {formats}"), "leave it out or choose another --format"))
        })
    }

    fn rmm(&self, dialect: Dialect, printer: &Printer) -> Result<ExitStatus> {
        let overwrite = Overwrite::forced(self.force);
        let input = Input::open(&self.input, &self.reading.props())?;
        input.require_events()?;
        let mut source = input.events(&ScanProps::default())?;
        let mut files = DeviceFiles::create(&self.output, dialect, overwrite)?;
        let mut select = Select::new(input.anchored(&self.filter.props())?, None).without_reserved();
        each_batch(source.as_mut(), input.name(), &Bars::new(printer), |batch, _| {
            select.pass_on(batch, |batch| files.write(batch))
        })?;
        let mut lost = source.losses();
        select.remark_on_reserved(&mut lost);
        for written in files.finish()? {
            lost.extend(&written.losses);
            if let Some(path) = written.path {
                let path = plain(&path.display().to_string()).into_owned();
                printer.say(&format!("wrote {} events to {path}", format_count(written.events)));
            }
        }
        printer.lost(&lost.gaps);
        Ok(ExitStatus::Success)
    }
}
