//! Finding memory when the heaps have none that fits: merging, growing, and releasing regions.
//!
//! One thread at a time does this. The upstream is called without any other lock of ours, so it may be any
//! resource and may even call this one: such a request is served from free memory only.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use floodmark_event::units::format_bytes;

use super::heap::Tag;
use super::streams::{Local, lock};
use super::{Growth, OtherStreams, Reserve, SharedHeap, Use};
use crate::error::{AllocError, Result};
use crate::resource::{ALIGNMENT, Address, Readiness, Resource, align_up};
use crate::stream::Stream;
use crate::thread;

/// The lock of gathering, growing and shrinking.
#[derive(Default)]
pub(super) struct Regrouping {
    lock: Mutex<()>,
    /// Number of the thread that holds it, or 0.
    owner: AtomicU32,
}

/// Holds [`Regrouping`].
pub(super) struct RegroupGuard<'a> {
    owner: &'a AtomicU32,
    _held: MutexGuard<'a, ()>,
}

impl Regrouping {
    /// Locks it; none if the calling thread holds it already, because the upstream called back.
    fn begin(&self) -> Option<RegroupGuard<'_>> {
        if self.owner.load(Ordering::Relaxed) == thread::number() {
            return None;
        }
        Some(self.owned(lock(&self.lock)))
    }

    /// Locks it; none if a thread holds it.
    fn try_begin(&self) -> Option<RegroupGuard<'_>> {
        match self.lock.try_lock() {
            Ok(held) => Some(self.owned(held)),
            Err(std::sync::TryLockError::Poisoned(held)) => Some(self.owned(PoisonError::into_inner(held))),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    fn owned<'a>(&'a self, held: MutexGuard<'a, ()>) -> RegroupGuard<'a> {
        self.owner.store(thread::number(), Ordering::Relaxed);
        RegroupGuard { owner: &self.owner, _held: held }
    }
}

impl Drop for RegroupGuard<'_> {
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Relaxed);
    }
}

impl<R: Resource> Reserve<R> {
    /// Finds memory by merging everything, or else by asking the upstream for more.
    pub(super) fn regroup(&self, size: u64, bytes: u64, tag: Tag, stream: Stream) -> Result<Address> {
        let Some(_alone) = self.regrouping.begin() else { return Err(self.out_of_memory(bytes, None)) };
        // Another thread may have made room in the meantime.
        if let Some(address) = self.take_block(size, tag, stream)? {
            return Ok(address);
        }
        if self.free_bytes() >= size
            && let Some(address) = self.gather_and_take(size, tag, stream)?
        {
            return Ok(address);
        }
        let room = self.room();
        let mut grown = self.grow(size, stream);
        // Regions that are completely free may be in the way of a larger one.
        if grown.as_ref().is_err_and(may_be_in_the_way)
            && self.could_ever_hold(size)
            && self.give_regions_back(tag, stream)? > 0
        {
            grown = self.grow(size, stream);
        }
        let refused = match grown {
            Ok(address) => return Ok(address),
            Err(error @ (AllocError::Device { .. } | AllocError::Refused { .. })) => return Err(error),
            Err(error) => error.is_out_of_memory().then_some(error),
        };
        let error = self.out_of_memory_in(room, bytes, refused);
        tracing::debug!("{error}");
        Err(error)
    }

    fn take_block(&self, size: u64, tag: Tag, stream: Stream) -> Result<Option<Address>> {
        let mut shared = lock(&self.shared);
        let taken = self.take_from(&mut shared, size, Use::Block, (tag, stream), OtherStreams::WaitFor)?;
        Ok(taken.map(Address))
    }

    fn free_bytes(&self) -> u64 {
        let local: u64 = self.streams.locals().iter().map(|local| local.heap().free_bytes()).sum();
        lock(&self.shared).heap.free_bytes() + local
    }

    /// Whether `size` bytes would fit if nothing else were allocated, as far as the limits are known.
    fn could_ever_hold(&self, size: u64) -> bool {
        let limits = [self.props.maximum_bytes, self.upstream.room().limit_bytes];
        self.props.growth != Growth::Never && limits.into_iter().flatten().all(|limit| size <= limit)
    }

    /// Moves everything of these local heaps to the shared heap.
    pub(super) fn gather(&self, locals: &[Arc<Local>]) {
        for local in locals {
            let mut heap = local.heap();
            if heap.span_bytes() == 0 {
                continue;
            }
            let mut shared = lock(&self.shared);
            for (start, moved) in heap.drain() {
                shared.spans.remove(&start);
                shared.heap.absorb(start, &moved);
            }
        }
    }

