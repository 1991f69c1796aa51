//! Versions, errors, starting and stopping recordings.
#![expect(unsafe_code, reason = "the interface is C: exported names, pointers of the caller")]

use std::ffi::{CStr, OsStr, c_char};
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use floodmark_tail::{RecordProps, StartError, clock};

use crate::abi::{
    ABI_VERSION, ERROR_ALREADY_RECORDING, ERROR_ARGUMENT, ERROR_INTERNAL, ERROR_IO, ERROR_STOPPED,
    ERROR_TOO_MANY_RECORDERS, NO_RECORDER, OK, Options,
};
use crate::recorders::{self, caught, caught_status, with_writer};
use crate::{last_error, text};

/// Longest path that the system takes.
const MAX_PATH_BYTES: usize = 4096;
/// Largest options that a later version could have.
const MAX_OPTIONS_BYTES: usize = 4096;
/// The library's version as a C string.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version holds no zero"),
};

/// Returns the version of the C interface that the library provides.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_abi_version() -> u32 {
    ABI_VERSION
}

/// Returns the library's version, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Returns the message of the last failure on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_last_error() -> *const c_char {
    last_error::pointer()
}

/// Returns nanoseconds of the clock that records use.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_now_ns() -> u64 {
    clock::monotonic_ns()
}

/// Starts a recorder for the trace at `trace` and stores its number in `recorder`.
///
/// # Safety
/// Pointers are null or valid, and strings end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floodmark_start(
    trace: *const c_char,
    options: *const Options,
    recorder: *mut u64,
) -> i32 {
    caught_status(|| {
        if recorder.is_null() {
            return refuse("floodmark_start: the place for the recorder is NULL");
        }
        // SAFETY: not null, so valid as the caller guarantees.
        unsafe { *recorder = NO_RECORDER };
        // SAFETY: as the caller guarantees.
        let props = match unsafe { props(trace, options) } {
            Ok(props) => props,
            Err(message) => return refuse(message),
        };
        match recorders::start(props) {
            Ok(number) => {
                // SAFETY: as above.
                unsafe { *recorder = number };
                OK
            }
            Err(error) => report(&error),
        }
    })
}

/// Stops a recorder.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_stop(recorder: u64) -> i32 {
    caught_status(|| {
        if recorders::stop(recorder) {
            return OK;
        }
        last_error::set(&"this recorder has been stopped already, or never existed");
        ERROR_STOPPED
    })
}

/// Starts the global recording of the process.
///
/// # Safety
/// Pointers are null or valid, and strings end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floodmark_start_global(trace: *const c_char, options: *const Options) -> i32 {
    caught_status(|| {
        // SAFETY: as the caller guarantees.
        match unsafe { props(trace, options) }.map(recorders::start_global) {
            Ok(Ok(())) => OK,
            Ok(Err(error)) => report(&error),
            Err(message) => refuse(message),
        }
    })
}

/// Stops the global recording if [`floodmark_start_global`] started it.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_stop_global() -> i32 {
    caught_status(|| {
        if recorders::stop_global() {
            return OK;
        }
        last_error::set(&"floodmark_start_global has not started a recording that still runs");
        ERROR_STOPPED
    })
}

/// Returns a number for the recording of a recorder; 0 while nothing is recorded.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_recording(recorder: u64) -> u32 {
    with_writer(recorder, floodmark_tail::Writer::recording)
}

/// Returns 1 while records of a recorder are kept, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_is_recording(recorder: u64) -> i32 {
    caught(0, || i32::from(recorders::find(recorder).is_some_and(floodmark_tail::Writer::is_recording)))
}

fn refuse(message: &str) -> i32 {
    last_error::set(&message);
    ERROR_ARGUMENT
}

fn report(error: &StartError) -> i32 {
    last_error::set(error);
    match error {
        StartError::AlreadyRecording => ERROR_ALREADY_RECORDING,
        StartError::TooManyRecorders => ERROR_TOO_MANY_RECORDERS,
        StartError::Io { .. } => ERROR_IO,
        _ => ERROR_INTERNAL,
    }
}

/// Reads the arguments of a start.
///
/// # Safety
/// Pointers are null or valid, and strings end with a zero.
unsafe fn props(trace: *const c_char, options: *const Options) -> Result<RecordProps, &'static str> {
    // SAFETY: as the caller guarantees.
    let trace = unsafe { path(trace) }.ok_or("the path of the trace is NULL, empty or too long")?;
    let mut props = RecordProps::new(trace);
    // SAFETY: as the caller guarantees.
    let Some(options) = (unsafe { read_options(options) })? else { return Ok(props) };
    if options.shared_memory_bytes > 0 {
        props.shared_memory_bytes = usize::try_from(options.shared_memory_bytes)
            .ok()
            .filter(|bytes| *bytes <= 1 << 40)
            .ok_or("shared_memory_bytes is more than 1 TiB")?;
    }
    if !options.ring_directory.is_null() {
        // SAFETY: as the caller guarantees.
        let directory = unsafe { path(options.ring_directory) };
        props.ring_directory = Some(directory.ok_or("ring_directory is empty or too long")?);
    }
    Ok(props)
}

/// Returns a path, whatever its bytes; `None` if it is null, empty or too long.
///
/// # Safety
/// `string` is null or a valid string that ends with a zero.
unsafe fn path(string: *const c_char) -> Option<PathBuf> {
    // SAFETY: as the caller guarantees.
    let bytes = unsafe { text::bytes(string, MAX_PATH_BYTES) }?;
    let is_usable = !bytes.is_empty() && bytes.len() < MAX_PATH_BYTES;
    is_usable.then(|| PathBuf::from(OsStr::from_bytes(bytes)))
}

/// Reads options of any size: fields that an older header lacks are 0, and what a newer one has beyond ours
/// must be 0.
///
/// # Safety
/// `options` is null, or points to as many bytes as its first field says, aligned.
unsafe fn read_options(options: *const Options) -> Result<Option<Options>, &'static str> {
    if options.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so the first field can be read.
    let size = unsafe { (*options).size };
    // Every version of the struct has a size that is a multiple of its alignment.
    if !(offset_of!(Options, shared_memory_bytes)..=MAX_OPTIONS_BYTES).contains(&size)
        || !size.is_multiple_of(align_of::<Options>())
    {
        return Err("the size field of the options is wrong: use FLOODMARK_OPTIONS_INIT");
    }
    // SAFETY: that many bytes can be read, as the caller guarantees.
    let bytes = unsafe { std::slice::from_raw_parts(options.cast::<u8>(), size) };
    let known = size.min(size_of::<Options>());
    if bytes[known..].iter().any(|byte| *byte != 0) {
        return Err("the options hold one that this version of the library does not know");
    }
    let mut read = Options { size, shared_memory_bytes: 0, ring_directory: std::ptr::null() };
    // SAFETY: `known` bytes are valid in both, and all bytes make valid fields (the pointer is only used if
    // its bytes are the caller's).
    unsafe { std::ptr::from_mut(&mut read).cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), known) };
    Ok(Some(read))
}
