//! Finds the live block at an address.
//!
//! Open addressing with linear probing. An entry stays when its block ends, which makes the common
//! case of a pool that hands out the same addresses again a plain overwrite and tells a re-used
//! address from a new one. Entries of ended blocks are dropped when they outnumber both the table's share of
//! [`REMEMBERED`] and twice the live ones, so memory grows with live blocks only; from then on
//! re-use is known for later addresses alone, which [`AddressTable::remembers_all`] admits. Tables share
//! because the addresses of many processes at once would no longer fit the caches, or the memory.
//!
//! Invariants: capacity is a power of two and at most half full; address 0 marks an empty entry and
//! is never stored.

/// How many ended addresses all tables keep at least, before any is forgotten.
const REMEMBERED: usize = 1 << 15;
/// How many of them each table keeps at least, however many there are.
const LEAST_REMEMBERED: usize = 1 << 11;

const FIRST_CAPACITY: usize = 1 << 6;

/// Capacity from which on looking ahead pays.
const LARGE: usize = 1 << 14;

/// What the table knows about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Never seen, or forgotten.
    New,
    /// Its block has ended.
    Ended,
    /// The block in this slot is live.
    Live(u32),
}

/// Value of an entry whose block has ended.
const ENDED: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    address: u64,
    slot: u32,
}

/// Addresses of one space and the slots of their blocks.
#[derive(Clone, Debug)]
pub(super) struct AddressTable {
    entries: Vec<Entry>,
    /// 64 less the binary logarithm of the capacity.
    shift: u32,
    used: usize,
    /// Ended addresses that are kept at least.
    remembered: usize,
    remembers_all: bool,
}

impl Default for AddressTable {
    fn default() -> Self {
        Self {
            entries: vec![Entry::default(); FIRST_CAPACITY],
            shift: 64 - FIRST_CAPACITY.trailing_zeros(),
            used: 0,
            remembered: REMEMBERED,
            remembers_all: true,
        }
    }
}

impl AddressTable {
    /// Whether no address has been forgotten.
    pub(super) fn remembers_all(&self) -> bool {
        self.remembers_all
    }

    /// Sets the number of tables that share what is remembered.
    pub(super) fn share(&mut self, tables: usize) {
        self.remembered = (REMEMBERED / tables).max(LEAST_REMEMBERED);
    }

    /// Notes that an address was forgotten elsewhere.
    pub(super) fn forget(&mut self) {
        self.remembers_all = false;
    }

    /// Notes that the block in `slot` is live at `address` and returns what was there before.
    #[inline]
    pub(super) fn insert(&mut self, address: u64, slot: u32) -> Found {
        let at = self.position(address);
        let entry = &mut self.entries[at];
        if entry.address == address {
            let before = std::mem::replace(&mut entry.slot, slot);
            return if before == ENDED { Found::Ended } else { Found::Live(before) };
        }
        *entry = Entry { address, slot };
        self.used += 1;
        if self.used * 2 > self.entries.len() {
            self.rebuild();
        }
        Found::New
    }

    /// Notes that the block at `address` has ended and returns its slot, if it was live.
    #[inline]
    pub(super) fn end(&mut self, address: u64) -> Option<u32> {
        let at = self.position(address);
        let entry = &mut self.entries[at];
        if entry.address != address || entry.slot == ENDED {
            return None;
        }
        Some(std::mem::replace(&mut entry.slot, ENDED))
    }

    /// Whether a block is live at `address`.
    pub(super) fn is_live(&self, address: u64) -> bool {
        let entry = &self.entries[self.position(address)];
        entry.address == address && entry.slot != ENDED
    }

    /// Whether entries and blocks no longer fit the nearest caches.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.entries.len() >= LARGE
    }

    /// Returns the slot that is likely that of `address`; reads one entry and changes nothing.
    #[inline]
    pub(super) fn guess(&self, address: u64) -> u32 {
        self.entries[self.home(address)].slot
    }

    /// Returns the entry at which the search for `address` begins.
    #[inline]
    fn home(&self, address: u64) -> usize {
        // Fibonacci hashing: the high bits of the product depend on all bits that differ between
        // aligned addresses of one pool.
        ((address ^ (address >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// Returns where `address` is, or the empty entry where it belongs.
    #[inline]
    fn position(&self, address: u64) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = self.home(address);
        loop {
            let found = self.entries[at & mask].address;
            if found == address || found == 0 {
                return at & mask;
            }
            at += 1;
        }
    }

    #[cold]
    fn rebuild(&mut self) {
        let ended = self.entries.iter().filter(|entry| entry.address != 0 && entry.slot == ENDED).count();
        let forget = ended > self.remembered.max(2 * (self.used - ended));
        let capacity = if forget { self.entries.len() } else { self.entries.len() * 2 };
        let entries = std::mem::replace(&mut self.entries, vec![Entry::default(); capacity]);
        self.shift = 64 - capacity.trailing_zeros();
        self.used = 0;
        self.remembers_all &= !forget;
        for entry in entries {
            if entry.address != 0 && !(forget && entry.slot == ENDED) {
                let at = self.position(entry.address);
                self.entries[at] = entry;
                self.used += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_new_then_live_then_ended_then_live_again() {
        let mut table = AddressTable::default();
        assert_eq!(table.end(0x100), None);
        assert_eq!(table.insert(0x100, 7), Found::New);
        assert_eq!(table.insert(0x100, 8), Found::Live(7));
        assert_eq!(table.end(0x100), Some(8));
        assert_eq!(table.end(0x100), None);
        assert_eq!(table.insert(0x100, 9), Found::Ended);
    }

    #[test]
    fn growing_forgets_nothing() {
        let mut table = AddressTable::default();
        let addresses = || (1..=REMEMBERED as u64 / 2).map(|number| number << 8);
        for address in addresses() {
            table.insert(address, 3);
            table.end(address);
        }
        assert!(table.entries.len() > FIRST_CAPACITY && table.remembers_all());
        assert!(addresses().all(|address| table.insert(address, 4) == Found::Ended));
    }

    #[test]
    fn ever_new_addresses_do_not_make_the_table_grow() {
        let mut table = AddressTable::default();
        for address in 1..2_000_000u64 {
            assert_eq!(table.insert(address << 8, 1), Found::New);
            assert_eq!(table.end(address << 8), Some(1));
        }
        assert!(!table.remembers_all());
        assert!(table.entries.len() <= 4 * REMEMBERED, "{}", table.entries.len());
        assert_eq!(table.insert(1_999_999 << 8, 1), Found::Ended);
    }

    #[test]
    fn tables_that_share_stay_smaller() {
        let mut table = AddressTable::default();
        table.share(8);
        for address in 1..100_000u64 {
            table.insert(address << 8, 1);
            table.end(address << 8);
        }
        assert!(table.entries.len() <= REMEMBERED / 2, "{}", table.entries.len());
        table.share(1000);
        assert_eq!(table.remembered, LEAST_REMEMBERED);
    }

    #[test]
    fn live_addresses_survive_growing_and_forgetting() {
        let mut table = AddressTable::default();
        for address in 1..=100_000u64 {
            table.insert(address * 512, address as u32);
        }
        for address in 200_000..700_000u64 {
            table.insert(address * 512, 0);
            table.end(address * 512);
        }
        assert!((1..=100_000u64).all(|address| table.end(address * 512) == Some(address as u32)));
    }
}
