//! Blocks of one size.
#![expect(unsafe_code, reason = "giving memory back is a promise of the caller")]

use std::sync::Arc;

use crate::error::{AllocError, Cause, OutOfMemory, Result};
use crate::reserve::{Growth, Reserve, ReserveProps, Sharing, divides};
use crate::resource::{ALIGNMENT, Address, Resource, Room, align_up};
use crate::steps;
use crate::stream::Stream;

/// How large the blocks are, and how many there are at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedSizeProps {
    /// Size of every block; rounded up to 256.
    pub block_bytes: u64,
    /// How many blocks it asks its upstream for at a time.
    pub blocks: u64,
}

impl Default for FixedSizeProps {
    fn default() -> Self {
        Self { block_bytes: 1 << 20, blocks: 128 }
    }
}

/// Hands out blocks of one size and refuses what is larger.
pub struct FixedSize<R: Resource> {
    reserve: Arc<Reserve<R>>,
    block_bytes: u64,
}

impl<R: Resource> FixedSize<R> {
    /// Blocks of one size out of `upstream`.
    ///
    /// # Errors
    /// [`AllocError::Invalid`] for blocks of no bytes, no blocks, or more than there are addresses; what
    /// the upstream says when it cannot give the first blocks.
    pub fn new(upstream: R, props: FixedSizeProps) -> Result<Self> {
        let block_bytes = align_up(props.block_bytes, ALIGNMENT);
        let step = block_bytes.and_then(|bytes| bytes.checked_mul(props.blocks)).filter(|step| *step > 0);
        let (Some(block_bytes), Some(step)) = (block_bytes, step) else {
            let why = "there has to be at least one block of at least one byte";
            return Err(AllocError::Invalid { bytes: props.block_bytes, alignment: ALIGNMENT, why });
        };
        let props = ReserveProps {
            name: "fixed_size",
            initial_bytes: step,
            maximum_bytes: None,
            growth: Growth::Step(step),
            sharing: Sharing::ByStream,
        };
        Ok(Self { reserve: Reserve::new(upstream, props)?, block_bytes })
    }

    /// Size of every block.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    #[cold]
    fn too_large(&self, request_bytes: u64) -> AllocError {
        let Room { reserved_bytes, live_bytes, largest_free_bytes, .. } = self.reserve.room();
        let error = AllocError::from(OutOfMemory {
            resource: self.name(),
            request_bytes,
            cause: Cause::TooLarge,
            limit_bytes: Some(self.block_bytes),
            reserved_bytes,
            live_bytes,
            largest_free_bytes: largest_free_bytes.map(|largest| largest.min(self.block_bytes)),
            ..OutOfMemory::default()
        });
        tracing::debug!("{error}");
        error
    }
}

impl<R: Resource> Resource for FixedSize<R> {
    #[inline]
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        let answer = if bytes > self.block_bytes {
            Err(self.too_large(bytes))
        } else {
            let block_bytes = if bytes == 0 { 0 } else { self.block_bytes };
            self.reserve.allocate(block_bytes, alignment, stream).map_err(|error| error.asked_for(bytes))
        };
        steps::answered(self.name(), bytes, stream, answer)
    }

    #[inline]
    unsafe fn deallocate(&self, address: Address, bytes: u64, _: u64, stream: Stream) {
        steps::gives_back(self.name(), address, bytes, stream);
        self.reserve.deallocate(address, self.block_bytes, stream);
    }

    divides!("fixed_size");

    fn release(&self) -> u64 {
        self.reserve.release()
    }
}
