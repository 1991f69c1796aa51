//! `floodmark fragmentation`

use anyhow::Result;
use clap::Args;
use floodmark_analyze::fragmentation::JOIN_BYTES;
use floodmark_analyze::{Fragmentation, FragmentationFold, FragmentationOptions, MapAt};
use floodmark_event::Kind;
use floodmark_event::units::{Instant, parse_bytes, parse_instant};
use floodmark_view::Report;

use crate::args::{InputArgs, OutputArgs};
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::pass::{Columns, analyze};
use crate::printer::Printer;
use crate::whole_file::is_standard;

/// Show how free memory is strewn among live blocks
///
/// Looks at the gaps between live blocks: how much is free, how large the largest gap is, and whether
/// a failed allocation failed for want of memory or because what was free lay in pieces. Gaps are those
/// of the segments an allocator held; of sources that do not name them, those of the addresses that
/// blocks have covered so far.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FragmentationArgs {
    /// Tell when a request of this size would have fitted into a gap
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "What to show")]
    request: Option<u64>,
    /// Show the addresses at this time, or at the peak, at the worst instant or at the end
    #[arg(long, value_name = "TIME|peak|worst|end", value_parser = parse_when, help_heading = "What to show")]
    at: Option<When>,
    /// Take holes up to this size that no block ever covered for padding [default: 2MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "What to show")]
    join: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark fragmentation memory_log.dev0.csv
  floodmark fragmentation memory_log.dev0.csv --request 2GiB
  floodmark fragmentation run.flood --at worst --device 0
  floodmark fragmentation run.flood --at +12.5s --json | jq '.map.largest_gaps[0]'";

/// When to show addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Peak,
    Worst,
    At(Instant),
}

fn parse_when(text: &str) -> Result<When, String> {
    match text {
        "peak" => Ok(When::Peak),
        "worst" => Ok(When::Worst),
        "end" => Ok(When::At(Instant::At(i64::MAX))),
        _ => parse_instant(text).map(When::At),
    }
}

impl FragmentationArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let mut input = self.input.clone();
        if input.filter.is_by_origin() {
            return Err(hinted(
                "--thread and --stream leave out blocks, which would look like gaps",
                "filter by --device, --process, --kind, --from or --to",
            ));
        }
        // Blocks of other kinds are cut from segments.
        input.filter.add_kind(Kind::Reserved);
        let mut reports = self.fold(&input, self.map_at(), printer)?;
        if matches!(self.at, Some(When::Peak | When::Worst)) {
            for (report, path) in reports.iter_mut().zip(&self.input.inputs) {
                let one = InputArgs { inputs: vec![path.clone()], ..input.clone() };
                self.look_again(report, &one, printer)?;
            }
        }
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }

    fn map_at(&self) -> Option<MapAt> {
        match self.at {
            Some(When::At(instant)) => Some(MapAt::Time(instant)),
            _ => None,
        }
    }

    fn fold(
        &self,
        input: &InputArgs,
        map: Option<MapAt>,
        printer: &Printer,
    ) -> Result<Vec<Report<Fragmentation>>> {
        let options = || FragmentationOptions {
            request_bytes: self.request,
            map,
            join_bytes: self.join.unwrap_or(JOIN_BYTES),
            limit: self.output.limit(),
            ..FragmentationOptions::default()
        };
        analyze(input, Columns::All, printer, || FragmentationFold::new(options()))
    }

    /// Reads the input once more for the addresses at an instant that only its end tells.
    fn look_again(
        &self,
        report: &mut Report<Fragmentation>,
        input: &InputArgs,
        printer: &Printer,
    ) -> Result<()> {
        if input.inputs.iter().any(|path| is_standard(path)) {
            return Err(hinted(
                "standard input cannot be read twice, which --at peak and --at worst need",
                "write it to a file, or name a time",
            ));
        }
        let Some(ground) = report.result.grounds.first() else { return Ok(()) };
        let instant = if self.at == Some(When::Peak) { &ground.peak } else { &ground.worst };
        let again = self.fold(input, Some(MapAt::Change(instant.change)), printer)?;
        report.result.map = again.into_iter().next().and_then(|report| report.result.map);
        Ok(())
    }
}
