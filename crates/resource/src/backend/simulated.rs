//! Address space of a given size with no memory behind it.
//!
//! Any allocator can be tried at any size on any machine: nothing here touches what it hands out.

mod order;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use floodmark_event::Kind;

pub use order::{Moment, SimulatedOrder, SimulatedStream};

use crate::error::{Cause, OutOfMemory, Result};
use crate::resource::{ALIGNMENT, Address, Memory, Resource, Room, align_up, check_alignment};
use crate::stream::{Stream, StreamOrder};

/// Where simulated memory begins: no block is at address 0.
const BASE: u64 = 1 << 32;

/// A device that has room but no memory.
#[derive(Debug)]
pub struct Simulated {
    space: Mutex<Space>,
    total_bytes: u64,
    memory: Memory,
    order: Arc<SimulatedOrder>,
}

/// Free and live pieces by address.
#[derive(Debug)]
struct Space {
    free: BTreeMap<u64, u64>,
    live: BTreeMap<u64, u64>,
    live_bytes: u64,
}

impl Simulated {
    /// A device with so much memory.
    pub fn new(total_bytes: u64) -> Self {
        let total_bytes = total_bytes / ALIGNMENT * ALIGNMENT;
        let space =
            Space { free: BTreeMap::from([(BASE, total_bytes)]), live: BTreeMap::new(), live_bytes: 0 };
        Self {
            space: Mutex::new(space),
            total_bytes,
            memory: Memory { kind: Kind::Device, device: 0 },
            order: Arc::new(SimulatedOrder::default()),
        }
    }

    /// Its streams.
    pub fn streams(&self) -> &Arc<SimulatedOrder> {
        &self.order
    }
}

impl Resource for Simulated {
    fn allocate(&self, bytes: u64, alignment: u64, _: Stream) -> Result<Address> {
        check_alignment(bytes, alignment)?;
        if bytes == 0 {
            return Ok(Address::NULL);
        }
        let mut space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        let size = align_up(bytes, ALIGNMENT);
        let fit = size.and_then(|size| {
            let fits = space.free.iter().filter(|(_, free)| **free >= size);
            fits.min_by_key(|(_, free)| **free).map(|(at, free)| (*at, *free, size))
        });
        let Some((at, free, size)) = fit else {
            let largest = space.free.values().copied().max().unwrap_or(0);
            let free_bytes = self.total_bytes - space.live_bytes;
            let details = OutOfMemory {
                resource: self.name(),
                request_bytes: bytes,
                cause: if size.is_some_and(|size| size <= free_bytes) {
                    Cause::Fragmented
                } else {
                    Cause::Exhausted
                },
                limit_bytes: Some(self.total_bytes),
                reserved_bytes: self.total_bytes,
                live_bytes: space.live_bytes,
                largest_free_bytes: Some(largest),
                ..OutOfMemory::default()
            };
            return Err(details.into());
        };
        space.free.remove(&at);
        if free > size {
            space.free.insert(at + size, free - size);
        }
        space.live.insert(at, size);
        space.live_bytes += size;
        Ok(Address(at))
    }

    #[expect(unsafe_code, reason = "the trait's; nothing here is touched")]
    unsafe fn deallocate(&self, address: Address, _: u64, _: u64, _: Stream) {
        let mut space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut size) = space.live.remove(&address.0) else {
            if !address.is_null() {
                tracing::error!("simulated: a block at {address} was given back that is not live");
            }
            return;
        };
        space.live_bytes -= size;
        let mut at = address.0;
        if let Some(after) = space.free.remove(&(at + size)) {
            size += after;
        }
        if let Some((before, before_size)) = space.free.range(..at).next_back().map(|(a, b)| (*a, *b))
            && before + before_size == at
        {
            at = before;
            size += before_size;
        }
        space.free.insert(at, size);
    }

    fn name(&self) -> &'static str {
        "simulated"
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn room(&self) -> Room {
        let space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        Room {
            limit_bytes: Some(self.total_bytes),
            reserved_bytes: self.total_bytes,
            live_bytes: space.live_bytes,
            live_blocks: space.live.len() as u64,
            largest_free_bytes: Some(space.free.values().copied().max().unwrap_or(0)),
        }
    }

    fn order(&self) -> Arc<dyn StreamOrder> {
        Arc::clone(&self.order) as Arc<dyn StreamOrder>
    }
}
