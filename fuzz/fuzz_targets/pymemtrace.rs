//! Reads any bytes as a log of `pymemtrace`; see `reading` for what must hold.

#![no_main]

#[path = "samples/reading.rs"]
mod reading;

use floodmark_convert::pymemtrace::open;
use libfuzzer_sys::fuzz_target;

use crate::reading::check;

fuzz_target!(|bytes: &[u8]| {
    let [strict, lenient] = check(bytes, |input, path, props| open(input, path, props));
    assert!(lenient.1.is_none() && lenient.0.starts_with(&strict.0), "a lenient reading goes further");
});
