//! Every allocation, free and failure in the recording of this process.
#![expect(unsafe_code, reason = "giving memory back is a promise that is passed on")]

use std::sync::atomic::{AtomicU64, Ordering};

use floodmark_event::{Kind, StackId, StringId};
use floodmark_tail::{self as tail, AllocDomain};

use crate::adaptor::delegate;
use crate::error::Result;
use crate::resource::{Address, Resource};
use crate::stream::Stream;

/// Records what goes through it, while the process records (`floodmark_tail`).
///
/// An allocation is recorded after the upstream served it, a free before the upstream gets the block
/// back, so a block that is used again never looks allocated twice. A failure is an event of its own.
#[derive(Debug)]
pub struct Logging<R> {
    upstream: R,
    device: i32,
    kind: Kind,
    resource: &'static str,
    /// Number of the recording for which the resource's name was interned, and under which id.
    interned: AtomicU64,
    stacks: Option<fn() -> StackId>,
}

impl<R: Resource> Logging<R> {
    /// Records what goes to `upstream`, without stacks.
    pub fn new(upstream: R) -> Self {
        let memory = upstream.memory();
        tracing::info!("logging created over {}", upstream.name());
        Self {
            device: memory.device,
            kind: memory.kind,
            resource: upstream.served_by(),
            upstream,
            interned: AtomicU64::new(0),
            stacks: None,
        }
    }

    /// Records with each allocation and failure the stack that `stacks` finds; it is called on the
    /// thread that allocates.
    #[must_use]
    pub const fn with_stacks(mut self, stacks: fn() -> StackId) -> Self {
        self.stacks = Some(stacks);
        self
    }

    /// Where blocks of `stream` belong; none while nothing is recorded.
    #[inline]
    fn domain(&self, stream: Stream) -> Option<AllocDomain> {
        let recording = tail::recording();
        if recording == 0 {
            return None;
        }
        let interned = self.interned.load(Ordering::Relaxed);
        let resource =
            if interned >> 32 == u64::from(recording) { interned as u32 } else { self.intern(recording) };
        Some(AllocDomain {
            device: self.device,
            kind: self.kind,
            stream: stream.handle(),
            resource: StringId(resource),
            ..AllocDomain::default()
        })
    }

    #[cold]
    fn intern(&self, recording: u32) -> u32 {
        let id = tail::intern(self.resource).0;
        // An id of 0 says that there was no room for the name, or no recording any more; it is asked
        // for again.
        if id != 0 {
            self.interned.store(u64::from(recording) << 32 | u64::from(id), Ordering::Relaxed);
        }
        id
    }

    #[inline]
    fn stack(&self) -> StackId {
        self.stacks.map_or(StackId(0), |stacks| stacks())
    }
}

impl<R: Resource> Resource for Logging<R> {
    #[inline]
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        let result = self.upstream.allocate(bytes, alignment, stream);
        if let Some(domain) = self.domain(stream) {
            match &result {
                Ok(address) => tail::alloc(address.0, bytes, &domain, self.stack()),
                Err(_) => tail::failure(bytes, &domain, self.stack()),
            }
        }
        result
    }

    #[inline]
    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
        if let Some(domain) = self.domain(stream) {
            tail::free(address.0, bytes, &domain);
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { self.upstream.deallocate(address, bytes, alignment, stream) };
    }

    delegate!("logging");
}
