//! Shared code of Floodmark's tests and benchmarks.
//!
//! A [`Workload`] generates any number of events without keeping them. An [`oracle`] answers the questions
//! of an analysis in the most obvious way, however slow. [`torture`] defines what the programs in `src/bin`
//! record before a test kills them. [`TempDir`] and [`wait`] are for every test that touches files or other
//! processes. [`beds`] are hosts and schedulers for tests of whole jobs, [`ranks`] makes up the samples of a job of any
//! size. Nothing here depends on the analyses, and the library depends on `floodmark-event` alone.

pub mod beds;
pub mod gaps;
pub mod line;
pub mod oracle;
pub mod random;
pub mod ranks;
pub mod temp_dir;
pub mod torture;
pub mod wait;
pub mod workload;

pub use gaps::Gaps;
pub use oracle::{Oracle, OracleFilter};
pub use random::Random;
pub use temp_dir::TempDir;
pub use wait::{wait_for, wait_for_exit, wait_until, wait_within};
pub use workload::{SizeMix, Workload, WorkloadProps};
