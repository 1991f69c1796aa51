//! Copying of a resource's memory.
//!
//! Resources only hand memory out; the [`StreamOrder`](crate::StreamOrder) of their streams knows how its
//! bytes are moved. An order without a copier makes buffers on its memory refuse to copy.
#![expect(unsafe_code, reason = "copies between addresses that its caller vouches for")]

use crate::error::{AllocError, Result};
use crate::resource::Address;
use crate::stream::Stream;

/// What memory a [`Copier`] can touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// None: there are addresses, but no bytes.
    Nothing,
    /// What the process itself can.
    Host,
    /// That, and a device's.
    Device,
}

/// Copies memory in the order of a stream.
pub trait Copier: Send + Sync {
    /// What it can touch.
    fn reach(&self) -> Reach;

    /// Enqueues a copy on `stream`. It may run later: a caller that copies from or to the host's memory has
    /// to wait for the stream.
    ///
    /// # Errors
    /// When there is nothing to copy, or the device cannot.
    ///
    /// # Safety
    /// Both blocks are within reach and at least `bytes` long, they do not overlap, and are neither changed
    /// nor given back before the copy has run.
    unsafe fn copy(&self, to: Address, from: Address, bytes: u64, stream: Stream) -> Result<()>;
}

/// Copies memory of the host, at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCopier;

impl Copier for HostCopier {
    fn reach(&self) -> Reach {
        Reach::Host
    }

    unsafe fn copy(&self, to: Address, from: Address, bytes: u64, _: Stream) -> Result<()> {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(to.0 as usize);
        let from = std::ptr::with_exposed_provenance::<u8>(from.0 as usize);
        // SAFETY: the caller's promise, and the host reaches both.
        unsafe { to.copy_from_nonoverlapping(from, bytes as usize) };
        Ok(())
    }
}

/// For memory that is not there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NothingToCopy;

impl Copier for NothingToCopy {
    fn reach(&self) -> Reach {
        Reach::Nothing
    }

    unsafe fn copy(&self, _: Address, _: Address, _: u64, _: Stream) -> Result<()> {
        Err(refused("simulated memory has no bytes; use Host or a CUDA resource for real ones"))
    }
}

/// The refusal of a copy.
pub(crate) fn refused(message: impl Into<String>) -> AllocError {
    AllocError::Device { act: "copying memory", message: message.into() }
}
