//! Non-blocking descriptors, and waiting until they are writable.
#![expect(unsafe_code, reason = "fcntl and poll are C functions")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::checked;

/// Sets non-blocking mode, which affects all users of this open file description.
pub(crate) fn never_block(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: these commands take and give numbers.
    let flags = checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: as above.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    Ok(())
}

/// Waits until the descriptor is writable, or until the time has passed.
pub(crate) fn wait_for_room(fd: BorrowedFd<'_>, at_most_ns: u64) {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let milliseconds = (at_most_ns / 1_000_000) as libc::c_int;
    // SAFETY: `entry` is one valid entry.
    unsafe { libc::poll(&raw mut entry, 1, milliseconds) };
}
