//! Exact counts of what is live, at most was, and ever came, for the process and for scopes.
//!
//! Two sets of counters are kept. The *process-wide* ones count everything and are exact at any time,
//! peaks over all threads included. A thread may open *scopes* on top: each counts what its own thread
//! does from then on, so two threads never see each other's. A scope starts at zero; freeing what was
//! there before it makes its value negative.
//!
//! A scope with a name ([`StatisticsHandle::scope`]) also knows what it *holds*: blocks that were
//! allocated in it and are live, whichever thread frees them and when.
//!
//! Counted is what was asked for, after the upstream served it; a free counts before the upstream gets
//! the block back, so that a block which another thread gets at once is never counted twice. What the
//! upstream refused is counted apart.
//!
//! | module | what lives there |
//! |---|---|
//! | `handle` | the counters, and what can be asked of them |
//! | `level` | the scopes that threads have open |
//! | `charge` | which named scope allocated which live block |
//! | `scope` | scopes with a name |
#![expect(unsafe_code, reason = "giving memory back is a promise that is passed on")]

mod charge;
mod handle;
mod level;
mod scope;
mod traced;
mod whole;

use std::any::Any;
use std::ops::Deref;

pub use handle::{NoScope, Requests, StatisticsHandle};
pub(crate) use scope::SplitScope;
pub use scope::{Scope, ScopeFigures};

use crate::adaptor::delegate;
use crate::error::Result;
use crate::resource::{Address, Resource};
use crate::stream::Stream;

/// One figure over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Now.
    pub value: i64,
    /// The highest value so far; at least 0.
    pub peak: i64,
    /// All that was ever added.
    pub total: i64,
}

impl Counter {
    #[inline]
    const fn add(&mut self, amount: i64) {
        self.value = self.value.wrapping_add(amount);
        self.total = self.total.wrapping_add(amount);
        if self.value > self.peak {
            self.peak = self.value;
        }
    }

    #[inline]
    const fn remove(&mut self, amount: i64) {
        self.value = self.value.wrapping_sub(amount);
    }

    /// Takes over what an inner scope counted since this one counted last.
    fn absorb(&mut self, inner: Self) {
        self.peak = self.peak.max(self.value.wrapping_add(inner.peak));
        self.value = self.value.wrapping_add(inner.value);
        self.total = self.total.wrapping_add(inner.total);
    }
}

/// Bytes and allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes as they were asked for.
    pub bytes: Counter,
    /// Allocations, those of no bytes included.
    pub allocations: Counter,
}

impl Counters {
    #[inline]
    const fn allocated(&mut self, bytes: u64) {
        self.bytes.add(bytes as i64);
        self.allocations.add(1);
    }

    #[inline]
    const fn freed(&mut self, bytes: u64) {
        self.bytes.remove(bytes as i64);
        self.allocations.remove(1);
    }

    fn absorb(&mut self, inner: &Self) {
        self.bytes.absorb(inner.bytes);
        self.allocations.absorb(inner.allocations);
    }
}

/// Counts what goes through it; all that can be asked is asked of its [`StatisticsHandle`], which this
/// dereferences to and which [`find`](crate::find) finds in any stack.
///
/// ```
/// use floodmark_resource::{Host, Resource as _, Statistics, Stream};
///
/// let resource = Statistics::new(Host::new());
/// let block = resource.allocate(1000, 256, Stream::DEFAULT).unwrap();
/// // SAFETY: as it was allocated.
/// unsafe { resource.deallocate(block, 1000, 256, Stream::DEFAULT) };
/// let bytes = resource.process_counters().bytes;
/// assert_eq!((bytes.value, bytes.peak, bytes.total), (0, 1000, 1000));
/// ```
#[derive(Debug)]
pub struct Statistics<R> {
    upstream: R,
    handle: StatisticsHandle,
}

impl<R: Resource> Statistics<R> {
    /// Counts what goes to `upstream` from now on.
    pub fn new(upstream: R) -> Self {
        tracing::info!("statistics created over {}", upstream.name());
        Self { upstream, handle: StatisticsHandle::default() }
    }

    /// The counters, to be kept or sent elsewhere.
    pub const fn handle(&self) -> &StatisticsHandle {
        &self.handle
    }
}

impl<R> Deref for Statistics<R> {
    type Target = StatisticsHandle;

    fn deref(&self) -> &StatisticsHandle {
        &self.handle
    }
}

impl<R: Resource> Resource for Statistics<R> {
    #[inline]
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        match self.upstream.allocate(bytes, alignment, stream) {
            Ok(address) => {
                self.handle.allocated(address, bytes);
                Ok(address)
            }
            Err(error) => Err(self.handle.failed(bytes, error)),
        }
    }

    #[inline]
    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
        self.handle.freed(address, bytes);
        // SAFETY: the caller's promise, passed on.
        unsafe { self.upstream.deallocate(address, bytes, alignment, stream) };
    }

    delegate!("statistics");

    fn part(&self) -> Option<&dyn Any> {
        Some(&self.handle)
    }
}
