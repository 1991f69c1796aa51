//! What Floodmark's own tests and benchmarks need: synthetic workloads, oracles, torture programs.
//!
//! A [`Workload`] yields as many events as wanted without keeping them; an [`oracle`] answers the
//! questions of an analysis in the most obvious way, however slow; [`torture`] says what the programs
//! in `src/bin` record before they are killed. Nothing here knows the analyses.

pub mod gaps;
pub mod line;
pub mod oracle;
pub mod random;
pub mod torture;
pub mod workload;

pub use gaps::Gaps;
pub use oracle::{Oracle, OracleFilter};
pub use random::Random;
pub use workload::{SizeMix, Workload, WorkloadProps};
