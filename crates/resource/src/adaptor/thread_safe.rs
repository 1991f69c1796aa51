//! One caller at a time.
#![expect(unsafe_code, reason = "giving memory back is a promise that is passed on")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::adaptor::delegate;
use crate::error::Result;
use crate::resource::{Address, Resource, Room};
use crate::stream::Stream;

/// Lets one thread at a time into the resource it wraps.
///
/// Resources here need no such thing. It is for those whose calls must not overlap for other reasons, say
/// because the functions of a [`Callback`](crate::Callback) do more than one step. The lock is reentrant: such
/// a function may allocate, and so may a subscriber of the upstream's debug log.
#[derive(Debug)]
pub struct ThreadSafe<R> {
    upstream: R,
    turn: Mutex<()>,
    /// Whose turn it is, as [`here`] knows threads, or 0. Written by that thread alone.
    owner: AtomicUsize,
}

/// The rest of a turn, which ends with it.
struct Turn<'a> {
    owner: &'a AtomicUsize,
    _held: MutexGuard<'a, ()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Relaxed);
    }
}

/// A number that no other thread has now. Those of [`thread`](crate::thread) can be played.
fn here() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl<R: Resource> ThreadSafe<R> {
    /// Lets one thread at a time into `upstream`.
    pub fn new(upstream: R) -> Self {
        tracing::info!("thread_safe created over {}", upstream.name());
        Self { upstream, turn: Mutex::new(()), owner: AtomicUsize::new(0) }
    }

    /// None if it is the calling thread's turn already.
    fn turn(&self) -> Option<Turn<'_>> {
        let here = here();
        if self.owner.load(Ordering::Relaxed) == here {
            return None;
        }
        let held = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.owner.store(here, Ordering::Relaxed);
        Some(Turn { owner: &self.owner, _held: held })
    }
}

impl<R: Resource> Resource for ThreadSafe<R> {
    #[inline]
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        let _turn = self.turn();
        self.upstream.allocate(bytes, alignment, stream)
    }

    #[inline]
    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
        let _turn = self.turn();
        // SAFETY: the caller's promise, passed on.
        unsafe { self.upstream.deallocate(address, bytes, alignment, stream) };
    }

    delegate!("thread_safe", but room);

    fn room(&self) -> Room {
        let _turn = self.turn();
        self.upstream.room()
    }

    fn release(&self) -> u64 {
        let _turn = self.turn();
        self.upstream.release()
    }
}
