//! What is read of processes, groups and devices.

pub mod cgroup;
pub(crate) mod memory;
pub(crate) mod told;
pub(crate) mod total;
