//! `floodmark partial`

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use floodmark_event::units::parse_duration_ns;
use floodmark_inspect::Input;
use floodmark_inspect::job::{Job, JobProps, Shard, answer, event_files};

use crate::args::{FilterArgs, ReadingArgs};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::whole_file::{Overwrite, refuse_existing, write};

/// Read some processes of a job and write a partial result
///
/// A job is divided by process: with --shard, each of N commands reads its own part of the inputs, on any
/// machine that sees them. 'floodmark merge' puts partial results together, in any order, and 'stats',
/// 'leaks', 'lifetimes' and 'watermark' take what it writes. The peak of several processes lies where none of
/// them peaks, so it takes a second, short look: with --job, answers what a merged result asks for.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PartialArgs {
    /// Traces or logs of the job; the same ones for every shard
    #[arg(required = true, value_name = "INPUT", help_heading = None)]
    inputs: Vec<PathBuf>,
    /// Write to this file; '-' is standard output
    #[arg(short, long, value_name = "FILE", required_unless_present = "list")]
    output: Option<PathBuf>,
    /// Print which files of events the shard reads, each after the number of its input, and read none of them
    #[arg(long, conflicts_with_all = ["output", "job"])]
    list: bool,
    /// Shard to read, from 0, and the number of all
    #[arg(long, value_name = "I/N", value_parser = Shard::parse, default_value = "0/1")]
    shard: Shard,
    /// Answer what this merged result asks for, with its filters
    #[arg(long, value_name = "FILE", conflicts_with_all = ["churn", "per", "FilterArgs"])]
    job: Option<PathBuf>,
    /// Count blocks as churn that live less than this
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_ns, default_value = "1ms")]
    churn: u64,
    /// Find growth from one scope or mark of this name (or pattern) to the next
    #[arg(long, value_name = "NAME")]
    per: Option<String>,
    /// Iterations to skip at the start
    #[arg(long, value_name = "N", default_value_t = 0, requires = "per")]
    warm_up: u64,
    /// Replace a file that exists already
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark partial run.flood -o run.part
  srun sh -c 'floodmark partial job.flood --shard $SLURM_PROCID/$SLURM_NTASKS -o part.$SLURM_PROCID'
  floodmark merge part.* -o job.part
  floodmark watermark job.flood --job job.part";

impl PartialArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let overwrite = Overwrite::forced(self.force);
        let inputs = open_all(&self.inputs, &self.reading)?;
        let Some(output) = &self.output else {
            return self.print_files(&inputs, printer);
        };
        refuse_existing(output, overwrite)?;
        let bytes = match &self.job {
            Some(job) => answer(&inputs, self.shard, &Job::open(job)?)?.to_bytes(),
            None => {
                let growth = self.per.clone().map(|per| (per, self.warm_up));
                let props = JobProps { filter: self.filter.props(), churn_ns: self.churn, growth };
                Job::read(&inputs, self.shard, &props)?.to_bytes()
            }
        };
        write(output, &bytes, overwrite, printer)?;
        Ok(ExitStatus::Success)
    }

    fn print_files(&self, inputs: &[Input], printer: &Printer) -> Result<ExitStatus> {
        let mut text = String::new();
        for (number, files) in event_files(inputs, self.shard)?.iter().enumerate() {
            for file in files {
                let _ = writeln!(text, "{number} {file}");
            }
        }
        printer.data(&text)?;
        Ok(ExitStatus::Success)
    }
}

/// Opens the inputs of a job.
pub(crate) fn open_all(paths: &[PathBuf], reading: &ReadingArgs) -> Result<Vec<Input>> {
    let props = reading.props();
    paths.iter().map(|path| Ok(Input::open(path, &props)?)).collect()
}
