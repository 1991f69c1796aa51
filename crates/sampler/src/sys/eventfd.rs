//! An eventfd, with which one thread wakes another that waits for descriptors.
#![expect(unsafe_code, reason = "eventfd is a C function")]

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};

use super::checked;

/// A descriptor that is readable from [`EventFd::notify`] to [`EventFd::clear`].
#[derive(Debug)]
pub(crate) struct EventFd {
    file: File,
}

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes no pointers.
        let fd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the descriptor was just created and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { file: File::from(fd) })
    }

    pub(crate) fn notify(&self) {
        // It fails only if the counter is full, and then the descriptor is readable already.
        let _ = (&self.file).write_all(&1u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        let _ = (&self.file).read(&mut [0; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
