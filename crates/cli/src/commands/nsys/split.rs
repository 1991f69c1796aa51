//! `floodmark nsys split`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use floodmark_convert::Mode;
use floodmark_convert::nsys::split::split;
use floodmark_event::units::format_count;
use floodmark_view::plain;

use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Write the allocations of an export to PREFIX_valid.tsv, PREFIX_driver.tsv and PREFIX_invalid.tsv
///
/// Those with a call stack, those that were calls of the driver, and all others.
#[expect(clippy::doc_markdown, reason = "it is help, and has names of files in it")]
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SplitArgs {
    /// Export or report of Nsight Systems
    #[arg(value_name = "EXPORT")]
    export: PathBuf,
    /// Begin the names of the files like this
    #[arg(short, long, value_name = "PREFIX")]
    output: PathBuf,
    /// Skip rows that cannot be read, and count them
    #[arg(long)]
    lenient: bool,
}

const EXAMPLES: &str = "\
Examples:
  floodmark nsys split report.sqlite -o prof/run";

impl SplitArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let mode = if self.lenient { Mode::Lenient } else { Mode::Strict };
        let done = split(&self.export, &self.output, mode)?;
        for (path, rows) in &done.files {
            let path = path.display().to_string();
            printer.say(&format!("{}: {} rows", plain(&path), format_count(*rows)));
        }
        printer.lost(&done.losses.gaps);
        Ok(ExitStatus::Success)
    }
}
