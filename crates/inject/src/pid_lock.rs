//! A lock that a forked child can take over from a thread that is not there any more.

use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::own_memory::map;

/// A value that one thread at a time can use.
pub(crate) struct PidLock<T> {
    /// Pid of the process whose thread holds the lock; 0 for none.
    holder: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is touched only by the holder of the lock.
unsafe impl<T: Send> Sync for PidLock<T> {}

/// A page that forked children see as zeros, where each keeps its pid; null if there is none.
static PID: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// Makes a place for the pid, so that not every lock takes a system call.
pub(crate) fn remember_pid() {
    const PAGE: usize = 4096;
    if !PID.load(Ordering::Relaxed).is_null() {
        return;
    }
    let page = map(PAGE);
    // SAFETY: the page was mapped just now, and is unmapped only if it is not used.
    unsafe {
        if page.is_null() || libc::madvise(page.cast(), PAGE, libc::MADV_WIPEONFORK) == 0 {
            PID.store(page.cast::<libc::c_void>().cast(), Ordering::Release);
        } else {
            libc::syscall(libc::SYS_munmap, page, PAGE);
        }
    }
}

/// Number of this process. A child of `vfork` has that of its parent, whose memory it borrows.
fn process() -> u32 {
    // SAFETY: no arguments, cannot fail.
    let pid = || unsafe { libc::getpid() } as u32;
    // SAFETY: null, or a page of zeros that stays mapped.
    let Some(place) = (unsafe { PID.load(Ordering::Acquire).as_ref() }) else { return pid() };
    match place.load(Ordering::Relaxed) {
        0 => {
            place.store(pid(), Ordering::Relaxed);
            place.load(Ordering::Relaxed)
        }
        known => known,
    }
}

/// How a thread got the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// It was free.
    Free,
    /// A thread of the parent process held it at the fork; the value may be in the middle of a change.
    TakenOver,
}

struct Unlock<'a>(&'a AtomicU32);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl<T> PidLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { holder: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Calls `with` while no other thread uses the value.
    ///
    /// The holder must not be interrupted by a signal handler that calls this: threads that are in this library do not
    /// enter it again.
    pub(crate) fn locked<R>(&self, with: impl FnOnce(&mut T, Got) -> R) -> R {
        self.locked_as(process(), with)
    }

    /// Does the same for a caller that knows a number other than 0 which a forked child does not share: asking for the pid
    /// is a system call.
    pub(crate) fn locked_as<R>(&self, pid: u32, with: impl FnOnce(&mut T, Got) -> R) -> R {
        let got = loop {
            let holder = self.holder.load(Ordering::Relaxed);
            let take = || self.holder.compare_exchange(holder, pid, Ordering::Acquire, Ordering::Relaxed);
            if holder != pid && take().is_ok() {
                break if holder == 0 { Got::Free } else { Got::TakenOver };
            }
            std::thread::yield_now();
        };
        let _unlock = Unlock(&self.holder);
        // SAFETY: this thread holds the lock.
        with(unsafe { &mut *self.value.get() }, got)
    }
}
