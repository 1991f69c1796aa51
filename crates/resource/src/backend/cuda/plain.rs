//! Memory that the driver allocates block by block: device, managed and pinned memory.
//!
//! Streams play no part in it: all of them can use a new block at once, and freeing waits until the device
//! is done.
#![expect(unsafe_code, reason = "gives blocks back to the driver")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use floodmark_event::Kind;

use super::device::CudaDevice;
use super::driver::{Driver, Failure};
use super::live::{Answer, Live};
use super::order;
use super::sys::Handle;
use crate::error::Result;
use crate::resource::{ALIGNMENT, Address, Memory, Readiness, Resource, Room, check_alignment};
use crate::steps;
use crate::stream::{Stream, StreamOrder};

/// The common part of the three kinds.
#[derive(Debug)]
struct Plain {
    name: &'static str,
    kind: Kind,
    device: CudaDevice,
    live: Live,
    limit_bytes: Option<u64>,
}

impl Plain {
    fn new(name: &'static str, kind: Kind, device: &CudaDevice, limit_bytes: Option<u64>) -> Self {
        tracing::info!("{name}: memory of device {} ({})", device.ordinal(), device.name());
        Self { name, kind, device: device.clone(), live: Live::default(), limit_bytes }
    }

    fn allocate(
        &self,
        bytes: u64,
        alignment: u64,
        stream: Stream,
        take: impl FnOnce(&Driver, usize) -> Result<u64, Failure>,
    ) -> Result<Address> {
        let answer = check_alignment(bytes, alignment).and_then(|()| self.take(bytes, take));
        steps::answered(self.name, bytes, stream, answer)
    }

    fn take(&self, bytes: u64, take: impl FnOnce(&Driver, usize) -> Result<u64, Failure>) -> Result<Address> {
        if bytes == 0 {
            return Ok(Address::NULL);
        }
        match self.device.context().enter(|driver| take(driver, bytes as usize)) {
            Ok(address) => {
                self.live.add(bytes);
                Ok(Address(address))
            }
            Err(failure) => {
                let (name, limit_bytes) = (self.name, self.limit_bytes);
                let reserved_bytes = self.live.bytes();
                let answer = Answer { name, device: &self.device, limit_bytes, reserved_bytes };
                Err(answer.error(bytes, &self.live, failure))
            }
        }
    }

    fn deallocate(
        &self,
        address: Address,
        bytes: u64,
        stream: Stream,
        give: impl FnOnce(&Driver) -> Result<(), Failure>,
    ) {
        steps::gives_back(self.name, address, bytes, stream);
        if address.is_null() || bytes == 0 {
            return;
        }
        self.live.remove(bytes);
        if let Err(failure) = self.device.context().enter(give) {
            tracing::error!("{}: a block at {address} could not be freed: {failure}", self.name);
        }
    }

    fn room(&self) -> Room {
        let (live_bytes, live_blocks) = (self.live.bytes(), self.live.blocks());
        let limit_bytes = self.limit_bytes;
        Room { limit_bytes, reserved_bytes: live_bytes, live_bytes, live_blocks, ..Room::default() }
    }
}

/// The methods of [`Resource`] that are the same for all types with a field of type [`Plain`].
macro_rules! plain_memory {
    ($plain:tt, $readiness:expr) => {
        fn name(&self) -> &'static str {
            self.$plain.name
        }

        fn memory(&self) -> Memory {
            Memory { kind: self.$plain.kind, device: self.$plain.device.ordinal() }
        }

        fn room(&self) -> Room {
            self.$plain.room()
        }

        fn order(&self) -> Arc<dyn StreamOrder> {
            order::shared(&self.$plain.device)
        }

        fn readiness(&self) -> Readiness {
            $readiness
        }
    };
}

/// Memory of a device, from `cuMemAlloc`.
#[derive(Debug)]
pub struct CudaMemory(Plain);

impl CudaMemory {
    /// Creates a resource of all memory of a device.
    pub fn new(device: &CudaDevice) -> Self {
        Self(Plain::new("cuda", Kind::Device, device, Some(device.total_bytes())))
    }

    /// The device of the memory.
    pub const fn device(&self) -> &CudaDevice {
        &self.0.device
    }
}

