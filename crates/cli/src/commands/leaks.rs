//! `floodmark leaks`

use anyhow::Result;
use clap::Args;
use floodmark_analyze::{LeaksFold, LeaksOptions};

use crate::args::{InputArgs, OutputArgs};
use crate::exit::ExitStatus;
use crate::pass::{Columns, analyze};
use crate::printer::Printer;

/// List blocks that were never freed
///
/// A block that is live at the end is a leak if its site frees most of what it allocates, and a
/// candidate otherwise: a cache or a pool may keep it on purpose. Static variables are listed apart.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LeaksArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark leaks memory_log.dev0.csv
  floodmark leaks memory_log.dev0.csv --to +60s     What is live after a minute
  floodmark leaks run.flood --rows 0 --thread 23340
  floodmark leaks run.flood --json | jq '.blocks[].address'";

impl LeaksArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let options = || LeaksOptions { limit: self.output.limit(), ..LeaksOptions::default() };
        let reports = analyze(&self.input, Columns::All, printer, || LeaksFold::new(options()))?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
