//! `floodmark diff`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use floodmark_analyze::{Budget, GroupBy};
use floodmark_inspect::compare::{CompareProps, Compared, compare, compare_jobs};
use floodmark_inspect::job::{Job, wire};
use floodmark_inspect::plot::{Align, Figure, PlotProps, Show, plot};
use floodmark_inspect::{Answer, Input, Query};
use floodmark_store::Losses;
use floodmark_view::{diff, growth_sentence};

use crate::args::{FilterArgs, OutputArgs, ReadingArgs, ways};
use crate::ask::{refuse_filter, refuse_stdin};
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::progress::Bars;
use crate::whole_file::{Overwrite, is_standard, refuse_existing, write};

/// Points of each timeline on the page; all extremes of what is left out are kept.
const TIMELINE_POINTS: usize = 4000;

/// Compare two runs: what grew, what is new, what is gone
///
/// Compares figures, what held memory at the peak, and leaks. Sites are matched even if addresses, PIDs or
/// line numbers differ. Two partial results of jobs are compared by their figures per process, so that a job of 8
/// can be compared with one of 64. With --fail-on it is a check: exit with 1 if a figure grew by more than a rule allows.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffArgs {
    /// Trace, log or partial result of the first run
    #[arg(value_name = "BEFORE", help_heading = None)]
    before: PathBuf,
    /// Trace, log or partial result of the second run
    #[arg(value_name = "AFTER", help_heading = None)]
    after: PathBuf,
    /// Group blocks by this [default: site, or size where no block has a stack or name]
    #[arg(long, value_name = "WHAT", value_parser = ways(), help_heading = "What to show")]
    by: Option<String>,
    /// Exit with 1 if a figure grew by more, as in 'growth>5%', 'peak>10MiB' or 'leaked>0'
    #[arg(long, value_name = "RULE", value_parser = parse_rule, help_heading = "What to show")]
    fail_on: Vec<Budget>,
    /// Write an HTML page too, with both timelines on one axis and a flame graph of what changed
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
    /// Replace the page if it exists already
    #[arg(long, requires = "html", help_heading = "Output")]
    force: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark diff before.flood after.flood
  floodmark diff before.csv after.csv --by size --limit 0
  floodmark diff main.pickle branch.pickle --html changes.html
  floodmark diff main.flood branch.flood --fail-on 'growth>5%' --fail-on 'leaked>0'

Figures of rules; growth is AFTER less BEFORE, and percentages are of BEFORE:
  growth       peak bytes of allocations; where there are none, peak RSS
  peak         peak bytes of allocations
  live         bytes live at the end
  leaked       bytes live at the end that are leaks or candidates, as 'floodmark leaks' counts them
  allocations  number of allocations
  rss          peak RSS of all processes of a run together

Exit codes: 0 every rule holds, 1 a rule is broken, 2 it could not be compared";

fn parse_rule(text: &str) -> Result<Budget, String> {
    text.parse()
}

/// Puts both runs on one axis; none if one of them has nothing to draw.
fn timelines(inputs: &[Input], query: &Query<'_>) -> Result<Option<Figure>> {
    let props = PlotProps {
        filter: query.filter.clone(),
        per: None,
        draw: None,
        metric: None,
        output: Show::No,
        stacks: Show::No,
        phases: Show::Yes,
        points: TIMELINE_POINTS,
        is_alone: false,
        launchers: Show::Yes,
    };
    match plot(inputs, None, &Align::Start, query, &props) {
        Ok(plot) => Ok(Some(plot.figure)),
        Err(floodmark_inspect::Error::NoContent { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl DiffArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let overwrite = Overwrite::forced(self.force);
        if let Some(html) = &self.html {
            if is_standard(html) {
                return Err(hinted("--html needs a file: standard output has the text", "write --html FILE"));
            }
            refuse_existing(html, overwrite)?;
        }
        for path in [&self.before, &self.after] {
            refuse_stdin(path, "a comparison reads its inputs more than once")?;
        }
        let by = self.by.as_deref().and_then(GroupBy::from_name);
        let props = CompareProps { by, rules: &self.fail_on };
        let are_jobs = [&self.before, &self.after].map(|path| wire::is_job(path));
        if are_jobs.contains(&true) {
            if are_jobs.contains(&false) {
                return Err(hinted(
                    "a partial result cannot be compared with a trace or log",
                    "make a partial result of the other one too: 'floodmark partial INPUT -o FILE'",
                ));
            }
            refuse_filter(&self.filter.props())?;
            let compared = compare_jobs(&Job::open(&self.before)?, &Job::open(&self.after)?, &props)?;
            return self.finish(compared, None, overwrite, printer);
        }
        let open = self.reading.props();
        let inputs = [Input::open(&self.before, &open)?, Input::open(&self.after, &open)?];
        let bars = Bars::new(printer);
        let query = Query::new(self.filter.props(), &bars);
        let compared = compare(&inputs[0], &inputs[1], &query, &props)?;
        let timelines = if self.html.is_some() { timelines(&inputs, &query)? } else { None };
        self.finish(compared, timelines.as_ref(), overwrite, printer)
    }

    fn finish(
        &self,
        compared: Compared,
        timelines: Option<&Figure>,
        overwrite: Overwrite,
        printer: &Printer,
    ) -> Result<ExitStatus> {
        if let Some(path) = &self.html {
            write(path, diff::page::html(&compared, timelines).as_bytes(), overwrite, printer)?;
        }
        let status = if compared.broken.is_empty() { ExitStatus::Success } else { ExitStatus::Broken };
        let sentences: Vec<String> = compared.broken.iter().map(growth_sentence).collect();
        self.show(compared, printer)?;
        for sentence in sentences {
            printer.broken(&sentence);
        }
        Ok(status)
    }

    fn show(&self, compared: Compared, printer: &Printer) -> Result<()> {
        let source = format!("{} → {}", compared.before.source, compared.after.source);
        printer.reports(&[Answer::new(source, &Losses::default(), compared)], self.output)
    }
}
