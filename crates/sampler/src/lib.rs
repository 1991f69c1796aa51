//! Runs a command and watches the memory, output and end of every process it becomes.
//!
//! [`run`] starts a command as if nobody watched and returns when everything it became is over;
//! [`attach`] watches what runs already. Both tell a [`Sink`] what they see and an [`Observer`] of
//! every sweep, and give an [`Outcome`].
//!
//! | module | what lives there |
//! |---|---|
//! | [`launch`] | starting a command untouched |
//! | `tree` | the processes it became: told by the kernel (`events`), or found by looking (`walk`) |
//! | [`metrics`] | what is read of them: memory, totals, control groups, devices |
//! | [`watch`] | the loop, births, ends and sweeps |
//! | [`pace`] | when to sweep |
//! | `output`, [`marks`] | the command's output, passed on and recorded; lines of it that are marks |
//! | [`sink`], [`observer`] | who is told |
//! | [`stacks`] | what threads were doing at a peak |
//! | [`outcome`], [`error`] | how it went, and why it did not |
//! | `rank` | ranks of processes in an MPI job |
//! | [`procfs`] | parsers of what the kernel writes |
//! | `sys` | what the operating system is asked for |
//!
//! What does *not* live here: traces (`floodmark-store`) and anything that interprets samples.

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
pub mod sink;
pub mod stacks;
mod sys;
mod tree;
pub mod watch;

pub use error::{Error, Result};
pub use launch::{Capture, Launch};
pub use marks::Marks;
pub use observer::{Level, Observer, ProcessSweep, Sweep, Total};
pub use outcome::{
    Cost, Exit, Note, Outcome, Peak, PeakSource, Peaks, ProcessCounts, ProcessPeak, TotalPeak,
};
pub use pace::Pace;
pub use rank::own_rank;
pub use sink::{Memory, Sink, TailSink};
pub use stacks::{RecordedStacks, StackMethod, StackProps, StackReport, StackSink, StackTaker, StackWhen};
pub use watch::{Births, PeakMode, Until, WatchProps, attach, run};
