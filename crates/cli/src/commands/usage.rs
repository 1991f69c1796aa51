//! `floodmark usage`

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use floodmark_analyze::{Align, OverlayFold, OverlayOptions, UsageFold, UsageMode};
use floodmark_convert::OpenProps;
use floodmark_view::usage::csv;
use floodmark_view::{Report, UsageBeside, overlay};

use crate::args::{InputArgs, JsonArgs};
use crate::device_samples::{of_log, of_trace, refuse_apart};
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::exporting::timeline;
use crate::pass::{Columns, analyze_with};
use crate::printer::Printer;
use crate::reading::ZoneArgs;
use crate::whole_file::{Overwrite, fill};

/// Show live bytes over time, as a chart or as data
///
/// Data is reduced to a number of points that keep every interval's maximum and minimum and the peak
/// exactly, unless every change is asked for.
///
/// With samples of the device, from a log of nvidia-smi or in the trace itself, shows what the device
/// said was in use beside what is tracked, and what is left over: contexts, libraries, other processes.
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
    /// Reduce to at most so many points
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(16..), help_heading = "What to show")]
    points: u32,
    /// Keep every change of live bytes
    #[arg(long, conflicts_with = "points", help_heading = "What to show")]
    exact: bool,
    /// Compare with what nvidia-smi wrote to this file, in any of its forms
    #[arg(long, value_name = "FILE", conflicts_with = "exact", help_heading = "What the device says")]
    smi: Option<PathBuf>,
    /// Bring samples and events together: by UTC, or as if both began together
    #[arg(long, value_name = "HOW", default_value = "utc", value_parser = ["utc", "start"], help_heading = "What the device says")]
    align: String,
    #[command(flatten)]
    zone: ZoneArgs,
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

    /// Folds every input, together with what devices said.
    fn reports(&self, printer: &Printer) -> Result<Vec<Report<UsageBeside>>> {
        let mode = if self.exact { UsageMode::Exact } else { UsageMode::Reduced(self.points as usize) };
        let reports = analyze_with(&self.input, Columns::Figures, printer, |path, props| {
            Ok((UsageFold::new(mode), self.beside(path, props)?))
        })?;
        let joined = |Report { source, losses, caveats, result: (usage, overlay) }| {
            let result = UsageBeside { usage, overlay };
            Report { source, losses, caveats, result }
        };
        let mut reports: Vec<Report<UsageBeside>> = reports.into_iter().map(joined).collect();
        for report in &mut reports {
            if let Some(overlay) = &report.result.overlay
                && self.smi.is_some()
            {
                refuse_apart(overlay)?;
            }
        }
        Ok(reports)
    }

    /// Starts to compare with what devices said, if they said anything.
    fn beside(&self, path: &Path, props: &OpenProps) -> Result<Option<OverlayFold>> {
        let zoned = OpenProps { utc_offset_s: self.zone.utc_offset, ..props.clone() };
        let samples = match &self.smi {
            Some(log) => of_log(log, &zoned)?,
            None => of_trace(path, props)?,
        };
        let align = if self.align == Align::Start.name() { Align::Start } else { Align::Utc };
        Ok((!samples.is_empty()).then(|| OverlayFold::new(OverlayOptions { samples, align })))
    }

    fn table(&self, printer: &Printer) -> Result<ExitStatus> {
        if self.input.inputs.len() > 1 {
            return Err(hinted("--csv takes one input", "run the command once for each, or use --json"));
        }
        if self.exact {
            return self.every_change(printer);
        }
        for Report { result, losses, .. } in self.reports(printer)? {
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
        let filter = self.input.filter.props();
        let props = OpenProps { scan: Columns::Figures.props(&filter), ..self.input.reading.props() };
        let lost = fill(Path::new("-"), Overwrite::Yes, |out| {
            timeline(out, &self.input.inputs[0], &props, &filter, printer)
        })?;
        printer.lost(&lost);
        Ok(ExitStatus::Success)
    }
}
