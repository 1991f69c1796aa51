//! The trace directory: seal, parts, manifest, recovery, scan.
pub mod error;
pub mod source;

pub use error::{Error, Result};
pub use source::{Gap, Losses, Progress, Source};
