//! `floodmark ranks`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use floodmark_inspect::job::{Job, wire};
use floodmark_inspect::{Input, OpenProps};

use crate::args::OutputArgs;
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Compare the ranks and nodes of an MPI job
///
/// Shows which rank peaks, when, and how far from the others; quantiles and outliers of the peaks; the memory of each
/// node with shared memory counted once; and what the highest rank wrote and ran at its peak. Of a partial result, which
/// has no samples, it shows the same of processes and their live bytes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RanksArgs {
    /// Traces of jobs or partial results, each on its own
    #[arg(required = true, value_name = "TRACE", help_heading = None)]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark ranks job.flood
  floodmark ranks job.flood --limit 0 --json        Every rank, for programs
  floodmark ranks job.part                          Processes of a job that was read in parts
  floodmark plot job.flood --ranks -o ranks.svg     The same over time, as a picture";

impl RanksArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let (jobs, traces): (Vec<_>, Vec<_>) = self.traces.iter().partition(|path| wire::is_job(path));
        if !jobs.is_empty() {
            if !traces.is_empty() {
                return Err(hinted(
                    "partial results have processes and their live bytes, traces have ranks and their resident bytes",
                    "ask for traces and partial results in two commands",
                ));
            }
            let ask = |path: &PathBuf| Ok(Job::open(path)?.processes(self.output.limit())?);
            let reports = jobs.into_iter().map(ask).collect::<Result<Vec<_>>>()?;
            printer.reports(&reports, self.output)?;
            return Ok(ExitStatus::Success);
        }
        let open = OpenProps::default();
        let ask = |path: &PathBuf| Ok(Input::open(path, &open)?.ranks(self.output.limit())?);
        let reports = self.traces.iter().map(ask).collect::<Result<Vec<_>>>()?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
