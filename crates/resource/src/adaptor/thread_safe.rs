//! One caller at a time.
#![expect(unsafe_code, reason = "giving memory back is a promise that is passed on")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::adaptor::delegate;
use crate::error::Result;
use crate::resource::{Address, Resource, Room};
use crate::stream::Stream;

/// Lets one thread at a time into the resource it wraps.
///
/// Resources here need no such thing. It is for those whose calls must not overlap for other reasons, say
/// because the functions of a [`Callback`](crate::Callback) do more than one step.
#[derive(Debug)]
pub struct ThreadSafe<R> {
    upstream: R,
    turn: Mutex<()>,
}

impl<R: Resource> ThreadSafe<R> {
    /// Lets one thread at a time into `upstream`.
    pub const fn new(upstream: R) -> Self {
        Self { upstream, turn: Mutex::new(()) }
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
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
