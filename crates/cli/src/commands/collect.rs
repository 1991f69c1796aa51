//! `floodmark collect`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use floodmark_cluster::collect::{collect, find};
use floodmark_event::units::{format_bytes, format_count};
use floodmark_view::plain;

use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Take what agents left on nodes into a trace
///
/// An agent that loses its recorder keeps what it sampled in a spool on its node. Run this on the node, or copy the
/// spool to where the trace is; frames that the trace has already are not added twice.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CollectArgs {
    /// Directories of spools, or directories that have some [default: those of this user on this host]
    #[arg(value_name = "SPOOL")]
    spools: Vec<PathBuf>,
    /// The trace, which is made if it is not there
    #[arg(short, long, value_name = "NAME.flood", required = true)]
    output: PathBuf,
    /// Take in the spools of this job, if there are some of several; its id is the first part of their names
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Delete spools that were taken in
    #[arg(long)]
    delete: bool,
}

const EXAMPLES: &str = "\
Examples:
  floodmark collect -o run.flood /tmp/floodmark-1000/4f2a...-node7
  ssh node7 tar -C /tmp/floodmark-1000 -c . | tar -x -C spools && floodmark collect -o run.flood spools";

impl CollectArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let spools = find(&self.spools)?;
        for collected in collect(&self.output, &spools, self.job.as_deref())? {
            let spool = plain(&collected.spool.display().to_string()).into_owned();
            let end = if collected.is_complete { "" } else { "; its agent did not finish it" };
            printer.say(&format!("{spool}: {} frames{end}", format_count(collected.items)));
            for damage in &collected.damages {
                let (at, bytes) = (format_count(damage.position), format_bytes(damage.bytes));
                printer.say(&format!(
                    "{spool}: {bytes} from byte {at} on are damaged and missing from the trace"
                ));
            }
            for host in &collected.unmeasured_clocks {
                printer.say(&format!(
                    "{spool}: times of {} are as its own clock had them; its offset was not measured, so its error is unknown",
                    plain(host)
                ));
            }
            if self.delete {
                std::fs::remove_dir_all(&collected.spool)?;
            }
        }
        Ok(ExitStatus::Success)
    }
}
