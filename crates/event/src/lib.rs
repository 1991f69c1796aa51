//! Floodmark's vocabulary: ids, rows, batches of events, the tables that ids point to, and units.
//!
//! Every other crate shares these types. Nothing here does I/O or calls the operating system.
//!
//! What does *not* live here: recording (`floodmark-tail`), traces on disk (`floodmark-store`), foreign
//! formats (`floodmark-convert`) and anything that interprets events (`floodmark-analyze`).

pub mod batch;
pub mod event;
pub mod filter;
pub mod rows;
pub mod sample;
pub mod tables;
pub mod text;
pub mod units;

pub use batch::{Column, EventBatch, RowPick};
pub use event::{Action, Event, Kind, NO_DEVICE, ProcessId, StackId, StringId, UNKNOWN_BYTES};
pub use filter::Filter;
pub use rows::{
    BEFORE_CAPTURE, CONTEXT_TEARDOWN, CallRow, LIVE_SNAPSHOT, LogRow, OutputRow, REALLOC, Row, SampleRow,
    ScopeAction, ScopeRow, StackSampleRow, SubjectRow,
};
pub use sample::{
    CallAction, LogLevel, Metric, OutputStream, StackReason, StackSeen, Subject, SubjectEnd, SubjectId,
    SubjectKind,
};
pub use tables::Tables;
