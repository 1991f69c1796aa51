//! `floodmark lifetimes`

use anyhow::Result;
use clap::Args;
use floodmark_analyze::LifetimesOptions;
use floodmark_event::units::parse_duration_ns;

use crate::args::{InputArgs, OutputArgs};
use crate::ask::ask_each;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Show block lifetimes and allocation churn
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LifetimesArgs {
    /// Count blocks as churn that live less than this
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_ns, default_value = "1ms", help_heading = "What to show")]
    churn: u64,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark lifetimes memory_log.dev0.csv
  floodmark lifetimes run.flood --churn 50us --stream 0x55d0c0";

impl LifetimesArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let options = || LifetimesOptions {
            threshold_ns: self.churn,
            limit: self.output.limit(),
            ..LifetimesOptions::default()
        };
        let reports = ask_each(&self.input, printer, |input, query| input.lifetimes(query, options()))?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
