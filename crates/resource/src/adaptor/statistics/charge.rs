//! Which named scope allocated which live block.
//!
//! Invariant: a block is in the map from before its allocation is known to the caller until before its
//! memory goes back, so its address stands for it alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::handle::State;
use super::level::Level;
use crate::adaptor::address_map::{AddressMap, mix};
use crate::error::Holder;
use crate::resource::Address;

/// Number of shards: threads contend only if their blocks share one.
const SHARDS: usize = 64;

/// Live blocks of named scopes, by address.
pub(super) struct Charges {
    shards: Box<[Shard]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Shard {
    /// Number of blocks, readable without the lock.
    count: AtomicUsize,
    blocks: Mutex<AddressMap<Charge>>,
}

/// A live block and the scope that allocated it.
struct Charge {
    bytes: u64,
    level: Arc<Level>,
}

impl Default for Charges {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl Shard {
    fn blocks(&self) -> MutexGuard<'_, AddressMap<Charge>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Charge {
    /// Changes what the scope and all around it hold. Each has to be asked at the time: what another
    /// thread frees meanwhile lowers an outer scope, so its peak cannot be put together later.
    fn count(&self, count: impl Fn(&mut super::Counters, u64)) {
        let mut next = Some(&self.level);
        while let Some(level) = next {
            count(&mut level.held.lock(), self.bytes);
            if let Some(whole) = &level.whole {
                count(&mut whole.held.lock(), self.bytes);
            }
            next = level.around.as_ref();
        }
    }
}

impl Charges {
    fn shard(&self, address: Address) -> &Shard {
        &self.shards[(mix(address.0) >> 20) as usize % SHARDS]
    }

    /// Charges a new block to `level`.
    pub(super) fn insert(&self, state: &State, address: Address, bytes: u64, level: Arc<Level>) {
        let charge = Charge { bytes, level };
        charge.count(super::Counters::allocated);
        let shard = self.shard(address);
        let replaced = {
            let mut blocks = shard.blocks();
            let replaced = blocks.insert(address.0, charge);
            shard.count.store(blocks.len(), Ordering::Relaxed);
            replaced
        };
        match replaced {
            // Given back without our hearing of it: the address could not have been handed out again.
            Some(old) => old.count(super::Counters::freed),
            None => state.watch(1),
        }
    }

    /// Takes a block off the scope that allocated it, if one did.
    pub(super) fn remove(&self, state: &State, address: Address) {
        let shard = self.shard(address);
        // A thread that frees a block has synchronized with its allocation, and so sees the raised count.
        if shard.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let removed = {
            let mut blocks = shard.blocks();
            let removed = blocks.remove(&address.0);
            shard.count.store(blocks.len(), Ordering::Relaxed);
            removed
        };
        if let Some(charge) = removed {
            charge.count(super::Counters::freed);
            state.unwatch(1);
        }
    }

    /// Live bytes by name, most first.
    pub(super) fn holders(&self, limit: usize) -> Vec<Holder> {
        let mut names: HashMap<Arc<str>, (u64, u64)> = HashMap::new();
        for shard in self.shards.iter().filter(|shard| shard.count.load(Ordering::Relaxed) > 0) {
            for charge in shard.blocks().values() {
                if let Some(name) = &charge.level.name {
                    let (bytes, blocks) = names.entry(Arc::clone(name)).or_default();
                    *bytes += charge.bytes;
                    *blocks += 1;
                }
            }
        }
        let holder =
            |(who, (bytes, blocks)): (Arc<str>, _)| Holder { who: who.as_ref().into(), bytes, blocks };
        let mut holders: Vec<Holder> = names.into_iter().map(holder).collect();
        holders.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.who.cmp(&other.who)));
        holders.truncate(limit);
        holders
    }
}
