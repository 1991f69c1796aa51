//! `floodmark read`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use floodmark_convert::Format;
use floodmark_event::Metric;
use floodmark_event::units::parse_bytes;
use floodmark_inspect::plot::Show;
use floodmark_inspect::{Filter, Input, OpenProps};
use floodmark_view::samples::Separate;

use crate::args::{FilterArgs, ReadingArgs, metrics};
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::reading::calls::{CallProps, read_calls};
use crate::reading::events::{EventForm, EventProps, follow_events, read_events};
use crate::reading::{LayoutName, SampleForm, SampleProps, ZoneArgs, read_samples};

/// Print events, or memory over time
///
/// Prints a line per sweep for inputs with samples, as 'floodmark run' records them, and every event of
/// others. Any filter other than --from/--to, or --events, switches to printing events. Each event is
/// selected by its own values: --thread shows what a thread allocated and what it freed.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that can be typed")]
pub(crate) struct ReadArgs {
    /// Trace or log to read; '-' is standard input
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Follow the trace or log while it grows; a trace ends with its recording
    #[arg(long, help_heading = "Output")]
    follow: bool,
    /// Events or lines to print at most
    #[arg(long, value_name = "N", help_heading = "Output")]
    limit: Option<usize>,
    /// Print CSV
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    csv: bool,
    /// Print a JSON line for every event or row
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Print events even if there are samples
    #[arg(long, help_heading = "Output")]
    events: bool,
    /// Print samples, scopes and messages even if there are events
    #[arg(long, conflicts_with = "events", help_heading = "Output")]
    samples: bool,
    /// Print calls of functions, in the layout of pymemtrace
    #[arg(long, conflicts_with_all = ["events", "samples", "csv", "follow"], help_heading = "Output")]
    calls: bool,
    /// With --calls, print only events at which resident memory changed by so much, and the one before each
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "0", requires = "calls", hide_default_value = true, help_heading = "Output")]
    d_rss_trigger: u64,
    /// With --calls, write a log for each thread into this folder, named like those of pymemtrace
    #[arg(short, long, value_name = "FOLDER", requires = "calls", conflicts_with_all = ["json", "limit"], help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace logs that exist
    #[arg(long, requires = "output", help_heading = "Output")]
    force: bool,
    /// Lay lines of memory out like this
    #[arg(
        long,
        value_enum,
        help = "Lay lines of memory out like this [default: original for logs of memory_logger, else compact]",
        value_name = "LAYOUT",
        help_heading = "Memory over time"
    )]
    layout: Option<LayoutName>,
    /// Show every host, device or process with its memory
    #[arg(long, help_heading = "Memory over time")]
    separate: bool,
    /// Print the command's output too
    #[arg(long, help_heading = "Memory over time")]
    stdout: bool,
    /// Print stack samples too
    #[arg(long, alias = "pstack", help_heading = "Memory over time")]
    stacks: bool,
    /// Metric to print instead of the usual one
    #[arg(long, value_name = "METRIC", value_parser = metrics(), hide_possible_values = true, help_heading = "Memory over time")]
    metric: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    reading: ReadingArgs,
    #[command(flatten)]
    zone: ZoneArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark read memory_log.dev0.csv --limit 20
  floodmark read run.flood --thread 23340 --from +1s --to +1.1s
  floodmark read run.flood --follow --stdout
  floodmark read job_memory.log --separate --stdout --stacks
  floodmark read run.flood --calls --d-rss-trigger 4KiB
  floodmark read run.flood --calls -o logs/       One log for each thread, as pymemtrace writes them
  floodmark read run.flood --json | jq 'select(.action == \"failure\")'";

impl ReadArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let open = OpenProps { utc_offset_s: self.zone.utc_offset, ..self.reading.props() };
        let filter = self.filter.props();
        let by_time = Filter { from_ns: filter.from_ns, to_ns: filter.to_ns, ..Filter::default() };
        let selects_events = self.events || filter != by_time;
        let input = Input::open(&self.input, &open)?;
        let only_calls = !input.contents().has_events && input.format_name() == Format::Pymemtrace.name();
        if self.calls || (only_calls && !selects_events && !self.samples) {
            read_calls(&input, &self.call_props(), printer)?;
            return Ok(ExitStatus::Success);
        }
        let contents = input.contents();
        let is_trace = floodmark_store::is_trace(&self.input);
        if selects_events && !contents.has_events && !is_trace {
            return Err(hinted(
                format!("{} contains samples but no events", input.name()),
                "leave out --events and filters other than --from and --to",
            ));
        }
        let shows_samples = !selects_events
            && ((self.samples && (contents.has_rows || is_trace)) || input.is_about_samples()?);
        if shows_samples {
            read_samples(&input, &open, &self.sample_props(), printer)?;
        } else if !self.follow {
            read_events(&input, &self.event_props(), printer)?;
        } else if is_trace {
            follow_events(&self.input, &self.event_props(), printer)?;
        } else {
            return Err(hinted("--follow needs a trace", "leave it out, or import the log first"));
        }
        Ok(ExitStatus::Success)
    }

    fn event_props(&self) -> EventProps {
        let form = match (self.csv, self.json) {
            (true, _) => EventForm::Csv,
            (_, true) => EventForm::Json,
            _ => EventForm::Table,
        };
        EventProps { form, filter: self.filter.props(), limit: self.limit }
    }

    fn call_props(&self) -> CallProps {
        let filter = self.filter.props();
        let folder = self.output.clone().map(|folder| (folder, self.force));
        CallProps { filter, limit: self.limit, is_json: self.json, trigger_bytes: self.d_rss_trigger, folder }
    }

    fn sample_props(&self) -> SampleProps {
        let Filter { from_ns: from, to_ns: to, .. } = self.filter.props();
        let form = match (self.csv, self.json) {
            (true, _) => SampleForm::Csv,
            (_, true) => SampleForm::Json,
            _ => SampleForm::Text(self.layout),
        };
        SampleProps {
            form,
            separate: if self.separate { Separate::Yes } else { Separate::No },
            output: Show::from(self.stdout),
            stacks: Show::from(self.stacks),
            metric: self.metric.as_deref().and_then(Metric::from_name),
            limit: self.limit,
            from,
            to,
            follow: Show::from(self.follow),
        }
    }
}
