//! Keeps what it got from its upstream, and hands it out again.
#![expect(unsafe_code, reason = "giving memory back is a promise of the caller")]

use std::sync::Arc;

use crate::error::{AllocError, Result};
use crate::reserve::{Growth, Reserve, ReserveProps, Sharing, divides};
use crate::resource::{ALIGNMENT, Address, Resource};
use crate::steps;
use crate::stream::Stream;

/// How large a pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolProps {
    /// What it asks its upstream for at once.
    pub initial_bytes: u64,
    /// The most it will hold; no limit if none.
    pub maximum_bytes: Option<u64>,
}

/// A pool of memory that grows by doubling, up to its maximum.
///
/// Blocks are rounded up to 256 bytes and come from a free piece within a sixteenth of the best fit, in
/// constant time (unless only pieces of nearly their size are left, which are looked at one by one). What is given back joins its free neighbors at once. Each stream has
/// memory of its own at hand, so threads with streams of their own do not meet.
pub struct Pool<R: Resource> {
    reserve: Arc<Reserve<R>>,
}

impl<R: Resource> Pool<R> {
    /// A pool over `upstream`.
    ///
    /// # Errors
    /// [`AllocError::Invalid`] for sizes that are no multiple of 256 or a maximum below the initial
    /// size; what the upstream says when it cannot give the initial size.
    pub fn new(upstream: R, props: PoolProps) -> Result<Self> {
        let PoolProps { initial_bytes, maximum_bytes } = props;
        let invalid = |why| Err(AllocError::Invalid { bytes: initial_bytes, alignment: ALIGNMENT, why });
        if initial_bytes % ALIGNMENT != 0 {
            return invalid("the initial size of a pool is a multiple of 256");
        }
        if maximum_bytes.is_some_and(|maximum| maximum % ALIGNMENT != 0) {
            return invalid("the maximum size of a pool is a multiple of 256");
        }
        if maximum_bytes.is_some_and(|maximum| maximum < initial_bytes) {
            return invalid("Initial pool size exceeds the maximum pool size");
        }
        let props = ReserveProps {
            name: "pool",
            initial_bytes,
            maximum_bytes,
            growth: Growth::Doubling,
            sharing: Sharing::ByStream,
        };
        Ok(Self { reserve: Reserve::new(upstream, props)? })
    }

    /// Bytes it holds of its upstream.
    pub fn pool_bytes(&self) -> u64 {
        self.reserve.reserved_bytes()
    }

    /// Blocks that were given back wrongly: twice, never handed out, or with another size.
    pub fn misuses(&self) -> u64 {
        self.reserve.misuses()
    }
}

impl<R: Resource> Resource for Pool<R> {
    #[inline]
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        steps::answered(self.name(), bytes, stream, self.reserve.allocate(bytes, alignment, stream))
    }

    #[inline]
    unsafe fn deallocate(&self, address: Address, bytes: u64, _: u64, stream: Stream) {
        steps::gives_back(self.name(), address, bytes, stream);
        self.reserve.deallocate(address, bytes, stream);
    }

    divides!("pool");

    fn release(&self) -> u64 {
        self.reserve.release()
    }
}
