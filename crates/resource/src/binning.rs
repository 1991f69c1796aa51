//! Requests by size: each to the resource that serves its size best.
#![expect(unsafe_code, reason = "giving memory back is a promise of the caller")]

use std::sync::Arc;

use crate::error::Result;
use crate::fixed_size::{FixedSize, FixedSizeProps};
use crate::resource::{Address, Memory, Readiness, Resource, Room};
use crate::stream::{Stream, StreamOrder};

/// Sends each request to the bin with the smallest blocks that are large enough, and what no bin can
/// serve to the upstream.
pub struct Binning<R: Resource> {
    /// By the largest size they serve.
    bins: Vec<(u64, Box<dyn Resource>)>,
    upstream: Arc<R>,
}

impl<R: Resource> Binning<R> {
    /// No bins yet: everything goes to the upstream.
    pub fn new(upstream: R) -> Self {
        Self { bins: Vec::new(), upstream: Arc::new(upstream) }
    }

    /// A bin for every power of two from 2^`smallest` to 2^`largest`, of [`FixedSize`] blocks.
    ///
    /// # Errors
    /// What the upstream says when it cannot give the first blocks.
    pub fn with_powers(upstream: R, smallest: u32, largest: u32) -> Result<Self> {
        let mut binning = Self::new(upstream);
        for power in smallest..=largest {
            binning.add_bin(1 << power)?;
        }
        Ok(binning)
    }

    /// Adds a bin of [`FixedSize`] blocks over the upstream. One that exists stays.
    ///
    /// # Errors
    /// What the upstream says when it cannot give the first blocks.
    pub fn add_bin(&mut self, block_bytes: u64) -> Result<()> {
        if self.position(block_bytes).is_ok() {
            return Ok(());
        }
        let props = FixedSizeProps { block_bytes, ..FixedSizeProps::default() };
        let bin = FixedSize::new(Arc::clone(&self.upstream), props)?;
        let block_bytes = bin.block_bytes();
        self.add_resource(block_bytes, Box::new(bin));
        Ok(())
    }

    /// Adds a bin that serves requests of up to `largest_bytes` with a resource of its own. One that
    /// exists stays.
    pub fn add_resource(&mut self, largest_bytes: u64, resource: Box<dyn Resource>) {
        if let Err(position) = self.position(largest_bytes) {
            self.bins.insert(position, (largest_bytes, resource));
        }
    }

    fn position(&self, largest_bytes: u64) -> Result<usize, usize> {
        self.bins.binary_search_by_key(&largest_bytes, |(bytes, _)| *bytes)
    }

    /// The largest sizes that the bins serve.
    pub fn bins(&self) -> impl Iterator<Item = u64> + '_ {
        self.bins.iter().map(|(bytes, _)| *bytes)
    }

    #[inline]
    fn serving(&self, bytes: u64) -> &dyn Resource {
        let bin = self.bins.iter().find(|(largest, _)| bytes <= *largest);
        bin.map_or(&*self.upstream as &dyn Resource, |(_, bin)| &**bin)
    }
}

impl<R: Resource> Resource for Binning<R> {
    #[inline]
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        self.serving(bytes).allocate(bytes, alignment, stream)
    }

    #[inline]
    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
        // SAFETY: the caller promises the size of the request, which leads to the resource that served it.
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
        for (_, bin) in &self.bins {
            let bin = bin.room();
            room.live_bytes = (room.live_bytes + bin.live_bytes).saturating_sub(bin.reserved_bytes);
            room.live_blocks = (room.live_blocks + bin.live_blocks).saturating_sub(bin.upstream_blocks);
            room.largest_free_bytes = room.largest_free_bytes.max(bin.largest_free_bytes);
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
        self.bins.iter().map(|(_, bin)| bin.release()).sum()
    }
}
