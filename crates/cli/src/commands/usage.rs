//! `floodmark usage`

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use floodmark_analyze::{Align, UsageMode};
use floodmark_inspect::overlay::{UsageBeside, UsageProps};
use floodmark_inspect::{Answer, Input, OpenProps, Query};
use floodmark_view::overlay;
use floodmark_view::usage::csv;

use crate::args::{InputArgs, JsonArgs};
use crate::ask::ask_each;
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::exporting::timeline;
use crate::printer::Printer;
use crate::progress::Bars;
use crate::reading::ZoneArgs;
use crate::whole_file::{Overwrite, fill};

/// Show live bytes over time, as a chart or as data
///
/// Data is reduced to a number of points that keep every interval's minimum and maximum and the exact
/// peak; --exact keeps every change.
///
/// With samples of the device, from an nvidia-smi log or the trace itself, shows what the device reported
/// beside what is tracked, and the residual: contexts, libraries, other processes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UsageArgs {
    /// Print a table with the columns `time_ns`, `kind` and `live_bytes`; with --smi, a row per sample
    #[arg(
        long,
        help = "Print a table with the columns time_ns, kind and live_bytes; with --smi, a row per sample",
        conflicts_with = "json",
        help_heading = "What to show"
    )]
    csv: bool,
    /// Points to reduce to
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(16..), help_heading = "What to show")]
    points: u32,
    /// Keep every change of live bytes
    #[arg(long, conflicts_with = "points", help_heading = "What to show")]
    exact: bool,
    /// Compare with this nvidia-smi log, in any of its forms
    #[arg(long, value_name = "FILE", conflicts_with = "exact", help_heading = "What the device says")]
    smi: Option<PathBuf>,
    /// Align samples and events by clock, or at their start
    #[arg(long, value_name = "HOW", default_value = "clock", value_parser = alignments(), help_heading = "What the device says")]
    align: String,
    #[command(flatten)]
    zone: ZoneArgs,
    #[command(flatten)]
    output: JsonArgs,
    #[command(flatten)]
    input: InputArgs,
}

/// Ways to align samples and events; `utc` is the former name of `clock`.
fn alignments() -> PossibleValuesParser {
    PossibleValuesParser::new([PossibleValue::new("clock").alias("utc"), PossibleValue::new("start")])
}

const EXAMPLES: &str = "\
Examples:
  floodmark usage memory_log.dev0.csv
  floodmark usage memory_log.dev0.csv --from +10s --to +12s
  floodmark usage run.flood --csv --points 500 > usage.csv
  floodmark usage run.flood --json --exact
  floodmark usage memory_log.dev0.csv --smi gpu.csv --align start";

impl UsageArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        if self.csv {
            return self.table(printer);
        }
        printer.reports(&self.reports(printer)?, self.output)?;
        Ok(ExitStatus::Success)
    }

    /// Asks every input, beside what devices reported.
    fn reports(&self, printer: &Printer) -> Result<Vec<Answer<UsageBeside>>> {
        let mode = if self.exact { UsageMode::Exact } else { UsageMode::Reduced(self.points as usize) };
        let zoned = OpenProps { utc_offset_s: self.zone.utc_offset, ..self.input.reading.props() };
        let log = self.smi.as_ref().map(|log| Input::open(log, &zoned)).transpose()?;
        let align = if self.align == Align::Start.name() { Align::Start } else { Align::Utc };
        let props = UsageProps { mode, device_log: log.as_ref(), align };
        ask_each(&self.input, printer, |input, query| input.usage(query, &props))
    }

    fn table(&self, printer: &Printer) -> Result<ExitStatus> {
        if self.input.inputs.len() > 1 {
            return Err(hinted("--csv takes one input", "run the command once for each, or use --json"));
        }
        if self.exact {
            return self.every_change(printer);
        }
        for Answer { result, losses, .. } in self.reports(printer)? {
            let text = match result.overlay.filter(|_| self.smi.is_some()) {
                Some(overlay) => overlay::csv(&overlay),
                None => csv(&result.usage),
            };
            printer.data(&text)?;
            printer.lost(&losses);
        }
        Ok(ExitStatus::Success)
    }

    /// Writes changes as they are read, however many.
    fn every_change(&self, printer: &Printer) -> Result<ExitStatus> {
        let bars = Bars::new(printer);
        let query = Query::new(self.input.filter.props(), &bars);
        let input = Input::open(&self.input.inputs[0], &self.input.reading.props())?;
        let lost = fill(Path::new("-"), Overwrite::Yes, |out| timeline(out, &input, &query))?;
        printer.lost(&lost);
        Ok(ExitStatus::Success)
    }
}
