//! What is read of processes, groups and devices.

pub mod cgroup;
pub(crate) mod gpu;
pub(crate) mod memory;
mod nvml;
pub(crate) mod told;
pub(crate) mod total;
