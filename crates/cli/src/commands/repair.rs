//! `floodmark repair`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use floodmark_inspect::Answer;
use floodmark_store::Trace;
use floodmark_view::{Repaired, SetAside};

use crate::args::JsonArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Make a damaged trace readable
///
/// Every command recovers a trace whose recording was killed; this is for damaged files. The live tail is
/// saved, parts that cannot be read are renamed, never deleted, and their rows are counted as lost.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RepairArgs {
    /// Trace to repair
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    output: JsonArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark repair run.flood
  floodmark repair run.flood && floodmark info run.flood";

impl RepairArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let report = floodmark_store::repair(&self.trace)?;
        let set_aside = |(file, reason): &(PathBuf, String)| SetAside {
            file: file.display().to_string(),
            reason: reason.clone(),
        };
        let repaired = Repaired {
            events: report.events,
            recovered_events: report.recovered_events,
            lost_events: report.lost_events,
            manifest_rebuilt: report.manifest_rebuilt,
            set_aside: report.set_aside.iter().map(set_aside).collect(),
        };
        let lost = Trace::open(&self.trace)?.manifest().all_losses();
        let report = Answer::new(self.trace.display().to_string(), &lost, repaired);
        printer.reports(&[report], self.output)?;
        Ok(ExitStatus::Success)
    }
}
