//! Resources that add one thing to the one they wrap.

pub mod tracking;
