//! What was live after some rows, kept so that reading can go on from there.
//!
//! Only live blocks are kept, in order of age: a pass resumed from here reports the same changes as one that
//! read every row. Ended addresses are not kept, so re-use of addresses is known for later ones alone, and the
//! set says so.

use floodmark_event::EventBatch;
use floodmark_event::units::Instant;

use crate::change::{Block, Space};
use crate::fold::{End, Fold};
use crate::live::{AddressTable, LiveSet, SpaceState};
use floodmark_event::filter::{Filter, resolve};

/// The live blocks after some rows, whatever the window of the filter.
#[derive(Clone, Debug)]
pub struct KeptLive {
    blocks: Box<[Block]>,
    spaces: Box<[Space]>,
    rows: u64,
    order: u64,
    first_ns: Option<i64>,
    origin_ns: Option<i64>,
    last_ns: Option<i64>,
}

impl KeptLive {
    /// Bytes of memory that this takes.
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.blocks) + size_of_val(&*self.spaces)
    }

    /// Returns when an instant is, which may count from the origin; none if there was no row.
    pub fn time_ns(&self, instant: Instant) -> Option<i64> {
        self.origin_ns.map(|origin_ns| resolve(instant, origin_ns))
    }
}

/// Follows which blocks are live, and nothing else.
#[derive(Clone, Debug)]
pub struct Tracker {
    live: LiveSet,
}

impl Tracker {
    /// Starts with what `filter` selects, whatever its window.
    pub fn new(filter: &Filter) -> Self {
        Self { live: LiveSet::new(&without_window(filter)) }
    }

    /// Goes on after the events that led to `kept`, which `filter` has to have selected.
    pub fn resume(filter: &Filter, kept: &KeptLive) -> Self {
        Self { live: LiveSet::resume(&without_window(filter), kept, &mut NoFold) }
    }

    /// Takes in more events.
    pub fn update(&mut self, batch: &EventBatch) {
        self.live.update(batch, &mut NoFold);
    }

    /// Keeps what is live now.
    pub fn keep(&self) -> KeptLive {
        self.live.keep()
    }
}

/// A window that never opens: blocks change, nothing is counted.
fn without_window(filter: &Filter) -> Filter {
    Filter { from_ns: Some(Instant::At(i64::MAX)), to_ns: None, ..filter.clone() }
}

/// Ignores all changes.
struct NoFold;

impl Fold for NoFold {
    type Output = ();

    fn finish(&self, _end: &End<'_>) {}
}

impl LiveSet {
    /// Keeps what is live now.
    fn keep(&self) -> KeptLive {
        let mut blocks: Box<[Block]> = self.slab.blocks().copied().collect();
        blocks.sort_unstable_by_key(|block| block.order);
        KeptLive {
            blocks,
            spaces: self.spaces.iter().map(|state| state.space).collect(),
            rows: self.rows,
            order: self.order,
            first_ns: self.window.first_ns,
            origin_ns: self.window.origin_ns,
            last_ns: self.window.last_ns,
        }
    }

    /// Goes on after the rows that led to `kept`, before the window. But for the window `filter` has to
    /// select what it selected then. Rows that led to it count as before the window, wherever they lie.
    pub(crate) fn resume<F: Fold>(filter: &Filter, kept: &KeptLive, fold: &mut F) -> Self {
        let mut live = Self::new(filter);
        if let Some(first_ns) = kept.first_ns {
            live.begin(first_ns, fold);
        }
        live.window.last_ns = kept.last_ns;
        // Blocks have to be carried into a window, even one that has no beginning.
        live.window.from_ns = live.window.from_ns.or(kept.last_ns);
        (live.rows, live.order) = (kept.rows, kept.order);
        for space in &kept.spaces {
            live.told_space(*space, fold);
        }
        for block in &kept.blocks {
            let slot = live.slab.reserve();
            live.slab.put(slot, *block);
            let SpaceState { table, nulls, .. } = &mut live.spaces[block.space as usize];
            // Nulls end newest first, and these come oldest first.
            if block.address == 0 {
                nulls.push(slot);
            } else {
                table.insert(block.address, slot);
            }
        }
        live.spaces.iter_mut().map(|state| &mut state.table).for_each(AddressTable::forget);
        live
    }
}
