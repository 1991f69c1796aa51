//! The library behind every front end: open a trace or a foreign file once, ask, get a typed answer.
//!
//! An [`Input`] is a trace, a foreign file or a pipe. It is opened once, knows what it contains and answers
//! questions; nothing downstream asks whether it is a trace. An [`Answer`] is a typed, serializable result
//! with its caveats and losses; `floodmark-view` turns it into text, JSON or a picture.
//!
//! ```
//! use floodmark_inspect::{Input, OpenProps, Query, WatermarkOptions};
//! # fn main() -> floodmark_inspect::Result<()> {
//! # let log = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/rmm/golden.csv");
//! let input = Input::open(log, &OpenProps::default())?;
//! let answer = input.watermark(&Query::default(), WatermarkOptions::default())?;
//! println!("{} bytes were live at the peak", answer.result.peak_bytes);
//! println!("{} frees had no allocation", answer.caveats.unmatched_frees);
//! assert!(answer.losses.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`input`] | what was opened: contents, events, rows, scopes, the recorded run |
//! | [`origin`] | the instant that elapsed times count from |
//! | [`query`], [`progress`], [`answer`], [`error`] | how to ask, how far reading has come, what comes back |
//! | `symbols` | names for frames that were recorded as addresses |
//! | [`pass`] | runs folds over an input, reading ahead in another thread |
//! | [`questions`] | statistics, watermark, usage, leaks, lifetimes and the other single questions |
//! | [`calls`] | functions by the memory that they gained, from traced calls |
//! | [`compare`], [`plot`], [`page`], [`flame`], [`info`], [`overlay`] | answers made of several folds |
//! | [`import`], [`export`] | traces from foreign files, foreign files from inputs |
//! | [`job`] | jobs that are read in parts, on several machines |
//! | [`launchers`] | totals of MPI jobs without what starts the ranks |
//! | [`nsys`] | the analyses of the nsys scripts, in their format |
//! | [`sql`] | queries in SQL |
//! | [`zoom`], [`checkpoints`] | windows and instants in full detail; live blocks kept along a trace, so that a zoom need not read from the start |
//!
//! What does *not* live here: text, pictures and pages (`floodmark-view`), options and printing (the command).

pub mod answer;
pub mod calls;
pub mod checkpoints;
pub mod compare;
mod device_ledger;
pub mod error;
pub mod export;
pub mod flame;
pub mod gpu;
pub mod heap;
pub mod import;
pub mod info;
pub mod input;
pub mod job;
pub mod launchers;
mod ledger;
pub mod nsys;
pub mod oom;
pub mod origin;
pub mod overlay;
pub mod page;
pub mod pass;
pub mod plain;
pub mod plot;
mod pools;
pub mod progress;
pub mod query;
pub mod questions;
pub mod ranks;
pub mod run;
pub mod scopes;
pub mod select;
pub mod sql;
pub mod subjects;
mod symbols;
pub mod zoom;

pub use answer::{Answer, Loss};
pub use error::{Error, Result};
pub use floodmark_analyze::WatermarkOptions;
pub use floodmark_convert::{Mode, OpenProps};
pub use floodmark_event::Filter;
pub use input::{Contents, Input};
pub use oom::OutOfMemoryOptions;
pub use pass::{Columns, Folded};
pub use plain::plain;
pub use progress::ProgressListener;
pub use query::Query;
