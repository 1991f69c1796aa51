//! The store from outside: what is written is read, whatever the way.
mod blocks;
mod calls;
mod compat;
mod disorder;
mod following;
mod hostile_traces;
mod intake;
mod merging;
mod observing;
mod reading;
mod records;
mod repairing;
mod resuming;
mod sealing;
mod seeds;
mod sizes;
mod traces;
