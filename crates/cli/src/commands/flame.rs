//! `floodmark flame`

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use floodmark_analyze::{Direction, FrameChoice, PathBy};
use floodmark_event::units::{Instant, parse_instant};
use floodmark_inspect::flame::{FlameContent, FlameProps};
use floodmark_inspect::{Input, Query};
use floodmark_view::flame::terminal::USUAL_LINES;

use crate::args::{FilterArgs, OutputArgs, ReadingArgs};
use crate::drawing::extension;
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::flaming::{FlameFormat, Of, Style, draw};
use crate::printer::Printer;
use crate::progress::Bars;
use crate::whole_file::{Overwrite, refuse_existing};

/// Draw a flame graph of what holds memory
///
/// Every call is a box under its caller, as wide as the memory held below it: at the peak or, with --of, at
/// the end, all bytes ever allocated, or the number of allocations. A trace with stack samples but no
/// allocations shows how often each call was sampled. Without -o the graph is drawn in the terminal.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that can be typed")]
pub(crate) struct FlameArgs {
    /// Trace or log to draw; '-' is standard input
    #[arg(value_name = "INPUT", help_heading = None)]
    input: PathBuf,
    /// What box width measures
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Of::Peak, help_heading = "What to draw")]
    of: Of,
    /// Instant to draw instead of the peak
    #[arg(long, value_name = "TIME", value_parser = parse_instant, allow_hyphen_values = true, help_heading = "What to draw")]
    at: Option<Instant>,
    /// What each box is
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = By::Stack, help_heading = "What to draw")]
    by: By,
    /// Start with the allocating function, its callers below
    #[arg(long, help_heading = "What to draw")]
    invert: bool,
    /// Draw every frame; otherwise runs of interpreter, runtime and allocator frames become one box
    #[arg(long, help_heading = "What to draw")]
    all_frames: bool,
    /// Lines to show in the terminal, 0 for all [default: 40]
    #[arg(long, alias = "rows", value_name = "N", help_heading = "What to draw")]
    limit: Option<usize>,
    /// Print JSON
    #[arg(long, conflicts_with = "output", help_heading = "What to draw")]
    json: bool,
    /// Write to this file: .svg, .png, .pdf, .html or .folded
    #[arg(short, long, value_name = "FILE", help_heading = "Picture")]
    output: Option<PathBuf>,
    /// Replace the picture if it exists already
    #[arg(long, requires = "output", help_heading = "Picture")]
    force: bool,
    /// Output format; overrides the file extension
    #[arg(long, value_enum, value_name = "FORMAT", requires = "output", help_heading = "Picture")]
    format: Option<FlameFormat>,
    /// Width in pixels; the height follows from the depth
    #[arg(long, value_name = "N", default_value_t = 1200, value_parser = clap::value_parser!(u32).range(200..=10_000), help_heading = "Picture")]
    width: u32,
    /// Draw light on dark; pages follow the reader's theme otherwise
    #[arg(long, visible_alias = "darkmode", help_heading = "Picture")]
    dark: bool,
    /// Title [default: what is drawn and the name of the input]
    #[arg(long, value_name = "TEXT", help_heading = "Picture")]
    title: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark flame snapshot.pickle
  floodmark flame run.flood -o peak.svg --width 2000 --dark
  floodmark flame run.flood --of allocated -o churn.html   Who allocates most, however short it lives
  floodmark flame run.flood --of end --invert -o left.svg  Who holds what is left, from the allocation up
  floodmark flame run.flood --by scope --at +12.5s
  floodmark flame run.flood -o peak.folded                 For flamegraph.pl and others";

/// What each box is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// Calls
    Stack,
    /// Sites in the program's own code that allocate
    Site,
    /// Scopes, and sites in them
    Scope,
}

impl FlameArgs {
    fn props(&self) -> Result<FlameProps> {
        if self.at.is_some() && self.of != Of::Peak {
            return Err(hinted(
                "--at is about what was live at an instant, and --of about something else",
                "leave one of them out",
            ));
        }
        Ok(FlameProps {
            of: self.of.into(),
            at: self.at,
            by: match self.by {
                By::Stack => PathBy::Stack,
                By::Site => PathBy::Site,
                By::Scope => PathBy::Scope,
            },
            direction: if self.invert { Direction::FromCallee } else { Direction::FromCaller },
            frames: if self.all_frames { FrameChoice::All } else { FrameChoice::Folded },
        })
    }

    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let props = self.props()?;
        let format = self.output.as_deref().map(|output| self.format_of(output)).transpose()?;
        let overwrite = Overwrite::forced(self.force);
        if let Some(output) = &self.output {
            refuse_existing(output, overwrite)?;
        }
        let bars = Bars::new(printer);
        let query = Query::new(self.filter.props(), &bars);
        let input = Input::open(&self.input, &self.reading.props())?;
        let (answer, content) = input.flame(&query, &props)?;
        if content == FlameContent::StackSamples && (self.of != Of::Peak || self.at.is_some()) {
            printer.say("note: there are no allocations; what is drawn is how often each call was sampled");
        }
        let Some((output, format)) = self.output.as_deref().zip(format) else {
            let rows = Some(self.limit.unwrap_or(USUAL_LINES));
            printer.reports(&[answer], OutputArgs { json: self.json, rows })?;
            return Ok(ExitStatus::Success);
        };
        let style = Style {
            title: self.title.as_deref(),
            width: self.width,
            is_dark: self.dark,
            output,
            overwrite,
            format,
        };
        draw(&answer, &style, printer)?;
        Ok(ExitStatus::Success)
    }

    fn format_of(&self, output: &Path) -> Result<FlameFormat> {
        self.format.or_else(|| FlameFormat::of_extension(&extension(output))).ok_or_else(|| {
            hinted(
                format!("'{}' does not tell what the picture should become", output.display()),
                "end it in .svg, .png, .pdf, .html or .folded, or add --format svg",
            )
        })
    }
}
