//! Memory of an upstream, divided: what [`Pool`](crate::Pool), [`Arena`](crate::Arena) and
//! [`FixedSize`](crate::FixedSize) are made of.
//!
//! ```text
//! upstream ──region──► ground ──span──► local heap of a stream ──► blocks
//!                         └──────────────large blocks, and all when there is little left
//! ```
//!
//! The *ground* heap has all regions. A stream's *local* heap borrows spans of it and divides those
//! under a lock that nobody else needs, so streams do not meet. When the ground has not enough left,
//! everything is gathered there again: free pieces join across heaps and streams, and the stream that
//! asks waits for those that gave them back. Only then is the upstream asked for more.
//!
//! Invariants: a block is in exactly one heap. Blocks that are handed out move from local heaps to the
//! ground (when gathered), never the other way. Locks are taken in the order foreign, regrouping, local,
//! ground, records.

mod address_map;
mod bins;
pub(crate) mod heap;
mod regroup;
mod shelf;
mod streams;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) use streams::Sharing;

use crate::error::{AllocError, Cause, OutOfMemory, Result};
use crate::resource::{ALIGNMENT, Address, Resource, Room, align_up, check_alignment};
use crate::stream::{Stream, StreamListener};
use floodmark_event::units::format_bytes;
use heap::{Heap, Tag, Whole};
use regroup::Regrouping;
use streams::{Local, Streams, lock};

/// What of [`Resource`] is the same for all that divide a field `reserve`.
macro_rules! divides {
    ($name:literal) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn memory(&self) -> $crate::resource::Memory {
            self.reserve.upstream().memory()
        }

        fn room(&self) -> $crate::resource::Room {
            self.reserve.room()
        }

        fn order(&self) -> Arc<dyn $crate::stream::StreamOrder> {
            self.reserve.upstream().order()
        }

        fn readiness(&self) -> $crate::resource::Readiness {
            $crate::resource::Readiness::RequestedStream
        }

        fn upstream(&self) -> Option<&dyn Resource> {
            Some(self.reserve.upstream())
        }
    };
}
pub(crate) use divides;

/// How a reserve asks its upstream for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// By as much as it has, or by half of what is left to its maximum.
    Doubling,
    /// By so many bytes.
    Step(u64),
    /// Not at all.
    Never,
}

/// What sort of reserve to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReserveProps {
    pub(crate) name: &'static str,
    pub(crate) initial_bytes: u64,
    pub(crate) maximum_bytes: Option<u64>,
    pub(crate) growth: Growth,
    pub(crate) sharing: Sharing,
}

/// Spans are at least so large, and at most.
const SPAN_BYTES: (u64, u64) = (2 << 20, 256 << 20);
/// A span is at most this part of all, so that one stream does not hoard.
const SPAN_PART: u64 = 16;
/// A span has room for at least so many blocks of the size that made it necessary.
const SPAN_BLOCKS: u64 = 4;

pub(crate) struct Reserve<R: Resource> {
    props: ReserveProps,
    streams: Streams,
    ground: Mutex<Ground>,
    regrouping: Regrouping,
    reserved_bytes: AtomicU64,
    misuses: AtomicU64,
    upstream: R,
}

struct Ground {
    heap: Heap,
    /// Spans by where they begin: size and whose they are.
    spans: BTreeMap<u64, (u64, u32)>,
    /// What came from upstream: where it begins and its size.
    regions: BTreeMap<u64, u64>,
}

/// What to make of a piece of the ground.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Block,
    Span,
}

/// Whether memory is looked for that other streams gave back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Spared,
    WaitedFor,
}

impl<R: Resource> Reserve<R> {
    pub(crate) fn new(upstream: R, props: ReserveProps) -> Result<Arc<Self>> {
        let ground = Ground { heap: Heap::new(), spans: BTreeMap::new(), regions: BTreeMap::new() };
        let reserve = Arc::new(Self {
            props,
            streams: Streams::new(upstream.order(), props.sharing),
            ground: Mutex::new(ground),
            regrouping: Regrouping::default(),
            reserved_bytes: AtomicU64::new(0),
            misuses: AtomicU64::new(0),
            upstream,
        });
        let listener = Arc::downgrade(&reserve) as std::sync::Weak<dyn StreamListener>;
        reserve.streams.order().subscribe(listener);
        if props.initial_bytes > 0 {
            reserve.take_region(props.initial_bytes, None, Stream::DEFAULT)?;
        }
        let most = props.maximum_bytes.map_or("no limit".to_owned(), format_bytes);
        tracing::info!(
            "{} created over {}: {} now, {most} at most",
            props.name,
            reserve.upstream.name(),
            format_bytes(props.initial_bytes)
        );
        Ok(reserve)
    }

