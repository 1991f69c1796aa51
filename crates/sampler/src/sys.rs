//! Calls of the operating system, each wrapped in a thin, safe function.
//!
//! All unsafe code of this crate is below this module, apart from calls into a driver's library.

pub(crate) mod clock;
pub(crate) mod descriptor;
pub(crate) mod eventfd;
pub(crate) mod keeper;
pub(crate) mod limit;
pub(crate) mod netlink;
pub(crate) mod nice;
pub(crate) mod perf;
pub(crate) mod pipe;
pub(crate) mod signal;
pub(crate) mod terminal;
pub(crate) mod trace;
pub(crate) mod wait;

use std::io;

/// Converts the result of a C function that returns -1 and sets `errno`.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
