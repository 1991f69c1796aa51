//! One file per command.

pub(crate) mod agent;
pub(crate) mod attach;
pub(crate) mod calls;
pub(crate) mod check;
pub(crate) mod churn;
pub(crate) mod collect;
pub(crate) mod completions;
pub(crate) mod diff;
pub(crate) mod export;
pub(crate) mod flame;
pub(crate) mod fragmentation;
pub(crate) mod import;
pub(crate) mod info;
pub(crate) mod leaks;
pub(crate) mod ledger;
pub(crate) mod lifetimes;
pub(crate) mod memory_logger;
pub(crate) mod merge;
pub(crate) mod nsys;
pub(crate) mod oom;
pub(crate) mod partial;
pub(crate) mod plot;
pub(crate) mod ranks;
pub(crate) mod read;
pub(crate) mod repair;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod sql;
pub(crate) mod stats;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod usage;
pub(crate) mod watermark;

use anyhow::Result;

use crate::args::Command;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Runs what was typed.
pub(crate) fn run(command: Command, printer: &Printer) -> Result<ExitStatus> {
    match command {
        Command::Run(args) => args.run(printer),
        Command::Trace(args) => Ok(args.run(printer)),
        Command::Attach(args) => args.run(printer),
        Command::Top(args) => args.run(printer),
        Command::Collect(args) => args.run(printer),
        Command::Agent(args) => args.run(),
        Command::Import(args) => args.run(printer),
        Command::Stats(args) => args.run(printer),
        Command::Watermark(args) => args.run(printer),
        Command::Usage(args) => args.run(printer),
        Command::Leaks(args) => args.run(printer),
        Command::Lifetimes(args) => args.run(printer),
        Command::Churn(args) => args.run(printer),
        Command::Ledger(args) => args.run(printer),
        Command::Fragmentation(args) => args.run(printer),
        Command::Oom(args) => args.run(printer),
        Command::Calls(args) => args.run(printer),
        Command::Ranks(args) => args.run(printer),
        Command::Check(args) => args.run(printer),
        Command::Sql(args) => args.run(printer),
        Command::Partial(args) => args.run(printer),
        Command::Merge(args) => args.run(printer),
        Command::Replay(args) => args.run(printer),
        Command::Flame(args) => args.run(printer),
        Command::Diff(args) => args.run(printer),
        Command::Plot(args) => args.run(printer),
        Command::Report(args) => args.run(printer),
        Command::Serve(args) => args.run(printer),
        Command::Read(args) => args.run(printer),
        Command::Export(args) => args.run(printer),
        Command::Info(args) => args.run(printer),
        Command::Repair(args) => args.run(printer),
        Command::MemoryLogger(args) => args.run(printer),
        Command::Nsys(args) => args.run(printer),
        Command::Completions(args) => args.run(printer),
    }
}
