//! `floodmark serve`

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::args::{FilterArgs, ReadingArgs};
use crate::exit::ExitStatus;
use crate::pass::refuse_standard;
use crate::printer::Printer;
use crate::serve::{self, Browser, ServeProps};

/// Show a trace in a browser while it grows
///
/// Serves the page of 'floodmark report' at an address that is printed. While the trace is being recorded
/// the page follows it; and the closer one looks at a timeline, the more of it is drawn, down to single
/// events. Only this machine can reach the page, and only with the address as it is printed.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Trace or log to show
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Listen at this port [default: one that is free]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Listen at this address; others than those of this machine itself can be reached over the network
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark serve run.flood
  floodmark serve run.flood --open
  floodmark serve memory_log.dev0.csv --port 8080";

impl ServeArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        refuse_standard(&self.input, "a page looks at its input more than once")?;
        let props = ServeProps {
            input: self.input.clone(),
            filter: self.filter.props(),
            open: self.reading.props(),
            address: (self.bind, self.port).into(),
            browser: if self.open { Browser::Open } else { Browser::Leave },
        };
        serve::serve(props, printer)?;
        Ok(ExitStatus::Success)
    }
}
