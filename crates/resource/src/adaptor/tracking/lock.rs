//! A lock for a few instructions.
//!
//! The standard library's mutex gives itself back with an atomic exchange, which waits for all that was
//! written before; a plain store does not. Whoever waits looks a few times and then lets others run.
#![expect(unsafe_code, reason = "hands out what it locks")]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// How often to look before others are let run.
const SPINS: u32 = 64;

#[derive(Debug, Default)]
pub(super) struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: whoever holds the lock has the value alone, and hands it on from thread to thread.
unsafe impl<T: Send> Sync for Lock<T> {}

pub(super) struct Held<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    #[inline]
    pub(super) fn lock(&self) -> Held<'_, T> {
        if self.held.swap(true, Ordering::Acquire) {
            self.wait();
        }
        Held(self)
    }

    #[cold]
    fn wait(&self) {
        let mut looks = 0_u32;
        while self.held.load(Ordering::Relaxed) || self.held.swap(true, Ordering::Acquire) {
            looks += 1;
            if looks.is_multiple_of(SPINS) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only `Held` of the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only `Held` of the lock.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_threads() {
        let count = Lock::<u64>::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50_000).for_each(|_| *count.lock() += 1));
            }
        });
        assert_eq!(*count.lock(), 200_000);
    }
}
