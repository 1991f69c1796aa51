//! The tail from outside: what is recorded, what survives cuts, what a fork does.
mod damage;
mod observing;
mod recording;
mod tailing;
