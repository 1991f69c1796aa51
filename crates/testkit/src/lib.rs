//! Synthetic workloads, oracles and torture programs for Floodmark's own tests.

pub mod torture;
