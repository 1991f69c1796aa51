//! Foreign formats in and out: one module per format.
//!
//! [`open`] takes any file, recognizes it by its content and returns a [`Foreign`] file that yields events
//! and rows as a trace does; nothing downstream asks where they came from. A format that can be written
//! has a writer in its module.
//!
//! What does *not* live here: traces of our own (`floodmark-store`) and anything that interprets events
//! (`floodmark-analyze`).

pub mod chrome;
mod cut_off;
mod decompress;
mod device;
pub mod dhat;
mod filling;
pub mod folded;
mod foreign;
pub mod heap_profile;
pub mod heaptrack;
mod json_text;
pub mod kineto;
mod line_end;
mod live_at;
pub mod massif;
pub mod memory_logger;
pub mod memray;
pub mod mprof;
pub mod nsys;
mod numbers;
mod pickle;
mod pieces;
pub mod pprof;
pub mod psrecord;
pub mod pymemtrace;
mod quote;
mod ready;
mod recognize;
mod records;
mod reopen;
pub mod rmm;
pub mod smi;
pub mod speedscope;
pub mod torch;
mod valgrind;
mod weighed;

pub use device::{device_of, group_devices};
pub use foreign::{EventsAndRows, Foreign, OpenProps, open, open_input};
pub use recognize::{Format, recognize};
pub use weighed::StackTotals;

/// What to do about a part of a file that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Stop with an error that names the place.
    #[default]
    Strict,
    /// Pass over it and count it as a loss.
    Lenient,
}
