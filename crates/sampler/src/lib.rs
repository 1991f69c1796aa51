//! Runs a command and watches the memory, output and end of every process it becomes.

pub mod error;
pub mod metrics;
pub mod outcome;
pub mod pace;
pub mod procfs;
pub mod sink;
mod sys;
mod tree;

pub use error::{Error, Result};
pub use outcome::{
    Cost, Exit, Note, Outcome, Peak, PeakSource, Peaks, ProcessCounts, ProcessPeak, TotalPeak,
};
pub use sink::{Memory, Sink};
