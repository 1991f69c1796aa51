//! `floodmark nsys process`

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use floodmark_event::units::format_count;
use floodmark_inspect::nsys::{Analysis, Header, Processed, process, sum};

use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Analyze the tables that 'floodmark nsys split' wrote
///
/// Writes the rows of one analysis to a file, as text with tabs: what was live at the highest total, the
/// total over time, or what was live at the end. Device memory is counted; pinned and pageable memory is not.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProcessArgs {
    /// What the names of the tables begin with
    #[arg(short, long, value_name = "PREFIX")]
    input: PathBuf,
    /// Write the rows here
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// What to find out
    #[arg(short, long, value_enum, default_value_t = AnalysisName::Watermark, value_name = "ANALYSIS")]
    analysis: AnalysisName,
    /// Leave the names of the columns out
    #[arg(long)]
    no_header: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AnalysisName {
    /// What was live at the highest total
    Watermark,
    /// Totals over time
    Usage,
    /// What was live at the end
    Leakage,
}

const EXAMPLES: &str = "\
Examples:
  floodmark nsys process -i prof/run -o peak.txt
  floodmark nsys process -i prof/run -o usage.txt -a usage --no-header";

impl ProcessArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let analysis = match self.analysis {
            AnalysisName::Watermark => Analysis::Watermark,
            AnalysisName::Usage => Analysis::Usage,
            AnalysisName::Leakage => Analysis::Leakage,
        };
        let header = if self.no_header { Header::No } else { Header::Yes };
        let found = process(&self.input, &self.output, analysis, header)?;
        printer.data(&summary(analysis, &found))?;
        for (count, what) in [
            (
                found.uncertain,
                "rows of managed memory or of a kind that is not known, which may be on the host",
            ),
            (found.unmatched_frees, "frees of blocks never seen allocated"),
            (found.replaced, "blocks whose address was allocated again before they were freed"),
            (found.size_mismatches, "frees that name another size than their allocation"),
        ] {
            if count > 0 {
                printer.say(&format!("note: {} {what}", format_count(count)));
            }
        }
        Ok(ExitStatus::Success)
    }
}

fn summary(analysis: Analysis, found: &Processed) -> String {
    let [valid, invalid, driver] = found.totals;
    let what = if analysis == Analysis::Watermark { "high water mark" } else { "total leakage" };
    let total = sum(&found.totals);
    let mut text = format!("{what}: {total} bytes (valid {valid}, invalid {invalid}, driver {driver})\n");
    if let (Analysis::Watermark, Some(time_ns)) = (analysis, found.peak_time_ns) {
        let _ = writeln!(text, "high water mark time: {time_ns} ns after the capture began");
    }
    if analysis != Analysis::Usage {
        let _ = writeln!(text, "mpi allocated memory: {} bytes", found.mpi_bytes);
    }
    text
}
