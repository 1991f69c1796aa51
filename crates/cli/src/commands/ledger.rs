//! `floodmark ledger`

use anyhow::Result;
use clap::Args;
use floodmark_event::NO_DEVICE;
use floodmark_inspect::{Input, Query};

use crate::args::{InputArgs, OutputArgs};
use crate::ask::ask_each;
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Show what the memory of a process, or of a device, consists of at its peak
///
/// Items add up to the resident memory of a process; with --device to what the driver said was in use on that device, by
/// the number that the driver gives it: tensors, slack of caches, libraries, contexts, other processes and a residual.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LedgerArgs {
    /// Show this process instead of the one with the highest peak
    #[arg(long, value_name = "PID", help_heading = "What to show")]
    pid: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark ledger run.flood
  floodmark ledger run.flood --pid 4711 --limit 0
  floodmark ledger run.flood --device 0
  floodmark ledger heaptrack.app.4711.zst";

impl LedgerArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        match self.device()? {
            Some(device) => {
                let ask = |input: &Input, query: &Query<'_>| input.device_ledger(query, device);
                printer.reports(&ask_each(&self.input, printer, ask)?, self.output)?;
            }
            None => {
                let ask = |input: &Input, query: &Query<'_>| input.ledger(query, self.pid);
                printer.reports(&ask_each(&self.input, printer, ask)?, self.output)?;
            }
        }
        Ok(ExitStatus::Success)
    }

    /// The device whose ledger it is; none for that of a process.
    fn device(&self) -> Result<Option<i32>> {
        let devices = self.input.filter.props().devices.unwrap_or_default();
        match devices[..] {
            [] | [NO_DEVICE] => Ok(None),
            [_] if self.pid.is_some() => Err(hinted(
                "a ledger is that of a process or that of a device",
                "leave out --pid or --device; a device's ledger names its processes",
            )),
            [device] => Ok(Some(device)),
            _ => Err(hinted("a ledger is that of one device", "ask for one device at a time")),
        }
    }
}
