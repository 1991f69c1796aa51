//! Makes recorded text harmless in a terminal.

pub use floodmark_inspect::plain::plain;
