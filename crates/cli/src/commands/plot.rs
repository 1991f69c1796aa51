//! `floodmark plot`

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use floodmark_event::Metric;
use floodmark_inspect::job::{Job, wire};
use floodmark_inspect::plot::{Align, Draw, Per, Plot, PlotProps, Show, parse_align, plot};
use floodmark_inspect::{Input, OpenProps, Query};

use crate::args::{FilterArgs, ReadingArgs, metrics};
use crate::ask::refuse_filter;
use crate::drawing::{Content, DrawingArgs, Picture};
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::progress::Bars;
use crate::reading::ZoneArgs;

/// Plot memory over time, of one run or several on one axis
///
/// Allocation events are plotted as live bytes by kind of memory; samples, as 'floodmark run' records
/// them, as the memory of all processes, with what devices report. Marks are drawn as phases. Without -o
/// the plot is drawn in the terminal.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that can be typed")]
pub(crate) struct PlotArgs {
    /// Traces or logs to draw; '-' is standard input
    #[arg(required = true, value_name = "INPUT", help_heading = None)]
    inputs: Vec<PathBuf>,
    /// Draw a curve for every process, rank, host, device or kind of memory
    #[arg(long, value_enum, value_name = "WHAT", help_heading = "What to draw")]
    per: Option<PerName>,
    /// Draw the ranks of an MPI job, or the processes of a partial result: quantiles over time, and a map by time
    #[arg(long, conflicts_with_all = ["per", "draw", "metric", "smi", "stdout", "stacks"], help_heading = "What to draw")]
    ranks: bool,
    /// Draw parts stacked or as lines [default: stack for one input]
    #[arg(long, value_enum, value_name = "HOW", help_heading = "What to draw")]
    draw: Option<DrawName>,
    /// Metric to plot instead of the usual one
    #[arg(long, value_name = "METRIC", value_parser = metrics(), hide_possible_values = true, help_heading = "What to draw")]
    metric: Option<String>,
    /// Plot this nvidia-smi log beside the input
    #[arg(long, value_name = "FILE", help_heading = "What to draw")]
    smi: Option<PathBuf>,
    /// Align inputs at their start, by clock, or at the first matching mark or output line, as in
    /// mark:'step 1'
    #[arg(long, value_name = "HOW", value_parser = parse_align, default_value = "start", help_heading = "What to draw")]
    align: Align,
    /// Show the command's output
    #[arg(long, help_heading = "What to draw")]
    stdout: bool,
    /// Show stack samples as dots
    #[arg(long, alias = "pstack", help_heading = "What to draw")]
    stacks: bool,
    /// Leave what starts the ranks of an MPI job out of totals
    #[arg(long, hide = true)]
    without_launchers: bool,
    /// Hide phases
    #[arg(long, help_heading = "What to draw")]
    no_phases: bool,
    /// Title [default: the command or the names of the inputs]
    #[arg(long, value_name = "TEXT", help_heading = "Picture")]
    title: Option<String>,
    #[command(flatten)]
    drawing: DrawingArgs,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    reading: ReadingArgs,
    #[command(flatten)]
    zone: ZoneArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark plot run.flood
  floodmark plot run.flood -o memory.svg --stdout --stacks
  floodmark plot before.flood after.flood -o compare.png --dark
  floodmark plot memory_log.dev0.csv --smi smi.csv --utc-offset +02:00 -o gpu.pdf
  floodmark plot run.flood --per process -o processes.html
  floodmark plot job.flood --ranks -o ranks.png     Imbalance of an MPI job";

impl PlotArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        self.drawing.refuse_existing()?;
        let open = OpenProps { utc_offset_s: self.zone.utc_offset, ..self.reading.props() };
        if self.ranks {
            return self.draw_ranks(&open, printer);
        }
        let props = PlotProps {
            filter: self.filter.props(),
            per: self.per.map(Per::from),
            draw: self.draw.map(Draw::from),
            metric: self.metric.as_deref().and_then(Metric::from_name),
            output: Show::from(self.stdout),
            stacks: Show::from(self.stacks),
            phases: Show::from(!self.no_phases),
            points: self.drawing.points(),
            is_alone: self.inputs.len() == 1,
            launchers: Show::from(!self.without_launchers),
        };
        let inputs =
            self.inputs.iter().map(|path| Input::open(path, &open)).collect::<Result<Vec<_>, _>>()?;
        let smi = self.smi.as_ref().map(|log| Input::open(log, &open)).transpose()?;
        let bars = Bars::new(printer);
        let query = Query::new(self.filter.props(), &bars);
        let Plot { mut figure, losses } = plot(&inputs, smi.as_ref(), &self.align, &query, &props)?;
        printer.lost(&losses);
        if let Some(title) = &self.title {
            figure.title = floodmark_view::plot::label(title);
        }
        Picture { content: Content::Figure(figure), props: self.drawing.props() }
            .show(&self.drawing, printer)?;
        Ok(ExitStatus::Success)
    }

    fn draw_ranks(&self, open: &OpenProps, printer: &Printer) -> Result<ExitStatus> {
        let [path] = &self.inputs[..] else {
            return Err(hinted("--ranks draws one trace", "draw the others on their own"));
        };
        let mut plot = if wire::is_job(path) {
            refuse_filter(&self.filter.props())?;
            Job::open(path)?.process_plot()?
        } else {
            Input::open(path, open)?.rank_plot()?
        };
        printer.lost(&plot.losses);
        if let Some(title) = &self.title {
            plot.title = floodmark_view::plot::label(title);
        }
        Picture { content: Content::Ranks(plot), props: self.drawing.props() }
            .show(&self.drawing, printer)?;
        Ok(ExitStatus::Success)
    }
}

/// What gets a curve of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PerName {
    /// Every process
    Process,
    /// Every rank of an MPI job
    Rank,
    /// Every host
    Host,
    /// Every device
    Device,
    /// Every kind of memory
    Kind,
}

impl From<PerName> for Per {
    fn from(name: PerName) -> Self {
        match name {
            PerName::Process => Self::Process,
            PerName::Rank => Self::Rank,
            PerName::Host => Self::Host,
            PerName::Device => Self::Device,
            PerName::Kind => Self::Kind,
        }
    }
}

/// How parts are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DrawName {
    /// As areas on top of each other
    Stack,
    /// As lines
    Lines,
}

impl From<DrawName> for Draw {
    fn from(name: DrawName) -> Self {
        match name {
            DrawName::Stack => Self::Stack,
            DrawName::Lines => Self::Lines,
        }
    }
}
