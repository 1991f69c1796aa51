//! What the crate promises, seen from outside.

mod dialects;
mod hostile;
mod logs;
mod opening;
mod places;
mod properties;
mod seeds;
mod writing;
