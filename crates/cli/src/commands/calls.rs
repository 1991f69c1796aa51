//! `floodmark calls`

use anyhow::Result;
use clap::Args;
use floodmark_analyze::{CallOrder, CallsOptions};

use crate::args::{InputArgs, OutputArgs};
use crate::ask::ask_each;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Show which functions gained memory, from traced calls
///
/// Lists functions and lines by the resident memory that the process gained while they ran: their own,
/// and with all that they called. 'floodmark trace' records calls; logs of pymemtrace are read too.
/// A change between two events belongs to the function that ran between them.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CallsArgs {
    /// Sort functions by this
    #[arg(long, value_name = "WHAT", value_parser = ["own", "cumulative", "calls"], default_value = "own", help_heading = "What to show")]
    by: String,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark trace -o run.flood -- python script.py
  floodmark calls run.flood
  floodmark calls run.flood --by cumulative --limit 30
  floodmark calls 20241107_195847_0_62264_P_0_PY3.13.0.log
  floodmark flame run.flood                         What was gained, by call path";

impl CallsArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let order = CallOrder::ALL.into_iter().find(|order| order.name() == self.by).unwrap_or_default();
        let options = CallsOptions { order, limit: self.output.limit() };
        let reports = ask_each(&self.input, printer, |input, query| input.calls(query, &options))?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
