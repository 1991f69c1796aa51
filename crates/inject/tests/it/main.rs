//! The library from outside: it is preloaded into real programs, and the trace says what they did.
mod build;
mod cuda;
mod heap_tail;
mod python;
mod recorded;
mod torch;
mod traps;
