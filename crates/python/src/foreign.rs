//! Blocks of other allocators in the recording.

use floodmark_event::Kind;
use floodmark_tail::{self as tail, AllocDomain};
use pyo3::prelude::*;

use crate::record::python_stack;

fn domain(device: i32, stream: u64, resource: &str) -> AllocDomain {
    AllocDomain {
        device,
        kind: Kind::Device,
        stream,
        resource: tail::intern(resource),
        ..AllocDomain::default()
    }
}

/// Record a block of a GPU that another allocator, called `resource`, handed out.
#[pyfunction]
pub(crate) fn record_allocation(address: u64, bytes: u64, device: i32, stream: u64, resource: &str) {
    if tail::is_recording() {
        tail::alloc(address, bytes, &domain(device, stream, resource), python_stack());
    }
}

/// Record that another allocator is about to take a block back.
#[pyfunction]
pub(crate) fn record_free(address: u64, bytes: u64, device: i32, stream: u64, resource: &str) {
    if tail::is_recording() {
        tail::free(address, bytes, &domain(device, stream, resource));
    }
}
