//! What was seen rather than what happened: samples, output, stacks and scopes, from anywhere.
//!
//! A [`SampleSource`] hands out rows as a trace's tables hold them, those of all tables in the order of
//! their times, so whoever reads does not ask whether they come from a trace, a growing trace or a log.

mod adopt;
mod follow;
mod levels;
mod merged;
mod placed;
mod trace;

use floodmark_event::{LogRow, OutputRow, SampleRow, ScopeRow, StackSampleRow, Tables};
use floodmark_store::{Losses, Progress, Result};

pub use adopt::Adopted;
pub use follow::{Following, follow};
pub use levels::{Extent, Level, Levels, Series, Survey};
pub use placed::PlacedEvents;
pub(crate) use trace::open as open_trace;

/// A row of any table that is read row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A scope was entered or left, or a mark.
    Scope(ScopeRow),
    /// A value was read.
    Sample(SampleRow),
    /// Output was read.
    Output(OutputRow),
    /// A stack was seen.
    Stack(StackSampleRow),
    /// The tool that recorded had something to say.
    Log(LogRow),
}

impl Seen {
    /// When.
    pub fn time_ns(&self) -> i64 {
        match self {
            Self::Scope(row) => row.time_ns,
            Self::Sample(row) => row.time_ns,
            Self::Output(row) => row.time_ns,
            Self::Stack(row) => row.time_ns,
            Self::Log(row) => row.time_ns,
        }
    }
}

/// Yields rows in the order of their times, as far as what they are read from keeps that order.
pub trait SampleSource: Send {
    /// What ids in rows point to, and the subjects. Grows while rows are read; an id stays good.
    fn tables(&self) -> &Tables;

    /// Replaces `rows` by the next ones; `false` at the end, with `rows` empty. Waits if the source is
    /// still growing and is followed.
    ///
    /// # Errors
    /// If the source cannot be read on; what came before stays good.
    fn next(&mut self, rows: &mut Vec<Seen>) -> Result<bool>;

    /// What is known to be missing from the rows so far.
    fn losses(&self) -> Losses;

    /// How far reading has come.
    fn progress(&self) -> Progress {
        Progress::default()
    }
}
