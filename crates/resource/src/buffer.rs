//! A block of memory that is freed when it is dropped.
//!
//! Invariants: `size <= capacity`; the address is null exactly when the capacity is 0, and then the
//! resource was never asked; all that the buffer itself does to its memory is ordered on its stream.
#![expect(unsafe_code, reason = "gives its memory back, and has it copied")]

use std::sync::Arc;

use crate::copier::{Copier, Reach, refused};
use crate::error::{AllocError, Result};
use crate::resource::{ALIGNMENT, Address, Resource};
use crate::stream::{Stream, StreamOrder};

/// Memory of a resource, owned.
///
/// It can be used on other streams too if those are made to wait for [`stream`](Self::stream) before, and
/// that one for them after. On [`Stream::PER_THREAD`] it belongs to the thread that uses it last: it goes
/// back on that thread's own stream.
pub struct DeviceBuffer {
    resource: Arc<dyn Resource>,
    stream: Stream,
    address: Address,
    size: u64,
    capacity: u64,
}

/// The parts of a buffer, for code that takes its memory over.
pub struct RawBuffer {
    /// The resource that the memory goes back to, with the alignment [`ALIGNMENT`].
    pub resource: Arc<dyn Resource>,
    /// The stream on which it was last used.
    pub stream: Stream,
    /// Where it begins; null when the capacity is 0.
    pub address: Address,
    /// Bytes that mean something.
    pub size: u64,
    /// Bytes that were allocated, to be given back as such.
    pub capacity: u64,
}

impl DeviceBuffer {
    /// Allocates `bytes` bytes that mean nothing yet.
    ///
    /// # Errors
    /// When the resource has no memory.
    pub fn new(bytes: u64, stream: Stream, resource: Arc<dyn Resource>) -> Result<Self> {
        let address = take(&*resource, bytes, stream)?;
        Ok(Self { resource, stream, address, size: bytes, capacity: bytes })
    }

    /// Allocates a copy of `data`.
    ///
    /// # Errors
    /// When the resource has no memory, or its memory cannot be copied to.
    pub fn from_host(data: &[u8], stream: Stream, resource: Arc<dyn Resource>) -> Result<Self> {
        let mut buffer = Self::new(data.len() as u64, stream, resource)?;
        buffer.copy_from_host(data)?;
        Ok(buffer)
    }

    /// Takes over memory, from [`into_raw`](Self::into_raw) or elsewhere.
    ///
    /// # Safety
    /// The memory was allocated by the resource with this capacity and [`ALIGNMENT`], nothing else
    /// frees it, and its uses are ordered on the stream.
    pub unsafe fn from_raw(raw: RawBuffer) -> Self {
        let RawBuffer { resource, stream, address, size, capacity } = raw;
        Self { resource, stream, address, size, capacity }
    }

    /// Hands the memory over to the caller, who has to free it.
    pub fn into_raw(mut self) -> RawBuffer {
        let raw = RawBuffer {
            resource: Arc::clone(&self.resource),
            stream: self.stream,
            address: self.address,
            size: self.size,
            capacity: self.capacity,
        };
        (self.address, self.size, self.capacity) = (Address::NULL, 0, 0);
        raw
    }

    /// Where it begins.
    pub const fn address(&self) -> Address {
        self.address
    }

    /// Bytes that mean something.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that are allocated.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether it has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// The stream on which it is used, and goes back.
    pub const fn stream(&self) -> Stream {
        self.stream
    }

    /// Where its memory is from.
    pub const fn resource(&self) -> &Arc<dyn Resource> {
        &self.resource
    }

    /// From now on it is used on `stream`, which is made to wait for the one before.
    ///
    /// # Errors
    /// When the device cannot; then nothing has changed.
    pub fn set_stream(&mut self, stream: Stream) -> Result<()> {
        if stream != self.stream {
            follow(&*self.order(), stream, self.stream)?;
            self.stream = stream;
        }
        Ok(())
    }

    /// Makes it larger or smaller. A smaller one keeps its capacity; a larger one than that moves, and
    /// until it has, both are there.
    ///
    /// # Errors
    /// When there is no memory, or it cannot be copied; then nothing has changed.
    pub fn resize(&mut self, bytes: u64) -> Result<()> {
        self.reserve(bytes)?;
        self.size = bytes;
        Ok(())
    }

