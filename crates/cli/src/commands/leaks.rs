//! `floodmark leaks`

use anyhow::Result;
use clap::Args;
use floodmark_analyze::{GrowthOptions, LeaksOptions};
use floodmark_inspect::job::JobProps;

use crate::args::{InputArgs, OutputArgs};
use crate::ask::{CoresArgs, JobQuestion, ask_each_or_job};
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// List blocks that were never freed
///
/// A block that is live at the end is a leak if its site frees most of what it allocates, and a
/// candidate otherwise: a cache or a pool may keep it on purpose. Excluded are static variables,
/// segments that an allocator holds, blocks from before the recording and blocks that ended with their
/// context. With --per, finds the sites that hold more from iteration to iteration.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LeaksArgs {
    /// Find sites that grow from one scope or mark of this name (or pattern) to the next
    #[arg(long, value_name = "NAME", help_heading = "Growth")]
    per: Option<String>,
    /// Iterations to skip at the start
    #[arg(long, value_name = "N", default_value_t = 0, requires = "per", help_heading = "Growth")]
    warm_up: u64,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    cores: CoresArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark leaks memory_log.dev0.csv
  floodmark leaks memory_log.dev0.csv --to +60s     What is live after a minute
  floodmark leaks run.flood --limit 0 --thread 23340
  floodmark leaks run.flood --per step --warm-up 10 What grows with every step
  floodmark leaks run.flood --json | jq '.blocks[].address'";

impl LeaksArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        if let Some(per) = &self.per {
            return self.growth(per, printer);
        }
        let options = || LeaksOptions { limit: self.output.limit(), ..LeaksOptions::default() };
        let question = JobQuestion {
            input: &|input, query| input.leaks(query, options()),
            job: &|job| job.leaks(options()),
            props: JobProps::default(),
        };
        let reports = ask_each_or_job(&self.input, self.cores, printer, &question)?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }

    fn growth(&self, per: &str, printer: &Printer) -> Result<ExitStatus> {
        let options = || GrowthOptions {
            per: per.to_owned(),
            warm_up: self.warm_up,
            limit: self.output.limit(),
            ..GrowthOptions::default()
        };
        let question = JobQuestion {
            input: &|input, query| input.growth(query, options()),
            job: &|job| job.growth(options()),
            props: JobProps { growth: Some((per.to_owned(), self.warm_up)), ..JobProps::default() },
        };
        let reports = ask_each_or_job(&self.input, self.cores, printer, &question)?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
