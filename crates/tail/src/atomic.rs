//! The atomics and barriers that `protocol` is built on.
//!
//! `tests/loom.rs` compiles `protocol` a second time with a module of this name that has loom's instead.
#![expect(unsafe_code, reason = "calls membarrier")]

pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// Keeps the compiler from moving memory accesses across this line.
///
/// Together with [`heavy_barrier`] in another thread it is a full barrier: of two threads that each store a
/// word, pass their barrier and load the other's word, at least one sees the other's store.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(crate) fn light_barrier() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Makes every running thread of this process pass a full barrier, and passes one itself.
pub(crate) fn heavy_barrier() {
    // SAFETY: plain system calls; the first registers the intent, as the second requires.
    let passed = unsafe {
        libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0
            && libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0
    };
    if !passed {
        // A kernel without membarrier: store buffers drain by themselves long before this.
        fence(Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
