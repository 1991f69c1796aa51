//! `floodmark watermark`

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use floodmark_analyze::{GroupBy, WatermarkOptions};
use floodmark_event::units::{Instant, parse_instant};
use floodmark_inspect::Answer;
use floodmark_inspect::job::{Job, JobProps};
use floodmark_inspect::questions::{HeldAtPeak, Way};

use crate::args::{InputArgs, OutputArgs, ways};
use crate::ask::{CoresArgs, JobQuestion, ask_each_or_job, refuse_filter};
use crate::commands::partial::open_all;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Show what held memory at the peak
///
/// Finds the first instant of the highest live bytes and lists the blocks that were live then, grouped
/// by the site that allocated them. Logs without stacks are grouped by thread, stream
/// and size. For traces of 'floodmark run', lists the processes that had memory at their peak.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatermarkArgs {
    /// Group blocks by this; several give several tables
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = ways(), help_heading = "What to show")]
    by: Vec<String>,
    /// Instant to show instead of the peak
    #[arg(long, value_name = "TIME", value_parser = parse_instant, help_heading = "What to show")]
    at: Option<Instant>,
    /// Show the peak of a whole job: INPUT are its traces, FILE its merged partial result
    #[arg(long, value_name = "FILE", conflicts_with = "at", help_heading = "What to show")]
    job: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    cores: CoresArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark watermark memory_log.dev0.csv
  floodmark watermark run.flood --by stack --limit 3
  floodmark watermark run.flood --by stream,thread --device 1
  floodmark watermark run.flood --by module         Which libraries held it
  floodmark watermark memory_log.dev0.csv --at 06:29:01.5";

impl WatermarkArgs {
    fn props(&self) -> WatermarkOptions {
        let group_by = self.by.iter().filter_map(|name| GroupBy::from_name(name)).collect();
        WatermarkOptions { at: self.at, group_by, limit: self.output.limit(), ..WatermarkOptions::default() }
    }

    /// Looks at the inputs of a partial result once more, for the peak of all and what held it.
    fn of_job(&self, path: &Path, way: Way) -> Result<Answer<HeldAtPeak>> {
        refuse_filter(&self.input.filter.props())?;
        let inputs = open_all(&self.input.inputs, &self.input.reading)?;
        let mut job = Job::open(path)?;
        job.complete(&inputs, usize::from(self.cores.jobs))?;
        Ok(job.watermark(self.props(), way)?)
    }

    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let way = if self.by.is_empty() { Way::Usual } else { Way::Given };
        let question = JobQuestion {
            input: &|input, query| input.held_at_peak(query, self.props(), way),
            job: &|job| job.watermark(self.props(), way),
            props: JobProps::default(),
        };
        let mut reports = match &self.job {
            Some(job) => vec![self.of_job(job, way)?],
            None => ask_each_or_job(&self.input, self.cores, printer, &question)?,
        };
        if way == Way::Usual && !self.output.json {
            for report in &mut reports {
                report.result.keep_informative();
            }
        }
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