    /// Makes room for `bytes` bytes in all, and keeps its size.
    ///
    /// # Errors
    /// As [`resize`](Self::resize).
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.capacity { self.relocate(bytes) } else { Ok(()) }
    }

    /// Gives back what is allocated beyond its size, by moving.
    ///
    /// # Errors
    /// As [`resize`](Self::resize).
    pub fn shrink_to_fit(&mut self) -> Result<()> {
        if self.size < self.capacity { self.relocate(self.size) } else { Ok(()) }
    }

    /// Sets its bytes; they are there when this returns.
    ///
    /// # Errors
    /// When `data` has another size, or the memory cannot be copied to.
    pub fn copy_from_host(&mut self, data: &[u8]) -> Result<()> {
        self.same_size(data.len() as u64)?;
        let from = Address(data.as_ptr().expose_provenance() as u64);
        self.copy_with_host(self.address, from)
    }

    /// Gets its bytes.
    ///
    /// # Errors
    /// When `data` has another size, or the memory cannot be copied from.
    pub fn copy_to_host(&self, data: &mut [u8]) -> Result<()> {
        self.same_size(data.len() as u64)?;
        let to = Address(data.as_mut_ptr().expose_provenance() as u64);
        self.copy_with_host(to, self.address)
    }

    /// Gets its bytes.
    ///
    /// # Errors
    /// When the memory cannot be copied from.
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut data = Vec::new();
        if data.try_reserve_exact(self.size as usize).is_err() {
            let message = format!("the host has no {} bytes for it", self.size);
            return Err(AllocError::Device { act: "copying a buffer to the host", message });
        }
        data.resize(self.size as usize, 0);
        self.copy_to_host(&mut data)?;
        Ok(data)
    }

    /// Sets its bytes to those of `other`, which may be memory of another resource. On one device this
    /// only enqueues; the streams of both are ordered.
    ///
    /// # Errors
    /// When `other` has another size, or one of them cannot be copied.
    pub fn copy_from(&mut self, other: &Self) -> Result<()> {
        self.same_size(other.size)?;
        if self.size == 0 {
            return Ok(());
        }
        let (mine, theirs) = (self.order(), other.order());
        if Arc::ptr_eq(&mine, &theirs) {
            self.copy_on_device(other, &*mine)
        } else {
            self.copy_across(other, &*mine, &*theirs)
        }
    }

    /// What orders the work on its memory. A buffer does not keep it: most buffers are made and freed without a copy,
    /// and asking and counting references costs a third of a small buffer.
    fn order(&self) -> Arc<dyn StreamOrder> {
        self.resource.order()
    }

    /// Both are ordered by the same device.
    fn copy_on_device(&mut self, other: &Self, order: &dyn StreamOrder) -> Result<()> {
        let copier = copier(order)?;
        if self.stream != other.stream {
            follow(order, self.stream, other.stream)?;
        }
        // SAFETY: both are so large and apart, as each owns its memory, and what is done to either later
        // comes after the copy: on this stream by itself, on the other one by what follows.
        unsafe { copier.copy(self.address, other.address, self.size, self.stream) }?;
        if self.stream != other.stream && follow(order, other.stream, self.stream).is_err() {
            order.synchronize(self.stream)?; // the other one may go back at any time
        }
        self.settle(order)
    }

    /// They have nothing in common that could order them: waits for both.
    fn copy_across(&mut self, other: &Self, mine: &dyn StreamOrder, theirs: &dyn StreamOrder) -> Result<()> {
        let (my_copier, their_copier) = (copier(mine)?, copier(theirs)?);
        mine.synchronize(self.stream)?;
        theirs.synchronize(other.stream)?;
        let ask_mine = match (my_copier.reach(), their_copier.reach()) {
            (Reach::Nothing, _) => true,
            (_, Reach::Nothing) => false,
            (mine, theirs) => mine >= theirs,
        };
        let (copier, order, stream) =
            if ask_mine { (my_copier, mine, self.stream) } else { (their_copier, theirs, other.stream) };
        // SAFETY: both are so large and apart, as each owns its memory. The copier that reaches further
        // reaches both, and if one reaches nothing that one is asked, and refuses. The stream is waited
        // for before either can be used otherwise.
        unsafe { copier.copy(self.address, other.address, self.size, stream) }?;
        order.synchronize(stream)
    }

    /// One of the two is this buffer, the other is the host's; both of this buffer's size.
    fn copy_with_host(&self, to: Address, from: Address) -> Result<()> {
        if self.size == 0 {
            return Ok(());
        }
        let order = self.order();
        // SAFETY: both are that long, they do not overlap since this buffer owns its memory, and the host's
        // memory is borrowed until the stream has been waited for.
        unsafe { copier(&*order)?.copy(to, from, self.size, self.stream) }?;
        order.synchronize(self.stream)
    }

    /// Moves to a block of `capacity` bytes, at least its size.
    fn relocate(&mut self, capacity: u64) -> Result<()> {
        let address = take(&*self.resource, capacity, self.stream)?;
        let moved = self.copy_to_block(address);
        let (old, old_capacity) = match moved {
            Ok(()) => (std::mem::replace(&mut self.address, address), self.capacity),
            Err(_) => (address, capacity),
        };
        // SAFETY: it came from there with that size, and nothing but the copy uses it, which is enqueued
        // on the same stream.
        unsafe { give(&*self.resource, old, old_capacity, self.stream) };
        moved?;
        self.capacity = capacity;
        Ok(())
    }

    /// Copies its bytes to a new block of the same resource.
    fn copy_to_block(&self, address: Address) -> Result<()> {
        if self.size == 0 {
            return Ok(());
        }
        let order = self.order();
        let copier = copier(&*order)?;
        if copier.reach() == Reach::Nothing {
            return Ok(()); // nothing can have been put there
        }
        // SAFETY: the new block is at least as large as this buffer's size, and apart; the old one goes
        // back on the same stream after the copy.
        unsafe { copier.copy(address, self.address, self.size, self.stream) }?;
        self.settle(&*order)
    }

    /// A copy that is enqueued on one thread's stream is not ordered on another's.
    fn settle(&self, order: &dyn StreamOrder) -> Result<()> {
        if self.stream.is_per_thread() { order.synchronize(self.stream) } else { Ok(()) }
    }

    fn same_size(&self, bytes: u64) -> Result<()> {
        if bytes == self.size {
            return Ok(());
        }
        let size = self.size;
        Err(refused(format!("the buffer has {size} bytes and the other side {bytes}; resize it first")))
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // SAFETY: it came from there with that capacity, the buffer is the only owner, and what was done
        // to it is ordered on its stream.
        unsafe { give(&*self.resource, self.address, self.capacity, self.stream) };
    }
}

