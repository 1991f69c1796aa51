//! Moving bytes between pipes without taking them out for a moment.
#![expect(unsafe_code, reason = "tee and splice are C functions")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Copies up to `most` bytes from one pipe to another and leaves them where they are; 0 at the end.
/// Never waits.
pub(crate) fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
    // SAFETY: tee takes numbers only.
    let copied = unsafe { libc::tee(from.as_raw_fd(), to.as_raw_fd(), most, libc::SPLICE_F_NONBLOCK) };
    count(copied)
}

/// Moves up to `most` bytes from a pipe to wherever `to` leads: at every moment each byte is in one of the
/// two and not in both. Waits for room in what is no pipe.
pub(crate) fn transfer(from: BorrowedFd<'_>, to: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
    let (from, to, none) = (from.as_raw_fd(), to.as_raw_fd(), std::ptr::null_mut());
    // SAFETY: without offsets splice takes numbers only.
    count(unsafe { libc::splice(from, none, to, none, most, libc::SPLICE_F_NONBLOCK) })
}

fn count(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
