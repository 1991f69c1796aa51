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
    /// Losses that concern the result, and remarks on the source. In JSON each has a list of its own.
    #[serde(flatten, with = "split_losses")]
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

/// Writes losses and remarks as two lists, so that `losses` is empty if nothing is missing.
pub(crate) mod split_losses {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Loss;

    #[derive(Serialize)]
    struct Written<'a> {
        losses: Vec<&'a Loss>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        remarks: Vec<Remark<'a>>,
    }

    #[derive(Serialize)]
    struct Remark<'a> {
        count: u64,
        reason: &'a str,
    }

    #[derive(Deserialize)]
    struct Read {
        losses: Vec<Loss>,
        #[serde(default)]
        remarks: Vec<Loss>,
    }

    pub(crate) fn serialize<S: Serializer>(all: &[Loss], out: S) -> Result<S::Ok, S::Error> {
        let losses = all.iter().filter(|loss| !loss.is_remark).collect();
        let remarks = all.iter().filter(|loss| loss.is_remark);
        let remarks = remarks.map(|loss| Remark { count: loss.count, reason: &loss.reason }).collect();
        Written { losses, remarks }.serialize(out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Loss>, D::Error> {
        let Read { mut losses, remarks } = Read::deserialize(from)?;
        losses.extend(remarks.into_iter().map(|remark| Loss::remark(remark.count, remark.reason)));
        Ok(losses)
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
