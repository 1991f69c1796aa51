//! How much of a resource is handed out, and what to answer when there is no more.

use std::sync::atomic::{AtomicU64, Ordering};

use floodmark_event::units::format_bytes;

use super::device::CudaDevice;
use super::driver::Failure;
use crate::error::{AllocError, Cause, OutOfMemory};

/// What is handed out, as it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Live {
    bytes: AtomicU64,
    blocks: AtomicU64,
}

impl Live {
    #[inline]
    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.blocks.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn remove(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.blocks.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }
}

/// How things stood when the driver refused.
pub(crate) struct Answer<'a> {
    pub(crate) name: &'static str,
    pub(crate) device: &'a CudaDevice,
    pub(crate) limit_bytes: Option<u64>,
    pub(crate) reserved_bytes: u64,
}

impl Answer<'_> {
    /// Returns the error for a request of `bytes`.
    #[cold]
    pub(crate) fn error(&self, bytes: u64, live: &Live, failure: Failure) -> AllocError {
        let Self { name, device, limit_bytes, reserved_bytes } = *self;
        tracing::debug!("{name}: no {bytes} bytes on device {}: {failure}", device.ordinal());
        let is_out_of_memory = failure.is_out_of_memory();
        let mut said = AllocError::from(failure);
        if !is_out_of_memory {
            return said;
        }
        // Other processes and resources share the device: what it has left shows which of them took it.
        if let (AllocError::Device { message, .. }, Ok(info)) = (&mut said, device.memory_info()) {
            let (free, total) = (format_bytes(info.free_bytes), format_bytes(info.total_bytes));
            *message = format!("{message}; device {} has {free} of {total} free", device.ordinal());
        }
        let details = OutOfMemory {
            resource: name,
            request_bytes: bytes,
            cause: Cause::Exhausted,
            limit_bytes,
            reserved_bytes,
            live_bytes: live.bytes(),
            upstream: Some(Box::new(said)),
            ..OutOfMemory::default()
        };
        details.into()
    }
}
