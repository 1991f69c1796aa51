//! Reads any bytes as a file of DHAT; see `halves` for what must hold.

#![no_main]

#[path = "samples/halves.rs"]
mod halves;

use floodmark_convert::dhat::open;
use libfuzzer_sys::fuzz_target;

use crate::halves::check;

fuzz_target!(|bytes: &[u8]| check(|path, props| open(bytes, path, props)));
