//! `floodmark ledger`

use anyhow::Result;
use clap::Args;

use crate::args::{InputArgs, OutputArgs};
use crate::ask::ask_each;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Show what the resident memory of a process consists of at its peak
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LedgerArgs {
    /// Show this process instead of the one with the highest peak
    #[arg(long, value_name = "PID", help_heading = "What to show")]
    pid: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark ledger run.flood
  floodmark ledger run.flood --pid 4711 --limit 0
  floodmark ledger heaptrack.app.4711.zst";

impl LedgerArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let reports = ask_each(&self.input, printer, |input, query| input.ledger(query, self.pid))?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
