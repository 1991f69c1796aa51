//! The processor's caches.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the hint to prefetch is an instruction"))]

/// Asks for a value to be brought into the cache, which goes on meanwhile. Does nothing where that is not known how.
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for at in (0..size_of::<T>()).step_by(64) {
            let line = (&raw const *value).cast::<i8>().wrapping_add(at);
            // SAFETY: a hint, which reads and changes nothing that a program can see, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
