//! A report as one HTML file that needs nothing else.
//!
//! [`html`] puts results into the page that `web/` builds (`assets/report.html`): a JSON document, whose
//! form is in `data` here and in `web/src/data.ts` there, and columns of figures beside it. The page sums
//! and subtracts what snapshots hold; every other figure comes from the document. A server sends the same
//! document again when there is more to show ([`json`]), time series between two instants in full detail
//! ([`Range::json`]), and what was live at any instant ([`Instants::json`]).
//!
//! Text of traces is untrusted: it passes through [`plain`](crate::plain()), is escaped in JSON and in HTML
//! so that it cannot end an element, and the page's own policy allows no script but its own.

mod build;
#[cfg(test)]
mod bundle;
mod calls;
mod data;
pub(crate) mod encode;
mod events;
mod page;
mod range;
mod ranks;
mod samples;
mod since;
mod snapshots;
mod story;

pub use floodmark_inspect::page::Page;
use floodmark_inspect::page::{EventsPart, SamplesPart};

pub use self::range::{Instants, Range};

/// Whether a page is a file or comes from a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hosting {
    /// A file, which asks nothing.
    #[default]
    File,
    /// A server, which the page may ask for more.
    Server {
        /// Counts how often there was more to show.
        version: u64,
    },
}

/// Returns the page as a file, or as a server sends it.
pub fn html(page: &Page, hosting: Hosting) -> String {
    let (document, columns) = build::document(page);
    page::fill(&document, &columns, hosting)
}

/// Returns what the page shows, without the page; `version` counts how often a server had more to show.
pub fn json(page: &Page, version: u64) -> String {
    let (document, columns) = build::document(page);
    encode::json(&data::Sent { version, document, columns })
}

/// Returns the instant that times in the page count from.
pub fn origin_ns(page: &Page) -> Option<i64> {
    page.origin_ns.or_else(|| build::span(page).map(|(first, _)| first))
}

/// Returns what the page is allowed to do, for the header that a server sends along.
pub fn policy(hosting: Hosting) -> String {
    page::policy(hosting)
}
