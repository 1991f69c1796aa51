//! Resources, tested from outside: one module per subject.
#![expect(unsafe_code, reason = "tests give back what they allocated")]

mod arena;
mod buffer;
mod cuda;
mod pool;
mod stub;
mod suballocators;
