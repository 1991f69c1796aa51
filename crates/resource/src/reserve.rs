//! Memory of an upstream resource, divided into blocks: the common part of [`Pool`](crate::Pool),
//! [`Arena`](crate::Arena) and [`FixedSize`](crate::FixedSize).
//!
//! ```text
//! upstream ──region──► shared heap ──span──► local heap of a stream ──► blocks
//!                          └──────────────── large blocks, and all blocks when little is left
//! ```
//!
//! The shared heap owns all regions. The local heap of a stream borrows spans of it and divides them under a
//! lock of its own, so streams do not contend. When the shared heap has not enough left, everything is
//! gathered there: free pieces merge across heaps and streams, and the requesting stream waits for those that
//! freed them. Only then is the upstream asked for more.
//!
//! Invariants: a block is in exactly one heap. Allocated blocks move from local heaps to the shared heap
//! (when gathered), never back. Locks are taken in the order foreign, regrouping, local, shared, records.

mod address_map;
mod bins;
mod free_list_cache;
pub(crate) mod heap;
mod regroup;
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

/// The methods of [`Resource`] that are the same for all resources with a field `reserve`.
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

/// How much a reserve requests from its upstream when it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// As much as it has, or half of what is left to its maximum.
    Doubling,
    /// This many bytes.
    Step(u64),
    /// Nothing.
    Never,
}

/// Properties of a reserve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReserveProps {
    pub(crate) name: &'static str,
    pub(crate) initial_bytes: u64,
    pub(crate) maximum_bytes: Option<u64>,
    pub(crate) growth: Growth,
    pub(crate) sharing: Sharing,
}

/// Least and greatest size of a span in bytes.
const SPAN_BYTES: (u64, u64) = (2 << 20, 256 << 20);
/// A span is at most this fraction of all memory, so that one stream does not hoard it.
const SPAN_PART: u64 = 16;
/// A span is used only if this many blocks of the requested size fit in.
const SPAN_BLOCKS: u64 = 4;

pub(crate) struct Reserve<R: Resource> {
    props: ReserveProps,
    streams: Streams,
    shared: Mutex<SharedHeap>,
    regrouping: Regrouping,
    reserved_bytes: AtomicU64,
    misuses: AtomicU64,
    upstream: R,
}

/// The heap of all regions, from which streams borrow spans.
struct SharedHeap {
    heap: Heap,
    /// Lent spans by start: size, and number of the local heap that has it.
    spans: BTreeMap<u64, (u64, u32)>,
    /// Regions of the upstream: size by start.
    regions: BTreeMap<u64, u64>,
}

/// Purpose of a piece of the shared heap.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Block,
    Span,
}

/// Whether memory that other streams freed may be used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OtherStreams {
    /// It may not, so nothing has to be waited for.
    Skip,
    /// It may, after waiting for those streams.
    WaitFor,
}

