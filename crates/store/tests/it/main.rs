//! The store from outside: what is written is read, whatever the way.
mod compat;
mod following;
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
