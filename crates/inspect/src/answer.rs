//! Answers: typed results with their origin, their caveats and what is known to be missing.

use floodmark_analyze::Caveats;
use floodmark_store::Losses;
use serde::{Deserialize, Serialize};

/// Events that are known to be missing.
pub use floodmark_store::Gap as Loss;

/// A result, where it comes from, and what makes it less certain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer<T> {
    /// File or trace as the user named it; `-` for standard input.
    pub source: String,
    /// Losses that concern the result.
    pub losses: Vec<Loss>,
    /// Counts of events that make the result less certain.
    pub caveats: Caveats,
    /// The result.
    #[serde(flatten)]
    pub result: T,
}

impl<T> Answer<T> {
    /// Returns an answer without caveats.
    pub fn new(source: impl Into<String>, losses: &Losses, result: T) -> Self {
        Self { source: source.into(), losses: losses.gaps.clone(), caveats: Caveats::default(), result }
    }

    /// Turns the result into another one.
    pub fn map<U>(self, with: impl FnOnce(T) -> U) -> Answer<U> {
        let Self { source, losses, caveats, result } = self;
        Answer { source, losses, caveats, result: with(result) }
    }
}

/// Adds losses that are not known yet: events and rows of one trace state the same ones.
pub fn join_losses(known: &mut Vec<Loss>, more: &Losses) {
    for loss in &more.gaps {
        if !known.contains(loss) {
            known.push(loss.clone());
        }
    }
}
