//! A report as one HTML file that needs nothing else.
//!
//! [`Page::html`] embeds results in the page that `web/` builds (`assets/report.html`): a JSON document,
//! defined in `data` and mirrored in `web/src/data.ts`, and columns of figures. All analyses happen here.
//! The page combines the figures it is given: it sums the totals of a snapshot along call paths, subtracts
//! two snapshots for a comparison, sorts, searches and zooms. A server sends a newer document
//! ([`Page::json`]), detailed charts between two instants ([`Range::json`]) and snapshots of any instant
//! ([`Instants::json`]).
//!
//! Text of traces is untrusted: it passes through [`plain`](crate::plain()), is escaped in JSON and in HTML
//! so that it cannot end an element, and the page's Content Security Policy allows only its own script.

mod build;
#[cfg(test)]
mod bundle;
mod data;
pub(crate) mod encode;
mod events;
mod output;
mod page;
mod range;
mod samples;
mod snapshots;

use floodmark_analyze::{
    Fragmentation, HolderSite, Leaks, Lifetimes, Mark, RunMemory, Snapshots, Stats, SubjectSeries, Usage,
    UsagePoint, Watermark,
};
use floodmark_event::SubjectRow;
use std::collections::BTreeMap;

pub use self::output::OutputLines;
pub use self::range::{Instants, Range};
use crate::report::{Caveats, Loss};

/// Most stacks that a page has room for.
pub const MOST_STACKS: usize = 300;

/// Who hands a page out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hosting {
    /// It is a file, and asks nothing of anybody.
    #[default]
    File,
    /// A server, which the page may ask for more.
    Server {
        /// Counts how often there was more to show.
        version: u64,
    },
}

/// All that a page shows.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Who hands it out.
    pub hosting: Hosting,
    /// File or trace as the user named it.
    pub source: String,
    /// Options that narrow what is shown, as one gives them to a command; empty if none do.
    pub narrowed: String,
    /// What is known of the run: names and values.
    pub about: Vec<(String, String)>,
    /// What is known to be missing.
    pub losses: Vec<Loss>,
    /// Allocations and frees, if there are any.
    pub events: Option<EventsPart>,
    /// What was seen from outside, if there is anything.
    pub samples: Option<SamplesPart>,
}

/// What allocations and frees tell.
#[derive(Clone, Debug, Default)]
pub struct EventsPart {
    /// Counters and sizes.
    pub stats: Stats,
    /// Live bytes over time.
    pub usage: Usage,
    /// The highest point.
    pub watermark: Watermark,
    /// Who held it, most bytes first.
    pub holders: Vec<HolderSite>,
    /// What never came back; none while that is not known yet.
    pub leaks: Option<Leaks>,
    /// How long blocks lived.
    pub lifetimes: Lifetimes,
    /// How free memory was strewn.
    pub fragmentation: Fragmentation,
    /// What was live at many instants.
    pub moments: Snapshots,
    /// Live bytes over time of every process, device and kind, whichever had most first.
    pub places: Vec<(String, Vec<UsagePoint>)>,
    /// What makes figures less certain.
    pub caveats: Caveats,
}

/// What was seen from outside.
#[derive(Clone, Debug, Default)]
pub struct SamplesPart {
    /// How much memory the run took.
    pub memory: RunMemory,
    /// What was observed.
    pub subjects: BTreeMap<u64, SubjectRow>,
    /// Lines over time.
    pub series: Vec<SubjectSeries>,
    /// Where phases begin.
    pub marks: Vec<Mark>,
    /// What the command wrote.
    pub output: OutputLines,
    /// Stacks that were taken, in order.
    pub stacks: Vec<StackAt>,
    /// Stacks that are left out.
    pub stacks_omitted: u64,
}

/// A stack that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackAt {
    /// When.
    pub time_ns: i64,
    /// Whose.
    pub process: String,
    /// Number of the process.
    pub pid: u64,
    /// Number of the thread.
    pub thread: u64,
    /// Why it was taken.
    pub reason: &'static str,
    /// Frames, innermost first.
    pub frames: Vec<String>,
}

/// A text as JSON.
pub fn json_text(text: &str) -> String {
    encode::json(&crate::plain(text))
}

impl Page {
    /// The file.
    pub fn html(&self) -> String {
        let (document, columns) = build::document(self);
        page::fill(&document, &columns, self.hosting)
    }

    /// What the page shows, without the page.
    pub fn json(&self) -> String {
        let (document, columns) = build::document(self);
        encode::json(&data::Sent { document, columns })
    }

    /// The instant that times in the page count from.
    pub fn origin_ns(&self) -> Option<i64> {
        build::span(self).map(|(first, _)| first)
    }

    /// What the page is allowed to do, for the header that a server sends along.
    pub fn policy(&self) -> String {
        page::policy(self.hosting)
    }
}
