//! Rows of every table other than events (samples, output, stacks, scopes, messages), in the order of time.
//!
//! A [`RowSource`] yields them from a trace, a growing trace or a foreign file alike.

mod follow;
mod id_map;
mod merged;
mod resumable;
mod trace;

use floodmark_event::{Row, Tables};

use crate::error::Result;
use crate::source::{Losses, Progress};

pub use follow::{TraceFollower, follow_rows};
pub use id_map::IdMap;
pub use resumable::ResumableEvents;
pub(crate) use trace::{AnyRowScan, RowScan, open as open_rows};

/// Yields rows in the order of their times, as far as what they are read from keeps that order.
pub trait RowSource: Send {
    /// What ids in rows point to, and the subjects. Grows while rows are read; an id stays good.
    fn tables(&self) -> &Tables;

    /// Replaces `rows` by the next ones; `false` at the end, with `rows` empty. A source that follows a
    /// growing trace waits for them.
    ///
    /// # Errors
    /// If the source cannot be read on; what came before stays good.
    fn next(&mut self, rows: &mut Vec<Row>) -> Result<bool>;

    /// What is known to be missing from the rows so far.
    fn losses(&self) -> Losses;

    /// How far reading has come.
    fn progress(&self) -> Progress {
        Progress::default()
    }
}
