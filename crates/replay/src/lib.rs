//! Plays recorded allocations against memory resources.
//!
//! A [`Reading`] turns events into [`Script`]s: what to allocate and free, in which order, by which thread
//! and on which stream. A [`Run`] plays a script against the resources of a [`Lineup`], on a device or on
//! simulated memory, and says what each took, how much it held, and which allocations failed that had
//! succeeded. [`search`](search()) finds the least memory that is enough, and [`replay`](replay()) does all
//! of this for as many resources as there are.
//!
//! | module | what lives there |
//! |---|---|
//! | [`reading`], `draft` | writing scripts from the changes of live blocks |
//! | [`script`] | what to do, 16 bytes a step |
//! | [`lineup`], [`backing`], [`stage`] | the resources, what lies below them, and how each is made ready |
//! | `player`, `concurrent`, `pace` | playing: in the order of the log, threads at once, at its pace |
//! | `watch`, `histogram` | looking on: times, room, failures |
//! | [`run`], [`search`] | all plays of one resource; the least memory |
//! | [`replay`] | all resources on one backing |
//! | [`result`] | what came of it, as plain values |
//!
//! What does *not* live here: reading files (the caller hands events over batch by batch) and
//! showing results.

pub mod backing;
mod concurrent;
mod draft;
pub mod error;
mod histogram;
pub mod lineup;
mod pace;
mod player;
pub mod reading;
pub mod replay;
pub mod result;
pub mod run;
pub mod script;
pub mod search;
pub mod stage;
mod watch;

pub use backing::Backing;
pub use error::{Error, Result};
pub use lineup::{Choice, Lineup, LineupProps};
pub use reading::{Counts, Pace, ReadProps, Reading, choose};
pub use replay::{Progress, ReplayProps, WhatIf, replay};
pub use result::{Order, Replay};
pub use run::{Run, RunProps};
pub use script::{Excerpt, Script};
pub use search::search;
pub use stage::Stage;
