//! Runs a command and watches the memory, output and end of every process it becomes.

pub mod error;
pub mod outcome;
pub mod procfs;
pub mod sink;

pub use error::{Error, Result};
pub use outcome::{
    Cost, Exit, Note, Outcome, Peak, PeakSource, Peaks, ProcessCounts, ProcessPeak, TotalPeak,
};
pub use sink::{Memory, Sink};
