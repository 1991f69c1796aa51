//! Which thread is calling, as a small number.
//!
//! Per-thread memory is kept by this number rather than by the system's, so that a replay can play
//! the parts of many threads from one.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(1);

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

/// The calling thread's number, from 1; no two threads of the process have or had the same.
#[inline]
pub fn number() -> u32 {
    match NUMBER.get() {
        0 => {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            NUMBER.set(number);
            number
        }
        number => number,
    }
}

/// A number for a thread that is only played; see [`play`].
pub fn reserve() -> u32 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Does `what` as the thread with `number`, from [`reserve`].
pub fn play<T>(number: u32, what: impl FnOnce() -> T) -> T {
    struct Restore(u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            NUMBER.set(self.0);
        }
    }
    let _restore = Restore(NUMBER.replace(number));
    what()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_numbers_of_their_own_and_can_be_played() {
        let mine = number();
        assert_eq!(number(), mine);
        let other = std::thread::scope(|scope| scope.spawn(number).join().unwrap());
        assert_ne!(other, mine);
        let part = reserve();
        assert_eq!(play(part, number), part);
        assert_eq!(number(), mine);
    }
}