impl<R: Resource> Reserve<R> {
    pub(crate) fn new(upstream: R, props: ReserveProps) -> Result<Arc<Self>> {
        let shared = SharedHeap { heap: Heap::new(), spans: BTreeMap::new(), regions: BTreeMap::new() };
        let reserve = Arc::new(Self {
            props,
            streams: Streams::new(upstream.order(), props.sharing),
            shared: Mutex::new(shared),
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
            // Before other threads can take the block.
            self.streams.mark(tag, stream);
        }
        let mut heap = local.heap();
        let Some(given) = heap.give(address.0, tag) else {
            drop(heap);
            return self.deallocate_elsewhere(address, bytes, tag);
        };
        if let Some(whole) = given.whole {
            self.give_spans_back(&mut heap, &[whole]);
        } else if heap.is_cache_overfull() {
            let wholes = heap.flush_cache();
            self.give_spans_back(&mut heap, &wholes);
        }
        drop(heap);
        self.compare(address, bytes, given.asked);
    }

    /// Reports a block that is freed with another size than it was allocated with.
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

    /// Number of wrong frees: of blocks that are not live, or with another size.
    pub(crate) fn misuses(&self) -> u64 {
        self.misuses.load(Ordering::Relaxed)
    }

    /// Frees a block that is in another heap than the stream's own.
    #[cold]
    fn deallocate_elsewhere(&self, address: Address, bytes: u64, tag: Tag) {
        // A block may move to the shared heap between the two checks, but never away from it.
        for _ in 0..2 {
            let owner = {
                let mut shared = lock(&self.shared);
                if let Some(given) = shared.heap.give_live(address.0, tag) {
                    drop(shared);
                    return self.compare(address, bytes, given.asked);
                }
                let span = shared.spans.range(..=address.0).next_back();
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

    /// Returns spans that are completely free to the shared heap, all but one.
    #[cold]
    fn give_spans_back(&self, heap: &mut Heap, wholes: &[Whole]) {
        for whole in wholes {
            if heap.whole_spans() < 2 {
                return;
            }
            heap.remove(*whole);
            let mut shared = lock(&self.shared);
            shared.spans.remove(&whole.start);
            shared.heap.give(whole.start, whole.tag);
        }
    }

    /// Searches for memory where it costs least: memory of other streams, for which the stream has to wait,
    /// comes after all that it may use at once.
    #[cold]
    fn allocate_slowly(&self, size: u64, bytes: u64, local: &Local, stream: Stream) -> Result<Address> {
        let tag = local.tag();
        for others in [OtherStreams::Skip, OtherStreams::WaitFor] {
            let mut heap = local.heap();
            if others == OtherStreams::WaitFor {
                // Memory of this heap that another stream freed.
                if let Some(other) = heap.other_tag_with(size, tag) {
                    self.streams.wait(&[other], tag, stream)?;
                    heap.settle_tag(other, tag);
                }
            }
            if let Some(address) = heap.take(size, tag) {
                return Ok(Address(address));
            }
            let span = self.span_bytes(heap.span_bytes());
            let mut shared = lock(&self.shared);
            if span / SPAN_BLOCKS >= size
                && let Some(start) = self.take_from(&mut shared, span, Use::Span, (tag, stream), others)?
            {
                shared.spans.insert(start, (span, local.number));
                heap.add(start, span, tag);
                if let Some(address) = heap.take(size, tag) {
                    return Ok(Address(address));
                }
            }
            if let Some(address) = self.take_from(&mut shared, size, Use::Block, (tag, stream), others)? {
                return Ok(Address(address));
            }
        }
        if let Some(address) = self.merge_and_take(size, local, stream)? {
            return Ok(address);
        }
        self.regroup(size, bytes, tag, stream)
    }

    /// Takes a block of a local heap, all of whose free memory is merged: the stream waits for all that freed
    /// some of it.
    fn merge_and_take(&self, size: u64, local: &Local, stream: Stream) -> Result<Option<Address>> {
        let (mut heap, tag) = (local.heap(), local.tag());
        if heap.free_bytes() < size {
            return Ok(None);
        }
        let tags: Vec<Tag> = heap.other_tags(tag).collect();
        self.streams.wait(&tags, tag, stream)?;
        heap.settle(tag);
        Ok(heap.take(size, tag).map(Address))
    }

    /// Size of the next span for a heap that has `owned` bytes.
    fn span_bytes(&self, owned: u64) -> u64 {
        let wanted = (owned / 2).clamp(SPAN_BYTES.0, SPAN_BYTES.1);
        let part = self.reserved_bytes.load(Ordering::Relaxed) / SPAN_PART;
        if part < SPAN_BYTES.0 { 0 } else { wanted.min(part) / ALIGNMENT * ALIGNMENT }
    }

    /// Takes from the shared heap: first memory that the stream itself freed, then unused memory, then memory
    /// that other streams freed.
    fn take_from(
        &self,
        shared: &mut SharedHeap,
        size: u64,
        to: Use,
        (tag, stream): (Tag, Stream),
        others: OtherStreams,
    ) -> Result<Option<u64>> {
        let mut take = |tag| match to {
            Use::Block => shared.heap.take(size, tag),
            Use::Span => shared.heap.lend(size, tag),
        };
        if let Some(start) = take(tag).or_else(|| take(Tag::CLEAN)) {
            return Ok(Some(start));
        }
        if others == OtherStreams::Skip {
            return Ok(None);
        }
        let tags: Vec<Tag> = shared.heap.other_tags(tag).collect();
        for other in tags {
            let taken = match to {
                Use::Block => shared.heap.take(size, other),
                Use::Span => shared.heap.lend(size, other),
            };
            let Some(start) = taken else { continue };
            if let Err(error) = self.streams.wait(&[other], tag, stream) {
                shared.heap.give(start, other);
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
        // Local heaps first: blocks that move in the meantime are counted twice rather than not at all.
        for local in self.streams.locals() {
            let mut heap = local.heap();
            live_bytes += heap.live_bytes();
            live_blocks += heap.live_blocks();
            largest = largest.max(heap.largest(None));
        }
        let mut shared = lock(&self.shared);
        let lent: u64 = shared.spans.values().map(|(size, _)| size).sum();
        Room {
            limit_bytes: self.limit_bytes(),
            reserved_bytes: self.reserved_bytes.load(Ordering::Relaxed),
            live_bytes: live_bytes + shared.heap.live_bytes() - lent,
            live_blocks: live_blocks + shared.heap.live_blocks() - shared.spans.len() as u64,
            largest_free_bytes: Some(largest.max(shared.heap.largest(None))),
            upstream_blocks: shared.regions.len() as u64,
        }
    }

    fn limit_bytes(&self) -> Option<u64> {
        match self.props.growth {
            Growth::Never => Some(self.reserved_bytes.load(Ordering::Relaxed)),
            Growth::Doubling | Growth::Step(_) => self.props.maximum_bytes,
        }
    }

    /// The error for a request that cannot be served, with its cause.
    fn out_of_memory(&self, request_bytes: u64, upstream: Option<AllocError>) -> AllocError {
        let room = self.room();
        self.out_of_memory_in(room, request_bytes, upstream)
    }

    /// As [`Self::out_of_memory`], for an earlier state.
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
        let regions = std::mem::take(&mut lock(&self.shared).regions);
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