impl std::fmt::Debug for DeviceBuffer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { address, size, capacity, .. } = self;
        let name = self.resource.name();
        write!(out, "DeviceBuffer {{ {size} of {capacity} bytes at {address}, {name} }}")
    }
}

fn take(resource: &dyn Resource, bytes: u64, stream: Stream) -> Result<Address> {
    if bytes == 0 { Ok(Address::NULL) } else { resource.allocate(bytes, ALIGNMENT, stream) }
}

/// # Safety
/// As [`Resource::deallocate`], except that empty blocks are not freed.
unsafe fn give(resource: &dyn Resource, address: Address, bytes: u64, stream: Stream) {
    if bytes > 0 {
        // SAFETY: the caller's promise; all blocks are taken with this alignment.
        unsafe { resource.deallocate(address, bytes, ALIGNMENT, stream) };
    }
}

fn copier(order: &dyn StreamOrder) -> Result<&dyn Copier> {
    order.copier().ok_or_else(|| refused("this resource does not say how its memory is copied"))
}

/// Has `behind` wait for all that is enqueued on `ahead` now.
fn follow(order: &dyn StreamOrder, behind: Stream, ahead: Stream) -> Result<()> {
    let marker = order.marker()?;
    let followed = order.record(marker, ahead).and_then(|()| order.wait(behind, marker));
    order.discard(marker);
    followed
}
