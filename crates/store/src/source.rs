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

/// Events that are known to be missing, by reason, and remarks on the source. Printed by every report that depends
/// on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// One entry per reason, each with a count above zero.
    pub gaps: Vec<Gap>,
}

/// A counted loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// How many events, lines or records are missing; 0 if that cannot be known. Of a remark how often it
    /// applies, 0 if it is about the whole source.
    pub count: u64,
    /// Why, in words that finish the sentence "N were lost: …"; the whole sentence of a remark.
    pub reason: String,
    /// Whether this is a remark on the source and nothing is missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_remark: bool,
}

impl Gap {
    /// Returns a loss.
    pub fn loss(count: u64, reason: impl Into<String>) -> Self {
        Self { count, reason: reason.into(), is_remark: false }
    }

    /// Returns a remark.
    pub fn remark(count: u64, reason: impl Into<String>) -> Self {
        Self { count, reason: reason.into(), is_remark: true }
    }

    /// Returns how many events are missing at least.
    pub fn least_count(&self) -> u64 {
        if self.is_remark { 0 } else { self.count.max(1) }
    }

    /// Returns what is missing, as a sentence without its period. The reason may be text from a file.
    pub fn sentence(&self) -> String {
        if self.is_remark {
            return match self.count {
                0 | 1 => self.reason.clone(),
                count => format!("{} ({} times)", self.reason, format_count(count)),
            };
        }
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
        if let Some(gap) = self.gaps.iter_mut().find(|gap| !gap.is_remark && gap.reason == reason) {
            gap.count = gap.count.saturating_add(count);
        } else if self.gaps.len() < REASONS_MAX {
            self.gaps.push(Gap::loss(count, reason));
        } else {
            // A file that makes up reasons must not fill memory or the terminal with them.
            let others = &mut self.gaps[REASONS_MAX - 1];
            others.is_remark = false;
            OTHER_REASONS.clone_into(&mut others.reason);
            others.count = others.count.saturating_add(count);
        }
    }

    /// Adds a remark on the source, a sentence without its period. Nothing is missing.
    pub fn remark(&mut self, sentence: impl Into<String>) {
        self.remark_times(0, sentence);
    }

    /// Adds a remark that applies to `count` records of the source.
    pub fn remark_times(&mut self, count: u64, sentence: impl Into<String>) {
        let sentence = sentence.into();
        if let Some(gap) = self.gaps.iter_mut().find(|gap| gap.is_remark && gap.reason == sentence) {
            gap.count = gap.count.saturating_add(count);
        } else if self.gaps.len() < REASONS_MAX {
            self.gaps.push(Gap::remark(count, sentence));
        }
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: &Self) {
        for gap in &other.gaps {
            if gap.is_remark {
                self.remark_times(gap.count, &*gap.reason);
            } else {
                self.add(gap.count, &gap.reason);
            }
        }
    }

    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.gaps.iter().all(|gap| gap.is_remark)
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
        assert_eq!(losses.gaps[0], Gap::loss(7, "reason 0"));
        assert_eq!(losses.gaps.iter().map(|gap| gap.count).sum::<u64>(), 2005);
        assert_eq!(losses.gaps[REASONS_MAX - 1].reason, OTHER_REASONS);
    }

    #[test]
    fn a_remark_is_no_loss_and_travels_with_losses() {
        let (mut losses, mut all) = (Losses::default(), Losses::default());
        losses.remark("the clock runs backwards");
        assert!(losses.is_empty());
        all.extend(&losses);
        all.extend(&losses);
        assert_eq!(all, losses);
        assert_eq!(
            (all.gaps[0].sentence(), all.gaps[0].least_count()),
            ("the clock runs backwards".into(), 0)
        );
        let json = serde_json::to_string(&all).expect("plain data");
        assert_eq!(serde_json::from_str::<Losses>(&json).expect("its own JSON"), all);
        all.add(0, "the clock runs backwards");
        assert_eq!((all.is_empty(), all.gaps[1].least_count()), (false, 1));
    }
}
