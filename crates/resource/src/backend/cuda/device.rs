//! One CUDA device.
#![expect(unsafe_code, reason = "fills memory of the device")]

use std::fmt::Write as _;
use std::sync::Arc;

use super::context::Context;
use super::driver::Driver;
use super::order::{Blocking, CudaOrder, CudaStream};
use super::sys::Handle;
use crate::adaptor::prefetch::Prefetcher;
use crate::error::Result;
use crate::resource::Address;
use crate::stream::Stream;

/// A CUDA device whose primary context is held; clones are the same device.
///
/// No call changes which device is current in the calling thread, except
/// [`make_current`](Self::make_current).
#[derive(Clone, Debug)]
pub struct CudaDevice {
    order: Arc<CudaOrder>,
}

/// How much memory a device has, all processes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that no process holds.
    pub free_bytes: u64,
    /// Bytes of the device.
    pub total_bytes: u64,
}

impl CudaDevice {
    pub(crate) const fn new(order: Arc<CudaOrder>) -> Self {
        Self { order }
    }

    #[inline]
    pub(crate) fn context(&self) -> &Context {
        self.order.context()
    }

    /// Its number, as CUDA counts devices in this process.
    pub fn ordinal(&self) -> i32 {
        self.context().ordinal()
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        self.context().name()
    }

    /// What no other device is called, as `nvidia-smi -L` prints it.
    pub fn uuid(&self) -> String {
        let mut text = String::from("GPU");
        for (index, byte) in self.context().uuid().iter().enumerate() {
            if matches!(index, 0 | 4 | 6 | 8 | 10) {
                text.push('-');
            }
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// All its memory.
    pub fn total_bytes(&self) -> u64 {
        self.context().total_bytes()
    }

    /// How much memory it has now.
    ///
    /// # Errors
    /// When the device does not answer.
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let (free_bytes, total_bytes) = self.context().enter(Driver::memory_info)?;
        Ok(MemoryInfo { free_bytes, total_bytes })
    }

    /// Makes the device current in the calling thread and leaves it so, which makes later calls of this
    /// thread cheaper.
    ///
    /// # Errors
    /// When the driver cannot.
    pub fn make_current(&self) -> Result<()> {
        Ok(self.context().make_current()?)
    }

    /// The order of its streams; all resources of the device share it.
    pub const fn order(&self) -> &Arc<CudaOrder> {
        &self.order
    }

    /// Makes a stream that does not wait for the default stream.
    ///
    /// # Errors
    /// When the device cannot.
    pub fn stream(&self) -> Result<CudaStream> {
        CudaStream::create(self, Blocking::No)
    }

    /// Moves managed memory to this device, in the order of `stream`.
    ///
    /// # Errors
    /// When it is no managed memory, or when the device cannot.
    pub fn prefetch(&self, address: Address, bytes: u64, stream: Stream) -> Result<()> {
        let context = self.context();
        let (device, stream) = (context.device(), stream.handle() as Handle);
        Ok(context.enter(|driver| driver.prefetch(address.0, bytes as usize, device, stream))?)
    }

    /// Sets bytes to `value`, in the order of `stream`.
    ///
    /// # Errors
    /// When the device cannot.
    ///
    /// # Safety
    /// The block is at least that long, and nothing else uses it before this has run.
    pub unsafe fn fill_bytes(&self, at: Address, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        let stream = stream.handle() as Handle;
        // SAFETY: the caller's promise.
        Ok(self
            .context()
            .enter(|driver| unsafe { driver.fill_bytes(at.0, value, bytes as usize, stream) })?)
    }

    /// Sets words of four bytes to `value`, in the order of `stream`.
    ///
    /// # Errors
    /// When the device cannot.
    ///
    /// # Safety
    /// As [`fill_bytes`](Self::fill_bytes); the block is aligned to four.
    pub unsafe fn fill_words(&self, at: Address, value: u32, words: u64, stream: Stream) -> Result<()> {
        let stream = stream.handle() as Handle;
        // SAFETY: the caller's promise.
        Ok(self
            .context()
            .enter(|driver| unsafe { driver.fill_words(at.0, value, words as usize, stream) })?)
    }
}

impl Prefetcher for CudaDevice {
    fn prefetch(&self, address: Address, bytes: u64, stream: Stream) -> Result<()> {
        Self::prefetch(self, address, bytes, stream)
    }
}
