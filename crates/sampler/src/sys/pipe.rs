//! `tee` and `splice`: bytes of pipes are copied and moved within the kernel.
#![expect(unsafe_code, reason = "tee and splice are C functions")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Copies up to `most` bytes from one pipe to another and leaves them in the first; returns 0 at its end.
/// Never blocks.
pub(crate) fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
    // SAFETY: tee takes numbers only.
    let copied = unsafe { libc::tee(from.as_raw_fd(), to.as_raw_fd(), most, libc::SPLICE_F_NONBLOCK) };
    count(copied)
}

/// Moves up to `most` bytes from a pipe to `to`: at all times each byte is in exactly one of the two. Blocks
/// only if `to` is not a pipe.
pub(crate) fn transfer(from: BorrowedFd<'_>, to: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
    let (from, to, none) = (from.as_raw_fd(), to.as_raw_fd(), std::ptr::null_mut());
    // SAFETY: without offsets splice takes numbers only.
    count(unsafe { libc::splice(from, none, to, none, most, libc::SPLICE_F_NONBLOCK) })
}

fn count(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
