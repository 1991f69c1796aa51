//! Keeping a host's signals away from a thread of ours.
#![expect(unsafe_code, reason = "signal masks are C")]

/// Blocks all signals in the calling thread.
///
/// The host may wait for its signals in threads of its own; and a file that grows past the host's
/// limit is then an error here and not the signal that would end the host.
pub(crate) fn block_all() {
    // SAFETY: all zeros are a valid set, filled before it is used; only this thread's mask changes.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
