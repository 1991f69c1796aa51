//! Resource limits of this process.
#![expect(unsafe_code, reason = "limits and mmap are C functions")]

use std::os::fd::BorrowedFd;

/// A soft and a hard limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(libc::rlimit);

impl Limit {
    /// The limit of open descriptors.
    pub(crate) fn descriptors() -> Self {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is a valid place for the result.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        Self(limit)
    }

    /// The limit with the soft value raised to the hard one.
    pub(crate) fn highest(self) -> Self {
        Self(libc::rlimit { rlim_cur: self.0.rlim_max, ..self.0 })
    }

    pub(crate) fn count(self) -> u64 {
        self.0.rlim_cur
    }

    /// Sets it as the limit of open descriptors; may be called between fork and exec.
    pub(crate) fn set(self) {
        // SAFETY: `self.0` is a valid limit.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.0) };
    }
}

/// Whether this many descriptors can be opened at the same time, found by opening copies of one.
pub(crate) fn has_descriptors(count: usize, any: BorrowedFd<'_>) -> bool {
    let copies = (0..count).map(|_| any.try_clone_to_owned()).collect::<Result<Vec<_>, _>>();
    copies.is_ok()
}

/// Whether this many bytes can be mapped, found by mapping them for a moment. They are not touched.
pub(crate) fn has_address_space(bytes: usize) -> bool {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let memory =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind | libc::MAP_NORESERVE, -1, 0) };
    if memory == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping was just made with this length and has no other user.
    unsafe { libc::munmap(memory, bytes) };
    true
}

/// Disables core files of this process.
pub(crate) fn forbid_core_file() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `none` is a valid limit.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
}
