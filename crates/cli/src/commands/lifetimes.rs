//! `floodmark lifetimes`

use anyhow::Result;
use clap::Args;
use floodmark_analyze::LifetimesOptions;
use floodmark_event::units::parse_duration_ns;
use floodmark_inspect::job::JobProps;

use crate::args::{InputArgs, OutputArgs};
use crate::ask::{CoresArgs, JobQuestion, ask_each_or_job};
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
    #[command(flatten)]
    cores: CoresArgs,
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
        let question = JobQuestion {
            input: &|input, query| input.lifetimes(query, options()),
            job: &|job| job.lifetimes(options()),
            props: JobProps { churn_ns: self.churn, ..JobProps::default() },
        };
        let reports = ask_each_or_job(&self.input, self.cores, printer, &question)?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
