//! The recorder and the store under torture: killed, starved, forked.
mod crash;
mod exits;
mod programs;
mod project;
mod space;
