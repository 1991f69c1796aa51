//! Address space of a given size with no memory behind it.
//!
//! Any allocator can be tried at any size on any machine: nothing here touches what it hands out.

mod order;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use floodmark_event::Kind;
use floodmark_event::units::format_bytes;

pub use order::{Moment, SimulatedOrder, SimulatedStream};

use crate::error::{AllocError, Cause, OutOfMemory, Result};
use crate::reserve::heap::{Heap, Tag};
use crate::resource::{ALIGNMENT, Address, Memory, Readiness, Resource, Room, align_up, check_alignment};
use crate::steps;
use crate::stream::{Stream, StreamOrder};

/// Where simulated memory begins: no block is at address 0.
const BASE: u64 = 1 << 32;
/// The most that can be simulated.
const MOST_BYTES: u64 = 1 << 62;

/// A device that has room but no memory.
///
/// As with the memory of a real one, freeing a block waits for the stream, and then any stream can
/// use it.
#[derive(Debug)]
pub struct Simulated {
    heap: Mutex<Heap>,
    total_bytes: u64,
    memory: Memory,
    order: Arc<SimulatedOrder>,
}

impl Simulated {
    /// Creates a device with `total_bytes` of memory, 4 EiB at most.
    pub fn new(total_bytes: u64) -> Self {
        let total_bytes = total_bytes.min(MOST_BYTES) / ALIGNMENT * ALIGNMENT;
        tracing::info!("simulated memory created: {}", format_bytes(total_bytes));
        let mut heap = Heap::new();
        if total_bytes > 0 {
            heap.add(BASE, total_bytes, Tag::CLEAN);
        }
        Self {
            heap: Mutex::new(heap),
            total_bytes,
            memory: Memory { kind: Kind::Device, device: 0 },
            order: Arc::new(SimulatedOrder::default()),
        }
    }

    fn heap(&self) -> MutexGuard<'_, Heap> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: u64, alignment: u64) -> Result<Address> {
        check_alignment(bytes, alignment)?;
        if bytes == 0 {
            return Ok(Address::NULL);
        }
        let size = align_up(bytes, ALIGNMENT);
        let mut heap = self.heap();
        match size.and_then(|size| heap.take(size, Tag::CLEAN)) {
            Some(address) => Ok(Address(address)),
            None => Err(self.refuse(heap, bytes, size)),
        }
    }

    #[cold]
    fn refuse(&self, mut heap: MutexGuard<'_, Heap>, bytes: u64, size: Option<u64>) -> AllocError {
        let cause = match size {
            Some(size) if size <= heap.free_bytes() => Cause::Fragmented,
            Some(size) if size <= self.total_bytes => Cause::Exhausted,
            _ => Cause::TooLarge,
        };
        let error = AllocError::from(OutOfMemory {
            resource: self.name(),
            request_bytes: bytes,
            cause,
            limit_bytes: Some(self.total_bytes),
            reserved_bytes: self.total_bytes,
            live_bytes: heap.live_bytes(),
            largest_free_bytes: Some(heap.largest(None)),
            ..OutOfMemory::default()
        });
        // A subscriber may allocate here.
        drop(heap);
        tracing::debug!("{error}");
        error
    }

    /// Its streams.
    pub fn streams(&self) -> &Arc<SimulatedOrder> {
        &self.order
    }
}

impl Resource for Simulated {
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        steps::answered(self.name(), bytes, stream, self.take(bytes, alignment))
    }

    #[expect(unsafe_code, reason = "the trait's; nothing here is touched")]
    unsafe fn deallocate(&self, address: Address, bytes: u64, _: u64, stream: Stream) {
        steps::gives_back(self.name(), address, bytes, stream);
        // As a device does that hands memory out for any stream.
        if let Err(error) = self.order.synchronize(stream) {
            tracing::error!("simulated: {error}");
        }
        if !address.is_null() && self.heap().give(address.0, Tag::CLEAN).is_none() {
            tracing::error!("simulated: a block at {address} was given back that is not live");
        }
    }

    fn name(&self) -> &'static str {
        "simulated"
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn room(&self) -> Room {
        let mut heap = self.heap();
        Room {
            limit_bytes: Some(self.total_bytes),
            reserved_bytes: self.total_bytes,
            live_bytes: heap.live_bytes(),
            live_blocks: heap.live_blocks(),
            largest_free_bytes: Some(heap.largest(None)),
            upstream_blocks: 0,
        }
    }

    fn readiness(&self) -> Readiness {
        Readiness::AnyStream
    }

    fn order(&self) -> Arc<dyn StreamOrder> {
        Arc::clone(&self.order) as Arc<dyn StreamOrder>
    }
}
