//! Floodmark's speed beside its peers, as printed ratios.
//!
//! Each subcommand measures one promise and, in the same run on the same machine, whatever people use
//! today. Machines are shared and noisy: everything is repeated, the median counts and the spread is
//! printed. Nothing here asserts; tests do not depend on time.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its findings")]

mod cluster;
mod compare;
mod driver_costs;
mod gpu_check;
mod heap;
mod latency;
mod logs;
mod measure;
mod multi_stream;
mod nsys;
mod output;
mod peaks;
mod random;
mod recorder;
mod resources;
mod scans;
mod sealing;
mod sql;
mod stacks;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Measure Floodmark beside its peers
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Folder for the files that are measured with; needs a few GB for `logs` and `compare`
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
    /// Count which watchers see short peaks of memory, and what they cost, beside mprof and psrecord
    Peaks {
        #[command(flatten)]
        props: peaks::Props,
    },
    /// Measure what an allocation costs, resource by resource, beside RMM
    Resources {
        #[command(flatten)]
        props: resources::Props,
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
    /// Measure questions in SQL to a trace, beside DuckDB and pandas
    Sql {
        /// Events of the trace
        #[arg(long, default_value_t = 20_000_000)]
        events: u64,
        /// Python that has duckdb, pandas and pyarrow
        #[arg(long)]
        python: PathBuf,
    },
    /// Measure scans of a trace of several processes, beside the same events in one process
    Scans {
        #[command(flatten)]
        props: scans::Props,
    },
    /// Measure what sealing the events of a heap capture costs, by stage
    Sealing {
        #[command(flatten)]
        props: sealing::Props,
    },
    /// Measure reading and recording beside an earlier build, in alternation
    Compare {
        #[command(flatten)]
        props: compare::Props,
    },
    /// Allocate and free at random, as RMM's `RANDOM_ALLOCATIONS_BENCH` does, against every resource
    Random {
        #[command(flatten)]
        props: random::Props,
    },
    /// Allocate on several streams, as RMM's `MULTI_STREAM_ALLOCATIONS_BENCH` does, against every resource
    MultiStream {
        #[command(flatten)]
        props: multi_stream::Props,
    },
    /// Measure how long single allocations and frees take when blocks change streams, against every resource
    Latency {
        #[command(flatten)]
        props: latency::Props,
    },
    /// Measure how long taking stacks holds a program up, by the program's own clock
    Stacks {
        #[command(flatten)]
        props: stacks::Props,
    },
    /// Measure how fast a command's output passes through `floodmark run`, beside `cat` and `tee`
    Output {
        #[command(flatten)]
        props: output::Props,
    },
    /// Measure what an agent costs its node, and the recorder of a job with many agents
    Cluster {
        #[command(flatten)]
        props: cluster::Props,
    },
    /// Measure what recording the heap of real programs costs, beside heaptrack, memray and massif
    Heap {
        #[command(flatten)]
        props: heap::Props,
    },
    /// Measure the analysis of an export of Nsight Systems, beside SQL and Python
    Nsys {
        #[command(flatten)]
        props: nsys::Props,
    },
    /// Check on a GPU that no block is handed on while somebody may still use it; exits with 1 if one is
    GpuCheck {
        #[command(flatten)]
        props: gpu_check::Props,
    },
    /// Measure what single calls of the CUDA driver cost
    DriverCosts {
        /// Number of the device
        #[arg(long, default_value_t = 0)]
        device: i32,
    },
}

fn main() -> ExitCode {
    run(Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { what, folder, repeat } = arguments;
    std::fs::create_dir_all(&folder)?;
    match what {
        What::Recorder { events } => recorder::run(&folder, events, repeat)?,
        What::Logs { events, python } => logs::run(&folder, events, python.as_deref(), repeat)?,
        What::Compare { props } => compare::run(&props, &folder, repeat)?,
        What::Cluster { props } => cluster::run(&props, &folder, repeat)?,
        What::Output { props } => output::run(&props, &folder, repeat)?,
        What::Peaks { props } => peaks::run(&props, &folder, repeat)?,
        What::Resources { props } => resources::run(&props, &folder, repeat)?,
        What::Sql { events, python } => sql::run(&folder, events, &python, repeat)?,
        What::Scans { props } => scans::run(&props, &folder, repeat)?,
        What::Sealing { props } => sealing::run(&props, &folder, repeat)?,
        What::Random { props } => random::run(&props, repeat)?,
        What::MultiStream { props } => multi_stream::run(&props, repeat)?,
        What::Latency { props } => latency::run(&props, repeat)?,
        What::Stacks { props } => stacks::run(&props, &folder)?,
        What::Heap { props } => heap::run(&props, &folder, repeat)?,
        What::Nsys { props } => nsys::run(&props, &folder, repeat)?,
        What::GpuCheck { props } => return gpu_check::run(props),
        What::DriverCosts { device } => driver_costs::run(device, repeat)?,
    }
    Ok(ExitCode::SUCCESS)
}
