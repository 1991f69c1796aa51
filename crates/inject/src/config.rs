//! Reads from the environment what is to be recorded. The variables, the options and what the library leaves in the trace
//! are described in [`floodmark_tail::heap`], which the command uses too.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use floodmark_tail::heap::{HEAP_VARIABLE, HeapOptions, TRACE_VARIABLE, UnknownOption};

/// What is to be recorded, and where to.
pub(crate) struct Config {
    pub(crate) trace: PathBuf,
    pub(crate) options: HeapOptions,
    pub(crate) unknown: Vec<UnknownOption>,
}

/// What the environment says.
pub(crate) enum Environment {
    /// The C library has not set it up yet.
    NotReady,
    /// Nothing is to be recorded in this process.
    Off,
    On(Box<Config>),
}

/// Reads the environment.
pub(crate) fn read() -> Environment {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    // SAFETY: a variable of the C library, which is null until the library is set up.
    if unsafe { environ }.is_null() {
        return Environment::NotReady;
    }
    let (Some(trace), Some(heap)) = (variable(TRACE_VARIABLE), variable(HEAP_VARIABLE)) else {
        return Environment::Off;
    };
    if trace.is_empty() {
        return Environment::Off;
    }
    let (options, unknown) = HeapOptions::parse(&String::from_utf8_lossy(&heap));
    if !options.selects_program(&program_name()) {
        return Environment::Off;
    }
    let trace = PathBuf::from(OsStr::from_bytes(&trace));
    Environment::On(Box::new(Config { trace, options, unknown }))
}

/// Reads a variable as the program has it. The one of Rust's library would take a lock.
fn variable(name: &str) -> Option<Vec<u8>> {
    let name: Vec<u8> = name.bytes().chain([0]).collect();
    // SAFETY: the name ends with a zero; the value is copied before anything can change it.
    unsafe {
        let value = libc::getenv(name.as_ptr().cast());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes().to_vec())
    }
}

/// The name of the program's file, without its directory.
pub(crate) fn program_name() -> String {
    let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
