//! The tail from outside: what is recorded, what survives cuts, what a fork does.
mod damage;
mod observing;
mod recorders;
mod recording;
mod sharing;
mod stamped;
mod streams;
mod tailing;
mod traced;
