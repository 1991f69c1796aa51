//! Resource limits of this process.
#![expect(unsafe_code, reason = "limits are C functions")]

/// A soft and a hard limit.
#[derive(Clone, Copy)]
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

/// Disables core files of this process.
pub(crate) fn forbid_core_file() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `none` is a valid limit.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
}