    #[inline]
    pub(crate) fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        check_alignment(bytes, alignment)?;
        if bytes == 0 {
            return Ok(Address::NULL);
        }
        let Some(size) = align_up(bytes, ALIGNMENT) else { return Err(self.out_of_memory(bytes, None)) };
        if !stream.is_lasting() && self.streams.is_crowded() {
            self.tidy();
        }
        let _foreign = self.streams.foreign(stream);
        let local = self.streams.local(stream);
        if let Some(address) = local.heap().take(size, local.tag()) {
            return Ok(Address(address));
        }
        self.allocate_slowly(size, bytes, local, stream)
    }

    #[inline]
    pub(crate) fn deallocate(&self, address: Address, bytes: u64, stream: Stream) {
        if bytes == 0 || address.is_null() {
            return;
        }
        let _foreign = self.streams.foreign(stream);
        let local = self.streams.local(stream);
        let tag = local.tag();
        if !stream.is_lasting() {
            // Before others can see the block.
            self.streams.mark(tag, stream);
        }
        let mut heap = local.heap();
        let Some(given) = heap.give(address.0, tag) else {
            drop(heap);
            return self.deallocate_elsewhere(address, bytes, tag);
        };
        if let Some(whole) = given.whole {
            self.give_spans_back(&mut heap, &[whole]);
        } else if heap.is_cluttered() {
            let wholes = heap.clear_shelf();
            self.give_spans_back(&mut heap, &wholes);
        }
        drop(heap);
        self.compare(address, bytes, given.asked);
    }

    /// Names a block whose size is not that of the request it came from.
    #[inline]
    fn compare(&self, address: Address, bytes: u64, size: u64) {
        if align_up(bytes, ALIGNMENT) != Some(size) {
            self.misuse(address, bytes, Some(size));
        }
    }

    #[cold]
    fn misuse(&self, address: Address, bytes: u64, size: Option<u64>) {
        self.misuses.fetch_add(1, Ordering::Relaxed);
        let name = self.props.name;
        match size {
            Some(size) => {
                tracing::error!(
                    "{name}: the block at {address} has {size} bytes and was given back as {bytes}"
                );
            }
            None => tracing::error!(
                "{name}: a block at {address} was given back that is not live ({bytes} bytes)"
            ),
        }
    }

    /// Blocks that were given back wrongly: not live, or with another size.
    pub(crate) fn misuses(&self) -> u64 {
        self.misuses.load(Ordering::Relaxed)
    }

    /// Gives a block back that is in another heap than the stream's own.
    #[cold]
    fn deallocate_elsewhere(&self, address: Address, bytes: u64, tag: Tag) {
        // A block may move to the ground between two looks, but never away from it.
        for _ in 0..2 {
            let owner = {
                let mut ground = lock(&self.ground);
                if let Some(given) = ground.heap.give_live(address.0, tag) {
                    drop(ground);
                    return self.compare(address, bytes, given.asked);
                }
                let span = ground.spans.range(..=address.0).next_back();
                span.filter(|(start, (size, _))| address.0 - *start < *size).map(|(_, (_, local))| *local)
            };
            let Some(owner) = owner.and_then(|number| self.streams.numbered(number)) else { break };
            let mut heap = owner.heap();
            if let Some(given) = heap.give(address.0, tag) {
                drop(heap);
                return self.compare(address, bytes, given.asked);
            }
        }
        self.misuse(address, bytes, None);
    }

    /// Gives spans of which nothing is in use back to the ground, all but one.
    #[cold]
    fn give_spans_back(&self, heap: &mut Heap, wholes: &[Whole]) {
        for whole in wholes {
            if heap.whole_spans() < 2 {
                return;
            }
            heap.remove(*whole);
            let mut ground = lock(&self.ground);
            ground.spans.remove(&whole.start);
            ground.heap.give(whole.start, whole.tag);
        }
    }

    /// Looks for memory where it costs least: nobody waits while there is some that it may use at once.
    #[cold]
    fn allocate_slowly(&self, size: u64, bytes: u64, local: &Local, stream: Stream) -> Result<Address> {
        let tag = local.tag();
        for others in [Others::Spared, Others::WaitedFor] {
            let mut heap = local.heap();
            if others == Others::WaitedFor {
                // What other streams gave back here.
                let tags: Vec<Tag> = heap.other_tags(tag).collect();
                self.streams.wait(&tags, tag, stream)?;
                heap.settle(tag);
            }
            if let Some(address) = heap.take(size, tag) {
                return Ok(Address(address));
            }
            let span = self.span_bytes(heap.span_bytes());
            let mut ground = lock(&self.ground);
            if span / SPAN_BLOCKS >= size
                && let Some(start) = self.take_from(&mut ground, span, Use::Span, (tag, stream), others)?
            {
                ground.spans.insert(start, (span, local.number));
                heap.add(start, span, tag);
                if let Some(address) = heap.take(size, tag) {
                    return Ok(Address(address));
                }
            }
            if let Some(address) = self.take_from(&mut ground, size, Use::Block, (tag, stream), others)? {
                return Ok(Address(address));
            }
        }
        self.regroup(size, bytes, tag, stream)
    }

    /// Size of the next span for a heap that has `owned` bytes.
    fn span_bytes(&self, owned: u64) -> u64 {
        let wanted = (owned / 2).clamp(SPAN_BYTES.0, SPAN_BYTES.1);
        let part = self.reserved_bytes.load(Ordering::Relaxed) / SPAN_PART;
        if part < SPAN_BYTES.0 { 0 } else { wanted.min(part) / ALIGNMENT * ALIGNMENT }
    }

    /// Takes from the ground: what is the stream's own, what nobody used, then what others gave back.
    fn take_from(
        &self,
        ground: &mut Ground,
        size: u64,
        to: Use,
        (tag, stream): (Tag, Stream),
        others: Others,
    ) -> Result<Option<u64>> {
        let mut take = |tag| match to {
            Use::Block => ground.heap.take(size, tag),
            Use::Span => ground.heap.lend(size, tag),
        };
        if let Some(start) = take(tag).or_else(|| take(Tag::CLEAN)) {
            return Ok(Some(start));
        }
        if others == Others::Spared {
            return Ok(None);
        }
        let tags: Vec<Tag> = ground.heap.other_tags(tag).collect();
        for other in tags {
            let taken = match to {
                Use::Block => ground.heap.take(size, other),
                Use::Span => ground.heap.lend(size, other),
            };
            let Some(start) = taken else { continue };
            if let Err(error) = self.streams.wait(&[other], tag, stream) {
                ground.heap.give(start, other);
                return Err(error);
            }
            return Ok(Some(start));
        }
        Ok(None)
    }

    pub(crate) fn room(&self) -> Room {
        let mut live_bytes = 0;
        let mut live_blocks = 0;
        let mut largest = 0;
        // Local heaps first: what moves meanwhile is counted twice rather than not at all.
        for local in self.streams.locals() {
            let mut heap = local.heap();
            live_bytes += heap.live_bytes();
            live_blocks += heap.live_blocks();
            largest = largest.max(heap.largest(None));
        }
        let mut ground = lock(&self.ground);
        let lent: u64 = ground.spans.values().map(|(size, _)| size).sum();
        Room {
            limit_bytes: self.limit_bytes(),
            reserved_bytes: self.reserved_bytes.load(Ordering::Relaxed),
            live_bytes: live_bytes + ground.heap.live_bytes() - lent,
            live_blocks: live_blocks + ground.heap.live_blocks() - ground.spans.len() as u64,
            largest_free_bytes: Some(largest.max(ground.heap.largest(None))),
            upstream_blocks: ground.regions.len() as u64,
        }
    }

    fn limit_bytes(&self) -> Option<u64> {
        match self.props.growth {
            Growth::Never => Some(self.reserved_bytes.load(Ordering::Relaxed)),
            Growth::Doubling | Growth::Step(_) => self.props.maximum_bytes,
        }
    }

    /// Says why there is no room.
    fn out_of_memory(&self, request_bytes: u64, upstream: Option<AllocError>) -> AllocError {
        let room = self.room();
        self.out_of_memory_in(room, request_bytes, upstream)
    }

    /// The same, for how things stood.
    fn out_of_memory_in(&self, room: Room, request_bytes: u64, upstream: Option<AllocError>) -> AllocError {
        let cause = match (room.limit_bytes, &upstream) {
            (Some(limit), _) if request_bytes > limit => Cause::TooLarge,
            _ if room.free_bytes() >= request_bytes => Cause::Fragmented,
            (Some(limit), None) if room.reserved_bytes < limit => Cause::Limit,
            _ => Cause::Exhausted,
        };
        OutOfMemory {
            resource: self.props.name,
            request_bytes,
            cause,
            limit_bytes: room.limit_bytes,
            reserved_bytes: room.reserved_bytes,
            live_bytes: room.live_bytes,
            largest_free_bytes: room.largest_free_bytes,
            holders: Vec::new(),
            upstream: upstream.map(Box::new),
        }
        .into()
    }

    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn upstream(&self) -> &R {
        &self.upstream
    }
}

impl<R: Resource> StreamListener for Reserve<R> {
    fn stream_ends(&self, stream: Stream) {
        let locals = self.streams.end(stream);
        self.gather(&locals);
        if self.streams.is_crowded() {
            self.tidy();
        }
    }
}

impl<R: Resource> Drop for Reserve<R> {
    fn drop(&mut self) {
        let Room { live_bytes, live_blocks, .. } = self.room();
        let name = self.props.name;
        if live_blocks > 0 {
            tracing::warn!(
                "{name}: ends with {} in {live_blocks} blocks still live",
                format_bytes(live_bytes)
            );
        }
        if let Err(error) = self.streams.order().synchronize_all() {
            tracing::error!("{name}: cannot wait for the device: {error}");
        }
        let regions = std::mem::take(&mut lock(&self.ground).regions);
        for (start, size) in regions {
            self.give_region_back(start, size, Stream::DEFAULT);
        }
        tracing::info!(
            "{name} ended, {} given back to {}",
            format_bytes(self.reserved_bytes()),
            self.upstream.name()
        );
    }
}
