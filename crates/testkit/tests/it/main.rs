//! The recorder and the store under torture: killed, starved, forked.
mod crash;
mod programs;
