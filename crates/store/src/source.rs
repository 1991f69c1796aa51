//! Anything that yields events in order: a trace, a foreign file, standard input.
//!
//! Nothing downstream asks what a source is; analyses see batches, views see [`Losses`].

use floodmark_event::units::format_count;
use floodmark_event::{EventBatch, Tables};
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Reasons that are told apart.
const REASONS_MAX: usize = 100;
const OTHER_REASONS: &str = "other reasons, too many to name";

/// Events that are known to be missing, by reason. Printed by every report that depends on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// One entry per reason, each with a count above zero.
    pub gaps: Vec<Gap>,
}

/// A counted loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// How many events, lines or records are missing; 0 if that cannot be known.
    pub count: u64,
    /// Why, in words that finish the sentence "N were lost: …".
    pub reason: String,
}

impl Gap {
    /// Returns what is missing, as a sentence without its period. The reason may be text from a file.
    pub fn sentence(&self) -> String {
        let count = match self.count {
            0 => "an unknown number".to_owned(),
            count => format_count(count),
        };
        let were = if self.count > 1 { "were" } else { "was" };
        format!("{count} {were} lost: {}", self.reason)
    }
}

impl Losses {
    /// Adds `count` to the gap with this reason.
    pub fn add(&mut self, count: u64, reason: &str) {
        if let Some(gap) = self.gaps.iter_mut().find(|gap| gap.reason == reason) {
            gap.count = gap.count.saturating_add(count);
        } else if self.gaps.len() < REASONS_MAX {
            self.gaps.push(Gap { count, reason: reason.to_owned() });
        } else {
            // A file that makes up reasons must not fill memory or the terminal with them.
            let others = &mut self.gaps[REASONS_MAX - 1];
            OTHER_REASONS.clone_into(&mut others.reason);
            others.count = others.count.saturating_add(count);
        }
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: &Self) {
        for gap in &other.gaps {
            self.add(gap.count, &gap.reason);
        }
    }

    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.gaps.is_empty()
    }
}

/// How far a source has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Units done (bytes or rows).
    pub done: u64,
    /// Units in all, if known.
    pub total: Option<u64>,
}

/// Yields events in the order in which they happened. Can be read in a thread of its own.
pub trait Source: Send {
    /// What the ids in batches point to. Grows while the source is read.
    fn tables(&self) -> &Tables;

    /// Replaces the rows of `batch` by the next ones; `false` at the end, with `batch` empty.
    ///
    /// # Errors
    /// If the source cannot be read on; what came before stays good.
    fn next(&mut self, batch: &mut EventBatch) -> Result<bool>;

    /// What is known to be missing from the rows so far.
    fn losses(&self) -> Losses;

    /// How far reading has come.
    fn progress(&self) -> Progress {
        Progress::default()
    }

    /// Where an event that was read, counted from 0, is in its file: `line 12`. None where events have no
    /// such place.
    fn place(&self, _event: u64) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_beyond_a_hundred_are_counted_as_one() {
        let mut losses = Losses::default();
        for number in 0..1000 {
            losses.add(2, &format!("reason {number}"));
        }
        losses.add(5, "reason 0");
        assert_eq!(losses.gaps.len(), REASONS_MAX);
        assert_eq!(losses.gaps[0], Gap { count: 7, reason: "reason 0".to_owned() });
        assert_eq!(losses.gaps.iter().map(|gap| gap.count).sum::<u64>(), 2005);
        assert_eq!(losses.gaps[REASONS_MAX - 1].reason, OTHER_REASONS);
    }
}
