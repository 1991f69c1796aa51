//! `floodmark info`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use floodmark_inspect::{Filter, Input, Query};

use crate::args::{OutputArgs, ReadingArgs};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::progress::Bars;

/// Show what a trace or a log is
///
/// Prints format, size, time and processes of traces and logs, what a trace was recorded or imported
/// from, its tables, and what is missing from it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InfoArgs {
    /// Traces or logs; '-' is standard input
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark info run.flood
  floodmark info *.flood --json | jq '.inputs[].run.command'";

impl InfoArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let bars = Bars::new(printer);
        let query = Query::new(Filter::default(), &bars);
        let open = self.reading.props();
        let reports = self.inputs.iter().map(|path| Ok(Input::open(path, &open)?.info(&query)?));
        printer.reports(&reports.collect::<Result<Vec<_>>>()?, self.output)?;
        Ok(ExitStatus::Success)
    }
}
