//! `floodmark usage`

use std::io::{BufWriter, Write as _};

use anyhow::{Context as _, Result};
use clap::Args;
use floodmark_analyze::{UsageFold, UsageMode, UsageStream};
use floodmark_convert::OpenProps;
use floodmark_view::usage::{CSV_HEADER, csv, csv_line, kinds_text};

use crate::args::{InputArgs, JsonArgs};
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::pass::{Columns, analyze, fold_over, open, refuse_samples};
use crate::printer::Printer;

/// Show live bytes over time, as a chart or as data
///
/// Data is reduced to a number of points that keep every interval's maximum and minimum and the peak
/// exactly, unless every change is asked for.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UsageArgs {
    /// Print a table with the columns `time_ns`, `kind` and `live_bytes`
    #[arg(
        long,
        help = "Print a table with the columns time_ns, kind and live_bytes",
        conflicts_with = "json",
        help_heading = "What to show"
    )]
    csv: bool,
    /// Reduce to at most so many points
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(16..), help_heading = "What to show")]
    points: u32,
    /// Keep every change of live bytes
    #[arg(long, conflicts_with = "points", help_heading = "What to show")]
    exact: bool,
    #[command(flatten)]
    output: JsonArgs,
    #[command(flatten)]
    input: InputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark usage memory_log.dev0.csv
  floodmark usage memory_log.dev0.csv --from +10s --to +12s
  floodmark usage run.flood --csv --points 500 > usage.csv
  floodmark usage run.flood --json --exact";

impl UsageArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        if self.csv {
            return self.table(printer);
        }
        let mode = if self.exact { UsageMode::Exact } else { UsageMode::Reduced(self.points as usize) };
        let reports = analyze(&self.input, Columns::Figures, printer, || UsageFold::new(mode))?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }

    fn table(&self, printer: &Printer) -> Result<ExitStatus> {
        if self.input.inputs.len() > 1 {
            return Err(hinted("--csv takes one input", "run the command once for each, or use --json"));
        }
        if self.exact {
            return self.every_change(printer);
        }
        let reports = analyze(&self.input, Columns::Figures, printer, || {
            UsageFold::new(UsageMode::Reduced(self.points as usize))
        })?;
        reports.iter().try_for_each(|report| printer.data(&csv(&report.result)))?;
        Ok(ExitStatus::Success)
    }

    /// Writes changes as they are read, however many.
    fn every_change(&self, printer: &Printer) -> Result<ExitStatus> {
        let narrow = self.input.narrow.props();
        let chosen = kinds_text(narrow.kinds.as_deref().unwrap_or(&[]));
        let mut out = BufWriter::new(std::io::stdout().lock());
        let mut written = out.write_all(CSV_HEADER.as_bytes());
        let sink = |kind, point| {
            if written.is_ok() {
                written = out.write_all(csv_line(kind, &chosen, point).as_bytes());
            }
        };
        let path = &self.input.inputs[0];
        let props = OpenProps {
            scan: Columns::Figures.props(&self.input.narrow.props()),
            ..self.input.reading.props()
        };
        let mut source = open(path, &props)?;
        let fold = UsageStream::new(&narrow, sink);
        let (report, mut pass) =
            fold_over(source.as_mut(), &path.display().to_string(), &narrow, fold, printer)?;
        if report.caveats.events_read == 0 {
            refuse_samples(path)?;
        }
        pass.fold_mut().0.flush();
        drop(pass);
        written.and_then(|()| out.flush()).context("writing to standard output")?;
        Ok(ExitStatus::Success)
    }
}
