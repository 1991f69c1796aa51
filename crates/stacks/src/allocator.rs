//! A global allocator for Rust programs that want the recorder compiled in.
//!
//! ```
//! use std::alloc::System;
//!
//! use floodmark_stacks::RecordedAllocator;
//!
//! #[global_allocator]
//! static ALLOCATOR: RecordedAllocator<System> = RecordedAllocator::new(System);
//!
//! # fn main() {}
//! ```
//!
//! Allocations are recorded with their stacks while the global recording of the process goes on, and cost one look at an
//! atomic otherwise. What the recorder itself allocates is not recorded. Invariants: an allocation is recorded after it
//! succeeded, a free before it happens; a block that could not be moved keeps its record.
#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use floodmark_event::{Kind, NO_DEVICE, StringId};
use floodmark_tail::clock::monotonic_ns;
use floodmark_tail::{AllocDomain, When, global, intern, recording};

use crate::recorded_stack;

/// Resource of blocks that a [`RecordedAllocator`] returned.
pub const RUST_RESOURCE: &str = "rust";

thread_local! {
    /// Set while the thread records, so that what the recorder allocates is left out.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Number of the recording in the upper half, and in the lower the id that the resource has in it.
static RESOURCE: AtomicU64 = AtomicU64::new(0);

/// An allocator that records what another one does.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordedAllocator<A> {
    inner: A,
}

impl<A> RecordedAllocator<A> {
    /// Wraps an allocator.
    pub const fn new(inner: A) -> Self {
        Self { inner }
    }
}

/// Calls `record` with the domain of the blocks if the process records and the thread is not in here already.
#[inline]
fn recorded(record: impl FnOnce(&AllocDomain)) {
    let recording = recording();
    if recording == 0 || INSIDE.replace(true) {
        return;
    }
    record(&domain(recording));
    INSIDE.set(false);
}

fn domain(recording: u32) -> AllocDomain {
    let mut known = RESOURCE.load(Ordering::Relaxed);
    if known >> 32 != u64::from(recording) {
        known = u64::from(recording) << 32 | u64::from(intern(RUST_RESOURCE).0);
        RESOURCE.store(known, Ordering::Relaxed);
    }
    AllocDomain {
        device: NO_DEVICE,
        kind: Kind::Pageable,
        resource: StringId(known as u32),
        ..AllocDomain::default()
    }
}

#[inline(never)]
fn allocated(block: *mut u8, bytes: usize) {
    recorded(|domain| {
        let stack = recorded_stack();
        if block.is_null() {
            global().failure(bytes as u64, domain, stack);
        } else {
            global().alloc(block.addr() as u64, bytes as u64, domain, stack);
        }
    });
}

// SAFETY: every call is passed on as it is, and the result returned.
unsafe impl<A: GlobalAlloc> GlobalAlloc for RecordedAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller guarantees.
        let block = unsafe { self.inner.alloc(layout) };
        allocated(block, layout.size());
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller guarantees.
        let block = unsafe { self.inner.alloc_zeroed(layout) };
        allocated(block, layout.size());
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        recorded(|domain| global().free(block.addr() as u64, layout.size() as u64, domain));
        // SAFETY: as the caller guarantees.
        unsafe { self.inner.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // Another thread may be given the old address before this one records that it is free: the time is from before.
        let (address, before) = (block.addr() as u64, monotonic_ns());
        // SAFETY: as the caller guarantees.
        let new = unsafe { self.inner.realloc(block, layout, bytes) };
        if !new.is_null() {
            recorded(|domain| global().free_at(address, layout.size() as u64, domain, When::At(before)));
        }
        allocated(new, bytes);
        new
    }
}
