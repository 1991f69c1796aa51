//! The trace directory: seal, parts, manifest, recovery, scan.
//!
//! `NAME.flood/` holds ordinary Parquet files, one folder per table, and a manifest that lists them;
//! FORMAT.md in the repository is normative. A trace that is being recorded has a live tail in
//! `segments/` (see `floodmark_tail`), which a [`Sealer`] moves into parts and which
//! [`Trace::scan`] reads along with them.
//!
//! | module | what lives there |
//! |---|---|
//! | [`trace`] | opening, recovering, repairing, writing a trace |
//! | [`seal`], `blocks` | moving the tail into parts, live or after a crash; which block a free ends |
//! | [`intake`] | tails that come from other hosts, over any stream of bytes |
//! | [`scan`] | events and rows of other tables in order, from parts and tail alike |
//! | [`records`] | every table as Arrow record batches |
//! | [`poller`], [`follow`], [`row_source`] | growing traces, and rows of all tables together |
//! | [`scopes`] | scopes and ranges from beginning to end |
//! | `tail`, `merge` | finding what is in the tail; merging its lanes |
//! | [`table`] | which tables there are |
//! | [`columns`], `rows`, `small_tables`, `codec` | columns of events, of other rows and of what ids point to; how each kind of column is stored |
//! | `registry`, [`frame_names`] | small tables in memory, and their ids; names for frames that have none |
//! | `part`, `parts` | opening and writing parts |
//! | `event_part`, `pages` | writing events: encodings and pages |
//! | [`manifest`], `dir` | the list of all files, replaced atomically |
//! | [`source`], [`error`] | what all readers of events have in common |

mod blocks;
mod codec;
pub mod columns;
mod dir;
pub mod error;
mod event_part;
pub mod follow;
pub mod frame_names;
pub mod identity;
pub mod intake;
mod ipc;
pub mod manifest;
mod merge;
mod pages;
mod part;
mod parts;
mod planned;
pub mod poller;
pub mod process_ranges;
pub mod records;
mod registry;
pub mod row_source;
mod rows;
pub mod scan;
pub mod scopes;
pub mod seal;
mod signals;
mod small_tables;
pub mod source;
mod stages;
mod steps;
pub mod table;
mod tail;
pub mod trace;

pub use error::{Error, Result};
pub use follow::{Follow, Step};
pub use frame_names::{FrameName, FrameNames, NameFrames, RecordedModule};
pub use identity::Identity;
pub use intake::{LocalTail, ReceivedTail, TailItem, TailSource, ship};
pub use manifest::{Manifest, Run};
pub use merge::EventChunks;
pub use poller::GrowthPoller;
pub use process_ranges::ProcessRanges;
pub use records::{Projection, RecordBatches};
pub use row_source::{IdMap, ResumableEvents, RowSource, TraceFollower, follow_rows};
pub use rows::TableRow;
pub use scan::{Scan, ScanCursor, ScanProps};
pub use scopes::ScopeSpan;
pub use seal::{Delivering, Inbox, Sealer, SealerThread};
pub use source::{Gap, Losses, Progress, Source};
pub use stages::{SealCosts, SealStage, begin_costs, end_costs};
pub use table::Table;
pub use trace::{Overwrite, RepairReport, Trace, TraceWriter, is_trace, repair};
