//! Reads any bytes as a log of `memory_logger`; see `reading` for what must hold.

#![no_main]

#[path = "samples/reading.rs"]
mod reading;

use floodmark_convert::memory_logger::open;
use libfuzzer_sys::fuzz_target;

use crate::reading::check;

fuzz_target!(|bytes: &[u8]| {
    // A lenient reading also takes text apart that a strict one keeps whole, so the two may differ.
    check(bytes, |input, path, props| open(input, path, props));
});
