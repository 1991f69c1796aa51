//! `floodmark merge`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use floodmark_event::units::format_bytes;
use floodmark_inspect::job::{Ask, merge_files};

use crate::args::JsonArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::whole_file::{Overwrite, is_standard, refuse_existing, write};

/// Put partial results together
///
/// Takes what 'floodmark partial' writes, in any order and grouping. With answers of all shards to what a merged
/// result asked for, writes that result with what they say. Says what is still to be asked: until the peak of
/// the job was searched for, it is a bound.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MergeArgs {
    /// Partial results; or one merged result and the answers of all shards
    #[arg(required = true, value_name = "FILE", help_heading = None)]
    files: Vec<PathBuf>,
    /// Write to this file; '-' is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace a file that exists already
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    json: JsonArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark merge part.0 part.1 part.2 -o job.part
  floodmark stats job.part
  floodmark partial job.flood --job job.part --shard 0/2 -o answer.0
  floodmark merge job.part answer.0 answer.1 -o job.part --force";

impl MergeArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let overwrite = Overwrite::forced(self.force);
        refuse_existing(&self.output, overwrite)?;
        let job = merge_files(&self.files)?;
        write(&self.output, &job.to_bytes(), overwrite, printer)?;
        let asks = match job.ask() {
            Ask::Nothing => None,
            Ask::Changes(_) => Some("changes"),
            Ask::Blocks { .. } => Some("blocks"),
        };
        let (low, high) = job.peak_bounds();
        if self.json.json && !is_standard(&self.output) {
            let asks = asks.map_or("null".to_owned(), |asks| format!("\"{asks}\""));
            let complete = job.is_complete();
            printer.data(&format!(
                "{{\"complete\":{complete},\"asks\":{asks},\"peak_bytes_at_least\":{low},\"peak_bytes_at_most\":{high}}}\n"
            ))?;
        } else if let Some(asks) = asks {
            let what =
                if asks == "blocks" { "which blocks were live at the peak" } else { "where the peak is" };
            let between = if low == high {
                format!("The peak is {}", format_bytes(low))
            } else {
                let apart = format_bytes(high - low);
                format!("The peak is between {} and {}, {apart} apart", format_bytes(low), format_bytes(high))
            };
            printer.say(&format!(
                "{between}; it is not known yet {what}: 'floodmark watermark INPUT... --job FILE' finds out"
            ));
        }
        Ok(ExitStatus::Success)
    }
}
