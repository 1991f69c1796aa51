//! The trace directory: seal, parts, manifest, recovery, scan.
//!
//! `NAME.flood/` holds ordinary Parquet files, one folder per table, and a manifest that lists them;
//! FORMAT.md in the repository is normative. A trace that is being recorded has a live tail in
//! `segments/` (see `floodmark_event::tail`), which a [`Sealer`] moves into parts and which
//! [`Trace::scan`] reads along with them.
//!
//! | module | what lives there |
//! |---|---|
//! | [`trace`] | opening, recovering, repairing, writing a trace |
//! | [`seal`] | moving the tail into parts, live or after a crash |
//! | [`scan`] | events in order, from parts and tail alike |
//! | [`follow`] | events of a growing trace as they come |
//! | `tail`, `merge` | finding what is in the tail; merging its lanes |
//! | `columns`, `part`, `parts`, `registry` | events and small tables as Parquet |
//! | [`manifest`], `dir` | the list of all files, replaced atomically |
//! | [`source`], [`error`] | what all readers of events have in common |

pub mod columns;
mod dir;
pub mod error;
pub mod follow;
pub mod manifest;
mod merge;
mod part;
mod parts;
mod registry;
pub mod scan;
pub mod seal;
mod signals;
pub mod source;
mod tail;
pub mod trace;

pub use error::{Error, Result};
pub use follow::{Follow, Step};
pub use manifest::{Manifest, Run};
pub use scan::{Scan, ScanProps};
pub use seal::{Sealer, SealerThread};
pub use source::{Gap, Losses, Progress, Source};
pub use trace::{Overwrite, RepairReport, Trace, TraceWriter, is_trace, repair};
