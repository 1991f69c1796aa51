//! Resources that have memory of their own.

pub(crate) mod cuda;
pub(crate) mod host;
pub(crate) mod simulated;
