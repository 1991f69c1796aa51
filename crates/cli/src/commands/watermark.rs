//! `floodmark watermark`

use anyhow::Result;
use clap::Args;
use floodmark_analyze::{GroupBy, WatermarkOptions};
use floodmark_event::units::{Instant, parse_instant};
use floodmark_inspect::questions::Way;

use crate::args::{InputArgs, OutputArgs, ways};
use crate::ask::ask_each;
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

impl WatermarkArgs {
    fn props(&self) -> WatermarkOptions {
        let group_by = self.by.iter().filter_map(|name| GroupBy::from_name(name)).collect();
        WatermarkOptions { at: self.at, group_by, limit: self.output.limit(), ..WatermarkOptions::default() }
    }

    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let way = if self.by.is_empty() { Way::Usual } else { Way::Given };
        let mut reports =
            ask_each(&self.input, printer, |input, query| input.held_at_peak(query, self.props(), way))?;
        if way == Way::Usual && !self.output.json {
            for report in &mut reports {
                report.result.keep_informative();
            }
        }
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
