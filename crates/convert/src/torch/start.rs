//! What was there before a trace begins, and whether the trace leads to the state at the end.
//!
//! A trace has lost its beginning when it was longer than its ring. What it frees without having
//! allocated it was there before; so was what the state has and the trace never mentions.

use floodmark_event::StackId;
use floodmark_store::Losses;
use rustc_hash::{FxHashMap, FxHashSet};

use super::shape::{Did, Entry};
use super::snapshot::{Place, State};
use crate::pieces::Pieces;

/// Memory that was there before the trace begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Before {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Bytes of the whole block, where the state at the end has it.
    pub(super) whole_bytes: Option<u64>,
    pub(super) stream: u64,
    pub(super) stack: StackId,
}

/// The state before a trace begins.
#[derive(Debug, Default)]
pub(super) struct Start {
    pub(super) segments: Vec<Before>,
    pub(super) blocks: Vec<Before>,
    /// In what trace and state at the end do not agree.
    pub(super) losses: Losses,
}

/// Finds out how it stood on a device before its trace begins.
pub(super) fn start_of(place: &Place, entries: &[Entry]) -> Start {
    let mut start = Start::default();
    let mut live: FxHashMap<u64, u64> = FxHashMap::default();
    let mut mentioned: FxHashSet<u64> = FxHashSet::default();
    let (mut mapped, mut seen): (Pieces<()>, Pieces<()>) = (Pieces::default(), Pieces::default());
    for entry in place.trace.iter().map(|at| &entries[*at as usize]) {
        let Entry { address, bytes, stream, .. } = *entry;
        let before = |address, bytes| Before { address, bytes, whole_bytes: None, stream, stack: StackId(0) };
        match entry.did {
            Did::Alloc => {
                mentioned.insert(address);
                live.insert(address, bytes);
            }
            Did::FreeRequested => {
                if live.remove(&address).is_none() && !mentioned.contains(&address) {
                    start.blocks.push(before(address, bytes));
                }
                mentioned.insert(address);
            }
            Did::FreeCompleted => {
                mentioned.insert(address);
            }
            Did::SegmentAlloc => {
                mapped.cut(address, bytes);
                mapped.insert(address, bytes, ());
                cover(&mut seen, address, bytes);
            }
            Did::SegmentFree => {
                for (address, bytes) in seen.gaps(address, bytes) {
                    start.segments.push(before(address, bytes));
                }
                mapped.cut(address, bytes);
                cover(&mut seen, address, bytes);
            }
            Did::Snapshot | Did::OutOfMemory | Did::Annotate | Did::Unknown => {}
        }
    }
    compare_blocks(place, &mut live, &mentioned, &mut start);
    compare_segments(place, &mut mapped, &seen, &mut start);
    start
}

fn cover(seen: &mut Pieces<()>, address: u64, bytes: u64) {
    for (address, bytes) in seen.gaps(address, bytes) {
        seen.insert(address, bytes, ());
    }
}

/// Takes blocks of the state that the trace does not know for older ones.
fn compare_blocks(
    place: &Place,
    live: &mut FxHashMap<u64, u64>,
    mentioned: &FxHashSet<u64>,
    start: &mut Start,
) {
    let (mut freed, mut resized) = (0, 0);
    for segment in &place.state {
        for block in segment.blocks.iter().filter(|block| block.state == State::Live) {
            match live.remove(&block.address) {
                Some(bytes) => resized += u64::from(bytes != block.requested_bytes),
                None if mentioned.contains(&block.address) => freed += 1,
                None => start.blocks.push(Before {
                    address: block.address,
                    bytes: block.requested_bytes,
                    whole_bytes: Some(block.bytes),
                    stream: segment.stream,
                    stack: block.stack,
                }),
            }
        }
    }
    let gone = live.len() as u64;
    for (count, reason) in [
        (gone, "frees of blocks that the state at the end does not have any more"),
        (freed, "allocations of blocks that the state at the end has and the trace has not"),
    ] {
        if count > 0 {
            start.losses.add(count, reason);
        }
    }
    if resized > 0 {
        let remark = "a block has another size in the state at the end than in the trace";
        start.losses.remark_times(resized, remark);
    }
}

fn compare_segments(place: &Place, mapped: &mut Pieces<()>, seen: &Pieces<()>, start: &mut Start) {
    let mut missing = 0;
    for segment in &place.state {
        for (address, bytes) in mapped.gaps(segment.address, segment.bytes) {
            let older = seen.gaps(address, bytes);
            let older_bytes: u64 = older.iter().map(|(_, bytes)| bytes).sum();
            missing += u64::from(older_bytes < bytes);
            for (address, bytes) in older {
                let (stream, stack) = (segment.stream, segment.stack);
                start.segments.push(Before { address, bytes, whole_bytes: None, stream, stack });
            }
        }
        mapped.cut(segment.address, segment.bytes);
    }
    let extra = mapped.iter().count() as u64;
    // Without a state there is nothing to compare with.
    if extra > 0 && !place.state.is_empty() {
        start.losses.add(extra, "ends of segments that the state at the end does not have any more");
    }
    if missing > 0 {
        start
            .losses
            .add(missing, "beginnings of segments that the state at the end has and the trace has not");
    }
    start.segments.sort_by_key(|before| before.address);
}
