//! The distinct numbers of a column, numbered in the order in which they came first.

/// Marks a slot without an entry.
const EMPTY: u32 = u32::MAX;

/// Finds numbers by hashing, with linear probing: most columns have few, and the same ones again and again.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    values: Vec<u64>,
    /// Number of each slot and its index; a power of two of them.
    slots: Vec<(u64, u32)>,
    shift: u32,
}

impl Dictionary {
    pub(super) fn values(&self) -> &[u64] {
        &self.values
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
        // Large tables are given back: the next row group may need a small one.
        if self.slots.len() > 1 << 12 {
            self.slots = Vec::new();
        }
        self.slots.fill((0, EMPTY));
    }

    /// Returns the index of `value`, which is added if it is new.
    #[inline]
    pub(super) fn index(&mut self, value: u64) -> u32 {
        if self.values.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut slot = hash(value, self.shift);
        loop {
            let (found, index) = self.slots[slot & mask];
            if index == EMPTY {
                let index = self.values.len() as u32;
                self.slots[slot & mask] = (value, index);
                self.values.push(value);
                return index;
            }
            if found == value {
                return index;
            }
            slot += 1;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let slots = (self.slots.len() * 4).max(64);
        self.shift = u64::BITS - slots.trailing_zeros();
        self.slots = vec![(0, EMPTY); slots];
        for (index, value) in (0..).zip(&self.values) {
            let mut slot = hash(*value, self.shift);
            while self.slots[slot & (slots - 1)].1 != EMPTY {
                slot += 1;
            }
            self.slots[slot & (slots - 1)] = (*value, index);
        }
    }
}

#[inline]
fn hash(value: u64, shift: u32) -> usize {
    (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) as usize
}
