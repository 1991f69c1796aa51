//! Requests by size: each to the resource that serves its size best.
#![expect(unsafe_code, reason = "giving memory back is a promise of the caller")]

use std::sync::Arc;

use floodmark_event::units::format_bytes;

use crate::error::{AllocError, Result};
use crate::fixed_size::{FixedSize, FixedSizeProps};
use crate::resource::{ALIGNMENT, Address, Memory, Readiness, Resource, Room};
use crate::stream::{Stream, StreamOrder};

/// Sends each request to the bin with the smallest blocks that are large enough, and what no bin can
/// serve to the upstream.
pub struct Binning<R: Resource> {
    /// By the largest size they serve.
    bins: Vec<Bin>,
    upstream: Arc<R>,
}

struct Bin {
    largest_bytes: u64,
    resource: Box<dyn Resource>,
    memory: BinMemory,
}

/// Where a bin's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinMemory {
    /// From the upstream of all, in whose figures it is live.
    Upstream,
    /// From elsewhere.
    Own,
}

impl<R: Resource> Binning<R> {
    /// No bins yet: everything goes to the upstream.
    pub fn new(upstream: R) -> Self {
        tracing::info!("binning created over {}", upstream.name());
        Self { bins: Vec::new(), upstream: Arc::new(upstream) }
    }

    /// A bin for every power of two from 2^`smallest` to 2^`largest`, of [`FixedSize`] blocks.
    ///
    /// # Errors
    /// [`AllocError::Invalid`] for powers that are no size; what the upstream says when it cannot give the
    /// first blocks.
    pub fn with_powers(upstream: R, smallest: u32, largest: u32) -> Result<Self> {
        (smallest..=largest).try_fold(Self::new(upstream), |binning, power| {
            let invalid =
                AllocError::Invalid { bytes: u64::MAX, alignment: ALIGNMENT, why: "bins go up to 2^56" };
            let block_bytes = if power <= 56 { Ok(1 << power) } else { Err(invalid) };
            binning.with_bin(block_bytes?)
        })
    }

    /// The same with a bin of [`FixedSize`] blocks over the upstream. One that exists stays.
    ///
    /// # Errors
    /// What the upstream says when it cannot give the first blocks.
    pub fn with_bin(self, block_bytes: u64) -> Result<Self> {
        if self.position(block_bytes).is_ok() {
            return Ok(self);
        }
        let props = FixedSizeProps { block_bytes, ..FixedSizeProps::default() };
        let bin = FixedSize::new(Arc::clone(&self.upstream), props)?;
        let block_bytes = bin.block_bytes();
        Ok(self.with_resource(block_bytes, Box::new(bin), BinMemory::Upstream))
    }

    /// The same with a bin that serves requests of up to `largest_bytes` with a resource of its own. One
    /// that exists stays.
    #[must_use]
    pub fn with_resource(
        mut self,
        largest_bytes: u64,
        resource: Box<dyn Resource>,
        memory: BinMemory,
    ) -> Self {
        if let Err(position) = self.position(largest_bytes) {
            tracing::info!("binning: up to {} from {}", format_bytes(largest_bytes), resource.name());
            self.bins.insert(position, Bin { largest_bytes, resource, memory });
        }
        self
    }

    fn position(&self, largest_bytes: u64) -> Result<usize, usize> {
        self.bins.binary_search_by_key(&largest_bytes, |bin| bin.largest_bytes)
    }

    /// The largest sizes that the bins serve.
    pub fn bins(&self) -> impl Iterator<Item = u64> + '_ {
        self.bins.iter().map(|bin| bin.largest_bytes)
    }

    #[inline]
    fn serving(&self, bytes: u64) -> &dyn Resource {
        let bin = self.bins.iter().find(|bin| bytes <= bin.largest_bytes);
        bin.map_or(&*self.upstream as &dyn Resource, |bin| &*bin.resource)
    }
}

impl<R: Resource> Resource for Binning<R> {
    #[inline]
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        self.serving(bytes).allocate(bytes, alignment, stream)
    }

    #[inline]
    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
        // SAFETY: the caller promises the size of the request, which leads to the resource that served it:
        // there are no other bins than when it was made.
        unsafe { self.serving(bytes).deallocate(address, bytes, alignment, stream) };
    }

    fn name(&self) -> &'static str {
        "binning"
    }

    fn memory(&self) -> Memory {
        self.upstream.memory()
    }

    /// What the bins hold of the upstream is in the upstream's figures as live.
    fn room(&self) -> Room {
        let mut room = self.upstream.room();
        for bin in &self.bins {
            let held = bin.resource.room();
            room.live_bytes += held.live_bytes;
            room.live_blocks += held.live_blocks;
            room.largest_free_bytes = room.largest_free_bytes.max(held.largest_free_bytes);
            if bin.memory == BinMemory::Upstream {
                room.live_bytes = room.live_bytes.saturating_sub(held.reserved_bytes);
                room.live_blocks = room.live_blocks.saturating_sub(held.upstream_blocks);
            } else {
                room.reserved_bytes += held.reserved_bytes;
            }
        }
        room
    }

    fn order(&self) -> Arc<dyn StreamOrder> {
        self.upstream.order()
    }

    fn readiness(&self) -> Readiness {
        Readiness::RequestedStream
    }

    fn upstream(&self) -> Option<&dyn Resource> {
        Some(&*self.upstream)
    }

    fn release(&self) -> u64 {
        let released: u64 = self.bins.iter().map(|bin| bin.resource.release()).sum();
        // Bins over the upstream have released it already, but there may be none.
        released + self.upstream.release()
    }
}
