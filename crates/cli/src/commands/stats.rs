//! `floodmark stats`

use anyhow::Result;
use clap::Args;
use floodmark_inspect::Input;
use floodmark_inspect::job::{Job, JobProps};

use crate::args::{InputArgs, OutputArgs};
use crate::ask::{CoresArgs, JobQuestion, ask_each_or_job};
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Summarize allocations: counts, bytes, peak, sizes, failures (out of memory)
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    cores: CoresArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark stats memory_log.dev0.csv
  floodmark stats memory_log.dev0.csv memory_log.dev1.csv
  floodmark stats run.flood --device 0 --from +10s --to +20s
  zstd -dc memory_log.csv.zst | floodmark stats --json - | jq .peak_bytes";

impl StatsArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let question = JobQuestion { input: &Input::stats, job: &Job::stats, props: JobProps::default() };
        let reports = ask_each_or_job(&self.input, self.cores, printer, &question)?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
