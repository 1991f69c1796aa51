//! Divides segments again as the caching allocator did, to know how large the blocks were.
//!
//! A block is given from the beginning of a free one that is at least as large. What is left is split off
//! if it is worth it: at least 512 bytes of a block for small requests, more than 1 MiB of one for large
//! requests. Free neighbors are joined. So the whole size of every block follows from the addresses, if
//! the trace has the beginning. Whether it was right shows in the state at the end, which has all blocks.

use std::collections::BTreeMap;

use floodmark_event::Kind;

use super::shape::{Did, Entry};
use super::snapshot::{Place, Settings, Snapshot, State};
use super::start::Start;

/// Sizes are rounded up to this.
const GRAIN_BYTES: u64 = 512;
/// Up to this a request is small.
const SMALL_BYTES: u64 = 1 << 20;

/// Bytes of whole blocks that are live, after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) time_ns: i64,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    bytes: u64,
    state: State,
    /// Address at which its segment begins: pieces of others are never joined.
    segment: u64,
}

#[derive(Debug)]
struct Heap<'a> {
    settings: &'a Settings,
    pieces: BTreeMap<u64, Piece>,
    live_bytes: u64,
}

/// Bytes in whole blocks over time; none if that cannot be told.
pub(super) fn whole_blocks(place: &Place, start: &Start, snapshot: &Snapshot) -> Option<Vec<Whole>> {
    if snapshot.settings.rounds_to_powers || place.kind != Kind::Device || place.trace.is_empty() {
        return None;
    }
    let mut heap = Heap { settings: &snapshot.settings, pieces: BTreeMap::new(), live_bytes: 0 };
    heap.begin(start)?;
    let mut levels = Vec::new();
    if heap.live_bytes > 0 {
        levels.push(Whole { time_ns: place.first_ns, bytes: heap.live_bytes });
    }
    for entry in place.trace.iter().map(|at| &snapshot.entries[*at as usize]) {
        let before = heap.live_bytes;
        heap.take(entry)?;
        if heap.live_bytes != before {
            levels.push(Whole { time_ns: entry.time_ns?, bytes: heap.live_bytes });
        }
    }
    heap.is_state_of(place).then_some(levels)
}

/// Bytes of whole blocks that are live in the state at the end.
pub(super) fn whole_at_end(place: &Place) -> u64 {
    let blocks = place.state.iter().flat_map(|segment| &segment.blocks);
    let live = blocks.filter(|block| block.state == State::Live);
    live.fold(0, |sum: u64, block| sum.saturating_add(block.bytes))
}