    /// Merges all free memory for `stream`, which waits for all others. While the result is held, nothing
    /// else is freed to the shared heap.
    fn settle(&self, tag: Tag, stream: Stream) -> Result<MutexGuard<'_, SharedHeap>> {
        self.gather(&self.streams.locals());
        let mut shared = lock(&self.shared);
        let others: Vec<Tag> = shared.heap.other_tags(tag).collect();
        self.streams.wait(&others, tag, stream)?;
        shared.heap.settle(tag);
        Ok(shared)
    }

    fn gather_and_take(&self, size: u64, tag: Tag, stream: Stream) -> Result<Option<Address>> {
        let mut shared = self.settle(tag, stream)?;
        let largest = shared.heap.largest(None);
        let taken = shared.heap.take(size, tag);
        drop(shared);
        tracing::debug!("{}: regrouped, largest free block {}", self.props.name, format_bytes(largest));
        Ok(taken.map(Address))
    }

    /// Asks the upstream for a region, and takes a block of `size` bytes of it before other threads can.
    fn grow(&self, size: u64, stream: Stream) -> Result<Address> {
        let reserved = self.reserved_bytes();
        let left = self.props.maximum_bytes.map(|maximum| maximum.saturating_sub(reserved));
        let wanted = match (self.props.growth, left) {
            (Growth::Never, _) => return Err(NO_ROOM),
            (Growth::Doubling, Some(left)) => left / 2,
            (Growth::Doubling, None) => reserved,
            (Growth::Step(step), _) => step,
        };
        if left.is_some_and(|left| left < size) {
            return Err(NO_ROOM);
        }
        let aligned = |bytes: u64| align_up(bytes, ALIGNMENT).unwrap_or(size);
        let mut wanted = aligned(wanted).max(size).min(left.unwrap_or(u64::MAX));
        loop {
            match self.take_region(wanted, Some(size), stream) {
                Err(error) if error.is_out_of_memory() && wanted > size => {
                    wanted = aligned(wanted / 2).max(size);
                }
                taken => return taken?.ok_or(NO_ROOM),
            }
        }
    }

    /// Adds a region of the upstream, and takes a block of it if one is requested.
    pub(super) fn take_region(
        &self,
        size: u64,
        block: Option<u64>,
        stream: Stream,
    ) -> Result<Option<Address>> {
        let name = self.props.name;
        let region = self.upstream.allocate(size, ALIGNMENT, stream);
        let start = region.inspect_err(|error| {
            tracing::debug!(
                "{name}: upstream {} refused {}: {error}",
                self.upstream.name(),
                format_bytes(size)
            );
        })?;
        let tag = match self.upstream.readiness() {
            Readiness::AnyStream => Tag::CLEAN,
            Readiness::RequestedStream => {
                let tag = self.streams.local(stream).tag();
                if !stream.is_lasting() {
                    self.streams.mark(tag, stream);
                }
                tag
            }
        };
        let mut shared = lock(&self.shared);
        shared.heap.add(start.0, size, tag);
        shared.regions.insert(start.0, size);
        let taken = block.and_then(|bytes| shared.heap.take(bytes, tag));
        let reserved = self.reserved_bytes.fetch_add(size, Ordering::Relaxed) + size;
        drop(shared);
        tracing::debug!("{name}: grew by {} to {}", format_bytes(size), format_bytes(reserved));
        Ok(taken.map(Address))
    }

    /// Returns regions that are completely free to the upstream; returns their size in bytes.
    fn give_regions_back(&self, tag: Tag, stream: Stream) -> Result<u64> {
        let mut shared = self.settle(tag, stream)?;
        let wholes = shared.heap.wholes();
        for whole in &wholes {
            shared.heap.remove(*whole);
            shared.regions.remove(&whole.start);
            self.reserved_bytes.fetch_sub(whole.size, Ordering::Relaxed);
        }
        drop(shared);
        for whole in &wholes {
            self.give_region_back(whole.start, whole.size, stream);
        }
        let given = wholes.iter().map(|whole| whole.size).sum();
        if given > 0 {
            tracing::debug!(
                "{}: gave {} back to {}",
                self.props.name,
                format_bytes(given),
                self.upstream.name()
            );
        }
        Ok(given)
    }

    #[expect(unsafe_code, reason = "ends regions of the upstream")]
    pub(super) fn give_region_back(&self, start: u64, size: u64, stream: Stream) {
        // SAFETY: the region came from this upstream with this size, no heap knows it any more, and
        // `stream` has waited for all that used it.
        unsafe { self.upstream.deallocate(Address(start), size, ALIGNMENT, stream) };
    }

    pub(crate) fn release(&self) -> u64 {
        let Some(_alone) = self.regrouping.begin() else { return 0 };
        let tag = self.streams.local(Stream::DEFAULT).tag();
        let given = self.give_regions_back(tag, Stream::DEFAULT).unwrap_or_else(|error| {
            tracing::error!("{}: cannot give memory back: {error}", self.props.name);
            0
        });
        given + self.upstream.release()
    }

    /// Drops the records of streams that ended, unless another thread is regrouping.
    pub(super) fn tidy(&self) {
        let forgotten = self.streams.forget(|| {
            let Some(_alone) = self.regrouping.try_begin() else { return Ok(false) };
            self.gather(&self.streams.locals());
            // Everything freed to the shared heap so far was enqueued before the device is waited for.
            let mut shared = lock(&self.shared);
            self.streams.order().synchronize_all()?;
            shared.heap.settle(Tag::CLEAN);
            Ok(true)
        });
        if let Err(error) = forgotten {
            tracing::error!("{}: cannot tidy up after streams that ended: {error}", self.props.name);
        }
    }
}

/// Internal answer of [`Reserve::grow`] when the reserve may not grow.
const NO_ROOM: AllocError = AllocError::Invalid { bytes: 0, alignment: 0, why: "it may not grow" };

/// Whether the refusal could be due to regions that can be returned.
fn may_be_in_the_way(refused: &AllocError) -> bool {
    matches!(refused, AllocError::OutOfMemory(_) | AllocError::Invalid { .. })
}
