//! Metrics of processes, cgroups and GPUs.

pub(crate) mod bounds;
pub mod cgroup;
pub(crate) mod gauges;
pub(crate) mod gpu;
pub(crate) mod mappings;
pub(crate) mod memory;
mod nvml;
pub(crate) mod total;
