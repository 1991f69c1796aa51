//! The `floodmark` command: options in, library calls, views out.
//!
//! A command is a file in `commands`: its `Args` (whose comments are its help) become plain values, a
//! library does the work, `floodmark-view` lays the result out and the [`Printer`] writes it. Nothing
//! else prints, and the exit code is decided here.

mod args;
mod ask;
mod cluster_args;
mod commands;
mod device_files;
mod drawing;
mod env;
mod error;
mod exit;
mod exporting;
mod flaming;
mod gpu_args;
mod heap_args;
mod printer;
mod progress;
mod reading;
mod stack_args;
mod watching;
mod whole_file;

use std::process::ExitCode;

use clap::FromArgMatches as _;

use crate::args::Cli;
use crate::exit::ExitStatus;
use crate::printer::Printer;

fn main() -> ExitCode {
    let parsed = args::command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; a closed pipe is not reported.
            let _ = error.print();
            let status = if error.use_stderr() { ExitStatus::Failure } else { ExitStatus::Success };
            return status.into();
        }
    };
    let printer = Printer::new(&cli.global);
    let Some(command) = cli.command else {
        let _ = args::command().print_help();
        return ExitStatus::Success.into();
    };
    match commands::run(command, &printer) {
        Ok(status) => {
            if let ExitStatus::External(exit) = status {
                // The parent sees the exit status that it would have seen of the command.
                exit.reraise();
            }
            status.into()
        }
        Err(error) if error::is_broken_pipe(&error) => ExitStatus::Success.into(),
        Err(error) => {
            printer.error(error.as_ref());
            ExitStatus::Failure.into()
        }
    }
}
