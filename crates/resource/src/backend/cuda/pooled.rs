//! Memory from a pool that the driver itself keeps, in the order of streams.
#![expect(unsafe_code, reason = "gives blocks back to the driver")]

use std::sync::Arc;

use floodmark_event::Kind;

use super::device::CudaDevice;
use super::live::{Answer, Live};
use super::order;
use super::sys::{ATTRIBUTE_MEMORY_POOLS, Handle, PoolAttribute};
use crate::error::{AllocError, Result};
use crate::resource::{Address, Memory, Resource, Room, check_alignment};
use crate::steps;
use crate::stream::{Stream, StreamOrder};

/// What a [`CudaAsync`] is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaAsyncProps {
    /// Bytes the pool holds from the beginning.
    pub initial_bytes: u64,
    /// What the pool keeps when a stream or the device is waited for; the rest goes back.
    pub release_threshold_bytes: u64,
}

impl Default for CudaAsyncProps {
    fn default() -> Self {
        Self { initial_bytes: 0, release_threshold_bytes: u64::MAX }
    }
}

/// What the driver says of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Bytes the pool holds.
    pub reserved_bytes: u64,
    /// The most it held.
    pub reserved_high_bytes: u64,
    /// Bytes of it that are handed out, as the driver rounds them; less as soon as a free is enqueued.
    pub used_bytes: u64,
    /// The most that were.
    pub used_high_bytes: u64,
}

/// Memory of a device from a pool of its own, by `cuMemAllocFromPoolAsync`.
#[derive(Debug)]
pub struct CudaAsync {
    device: CudaDevice,
    pool: Handle,
    live: Live,
}

impl CudaAsync {
    /// A pool that keeps whatever it once got.
    ///
    /// # Errors
    /// When the device has no memory pools, or no memory for the initial bytes.
    pub fn new(device: &CudaDevice) -> Result<Self> {
        Self::create(device, CudaAsyncProps::default())
    }

    /// A pool as `props` say.
    ///
    /// # Errors
    /// When the device has no memory pools, or no memory for the initial bytes.
    pub fn create(device: &CudaDevice, props: CudaAsyncProps) -> Result<Self> {
        let context = device.context();
        let able = context.driver().device_attribute(context.device(), ATTRIBUTE_MEMORY_POOLS);
        if matches!(able, Ok(0)) {
            let message =
                format!("device {} ({}) has none; use CudaMemory instead", device.ordinal(), device.name());
            return Err(AllocError::Device { act: "creating a memory pool", message });
        }
        let pool = context.enter(|driver| driver.create_pool(context.device()))?;
        let this = Self { device: device.clone(), pool, live: Live::default() };
        let threshold = props.release_threshold_bytes;
        context.enter(|driver| driver.set_pool(pool, PoolAttribute::ReleaseThreshold, threshold))?;
        this.prime(props.initial_bytes)?;
        tracing::info!(
            "cuda_async: a pool on device {} ({}) with {} bytes",
            device.ordinal(),
            device.name(),
            props.initial_bytes
        );
        Ok(this)
    }

    /// Makes the pool reserve `bytes`, by a block that is freed at once.
    fn prime(&self, bytes: u64) -> Result<()> {
        if bytes > 0 {
            let block = self.allocate(bytes, 1, Stream::DEFAULT)?;
            // SAFETY: allocated a line ago, and not used.
            unsafe { self.deallocate(block, bytes, 1, Stream::DEFAULT) };
            self.device.order().synchronize(Stream::DEFAULT)?;
        }
        Ok(())
    }

    /// Its device.
    pub const fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// What the driver says of the pool.
    ///
    /// # Errors
    /// When the driver does not answer.
    pub fn usage(&self) -> Result<PoolUsage> {
        let ask = |attribute| self.device.context().enter(|driver| driver.pool(self.pool, attribute));
        Ok(PoolUsage {
            reserved_bytes: ask(PoolAttribute::ReservedCurrent)?,
            reserved_high_bytes: ask(PoolAttribute::ReservedHigh)?,
            used_bytes: ask(PoolAttribute::UsedCurrent)?,
            used_high_bytes: ask(PoolAttribute::UsedHigh)?,
        })
    }

    fn reserved_bytes(&self) -> u64 {
        let reserved =
            self.device.context().enter(|driver| driver.pool(self.pool, PoolAttribute::ReservedCurrent));
        reserved.unwrap_or_else(|failure| {
            tracing::debug!("cuda_async: {failure}");
            self.live.bytes()
        })
    }

    fn take(&self, bytes: u64, stream: Stream) -> Result<Address> {
        if bytes == 0 {
            return Ok(Address::NULL);
        }
        let stream = stream.handle() as Handle;
        let taken = self
            .device
            .context()
            .enter(|driver| driver.allocate_from_pool(self.pool, bytes as usize, stream));
        match taken {
            Ok(address) => {
                self.live.add(bytes);
                Ok(Address(address))
            }
            Err(failure) => {
                let (limit_bytes, reserved_bytes) = (Some(self.device.total_bytes()), self.reserved_bytes());
                let answer = Answer { name: self.name(), device: &self.device, limit_bytes, reserved_bytes };
                Err(answer.error(bytes, &self.live, failure))
            }
        }
    }
}

impl Resource for CudaAsync {
    #[inline]
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        let answer = check_alignment(bytes, alignment).and_then(|()| self.take(bytes, stream));
        steps::answered(self.name(), bytes, stream, answer)
    }

    #[inline]
    unsafe fn deallocate(&self, address: Address, bytes: u64, _: u64, stream: Stream) {
        steps::gives_back(self.name(), address, bytes, stream);
        if address.is_null() || bytes == 0 {
            return;
        }
        self.live.remove(bytes);
        let stream = stream.handle() as Handle;
        // SAFETY: the caller promises that the block came from here, and that nothing uses it after what
        // is enqueued on `stream`.
        let given = self.device.context().enter(|driver| unsafe { driver.free_to_pool(address.0, stream) });
        if let Err(failure) = given {
            tracing::error!("cuda_async: a block at {address} could not be freed: {failure}");
        }
    }

    fn name(&self) -> &'static str {
        "cuda_async"
    }

    fn memory(&self) -> Memory {
        Memory { kind: Kind::Device, device: self.device.ordinal() }
    }

    fn room(&self) -> Room {
        Room {
            limit_bytes: Some(self.device.total_bytes()),
            reserved_bytes: self.reserved_bytes(),
            live_bytes: self.live.bytes(),
            live_blocks: self.live.blocks(),
            largest_free_bytes: None,
            ..Room::default()
        }
    }

    fn order(&self) -> Arc<dyn StreamOrder> {
        order::shared(&self.device)
    }

    fn release(&self) -> u64 {
        let before = self.reserved_bytes();
        if let Err(failure) = self.device.context().enter(|driver| driver.trim_pool(self.pool, 0)) {
            tracing::debug!("cuda_async: {failure}");
        }
        before.saturating_sub(self.reserved_bytes())
    }
}

impl Drop for CudaAsync {
    fn drop(&mut self) {
        if let Err(failure) = self.device.context().enter(|driver| driver.destroy_pool(self.pool)) {
            tracing::debug!("cuda_async: {failure}");
        }
    }
}
