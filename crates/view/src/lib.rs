//! Results as text for people and as JSON for programs.
//!
//! Every result implements [`View`]; an [`Answer`](floodmark_inspect::Answer) adds where it comes from and
//! what is known to be missing:
//!
//! - [`AnswerText::text`] lays it out for a terminal of a given width. Text that comes from a trace passes
//!   through [`plain()`], so nothing recorded can move the cursor, change colors or reorder a line.
//! - [`document`] writes one answer, or several, as a JSON document with a `schema`.
//!
//! [`html`] makes a page of its own that a browser shows.
//!
//! Nothing here opens a trace, prints, or computes a result.

pub mod blocks;
pub mod calls;
pub mod changes;
pub mod charset;
pub mod chart;
pub mod check;
pub mod churn;
pub mod device_ledger;
pub mod diff;
pub mod events;
pub mod flame;
pub mod fragmentation;
pub mod growth;
pub mod html;
pub mod info;
pub mod layers;
pub mod layout;
pub mod leaks;
pub mod ledger;
pub mod lifetimes;
pub mod oom;
pub mod overlay;
pub mod plain;
pub mod plot;
pub mod processes;
pub mod ranks;
pub mod replay;
pub mod report;
pub mod run;
mod run_watermark;
pub mod samples;
pub mod sql;
pub mod stats;
pub mod usage;
pub mod watermark;

mod figures;
mod names;
mod table;

pub use floodmark_analyze::Caveats;

pub use changes::{Repaired, SetAside};
pub use charset::Charset;
pub use check::{Check, Outcome, Verdict, growth_sentence};
pub use events::{EventCsv, EventJson, EventTable};
pub use html::Hosting;
pub use layout::{Layout, Palette, suggestions};
pub use plain::plain;
pub use report::{AnswerText, OtherKind, View, caveat_sentences, document, loss_sentence};
pub use samples::{CompactLayout, CompactProps, OriginalLayout, OriginalProps, SampleCsv, SampleJson};
