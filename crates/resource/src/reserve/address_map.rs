//! Which block begins at an address.
//!
//! Open addressing with linear probing; removing shifts back what follows, so that there are no
//! tombstones and a lookup never grows slower. Address 0 is no key.

/// Block records by the addresses of live blocks.
#[derive(Clone, Debug)]
pub(super) struct AddressMap {
    entries: Vec<Entry>,
    len: usize,
    /// 64 less the logarithm of the number of entries.
    shift: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    address: u64,
    block: u32,
}

const FIRST_ENTRIES: usize = 64;

impl AddressMap {
    pub(super) fn new() -> Self {
        Self { entries: vec![Entry::default(); FIRST_ENTRIES], len: 0, shift: 64 - FIRST_ENTRIES.ilog2() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where the search for an address begins.
    #[inline]
    fn home(&self, address: u64) -> usize {
        // Blocks begin at multiples of 256: the lower bits say nothing.
        ((address >> 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline]
    pub(super) fn insert(&mut self, address: u64, block: u32) {
        if self.len * 2 >= self.entries.len() {
            self.grow();
        }
        let mask = self.entries.len() - 1;
        let mut at = self.home(address);
        while self.entries[at].address != 0 {
            at = (at + 1) & mask;
        }
        self.entries[at] = Entry { address, block };
        self.len += 1;
    }

    #[inline]
    fn position(&self, address: u64) -> Option<usize> {
        let mask = self.entries.len() - 1;
        let mut at = self.home(address);
        loop {
            match self.entries[at].address {
                0 => return None,
                found if found == address => return Some(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, address: u64) -> Option<u32> {
        self.position(address).map(|at| self.entries[at].block)
    }

    #[inline]
    pub(super) fn remove(&mut self, address: u64) -> Option<u32> {
        let mut hole = self.position(address)?;
        let block = self.entries[hole].block;
        let mask = self.entries.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.entries[at];
            if entry.address == 0 {
                break;
            }
            // An entry may move back to the hole unless its search would begin after it.
            let home = self.home(entry.address);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = Entry::default();
        self.len -= 1;
        Some(block)
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![Entry::default(); self.entries.len() * 2];
        let entries = std::mem::replace(&mut self.entries, larger);
        self.shift -= 1;
        self.len = 0;
        for Entry { address, block } in entries.into_iter().filter(|entry| entry.address != 0) {
            self.insert(address, block);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((1_u64..300, any::<bool>()), 1..2000)) {
            let (mut map, mut oracle) = (AddressMap::new(), HashMap::new());
            for (number, (key, insert)) in steps.into_iter().enumerate() {
                let address = key << 8;
                if insert && !oracle.contains_key(&address) {
                    map.insert(address, number as u32);
                    oracle.insert(address, number as u32);
                } else {
                    prop_assert_eq!(map.remove(address), oracle.remove(&address));
                }
                prop_assert_eq!(map.len(), oracle.len());
            }
            for (address, block) in oracle {
                prop_assert_eq!(map.get(address), Some(block));
            }
        }
    }
}
