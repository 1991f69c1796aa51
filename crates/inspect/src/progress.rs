//! Tells a front end how far long work has come.

use std::time::Duration;

use floodmark_store::Progress;

/// Receives how far inputs have been read. All methods do nothing unless overridden; `()` ignores progress.
pub trait ProgressListener {
    /// Reading of `input` begins.
    fn started(&self, _input: &str) {}
    /// `input` has been read up to here.
    fn advanced(&self, _input: &str, _progress: Progress) {}
    /// Reading of `input` is over, after this many events and this time.
    fn finished(&self, _input: &str, _events: u64, _elapsed: Duration) {}
}

impl ProgressListener for () {}
