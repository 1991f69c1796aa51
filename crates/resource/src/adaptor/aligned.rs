//! Larger alignments than resources give.
#![expect(unsafe_code, reason = "giving memory back is a promise that is passed on")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::adaptor::address_map::AddressMap;
use crate::adaptor::delegate;
use crate::debug_log::show_bytes;
use crate::error::{AllocError, Cause, OutOfMemory, Result};
use crate::resource::{ALIGNMENT, Address, Resource, align_up};
use crate::stream::Stream;

/// Aligns blocks from a size on to more than [`ALIGNMENT`], by asking the upstream for more than is
/// needed.
///
/// A request that itself asks for more than [`ALIGNMENT`] is aligned whatever its size.
#[derive(Debug)]
pub struct Aligned<R> {
    upstream: R,
    alignment: u64,
    threshold_bytes: u64,
    /// Where blocks begin that were moved up, by where their callers think they do.
    moved: Mutex<AddressMap<u64>>,
}

impl<R: Resource> Aligned<R> {
    /// Aligns blocks of at least `threshold_bytes` to `alignment`.
    ///
    /// # Errors
    /// [`AllocError::Invalid`] if that is no power of two, or below [`ALIGNMENT`].
    pub fn new(upstream: R, alignment: u64, threshold_bytes: u64) -> Result<Self> {
        if !alignment.is_power_of_two() || alignment < ALIGNMENT {
            let why = "alignments here are powers of two from 256 on";
            return Err(AllocError::Invalid { bytes: 0, alignment, why });
        }
        tracing::info!(
            "aligned created over {}: to {alignment}, blocks from {} on",
            upstream.name(),
            show_bytes(threshold_bytes)
        );
        Ok(Self { upstream, alignment, threshold_bytes, moved: Mutex::default() })
    }

    /// What blocks are aligned to.
    pub const fn alignment(&self) -> u64 {
        self.alignment
    }

    /// From what size on.
    pub const fn threshold_bytes(&self) -> u64 {
        self.threshold_bytes
    }

    /// Whether the upstream is asked for what was asked here.
    #[inline]
    const fn passes(&self, bytes: u64, alignment: u64) -> bool {
        bytes == 0
            || (alignment <= ALIGNMENT && (self.alignment == ALIGNMENT || bytes < self.threshold_bytes))
    }

    /// What to ask the upstream for: wherever it begins, an aligned block fits in.
    fn upstream_bytes(&self, bytes: u64) -> Option<u64> {
        align_up(bytes, self.alignment)?.checked_add(self.alignment - ALIGNMENT)
    }

    fn moved(&self) -> MutexGuard<'_, AddressMap<u64>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn too_large(&self, bytes: u64) -> AllocError {
        let room = self.upstream.room();
        let error = AllocError::from(OutOfMemory {
            resource: self.name(),
            request_bytes: bytes,
            cause: Cause::TooLarge,
            reserved_bytes: room.reserved_bytes,
            live_bytes: room.live_bytes,
            ..OutOfMemory::default()
        });
        tracing::debug!("{error}");
        error
    }
}

impl<R: Resource> Resource for Aligned<R> {
    #[inline]
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        if self.passes(bytes, alignment) {
            return self.upstream.allocate(bytes, alignment.min(ALIGNMENT), stream);
        }
        if alignment > self.alignment || !alignment.is_power_of_two() {
            let why = "an alignment is a power of two, and at most what this adaptor aligns to";
            return Err(AllocError::Invalid { bytes, alignment, why });
        }
        let Some(upstream_bytes) = self.upstream_bytes(bytes) else { return Err(self.too_large(bytes)) };
        let begin = self.upstream.allocate(upstream_bytes, ALIGNMENT, stream)?;
        let Some(aligned) = align_up(begin.0, self.alignment) else {
            // SAFETY: just allocated with this size, and not handed out yet.
            unsafe { self.upstream.deallocate(begin, upstream_bytes, ALIGNMENT, stream) };
            return Err(self.too_large(bytes));
        };
        if aligned != begin.0 {
            self.moved().insert(aligned, begin.0);
        }
        Ok(Address(aligned))
    }

    #[inline]
    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
        if self.passes(bytes, alignment) {
            // SAFETY: the caller's promise; `allocate` passed the same on.
            unsafe { self.upstream.deallocate(address, bytes, alignment.min(ALIGNMENT), stream) };
            return;
        }
        let begin = self.moved().remove(&address.0).map_or(address, Address);
        // It was allocated, so its size is one that fits.
        let upstream_bytes = self.upstream_bytes(bytes).unwrap_or(bytes);
        // SAFETY: the caller promises that the block came from `allocate`, which got it from the upstream
        // at this address with this size.
        unsafe { self.upstream.deallocate(begin, upstream_bytes, ALIGNMENT, stream) };
    }

    delegate!("aligned");
}
