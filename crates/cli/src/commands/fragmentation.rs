//! `floodmark fragmentation`

use anyhow::Result;
use clap::Args;
use floodmark_analyze::fragmentation::JOIN_BYTES;
use floodmark_analyze::{Fragmentation, FragmentationOptions, MapAt};
use floodmark_event::Kind;
use floodmark_event::units::{Instant, parse_bytes, parse_instant};
use floodmark_inspect::{Answer, Input, Query};

use crate::args::{InputArgs, OutputArgs};
use crate::ask::ask_each;
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Show fragmentation of free memory, and why allocations failed (out of memory)
///
/// Measures the gaps between live blocks: how much is free, how large the largest gap is, and whether an
/// allocation that ran out of memory failed because too little was free or because it was fragmented. Gaps
/// lie in the segments that an allocator holds or, where those are not recorded, in the addresses that
/// blocks have covered so far.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FragmentationArgs {
    /// Show when a request of this size would have fitted into a gap
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "What to show")]
    request: Option<u64>,
    /// Show the address map at this time, at the peak, at the worst instant or at the end
    #[arg(long, value_name = "TIME|peak|worst|end", value_parser = parse_when, help_heading = "What to show")]
    at: Option<When>,
    /// Treat holes up to this size that no block ever covered as padding [default: 2MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "What to show")]
    join: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark fragmentation memory_log.dev0.csv              Explain why it ran out of memory
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
        let reports = ask_each(&input, printer, |input, query| {
            let mut answer = input.fragmentation(query, self.options(self.map_at()))?;
            if matches!(self.at, Some(When::Peak | When::Worst)) {
                self.add_map(&mut answer, input, query)?;
            }
            Ok(answer)
        })?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }

    fn map_at(&self) -> Option<MapAt> {
        match self.at {
            Some(When::At(instant)) => Some(MapAt::Time(instant)),
            _ => None,
        }
    }

    fn options(&self, map: Option<MapAt>) -> FragmentationOptions {
        FragmentationOptions {
            request_bytes: self.request,
            map,
            join_bytes: self.join.unwrap_or(JOIN_BYTES),
            limit: self.output.limit(),
            ..FragmentationOptions::default()
        }
    }

    /// Reads the input once more for the addresses at an instant that is known only at its end.
    fn add_map(
        &self,
        answer: &mut Answer<Fragmentation>,
        input: &Input,
        query: &Query<'_>,
    ) -> floodmark_inspect::Result<()> {
        input.need_rewind("--at peak and --at worst read their input twice")?;
        let Some(address_space) = answer.result.address_spaces.first() else { return Ok(()) };
        let instant = if self.at == Some(When::Peak) { &address_space.peak } else { &address_space.worst };
        let again = input.fragmentation(query, self.options(Some(MapAt::Change(instant.change))))?;
        answer.result.map = again.result.map;
        Ok(())
    }
}
