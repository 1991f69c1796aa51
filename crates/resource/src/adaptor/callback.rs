//! Memory that functions of the program hand out.
#![expect(unsafe_code, reason = "giving memory back is a promise that is passed on")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{AllocError, Result};
use crate::resource::{Address, Memory, Resource, Room, check_alignment};
use crate::steps;
use crate::stream::{NoOrder, Stream, StreamOrder};

/// A resource made of two functions.
///
/// The first gets bytes and stream and returns a block aligned to [`ALIGNMENT`](crate::ALIGNMENT), or an
/// error, which reaches the caller as it is: [`AllocError::Refused`] with the function's own words, or
/// [`AllocError::OutOfMemory`] where giving memory back could help. The second gets a block back. Neither
/// is called for blocks of no bytes.
pub struct Callback<A, D> {
    allocate: A,
    deallocate: D,
    memory: Memory,
    order: Arc<dyn StreamOrder>,
    live_bytes: AtomicU64,
    live_blocks: AtomicU64,
}

impl<A, D> Callback<A, D>
where
    A: Fn(u64, Stream) -> Result<Address> + Send + Sync + 'static,
    D: Fn(Address, u64, Stream) + Send + Sync + 'static,
{
    /// Hands out what `allocate` returns, which is of the sort `memory` and needs no order of streams.
    pub fn new(memory: Memory, allocate: A, deallocate: D) -> Self {
        tracing::info!("callback created: {} memory that functions hand out", memory.kind.name());
        Self {
            allocate,
            deallocate,
            memory,
            order: NoOrder::shared(),
            live_bytes: AtomicU64::new(0),
            live_blocks: AtomicU64::new(0),
        }
    }

    /// The same for memory of a device whose streams `order` knows.
    #[must_use]
    pub fn ordered_by(mut self, order: Arc<dyn StreamOrder>) -> Self {
        self.order = order;
        self
    }

    fn take(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        check_alignment(bytes, alignment)?;
        if bytes == 0 {
            return Ok(Address::NULL);
        }
        let address = (self.allocate)(bytes, stream)
            .inspect_err(|error| tracing::debug!("callback: the function refused {bytes} bytes: {error}"))?;
        if address.is_null() || address.0 % alignment != 0 {
            let message = format!("the function gave {address} for {bytes} bytes aligned to {alignment}");
            tracing::error!("callback: {message}");
            return Err(AllocError::Refused { message });
        }
        self.live_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.live_blocks.fetch_add(1, Ordering::Relaxed);
        Ok(address)
    }
}

impl<A, D> Resource for Callback<A, D>
where
    A: Fn(u64, Stream) -> Result<Address> + Send + Sync + 'static,
    D: Fn(Address, u64, Stream) + Send + Sync + 'static,
{
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        steps::answered(self.name(), bytes, stream, self.take(bytes, alignment, stream))
    }

    unsafe fn deallocate(&self, address: Address, bytes: u64, _: u64, stream: Stream) {
        steps::gives_back(self.name(), address, bytes, stream);
        if bytes == 0 {
            return;
        }
        self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.live_blocks.fetch_sub(1, Ordering::Relaxed);
        (self.deallocate)(address, bytes, stream);
    }

    fn name(&self) -> &'static str {
        "callback"
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn room(&self) -> Room {
        let live_bytes = self.live_bytes.load(Ordering::Relaxed);
        let live_blocks = self.live_blocks.load(Ordering::Relaxed);
        Room { live_bytes, live_blocks, reserved_bytes: live_bytes, ..Room::default() }
    }

    fn order(&self) -> Arc<dyn StreamOrder> {
        Arc::clone(&self.order)
    }
}

impl<A, D> fmt::Debug for Callback<A, D> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Callback").field("memory", &self.memory).finish_non_exhaustive()
    }
}
