//! Memory of the host.
#![expect(unsafe_code, reason = "asks the system's allocator for memory and gives it back")]

use std::alloc::{Layout, alloc, dealloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{AllocError, OutOfMemory, Result};
use crate::resource::{ALIGNMENT, Address, Memory, Readiness, Resource, Room, check_alignment};
use crate::steps;
use crate::stream::{NoOrder, Stream, StreamOrder};

/// Memory of the host, from the system's allocator, which maps large blocks one by one.
#[derive(Debug, Default)]
pub struct Host {
    live_bytes: AtomicU64,
    live_blocks: AtomicU64,
}

impl Host {
    /// All that the system gives.
    pub fn new() -> Self {
        tracing::info!("host memory created");
        Self::default()
    }

    fn layout(bytes: u64) -> Option<Layout> {
        Layout::from_size_align(usize::try_from(bytes).ok()?, ALIGNMENT as usize).ok()
    }

    fn take(&self, bytes: u64, alignment: u64) -> Result<Address> {
        check_alignment(bytes, alignment)?;
        if bytes == 0 {
            return Ok(Address::NULL);
        }
        // SAFETY: the layout is not empty.
        let address =
            Self::layout(bytes).map_or(0, |layout| unsafe { alloc(layout) }.expose_provenance() as u64);
        if address == 0 {
            let live_bytes = self.live_bytes.load(Ordering::Relaxed);
            let error = AllocError::from(OutOfMemory {
                resource: self.name(),
                request_bytes: bytes,
                live_bytes,
                reserved_bytes: live_bytes,
                ..OutOfMemory::default()
            });
            tracing::debug!("{error}");
            return Err(error);
        }
        self.live_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.live_blocks.fetch_add(1, Ordering::Relaxed);
        Ok(Address(address))
    }
}

impl Resource for Host {
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        steps::answered(self.name(), bytes, stream, self.take(bytes, alignment))
    }

    unsafe fn deallocate(&self, address: Address, bytes: u64, _: u64, stream: Stream) {
        steps::gives_back(self.name(), address, bytes, stream);
        let Some(layout) = Self::layout(bytes).filter(|_| bytes > 0 && !address.is_null()) else { return };
        self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.live_blocks.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the caller promises that the block came from `allocate` with the same size, which
        // makes the same layout.
        unsafe { dealloc(std::ptr::with_exposed_provenance_mut(address.0 as usize), layout) };
    }

    fn name(&self) -> &'static str {
        "host"
    }

    fn memory(&self) -> Memory {
        Memory::HOST
    }

    fn room(&self) -> Room {
        let live_bytes = self.live_bytes.load(Ordering::Relaxed);
        let live_blocks = self.live_blocks.load(Ordering::Relaxed);
        Room { live_bytes, live_blocks, reserved_bytes: live_bytes, ..Room::default() }
    }

    fn order(&self) -> Arc<dyn StreamOrder> {
        NoOrder::shared()
    }

    fn readiness(&self) -> Readiness {
        Readiness::AnyStream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_can_be_written_and_goes_back() {
        let host = Host::new();
        let block = host.allocate(1000, 256, Stream::DEFAULT).unwrap();
        assert_eq!(block.0 % ALIGNMENT, 0);
        // SAFETY: the block is ours and has 1,000 bytes.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(block.0 as usize).write_bytes(7, 1000) };
        assert_eq!(host.room().live_bytes, 1000);
        // SAFETY: as it was allocated.
        unsafe { host.deallocate(block, 1000, 256, Stream::DEFAULT) };
        assert_eq!(host.room(), Room::default());
        assert!(host.allocate(u64::MAX, 256, Stream::DEFAULT).unwrap_err().is_out_of_memory());
        assert_eq!(host.allocate(0, 256, Stream::DEFAULT), Ok(Address::NULL));
    }
}
