//! The store from outside: what is written is read, whatever the way.
mod compat;
mod following;
mod reading;
mod repairing;
mod seeds;
mod traces;
