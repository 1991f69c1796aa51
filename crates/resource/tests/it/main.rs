//! Resources, tested from outside: one module per subject.
#![expect(unsafe_code, reason = "tests give back what they allocated")]

mod adaptors;
mod aligned;
mod arena;
mod blocks;
mod buffer;
mod callback;
mod csv;
mod cuda;
mod current;
mod debug_log;
mod failure;
mod folder;
mod limiting;
mod log_file;
mod logging;
mod pool;
mod stacks;
mod statistics;
mod statistics_oracle;
mod statistics_scopes;
mod stub;
mod suballocators;
mod together;
mod tracking;
