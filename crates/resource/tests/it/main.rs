//! Tests of the crate's promises, one module per subject.

mod buffer;
mod cuda;
mod stub;
