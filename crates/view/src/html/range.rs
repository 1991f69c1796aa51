//! What a reader who looks closely wants: lines between two instants, what was live at an instant.

use floodmark_analyze::{Snapshots, Usage};

use super::build::Builder;
use super::data::{self, SentRange, SentSnapshots};
use super::{SamplesPart, encode, events, samples, snapshots};

/// What charts show between two instants.
///
/// Its charts have the titles and names of those of a page, which identify them.
#[derive(Clone, Debug, Default)]
pub struct Range {
    /// The instant that times in the page count from.
    pub origin_ns: i64,
    /// Live bytes, if there are events.
    pub usage: Option<Usage>,
    /// What was sampled, if anything was; of this only subjects and lines count.
    pub samples: Option<SamplesPart>,
}

impl Range {
    /// The same for the page.
    pub fn json(&self) -> String {
        let mut builder = Builder::since(self.origin_ns);
        if let Some(usage) = &self.usage {
            events::chart(&mut builder, usage);
        }
        if let Some(part) = &self.samples {
            samples::charts(&mut builder, part);
        }
        let (document, columns) = builder.into_columns();
        encode::json(&SentRange { charts: document.charts, columns })
    }
}

/// Snapshots at instants that a request asked for.
#[derive(Clone, Debug, Default)]
pub struct Instants {
    /// The instant that times in the page count from.
    pub origin_ns: i64,
    /// What was live.
    pub snapshots: Snapshots,
}

impl Instants {
    /// The same for the page.
    pub fn json(&self) -> String {
        let mut builder = Builder::since(self.origin_ns);
        let note = snapshots::note_of_answer(&self.snapshots);
        let snapshots = data::Snapshots { note, ..snapshots::document(&mut builder, &self.snapshots) };
        let (document, columns) = builder.into_columns();
        encode::json(&SentSnapshots { snapshots, strings: document.strings, columns })
    }
}
