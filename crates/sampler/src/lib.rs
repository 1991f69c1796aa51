//! Runs a command and samples the memory of its tree of processes, with their output, stacks and exits.
//!
//! [`run`] starts a command without changing its environment and returns when all of its processes have
//! ended; [`attach`] watches a running process; [`observe`] watches all that are selected. They send samples to a [`Sink`], call an [`Observer`] after
//! every sweep, and return an [`Outcome`].
//!
//! ```no_run
//! use floodmark_sampler::{Launch, Memory, WatchProps, run};
//!
//! let mut samples = Memory::default();
//! let outcome = run(&Launch::new("make", ["-j4"]), &WatchProps::default(), &mut samples, &mut ())?;
//! assert!(outcome.peaks.rss.bytes > 0);
//! # Ok::<(), floodmark_sampler::Error>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`launch`] | starting a command |
//! | `tree` | its processes, found by events of the kernel (`events`) or by scanning (`walk`) |
//! | [`metrics`] | memory of processes, totals, cgroups and GPUs |
//! | [`watch`] | the main loop: discovery and exits of processes, sweeps |
//! | [`pace`] | the interval between sweeps |
//! | `output`, [`marks`] | the command's output, forwarded and recorded; lines of it that are marks |
//! | [`sink`], [`observer`] | receivers of samples and sweeps |
//! | [`stacks`] | call stacks of processes at peaks |
//! | [`outcome`], [`error`] | results of a watch, and errors |
//! | [`select`] | selecting processes that were started elsewhere |
//! | `rank` | ranks of processes in an MPI job |
//! | [`procfs`] | parsers of files in `/proc` |
//! | `sys` | system calls |
//!
//! Traces are in `floodmark-store`, and everything that interprets samples is in `floodmark-analyze`.

mod descriptors;
pub mod error;
pub mod launch;
pub mod marks;
pub mod metrics;
pub mod observer;
pub mod outcome;
mod output;
pub mod pace;
pub mod procfs;
mod rank;
pub mod select;
pub mod sink;
pub mod stacks;
mod sys;
mod tree;
mod unwatched;
pub mod watch;

pub use descriptors::MoreDescriptors;
pub use error::{Error, Result};
pub use launch::{Capture, Launch};
pub use marks::Marks;
pub use observer::{Level, Observer, ProcessSweep, Sweep, Total};
pub use outcome::{
    Cost, Exit, NoExitStats, Note, Outcome, Peak, PeakSource, Peaks, ProcessCounts, ProcessPeak, TotalPeak,
};
pub use pace::Pace;
pub use rank::{own_job, own_rank};
pub use select::{Candidate, Select};
pub use sink::{Memory, Sink, TailSink};
pub use stacks::{RecordedStacks, StackMethod, StackProps, StackReport, StackSink, StackTaker, StackWhen};
pub use unwatched::{Unwatched, spawn_unwatched};
pub use watch::{
    Discovery, Leftover, PeakMode, Until, WatchProps, attach, check_address_space, observe, run,
};