impl Heap<'_> {
    fn begin(&mut self, start: &Start) -> Option<()> {
        for segment in &start.segments {
            self.map(segment.address, segment.bytes);
        }
        for block in &start.blocks {
            let (&address, piece) = self.pieces.range(..=block.address).next_back()?;
            let (piece, bytes) = (*piece, block.whole_bytes?);
            let end = address.checked_add(piece.bytes)?;
            let block_end = block.address.checked_add(bytes)?;
            if block_end > end || piece.state != State::Free {
                return None;
            }
            self.pieces.remove(&address);
            let state = State::Free;
            for (from, to, state) in [
                (address, block.address, state),
                (block.address, block_end, State::Live),
                (block_end, end, state),
            ] {
                if from < to {
                    self.pieces.insert(from, Piece { bytes: to - from, state, ..piece });
                }
            }
            self.live_bytes = self.live_bytes.checked_add(bytes)?;
        }
        Some(())
    }

    fn take(&mut self, entry: &Entry) -> Option<()> {
        let Entry { address, bytes, .. } = *entry;
        match entry.did {
            Did::Alloc => self.alloc(address, bytes)?,
            Did::FreeRequested => {
                let piece = self.pieces.get_mut(&address).filter(|piece| piece.state == State::Live)?;
                piece.state = State::PendingFree;
                self.live_bytes = self.live_bytes.checked_sub(piece.bytes)?;
            }
            Did::FreeCompleted => {
                let piece =
                    self.pieces.get_mut(&address).filter(|piece| piece.state == State::PendingFree)?;
                piece.state = State::Free;
                self.join(address);
            }
            Did::SegmentAlloc if entry.is_mapping => {
                self.map(address, bytes);
                // More of an expandable segment, if it lies beside what is mapped already.
                let end = address.checked_add(bytes)?;
                let below = self.pieces.range(..address).next_back();
                let below = below
                    .filter(|(at, piece)| at.checked_add(piece.bytes) == Some(address))
                    .map(|(_, piece)| piece.segment);
                let own = below.unwrap_or(address);
                self.pieces.get_mut(&address)?.segment = own;
                let above: Vec<u64> = self
                    .pieces
                    .range(end..)
                    .map_while(|(at, piece)| (piece.segment == end).then_some(*at))
                    .collect();
                for at in above {
                    self.pieces.get_mut(&at)?.segment = own;
                }
                self.join(address);
            }
            Did::SegmentAlloc => self.map(address, bytes),
            Did::SegmentFree => self.unmap(address, bytes)?,
            Did::Snapshot | Did::OutOfMemory | Did::Annotate | Did::Unknown => {}
        }
        Some(())
    }

    fn map(&mut self, address: u64, bytes: u64) {
        self.pieces.insert(address, Piece { bytes, state: State::Free, segment: address });
    }

    /// Takes away a part of a free piece.
    fn unmap(&mut self, address: u64, bytes: u64) -> Option<()> {
        let (&at, &piece) = self.pieces.range(..=address).next_back()?;
        let (end, gone_end) = (at.checked_add(piece.bytes)?, address.checked_add(bytes)?);
        if piece.state != State::Free || gone_end > end {
            return None;
        }
        self.pieces.remove(&at);
        for (from, to) in [(at, address), (gone_end, end)] {
            if from < to {
                self.pieces.insert(from, Piece { bytes: to - from, ..piece });
            }
        }
        Some(())
    }

    fn alloc(&mut self, address: u64, bytes: u64) -> Option<()> {
        let piece = *self.pieces.get(&address).filter(|piece| piece.state == State::Free)?;
        let rounded = bytes.max(1).checked_next_multiple_of(GRAIN_BYTES)?;
        let rest = piece.bytes.checked_sub(rounded)?;
        let is_split = if rounded <= SMALL_BYTES || self.settings.is_expandable {
            rest >= GRAIN_BYTES
        } else {
            rounded < self.settings.max_split_bytes && rest > SMALL_BYTES
        };
        let own = if is_split { rounded } else { piece.bytes };
        self.pieces.insert(address, Piece { bytes: own, state: State::Live, ..piece });
        if is_split {
            self.pieces.insert(address.checked_add(rounded)?, Piece { bytes: rest, ..piece });
        }
        self.live_bytes = self.live_bytes.checked_add(own)?;
        Some(())
    }

    /// Joins a free piece with its free neighbors.
    fn join(&mut self, address: u64) {
        let Some(mut piece) = self.pieces.get(&address).copied() else { return };
        let joins = |other: &Piece| other.state == State::Free && other.segment == piece.segment;
        let end = address.saturating_add(piece.bytes);
        if let Some(next) = self.pieces.get(&end).copied().filter(joins) {
            self.pieces.remove(&end);
            piece.bytes = piece.bytes.saturating_add(next.bytes);
        }
        let below = self.pieces.range(..address).next_back().map(|(at, piece)| (*at, *piece));
        let below = below.filter(|(at, below)| joins(below) && at.saturating_add(below.bytes) == address);
        if let Some((at, below)) = below {
            self.pieces.remove(&address);
            piece.bytes = piece.bytes.saturating_add(below.bytes);
            self.pieces.insert(at, piece);
        } else {
            self.pieces.insert(address, piece);
        }
    }

    /// Whether every live block is as the state at the end has it.
    fn is_state_of(&self, place: &Place) -> bool {
        let mut count = 0;
        for block in place.state.iter().flat_map(|segment| &segment.blocks) {
            if block.state == State::Live {
                count += 1;
                let own = self.pieces.get(&block.address);
                if own.is_none_or(|own| own.state != State::Live || own.bytes != block.bytes) {
                    return false;
                }
            }
        }
        count == self.pieces.values().filter(|piece| piece.state == State::Live).count()
    }
}
