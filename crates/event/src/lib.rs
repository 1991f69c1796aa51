//! Floodmark's vocabulary and its live tail.
//!
//! Everything that records or reads memory events shares the types in this crate, and everything
//! that records does it through [`tail`]. The crate is linked into other people's processes, so it
//! depends on `libc` alone, allocates nothing and takes no shared lock on the recording path, never
//! panics there and never prints.
//!
//! What does *not* live here: files of a trace other than its live tail (`floodmark-store`), foreign
//! formats (`floodmark-convert`) and anything that interprets events (`floodmark-analyze`).

pub mod batch;
pub mod clock;
pub mod event;
pub mod rows;
pub mod sample;
pub mod tables;
pub mod tail;
pub mod text;
pub mod units;

pub use batch::{Column, EventBatch};
pub use event::{Action, Event, Kind, NO_DEVICE, ProcessId, StackId, StringId, UNKNOWN_BYTES};
pub use rows::{
    BEFORE_CAPTURE, CONTEXT_TEARDOWN, LogRow, OutputRow, SampleRow, ScopeAction, ScopeRow, StackSampleRow,
    SubjectRow,
};
pub use sample::{
    LogLevel, Metric, OutputStream, StackReason, StackSeen, Subject, SubjectEnd, SubjectId, SubjectKind,
};
pub use tables::Tables;
