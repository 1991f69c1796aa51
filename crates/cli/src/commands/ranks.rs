//! `floodmark ranks`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use floodmark_inspect::{Input, OpenProps};

use crate::args::OutputArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Compare the ranks and nodes of an MPI job
///
/// Shows which rank peaks, when, and how far from the others; quantiles and outliers of the peaks; the memory of each
/// node with shared memory counted once; and what the highest rank wrote and ran at its peak.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RanksArgs {
    /// Traces of jobs, each on its own
    #[arg(required = true, value_name = "TRACE", help_heading = None)]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark ranks job.flood
  floodmark ranks job.flood --limit 0 --json        Every rank, for programs
  floodmark plot job.flood --ranks -o ranks.svg     The same over time, as a picture";

impl RanksArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let open = OpenProps::default();
        let ask = |path: &PathBuf| Ok(Input::open(path, &open)?.ranks(self.output.limit())?);
        let reports = self.traces.iter().map(ask).collect::<Result<Vec<_>>>()?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
