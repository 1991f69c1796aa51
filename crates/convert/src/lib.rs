//! Foreign formats in and out: one module per format.
//!
//! [`open`] takes any file, recognizes it by its content and returns a [`Source`] of events like any
//! other; nothing downstream asks where events came from. A format that can be written has a writer in
//! its module.
//!
//! What does *not* live here: traces of our own (`floodmark-store`) and anything that interprets events
//! (`floodmark-analyze`).
//!
//! [`Source`]: floodmark_store::Source

mod device;
mod open;
mod quote;
mod recognize;
pub mod rmm;

pub use device::{device_of, group_devices};
pub use open::{OpenProps, open};
pub use recognize::{Format, recognize};

/// What to do about a part of a file that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Stop with an error that names the place.
    #[default]
    Strict,
    /// Pass over it and count it as a loss.
    Lenient,
}
