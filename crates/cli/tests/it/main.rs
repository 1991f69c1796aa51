//! Runs the `floodmark` command as a user does.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod attribution;
mod calls;
mod check;
mod cli_test;
mod documents;
mod errors;
mod exporting;
mod flames;
mod fragmentation;
mod golden;
mod growth;
mod help;
mod hostile;
mod hostile_inputs;
mod inputs;
mod jobs;
mod json;
mod json_keys;
mod limits;
mod logs;
mod mpi;
mod native;
mod nsys;
mod nsys_plot;
mod opens;
mod origin;
mod passing_on;
mod peak_stack;
mod plotting;
mod pty;
mod ranks;
mod recording;
mod replay;
mod report;
mod running;
mod samples;
mod serve;
mod stacks;
mod terminal;
mod top;
mod torch;
mod traces;
mod truth;
