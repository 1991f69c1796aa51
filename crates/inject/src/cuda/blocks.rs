//! What is live of a process's CUDA memory: which domain an address belongs to, and what ends with a context.
//!
//! Any free function of the driver may end a block of several allocating ones, and the end of a context ends blocks
//! without a call for each. A free that turns out to have failed brings its block back, so what was freed stays in the
//! table, marked, until there are many of them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use floodmark_event::StackId;

use crate::pid_lock::{Got, PidLock};

/// A block of memory, addresses or a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) bytes: u64,
    pub(super) stream: u64,
    /// The context it ends with; 0 for none.
    pub(super) context: u64,
    pub(super) device: i32,
    pub(super) stack: StackId,
    /// What it belongs to, see `events::Source`.
    pub(super) source: u8,
    pub(super) is_freed: bool,
    /// Whether PyTorch's cache holds it, which hands out blocks of its own.
    pub(super) is_segment: bool,
    /// Of physical memory: handles that are not released yet, and places where it is mapped.
    pub(super) handles: u32,
    pub(super) mappings: u32,
    /// Of a mapping: the handle of its memory. Of memory of a graph: the graph.
    pub(super) owner: u64,
}

/// Which of the tables an address is of: handles and addresses may have the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// Memory.
    Memory = 0,
    /// Handles of physical memory.
    Physical = 1,
    /// Mappings of physical memory.
    Mapping = 2,
    /// Reserved addresses, whose first may be that of a mapping too.
    Reservation = 3,
}

const SPACES: usize = 4;
/// Tables of addresses of memory, so that threads seldom wait for each other.
const SHARDS: usize = 16;
/// Freed blocks that a table may keep beside as many as are live.
const MOST_FREED: usize = 1024;

#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    }
}

#[derive(Default)]
struct Table {
    /// Process that the blocks are of: a forked child has none of them.
    process: u32,
    freed: usize,
    blocks: HashMap<u64, Block, BuildHasherDefault<Mix>>,
}

static TABLES: [PidLock<Option<Table>>; SPACES * SHARDS] = [const { PidLock::new(None) }; SPACES * SHARDS];

fn with<R>(space: Space, address: u64, work: impl FnOnce(&mut Table) -> R) -> R {
    let mixed = (address >> 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
    with_table(space as usize * SHARDS + mixed as usize % SHARDS, work)
}

fn with_table<R>(index: usize, work: impl FnOnce(&mut Table) -> R) -> R {
    let process = super::process();
    TABLES[index].locked_as(process, |table, got| {
        if got == Got::TakenOver || table.as_ref().is_none_or(|table| table.process != process) {
            // What the parent left may be in the middle of a change: it is not looked at, and not given back.
            std::mem::forget(table.replace(Table { process, ..Table::default() }));
        }
        work(table.get_or_insert_default())
    })
}

/// Adds a block; returns what was live at its address and whose free was not seen.
pub(super) fn insert(space: Space, address: u64, block: Block) -> Option<Block> {
    with(space, address, |table| {
        let before = table.blocks.insert(address, block);
        if before.is_some_and(|before| before.is_freed) {
            table.freed -= 1;
        }
        before.filter(|before| !before.is_freed)
    })
}

/// Marks a block as freed and returns it.
pub(super) fn free(space: Space, address: u64) -> Option<Block> {
    with(space, address, |table| {
        let block = table.blocks.get_mut(&address).filter(|block| !block.is_freed)?;
        block.is_freed = true;
        let freed = *block;
        table.freed += 1;
        if table.freed > MOST_FREED && table.freed > table.blocks.len() / 2 {
            table.blocks.retain(|other, block| !block.is_freed || *other == address);
            table.freed = 1;
        }
        Some(freed)
    })
}

/// Whether there is a block at an address, or was one a short time ago.
pub(super) fn has_seen(space: Space, address: u64) -> bool {
    with(space, address, |table| table.blocks.contains_key(&address))
}

/// Brings a block back whose free failed.
pub(super) fn unfree(space: Space, address: u64) -> Option<Block> {
    with(space, address, |table| {
        let block = table.blocks.get_mut(&address).filter(|block| block.is_freed)?;
        block.is_freed = false;
        table.freed -= 1;
        Some(*block)
    })
}

/// Changes a live block; returns what `change` made of it.
pub(super) fn update<R>(space: Space, address: u64, change: impl FnOnce(&mut Block) -> R) -> Option<R> {
    with(space, address, |table| table.blocks.get_mut(&address).filter(|block| !block.is_freed).map(change))
}

/// Takes all live blocks out that `is_taken` says.
pub(super) fn take_all(is_taken: impl Fn(Space, u64, &Block) -> bool) -> Vec<(Space, u64, Block)> {
    let mut taken = Vec::new();
    for space in [Space::Memory, Space::Physical, Space::Mapping, Space::Reservation] {
        for shard in 0..SHARDS {
            with_table(space as usize * SHARDS + shard, |table| {
                table.blocks.retain(|address, block| {
                    let is_live = !block.is_freed && is_taken(space, *address, block);
                    if is_live {
                        taken.push((space, *address, *block));
                    }
                    !is_live
                });
            });
        }
    }
    taken
}
