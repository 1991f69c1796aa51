//! `floodmark churn`

use anyhow::Result;
use clap::Args;
use floodmark_analyze::ChurnOptions;

use crate::args::{InputArgs, OutputArgs};
use crate::ask::ask_each;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Show allocation rates, temporary blocks, reallocs and waste by site
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ChurnArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark churn run.flood
  floodmark churn heaptrack.app.4711.zst --limit 30
  floodmark churn memray-app.py.4711.bin --json";

impl ChurnArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let options = || ChurnOptions { limit: self.output.limit(), ..ChurnOptions::default() };
        let reports = ask_each(&self.input, printer, |input, query| input.churn(query, options()))?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
