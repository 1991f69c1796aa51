//! Scripts, plays and searches, from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod concurrent;
mod events;
mod matching;
mod playing;
mod searching;
