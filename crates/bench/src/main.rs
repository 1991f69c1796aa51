//! Floodmark's speed beside its peers, as printed ratios.
//!
//! Each subcommand measures one promise and, in the same run on the same machine, whatever people use
//! today. Machines are shared and noisy: everything is repeated, the median counts and the spread is
//! printed. Nothing here asserts; tests do not depend on time.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its findings")]

mod logs;
mod measure;
mod recorder;
mod resources;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Measure Floodmark beside its peers
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Folder for the files that are measured with; needs a few GB for `logs`
    #[arg(long, global = true, default_value = "target/bench")]
    folder: PathBuf,
    /// How often each measurement is repeated
    #[arg(long, global = true, default_value_t = 5)]
    repeat: usize,
}

#[derive(Subcommand)]
enum What {
    /// Measure what recording an event costs, beside a text log written as RMM writes its own
    Recorder {
        /// Events per measurement
        #[arg(long, default_value_t = 10_000_000)]
        events: u64,
    },
    /// Measure what an allocation costs, resource by resource
    Resources {
        /// Operations per measurement
        #[arg(long, default_value_t = 400_000)]
        operations: usize,
    },
    /// Measure the analyses on an RMM log and on a trace, beside pandas and Polars
    Logs {
        /// Rows of the log
        #[arg(long, default_value_t = 20_000_000)]
        events: u64,
        /// Python that has pandas and polars; without it they are left out, and the output says so
        #[arg(long)]
        python: Option<PathBuf>,
    },
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.folder)?;
    match arguments.what {
        What::Recorder { events } => recorder::run(&arguments.folder, events, arguments.repeat),
        What::Resources { operations } => resources::run(operations, arguments.repeat),
        What::Logs { events, python } => {
            logs::run(&arguments.folder, events, python.as_deref(), arguments.repeat)
        }
    }
}
