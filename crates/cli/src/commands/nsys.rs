//! `floodmark nsys`: GPU memory as Nsight Systems traced it, with the products of the scripts that came
//! first.

mod plot;
mod process;
mod profile;
mod split;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Trace GPU memory with Nsight Systems, or do what the scripts for its exports do
///
/// Every command takes a .sqlite export, a folder of tables or a .nsys-rep report as it is: 'floodmark
/// watermark report.sqlite'. These are for what else there is to do.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct NsysArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Profile(profile::ProfileArgs),
    Split(split::SplitArgs),
    Process(process::ProcessArgs),
    Plot(plot::NsysPlotArgs),
}

const EXAMPLES: &str = "\
Examples:
  floodmark nsys profile -- ./app
  floodmark nsys split report.sqlite -o out/run
  floodmark nsys process -i out/run -o peak.txt -a watermark
  floodmark nsys plot -u usage.txt -s smi.txt -o chart.png";

impl NsysArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        match &self.what {
            What::Profile(args) => args.run(printer),
            What::Split(args) => args.run(printer),
            What::Process(args) => args.run(printer),
            What::Plot(args) => args.run(printer),
        }
    }
}
