//! Brings memory to where it will be used.
#![expect(unsafe_code, reason = "giving memory back is a promise that is passed on")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::adaptor::delegate;
use crate::error::Result;
use crate::resource::{Address, Resource};
use crate::stream::Stream;

/// Moves memory that migrates.
pub trait Prefetcher: Send + Sync {
    /// Brings a block to the device, in the order of `stream`.
    ///
    /// # Errors
    /// When the device cannot.
    fn prefetch(&self, address: Address, bytes: u64, stream: Stream) -> Result<()>;
}

/// Has every new block brought to the device at once; where there is nothing that could do it, or
/// nothing to do, blocks are handed out as they are.
pub struct Prefetch<R> {
    upstream: R,
    prefetcher: Option<Arc<dyn Prefetcher>>,
    failures: AtomicU64,
}

impl<R: Resource> Prefetch<R> {
    /// Has `prefetcher`, where there is one, bring the blocks of `upstream`.
    pub fn new(upstream: R, prefetcher: Option<Arc<dyn Prefetcher>>) -> Self {
        let unless = if prefetcher.is_some() { "" } else { "; this memory cannot be prefetched" };
        tracing::info!("prefetch created over {}{unless}", upstream.name());
        Self { upstream, prefetcher, failures: AtomicU64::new(0) }
    }

    /// How many blocks could not be brought. They are as usable as the others, only not as fast.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

impl<R: Resource> Resource for Prefetch<R> {
    #[inline]
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        let address = self.upstream.allocate(bytes, alignment, stream)?;
        if let Some(prefetcher) = &self.prefetcher
            && !address.is_null()
            && let Err(error) = prefetcher.prefetch(address, bytes, stream)
        {
            self.failures.fetch_add(1, Ordering::Relaxed);
            tracing::debug!("prefetch: {bytes} bytes at {address} stay where they are: {error}");
        }
        Ok(address)
    }

    #[inline]
    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.upstream.deallocate(address, bytes, alignment, stream) };
    }

    delegate!("prefetch");
}

impl<R: fmt::Debug> fmt::Debug for Prefetch<R> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Prefetch").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}
