//! `floodmark report`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use floodmark_analyze::{LeaksOptions, WatermarkOptions};
use floodmark_inspect::compare::{CompareProps, compare};
use floodmark_inspect::job::{Job, wire};
use floodmark_inspect::questions::Way;
use floodmark_inspect::{Input, Query};
use floodmark_view::processes::job_page;
use floodmark_view::{AnswerText as _, Hosting, Layout, html};

use crate::args::{FilterArgs, ReadingArgs};
use crate::ask::{refuse_filter, refuse_stdin};
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::progress::Bars;
use crate::whole_file::{Overwrite, refuse_existing, write};

/// Columns and rows of tables on the page of a partial result.
const PAGE_COLUMNS: usize = 130;
const PAGE_ROWS: usize = 20;

/// Write a report as one HTML file
///
/// The file needs no network and no program but a browser. It has a timeline to zoom into, what held memory
/// at the peak by stack, tables to sort and search and, for recorded runs, output and stack samples.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// Trace or log to report on, or a partial result: a map of its processes by time, the extremes, and its answers
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Write to this file; '-' is standard output [default: report.html beside the input]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Show this nvidia-smi log beside the input, in any of its forms
    #[arg(long, value_name = "FILE")]
    smi: Option<PathBuf>,
    /// Say in the first sentences what changed since this earlier trace or log
    #[arg(long, value_name = "EARLIER")]
    since: Option<PathBuf>,
    /// Replace the file if it exists already
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark report run.flood
  floodmark report memory_log.dev0.csv -o peak.html
  floodmark report report.sqlite --smi smi.csv
  floodmark report today.flood --since yesterday.flood
  floodmark report run.flood -o report.html --force --device 0 --from +10s --to +20s";

impl ReportArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        refuse_stdin(&self.input, "a report reads its input more than once")?;
        let output = self.output.clone().unwrap_or_else(|| self.input.with_file_name("report.html"));
        let overwrite = Overwrite::forced(self.force);
        refuse_existing(&output, overwrite)?;
        let bars = Bars::new(printer);
        let query = Query::new(self.filter.props(), &bars);
        let props = self.reading.props();
        let smi = self.smi.as_ref().map(|log| Input::open(log, &props)).transpose()?;
        if wire::is_job(&self.input) {
            let page = self.job_page(&query, printer)?;
            write(&output, page.as_bytes(), overwrite, printer)?;
            return Ok(ExitStatus::Success);
        }
        let input = Input::open(&self.input, &props)?;
        let mut page = input.page_beside(&query, smi.as_ref())?;
        if let Some(earlier) = &self.since {
            refuse_stdin(earlier, "a comparison reads its inputs more than once")?;
            let earlier = Input::open(earlier, &props)?;
            page.since = Some(compare(&earlier, &input, &query, &CompareProps::default())?);
        }
        write(&output, html::html(&page, Hosting::File).as_bytes(), overwrite, printer)?;
        Ok(ExitStatus::Success)
    }

    /// Makes the page of a partial result: its processes, and answers as the other commands print them.
    fn job_page(&self, query: &Query<'_>, printer: &Printer) -> Result<String> {
        refuse_filter(&query.filter)?;
        if self.smi.is_some() || self.since.is_some() {
            return Err(hinted(
                "--smi and --since need a trace or log, and this is a partial result",
                "leave them out; 'floodmark diff' compares two partial results",
            ));
        }
        let job = Job::open(&self.input)?;
        let plot = job.process_plot()?;
        printer.lost(&plot.losses);
        let layout = Layout { width: PAGE_COLUMNS, rows: Some(PAGE_ROWS), ..Layout::default() };
        let mut answers = vec![
            ("Processes", job.processes(Some(PAGE_ROWS))?.text(&layout)),
            ("Allocations", job.stats()?.text(&layout)),
        ];
        if job.is_complete() {
            let mut held = job.watermark(WatermarkOptions::default(), Way::Usual)?;
            held.result.keep_informative();
            answers.push(("Held at the peak", held.text(&layout)));
        }
        answers.push(("Live at the end", job.leaks(LeaksOptions::default())?.text(&layout)));
        Ok(job_page(&plot, &answers))
    }
}
