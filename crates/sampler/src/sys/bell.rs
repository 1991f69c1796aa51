//! A bell that one thread rings to wake another that waits for descriptors.
#![expect(unsafe_code, reason = "eventfd is a C function")]

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};

use super::checked;

#[derive(Debug)]
pub(crate) struct Bell {
    file: File,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes no pointers.
        let fd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { file: File::from(fd) })
    }

    pub(crate) fn ring(&self) {
        // It fails only when it has been rung 2^64 times, and then it rings already.
        let _ = (&self.file).write_all(&1u64.to_ne_bytes());
    }

    /// Quiets the bell.
    pub(crate) fn quiet(&self) {
        let _ = (&self.file).read(&mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
