//! Resources, tested from outside.
#![expect(unsafe_code, reason = "tests give back what they allocated")]

mod arena;
mod pool;
mod suballocators;
