//! Giving way to others.
#![expect(unsafe_code, reason = "setpriority is a C function")]

/// Has the calling thread run when others leave time for it.
pub(crate) fn give_way() {
    // SAFETY: setpriority takes numbers; 0 is the calling thread. To give way is always allowed.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
}
