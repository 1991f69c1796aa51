//! `floodmark oom`

use anyhow::Result;
use clap::Args;
use floodmark_analyze::WhichFailure;
use floodmark_event::Kind;
use floodmark_event::units::parse_duration_ns;
use floodmark_inspect::OutOfMemoryOptions;

use crate::args::{InputArgs, OutputArgs};
use crate::ask::{ask_each, refuse_stdin};
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Explain why a program ran out of memory: the request, what held memory, what would have fitted
///
/// Explains one failed allocation, the last one unless told otherwise: how much it asked for, how much was free and in
/// which pieces, which code held the memory of that process, device and kind at that moment, what had grown in the last
/// seconds before, and what would have been enough.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct OomArgs {
    /// Explain the failure with this number, counted from 1 [default: the last one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "What to show")]
    failure: Option<u64>,
    /// Show what changed within this time before the failure
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_ns, default_value = "5s", help_heading = "What to show")]
    recent: u64,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark oom memory_log.dev0.csv
  floodmark oom snapshot.pickle --failure 1
  floodmark oom run.flood --recent 500ms --device 0
  floodmark oom run.flood --json | jq '.free.missing_bytes'";

impl OomArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let mut input = self.input.clone();
        if input.filter.is_by_origin() {
            return Err(hinted(
                "--thread and --stream leave out blocks, which would look like free memory",
                "filter by --device, --process, --kind, --from or --to",
            ));
        }
        for path in &input.inputs {
            refuse_stdin(path, "explaining a failure reads its input twice")?;
        }
        // Blocks of other kinds are cut from segments.
        input.filter.add_kind(Kind::Reserved);
        let reports = ask_each(&input, printer, |input, query| {
            let options = OutOfMemoryOptions {
                which: self.failure.map_or(WhichFailure::Last, WhichFailure::Number),
                recent_ns: self.recent,
                ..OutOfMemoryOptions::default()
            };
            input.out_of_memory(query, options)
        })?;
        printer.reports(&reports, self.output)?;
        Ok(ExitStatus::Success)
    }
}
