//! `floodmark read`

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use floodmark_event::{EventBatch, Tables};
use floodmark_store::{Follow, ScanProps, Step, is_trace};
use floodmark_view::{EventCsv, EventJson, EventTable};

use crate::args::{NarrowArgs, ReadingArgs};
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::pass::{each_batch, losses, open};
use crate::printer::Printer;
use crate::select::Select;

/// Print single events
///
/// Every event is selected by what it carries itself: --thread shows what a thread allocated and what
/// it freed.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReadArgs {
    /// Trace or log to read; '-' is standard input
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Go on while the trace grows, until its recording ends
    #[arg(long, help_heading = "Output")]
    follow: bool,
    /// Print at most so many events
    #[arg(long, value_name = "N", help_heading = "Output")]
    limit: Option<usize>,
    /// Print CSV
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    csv: bool,
    /// Print a line of JSON for every event
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    narrow: NarrowArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark read memory_log.dev0.csv --limit 20
  floodmark read run.flood --thread 23340 --from +1s --to +1.1s
  floodmark read run.flood --follow
  floodmark read run.flood --json | jq 'select(.action == \"failure\")'";

/// How events are written.
enum Writer {
    Table(EventTable),
    Csv(EventCsv),
    Json(EventJson),
}

impl Writer {
    fn text(&mut self, batch: &EventBatch, tables: &Tables, printer: &Printer) -> String {
        match self {
            Self::Table(table) => table.text(batch, tables, &printer.layout(None)),
            Self::Csv(csv) => csv.text(batch, tables),
            Self::Json(json) => json.text(batch, tables),
        }
    }
}

impl ReadArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let mut writer = match (self.csv, self.json) {
            (true, _) => Writer::Csv(EventCsv::default()),
            (_, true) => Writer::Json(EventJson),
            _ => Writer::Table(EventTable::default()),
        };
        let mut select = Select::new(self.narrow.props(), self.limit);
        let mut print = |batch: &EventBatch, tables: &Tables| {
            select.pass_on(batch, |batch| Ok(printer.data(&writer.text(batch, tables, printer))?))
        };
        if self.follow {
            return self.follow(print, printer);
        }
        let mut source = open(&self.input, &self.reading.props())?;
        each_batch(source.as_mut(), &self.input.display().to_string(), printer, &mut print)?;
        printer.lost(&losses(&source.losses()));
        Ok(ExitStatus::Success)
    }

    fn follow(
        &self,
        mut print: impl FnMut(&EventBatch, &Tables) -> Result<ControlFlow<()>>,
        printer: &Printer,
    ) -> Result<ExitStatus> {
        if !is_trace(&self.input) {
            return Err(hinted("--follow needs a trace", "leave it out, or import the log first"));
        }
        let mut follow = Follow::open(&self.input, ScanProps::default())?;
        let mut batch = EventBatch::new();
        loop {
            match follow.next(&mut batch)? {
                Step::Waiting => std::thread::sleep(Follow::PAUSE),
                Step::Ended => break,
                Step::Events if print(&batch, follow.tables())?.is_break() => break,
                Step::Events => {}
            }
        }
        printer.lost(&losses(follow.losses()));
        Ok(ExitStatus::Success)
    }
}
