//! Floodmark's speed beside its peers, as printed ratios.
//!
//! Each subcommand measures one promise and, in the same run on the same machine, whatever people use
//! today. Machines are shared and noisy: everything is repeated, the median counts and the spread is
//! printed. Nothing here asserts; tests do not depend on time.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its findings")]

mod logs;
mod measure;
mod multi_stream;
mod random;
mod recorder;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};
use floodmark_replay::lineup::Ground;
use floodmark_replay::{Lineup, LineupProps};

use crate::multi_stream::{MultiStreamProps, Warm};
use crate::random::RandomProps;

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
    /// Measure the analyses on an RMM log and on a trace, beside pandas and Polars
    Logs {
        /// Rows of the log
        #[arg(long, default_value_t = 20_000_000)]
        events: u64,
        /// Python that has pandas and polars; without it they are left out, and the output says so
        #[arg(long)]
        python: Option<PathBuf>,
    },
    /// Allocate and free at random, as RMM's `RANDOM_ALLOCATIONS_BENCH` does, against every resource
    Random {
        /// Resources, separated by commas; all but `fixed` if not given
        #[arg(short, long, value_delimiter = ',')]
        resource: Vec<String>,
        /// Allocations; 1,000, 10,000 and 100,000 if not given
        #[arg(short, long)]
        numallocs: Option<usize>,
        /// Largest allocation in MiB; 1, 4, 64, 256, 1024 and 4096 if not given
        #[arg(short, long)]
        maxsize: Option<u64>,
        /// Simulated memory in GiB
        #[arg(long, default_value_t = 40)]
        simulate: u64,
    },
    /// Allocate on several streams, as RMM's `MULTI_STREAM_ALLOCATIONS_BENCH` does, against every resource
    MultiStream {
        /// Resources, separated by commas; all but `fixed` if not given
        #[arg(short, long, value_delimiter = ',')]
        resource: Vec<String>,
        /// Kernels in a round; 4 if not given
        #[arg(short, long)]
        kernels: Option<usize>,
        /// Streams; 1, 2 and 4 if not given
        #[arg(short, long)]
        streams: Option<usize>,
        /// Only with blocks handed out on every stream before; with and without if not given
        #[arg(short, long)]
        warm: bool,
        /// Simulated memory in GiB
        #[arg(long, default_value_t = 40)]
        simulate: u64,
    },
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.folder)?;
    match arguments.what {
        What::Recorder { events } => recorder::run(&arguments.folder, events, arguments.repeat),
        What::Logs { events, python } => {
            logs::run(&arguments.folder, events, python.as_deref(), arguments.repeat)
        }
        What::Random { resource, numallocs, maxsize, simulate } => {
            let lineup = simulated(simulate);
            let choices = random::choices(&lineup, &resource)?;
            let (allocations, largest_mib, repeat) = (numallocs, maxsize, arguments.repeat);
            random::run(&lineup, &RandomProps { choices, allocations, largest_mib, repeat })
        }
        What::MultiStream { resource, kernels, streams, warm, simulate } => {
            let lineup = simulated(simulate);
            let choices = random::choices(&lineup, &resource)?;
            let (warm, repeat) = (warm.then_some(Warm::Yes), arguments.repeat);
            multi_stream::run(&lineup, &MultiStreamProps { choices, kernels, streams, warm, repeat })
        }
    }
}

fn simulated(gib: u64) -> Lineup {
    println!("On simulated memory of {gib} GiB.");
    Lineup::new(LineupProps::on(Ground::Simulated { bytes: gib << 30 }))
}
