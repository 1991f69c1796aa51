//! Refuses what would exceed a limit.
#![expect(unsafe_code, reason = "giving memory back is a promise that is passed on")]

use std::sync::atomic::{AtomicU64, Ordering};

use crate::adaptor::delegate;
use crate::debug_log::show_bytes;
use crate::error::{AllocError, Cause, OutOfMemory, Result};
use crate::resource::{ALIGNMENT, Address, Resource, Room, align_up};
use crate::stream::Stream;

/// Lets no more than a number of bytes be live at once, each request rounded up to an alignment.
///
/// A request is reserved before the upstream is asked, so threads that allocate at the same time do not
/// exceed the limit together; what the upstream refuses is given back.
#[derive(Debug)]
pub struct Limiting<R> {
    upstream: R,
    limit_bytes: u64,
    alignment: u64,
    allocated_bytes: AtomicU64,
}

impl<R: Resource> Limiting<R> {
    /// Lets `limit_bytes` be live, counted in steps of [`ALIGNMENT`].
    pub fn new(upstream: R, limit_bytes: u64) -> Self {
        tracing::info!("limiting created over {}: {} at most", upstream.name(), show_bytes(limit_bytes));
        Self { upstream, limit_bytes, alignment: ALIGNMENT, allocated_bytes: AtomicU64::new(0) }
    }

    /// Counts in steps of `alignment` instead.
    ///
    /// # Errors
    /// [`AllocError::Invalid`] if it is no power of two.
    pub fn counted_in(mut self, alignment: u64) -> Result<Self> {
        if !alignment.is_power_of_two() {
            return Err(AllocError::Invalid { bytes: 0, alignment, why: "an alignment is a power of two" });
        }
        self.alignment = alignment;
        Ok(self)
    }

    /// The limit.
    pub const fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// What is live, rounding included.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    /// What the limit leaves.
    pub fn remaining_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.allocated_bytes())
    }

    #[cold]
    fn refuse(&self, bytes: u64) -> AllocError {
        let live_bytes = self.allocated_bytes();
        let error = AllocError::from(OutOfMemory {
            resource: self.name(),
            request_bytes: bytes,
            cause: Cause::Limit,
            limit_bytes: Some(self.limit_bytes),
            reserved_bytes: live_bytes,
            live_bytes,
            ..OutOfMemory::default()
        });
        tracing::debug!("{error}");
        error
    }
}

impl<R: Resource> Resource for Limiting<R> {
    #[inline]
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        let Some(size) = align_up(bytes, self.alignment) else { return Err(self.refuse(bytes)) };
        let reserve = |live: u64| live.checked_add(size).filter(|live| *live <= self.limit_bytes);
        if self.allocated_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve).is_err() {
            return Err(self.refuse(bytes));
        }
        self.upstream.allocate(bytes, alignment, stream).inspect_err(|_| {
            self.allocated_bytes.fetch_sub(size, Ordering::Relaxed);
        })
    }

    #[inline]
    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.upstream.deallocate(address, bytes, alignment, stream) };
        let size = align_up(bytes, self.alignment).unwrap_or(0);
        // A free of more than is live is an error of the program, and must not turn into a limit of nothing.
        let give_back = |live: u64| Some(live.saturating_sub(size));
        let _ = self.allocated_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, give_back);
    }

    delegate!("limiting", but room);

    fn room(&self) -> Room {
        let room = self.upstream.room();
        let remaining = self.remaining_bytes();
        Room {
            limit_bytes: Some(room.limit_bytes.map_or(self.limit_bytes, |below| below.min(self.limit_bytes))),
            largest_free_bytes: room.largest_free_bytes.map(|largest| largest.min(remaining)),
            ..room
        }
    }
}