impl Resource for CudaMemory {
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        self.0.allocate(bytes, alignment, stream, Driver::allocate)
    }

    unsafe fn deallocate(&self, address: Address, bytes: u64, _: u64, stream: Stream) {
        // SAFETY: the caller promises that the block came from here and is done with.
        self.0.deallocate(address, bytes, stream, |driver| unsafe { driver.free(address.0) });
    }

    plain_memory!(0, Readiness::AnyStream);
}

/// Managed memory, from `cuMemAllocManaged`: it moves between host and devices as it is used, and there may
/// be more of it than the device has.
#[derive(Debug)]
pub struct CudaManaged(Plain);

impl CudaManaged {
    /// Creates a resource of managed memory that `device` will probably use first.
    pub fn new(device: &CudaDevice) -> Self {
        Self(Plain::new("managed", Kind::Managed, device, None))
    }

    /// The device of the memory.
    pub const fn device(&self) -> &CudaDevice {
        &self.0.device
    }

    /// Moves a range of managed memory to the device, in the order of `stream`.
    ///
    /// # Errors
    /// If the range is not managed memory, or if the device cannot prefetch.
    pub fn prefetch(&self, address: Address, bytes: u64, stream: Stream) -> Result<()> {
        self.0.device.prefetch(address, bytes, stream)
    }
}

impl Resource for CudaManaged {
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        self.0.allocate(bytes, alignment, stream, Driver::allocate_managed)
    }

    unsafe fn deallocate(&self, address: Address, bytes: u64, _: u64, stream: Stream) {
        // SAFETY: the caller promises that the block came from here and is done with.
        self.0.deallocate(address, bytes, stream, |driver| unsafe { driver.free(address.0) });
    }

    plain_memory!(0, Readiness::AnyStream);
}

/// Page-locked host memory that the device can access, from `cuMemHostAlloc`.
#[derive(Debug)]
pub struct CudaPinned {
    plain: Plain,
    /// Address from the driver by address of the block, where the two differ because of alignment.
    shifted: Mutex<HashMap<u64, u64>>,
    shifted_count: AtomicU64,
}

impl CudaPinned {
    /// Creates a resource of pinned memory that `device` can access.
    pub fn new(device: &CudaDevice) -> Self {
        let plain = Plain::new("pinned", Kind::Pinned, device, None);
        Self { plain, shifted: Mutex::default(), shifted_count: AtomicU64::new(0) }
    }

    /// The device of the memory.
    pub const fn device(&self) -> &CudaDevice {
        &self.plain.device
    }

    /// Allocates; asks for a larger block where the driver does not align as [`ALIGNMENT`] promises.
    fn take(&self, driver: &Driver, bytes: usize) -> Result<u64, Failure> {
        let given = driver.allocate_host(bytes)?;
        if (given as u64).is_multiple_of(ALIGNMENT) {
            return Ok(given as u64);
        }
        // SAFETY: `allocate_host` returned it above, and it is not used.
        unsafe { driver.free_host(given) }?;
        let given = driver.allocate_host(bytes.saturating_add(ALIGNMENT as usize))? as u64;
        let address = given.next_multiple_of(ALIGNMENT);
        self.shifted.lock().unwrap_or_else(PoisonError::into_inner).insert(address, given);
        self.shifted_count.fetch_add(1, Ordering::Relaxed);
        Ok(address)
    }

    /// The address that the driver returned for a block.
    fn given(&self, address: Address) -> Handle {
        let mut given = None;
        if self.shifted_count.load(Ordering::Relaxed) > 0 {
            given = self.shifted.lock().unwrap_or_else(PoisonError::into_inner).remove(&address.0);
            self.shifted_count.fetch_sub(u64::from(given.is_some()), Ordering::Relaxed);
        }
        given.unwrap_or(address.0) as Handle
    }
}

impl Resource for CudaPinned {
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        self.plain.allocate(bytes, alignment, stream, |driver, bytes| self.take(driver, bytes))
    }

    unsafe fn deallocate(&self, address: Address, bytes: u64, _: u64, stream: Stream) {
        self.plain.deallocate(address, bytes, stream, |driver| {
            // Driver 580 waits for the device here, but that is not documented.
            driver.synchronize_stream(stream.handle() as Handle)?;
            // SAFETY: the caller promises that the block came from here, and all that was enqueued on
            // `stream` has run.
            unsafe { driver.free_host(self.given(address)) }
        });
    }

    plain_memory!(plain, Readiness::RequestedStream);
}
