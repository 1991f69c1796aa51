//! Resources from outside.
mod stacks;
mod tracking;
