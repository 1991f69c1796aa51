//! The store from outside: what is written is read, whatever the way.
mod compat;
mod following;
mod observing;
mod reading;
mod repairing;
mod resuming;
mod seeds;
mod sizes;
mod traces;
