//! What is live while an export is handed out, and what of it a teardown ends.
//!
//! A block is its process and address: rows of frees may name another context or device than the
//! allocation did. A block that has a row for its free later was not ended by a teardown.

use std::collections::BTreeMap;

use floodmark_event::{Action, Kind};
use rustc_hash::{FxHashMap, FxHashSet};

use super::calls::Reach;
use super::memory::{MemoryRow, Spot, spot};

/// A context: index of its process, device, number.
type Context = (u32, i32, u32);

fn context_of(row: &MemoryRow) -> Context {
    (row.process, row.device, row.context)
}

/// A block that is live.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveBlock {
    pub(super) bytes: u64,
    pub(super) device: i32,
    pub(super) stream: u32,
    context: u32,
    pub(super) kind: Kind,
}

/// What later rows tell, where contexts are torn down.
#[derive(Debug, Default)]
struct Ahead {
    /// For each row whether the block that it allocates has a row for its free.
    freed: Vec<bool>,
    /// Index of the last row of a context; of context 0 that of its device.
    last: FxHashMap<Context, usize>,
}

impl Ahead {
    fn new(rows: &[MemoryRow]) -> Self {
        let mut freed = vec![false; rows.len()];
        let mut frees: FxHashSet<Spot> = FxHashSet::default();
        let mut last = FxHashMap::default();
        for (at, row) in rows.iter().enumerate().rev() {
            last.entry(context_of(row)).or_insert(at);
            last.entry((row.process, row.device, 0)).or_insert(at);
            if row.action == Action::Free {
                frees.insert(spot(row));
            } else {
                freed[at] = frees.remove(&spot(row));
            }
        }
        Self { freed, last }
    }
}

/// What is live.
#[derive(Debug, Default)]
pub(super) struct Live {
    blocks: FxHashMap<Spot, LiveBlock>,
    /// Addresses of the blocks that have no row for their free, where contexts are torn down.
    unfreed: BTreeMap<Context, FxHashSet<u64>>,
    /// Context of the latest event of a thread.
    latest: FxHashMap<(u32, u32), Context>,
    /// The one context of a process; none once there are several.
    only: FxHashMap<u32, Option<Context>>,
    ahead: Option<Ahead>,
}

impl Live {
    /// What is live in an export with teardowns.
    pub(super) fn with_teardowns(rows: &[MemoryRow]) -> Self {
        Self { ahead: Some(Ahead::new(rows)), ..Self::default() }
    }

    /// Takes the row at an index. Returns device and kind of its block, which are those of the allocation.
    #[inline]
    pub(super) fn take(&mut self, at: usize, row: &MemoryRow, kind: Kind) -> (i32, Kind) {
        if self.ahead.is_some() {
            self.take_context(row);
        }
        if row.action == Action::Free {
            let ended = self.blocks.remove(&spot(row));
            let Some(block) = ended else { return (row.device, kind) };
            self.forget(row, &block);
            return (block.device, block.kind);
        }
        let MemoryRow { bytes, device, stream, context, .. } = *row;
        let block = LiveBlock { bytes, device, stream, context, kind };
        if let Some(replaced) = self.blocks.insert(spot(row), block) {
            self.forget(row, &replaced);
        }
        if self.ahead.as_ref().is_some_and(|ahead| !ahead.freed[at]) {
            self.unfreed.entry(context_of(row)).or_default().insert(row.address);
        }
        (device, kind)
    }

    fn take_context(&mut self, row: &MemoryRow) {
        // Variables are said to be of context 0.
        if row.context != 0 {
            let context = context_of(row);
            self.latest.insert((row.process, row.thread), context);
            let only = self.only.entry(row.process).or_insert(Some(context));
            *only = only.filter(|only| *only == context);
        }
    }

    fn forget(&mut self, row: &MemoryRow, block: &LiveBlock) {
        if self.ahead.is_some() {
            let context = (row.process, block.device, block.context);
            if let Some(addresses) = self.unfreed.get_mut(&context) {
                addresses.remove(&row.address);
            }
        }
    }

    /// Takes what a teardown before the row at index `next` ends, by address.
    ///
    /// Where a process has several contexts it is the one that the thread used last. If that is not known,
    /// or is in use later, it is those that are not in use later.
    pub(super) fn end(
        &mut self,
        process: u32,
        thread: u32,
        reach: Reach,
        next: usize,
    ) -> Vec<(u64, LiveBlock)> {
        let Some(ahead) = &self.ahead else { return Vec::new() };
        let is_used_later = |context: &Context| ahead.last.get(context).is_some_and(|last| *last >= next);
        let has_several = self.only.get(&process).is_some_and(Option::is_none);
        let latest = self.latest.get(&(process, thread)).copied();
        // A device is used again after it was reset, a context is not.
        let current = latest.filter(|latest| reach == Reach::Device || !is_used_later(latest));
        let is_ended = |context: &Context| match (current, reach) {
            _ if !has_several => true,
            (None, _) => !is_used_later(context),
            (Some((_, device, _)), Reach::Device) => context.1 == device,
            (Some(current), Reach::Context) => {
                *context == current || (context.1 == current.1 && context.2 == 0)
            }
        };
        let all = (process, i32::MIN, 0)..=(process, i32::MAX, u32::MAX);
        let contexts: Vec<Context> =
            self.unfreed.range(all).map(|(context, _)| *context).filter(is_ended).collect();
        let ended = contexts.iter().filter_map(|context| self.unfreed.remove(context)).flatten();
        let block = |address| Some((address, self.blocks.remove(&(process, address))?));
        let mut blocks: Vec<_> = ended.filter_map(block).collect();
        blocks.sort_unstable_by_key(|(address, _)| *address);
        blocks
    }
}
