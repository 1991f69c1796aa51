//! Finding room when none is at hand: putting pieces together, growing, giving back.
//!
//! One thread at a time does any of it. The upstream is called with no lock of ours held but that one, so
//! it may be anything, and may even call us: what it asks for then is served from what is at hand.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use floodmark_event::units::format_bytes;

use super::heap::Tag;
use super::streams::{Local, lock};
use super::{Ground, Growth, Others, Reserve, Use};
use crate::error::{AllocError, Result};
use crate::resource::{ALIGNMENT, Address, Readiness, Resource, align_up};
use crate::stream::Stream;
use crate::thread;

/// Held by whoever gathers, grows or shrinks.
#[derive(Default)]
pub(super) struct Regrouping {
    lock: Mutex<()>,
    /// Number of the thread that has it, or 0.
    owner: AtomicU32,
}

pub(super) struct Alone<'a> {
    owner: &'a AtomicU32,
    _held: MutexGuard<'a, ()>,
}

impl Regrouping {
    /// None if the calling thread has it already: the upstream called back.
    fn begin(&self) -> Option<Alone<'_>> {
        if self.owner.load(Ordering::Relaxed) == thread::number() {
            return None;
        }
        Some(self.owned(lock(&self.lock)))
    }

    /// None if somebody has it.
    fn try_begin(&self) -> Option<Alone<'_>> {
        match self.lock.try_lock() {
            Ok(held) => Some(self.owned(held)),
            Err(std::sync::TryLockError::Poisoned(held)) => Some(self.owned(PoisonError::into_inner(held))),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    fn owned<'a>(&'a self, held: MutexGuard<'a, ()>) -> Alone<'a> {
        self.owner.store(thread::number(), Ordering::Relaxed);
        Alone { owner: &self.owner, _held: held }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Relaxed);
    }
}

impl<R: Resource> Reserve<R> {
    /// Finds room by putting everything together, and else by asking for more.
    pub(super) fn regroup(&self, size: u64, bytes: u64, tag: Tag, stream: Stream) -> Result<Address> {
        let Some(_alone) = self.regrouping.begin() else { return Err(self.out_of_memory(bytes, None)) };
        // Somebody else may have made room meanwhile.
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
        // Regions of which nothing is in use may be in the way of a larger one.
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
        let mut ground = lock(&self.ground);
        let taken = self.take_from(&mut ground, size, Use::Block, (tag, stream), Others::WaitedFor)?;
        Ok(taken.map(Address))
    }

    fn free_bytes(&self) -> u64 {
        let local: u64 = self.streams.locals().iter().map(|local| local.heap().free_bytes()).sum();
        lock(&self.ground).heap.free_bytes() + local
    }

    /// Whether `size` bytes would fit if nothing else were there, as far as anybody knows.
    fn could_ever_hold(&self, size: u64) -> bool {
        let limits = [self.props.maximum_bytes, self.upstream.room().limit_bytes];
        self.props.growth != Growth::Never && limits.into_iter().flatten().all(|limit| size <= limit)
    }

    /// Moves all that local heaps have to the ground.
    pub(super) fn gather(&self, locals: &[Arc<Local>]) {
        for local in locals {
            let mut heap = local.heap();
            if heap.span_bytes() == 0 {
                continue;
            }
            let mut ground = lock(&self.ground);
            for (start, moved) in heap.drain() {
                ground.spans.remove(&start);
                ground.heap.absorb(start, &moved);
            }
        }
    }

    /// Puts everything together for `stream`, which waits for all others. As long as the result is held,
    /// nothing else is given back to the ground.
    fn settle(&self, tag: Tag, stream: Stream) -> Result<MutexGuard<'_, Ground>> {
        self.gather(&self.streams.locals());
        let mut ground = lock(&self.ground);
        let others: Vec<Tag> = ground.heap.other_tags(tag).collect();
        self.streams.wait(&others, tag, stream)?;
        ground.heap.settle(tag);
        Ok(ground)
    }

    fn gather_and_take(&self, size: u64, tag: Tag, stream: Stream) -> Result<Option<Address>> {
        let mut ground = self.settle(tag, stream)?;
        let largest = ground.heap.largest(None);
        let taken = ground.heap.take(size, tag);
        drop(ground);
        tracing::debug!("{}: regrouped, largest free block {}", self.props.name, format_bytes(largest));
        Ok(taken.map(Address))
    }

    /// Asks the upstream for a region with room for `size` bytes, and takes them before anybody else can.
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

    /// Takes a region over, and at once a block of it if one is wanted.
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
        let mut ground = lock(&self.ground);
        ground.heap.add(start.0, size, tag);
        ground.regions.insert(start.0, size);
        let taken = block.and_then(|bytes| ground.heap.take(bytes, tag));
        let reserved = self.reserved_bytes.fetch_add(size, Ordering::Relaxed) + size;
        drop(ground);
        tracing::debug!("{name}: grew by {} to {}", format_bytes(size), format_bytes(reserved));
        Ok(taken.map(Address))
    }

    /// Gives regions of which nothing is in use back; returns how many bytes that was.
    fn give_regions_back(&self, tag: Tag, stream: Stream) -> Result<u64> {
        let mut ground = self.settle(tag, stream)?;
        let wholes = ground.heap.wholes();
        for whole in &wholes {
            ground.heap.remove(*whole);
            ground.regions.remove(&whole.start);
            self.reserved_bytes.fetch_sub(whole.size, Ordering::Relaxed);
        }
        drop(ground);
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

    /// Forgets streams that ended, once there are many, unless somebody is busy: then the next one does it.
    pub(super) fn tidy(&self) {
        let forgotten = self.streams.forget(|| {
            let Some(_alone) = self.regrouping.try_begin() else { return Ok(false) };
            self.gather(&self.streams.locals());
            // Whatever is given back to the ground before this was enqueued before the device is waited for.
            let mut ground = lock(&self.ground);
            self.streams.order().synchronize_all()?;
            ground.heap.settle(Tag::CLEAN);
            Ok(true)
        });
        if let Err(error) = forgotten {
            tracing::error!("{}: cannot tidy up after streams that ended: {error}", self.props.name);
        }
    }
}

/// What a reserve says to itself when it may not grow.
const NO_ROOM: AllocError = AllocError::Invalid { bytes: 0, alignment: 0, why: "it may not grow" };

/// Whether giving regions back could help against this refusal.
fn may_be_in_the_way(refused: &AllocError) -> bool {
    matches!(refused, AllocError::OutOfMemory(_) | AllocError::Invalid { .. })
}
