//! Thread priority.
#![expect(unsafe_code, reason = "setpriority is a C function")]

/// Gives the calling thread the lowest priority.
pub(crate) fn give_way() {
    // SAFETY: setpriority takes numbers; 0 is the calling thread. Lowering the priority is always allowed.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
}
