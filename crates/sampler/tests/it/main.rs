//! Real processes, watched.

mod exits;
mod gpus;
mod groups;
mod names;
mod output;
mod peaks;
mod programs;
mod selected;
mod shared;
mod signals;
mod stacks;
mod stacks_faults;
mod stacks_hard;
mod stacks_recorded;
mod terminal;
mod tree;
mod truth;
mod untouched;
