//! `floodmark watermark`

use anyhow::Result;
use clap::Args;
use floodmark_analyze::{GroupBy, WatermarkOptions};
use floodmark_event::units::{Instant, parse_instant};

use crate::args::{InputArgs, OutputArgs, ways};
use crate::ask::ask_each;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Show what held memory at the peak
///
/// Finds the first instant of the highest live bytes and lists the blocks that were live then, grouped
/// by the site that allocated them. Logs without stacks are grouped by thread, stream
/// and size.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatermarkArgs {
    /// Group blocks by this; several give several tables
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = ways(), help_heading = "What to show")]
    by: Vec<String>,
    /// Instant to show instead of the peak
    #[arg(long, value_name = "TIME", value_parser = parse_instant, help_heading = "What to show")]
    at: Option<Instant>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark watermark memory_log.dev0.csv
  floodmark watermark run.flood --by stack --limit 3
  floodmark watermark run.flood --by stream,thread --device 1
  floodmark watermark run.flood --by module         Which libraries held it
  floodmark watermark memory_log.dev0.csv --at 06:29:01.5";

/// What to group by unless asked: the view shows those that say something.
const DEFAULT_WAYS: [GroupBy; 4] = [GroupBy::Site, GroupBy::Thread, GroupBy::Stream, GroupBy::Size];

impl WatermarkArgs {
    fn props(&self) -> WatermarkOptions {
        let asked: Vec<GroupBy> = self.by.iter().filter_map(|name| GroupBy::from_name(name)).collect();
        let group_by = if asked.is_empty() { DEFAULT_WAYS.to_vec() } else { asked };
        WatermarkOptions { at: self.at, group_by, limit: self.output.limit(), ..WatermarkOptions::default() }
    }

    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let mut reports =
            ask_each(&self.input, printer, |input, query| input.watermark(query, self.props()))?;
        if self.by.is_empty() && !self.output.json {
            for report in &mut reports {
                report.result.keep_informative();
            }
        }
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
