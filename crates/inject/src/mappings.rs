//! The mappings that the program made, as far as hooks saw them.
//!
//! A mapping is recorded as a block. The program may unmap or map over a part of one, or several at once, which the
//! vocabulary of blocks has no word for: the blocks that are touched end, and what is left of them begins as new blocks
//! with the stack of the old ones. Hence this list. Invariant: its lock is held around the call of the system, so that two
//! threads change the list in the order in which they changed the address space.

use floodmark_event::StackId;

use crate::pid_lock::{Got, PidLock};

/// Addresses from `start` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Range {
    /// The pages that `bytes` from `start` on touch.
    pub(crate) fn pages(start: usize, bytes: usize) -> Self {
        Self { start, end: start.saturating_add(bytes).div_ceil(PAGE).saturating_mul(PAGE) }
    }

    fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    pub(crate) const fn bytes(self) -> usize {
        self.end - self.start
    }
}

const PAGE: usize = 4096;

/// A mapping and the stack that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) range: Range,
    pub(crate) stack: StackId,
}

/// What is to be recorded for a change of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Ended(Mapping),
    /// What is left of a mapping that ended.
    Left(Mapping),
}

/// Mappings in the order of their addresses.
#[derive(Debug, Default)]
pub(crate) struct MappingList {
    list: Vec<Mapping>,
}

impl MappingList {
    /// Takes a range out of all mappings; `changed` gets what is to be recorded.
    pub(crate) fn remove(&mut self, range: Range, mut changed: impl FnMut(Change)) {
        let first = self.list.partition_point(|mapping| mapping.range.end <= range.start);
        let count = self.list[first..].iter().take_while(|mapping| mapping.range.overlaps(range)).count();
        let mut left = [None; 2];
        for mapping in &self.list[first..first + count] {
            changed(Change::Ended(*mapping));
            let Range { start, end } = mapping.range;
            if start < range.start {
                left[0] = Some(Mapping { range: Range { start, end: range.start }, ..*mapping });
            }
            if end > range.end {
                left[1] = Some(Mapping { range: Range { start: range.end, end }, ..*mapping });
            }
        }
        for mapping in left.into_iter().flatten() {
            changed(Change::Left(mapping));
        }
        self.list.splice(first..first + count, left.into_iter().flatten());
    }

    /// Adds a mapping. What was at its addresses must have been removed.
    pub(crate) fn insert(&mut self, mapping: Mapping) {
        let at = self.list.partition_point(|other| other.range.start < mapping.range.start);
        self.list.insert(at, mapping);
    }
}

static MAPPINGS: PidLock<MappingList> = PidLock::new(MappingList { list: Vec::new() });

/// Calls `with` with the mappings of this process, while no other thread changes them.
pub(crate) fn with_mappings<R>(with: impl FnOnce(&mut MappingList) -> R) -> R {
    MAPPINGS.locked(|list, got| {
        if got == Got::TakenOver {
            // In the middle of a change: it is forgotten, and what it held is not known to end. The memory is leaked,
            // since its parts may not fit together.
            std::mem::forget(std::mem::take(list));
        }
        with(list)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: usize, end: usize) -> Mapping {
        Mapping { range: Range { start, end }, stack: StackId(start as u32) }
    }

    /// Removes a range; returns the ranges that ended and those that are left.
    fn removed(list: &mut MappingList, start: usize, end: usize) -> (Vec<Range>, Vec<Range>) {
        let (mut ended, mut left) = (Vec::new(), Vec::new());
        list.remove(Range { start, end }, |change| match change {
            Change::Ended(mapping) => ended.push(mapping.range),
            Change::Left(mapping) => left.push(mapping.range),
        });
        (ended, left)
    }

    fn filled() -> MappingList {
        let mut list = MappingList::default();
        for start in [30, 10, 20] {
            list.insert(mapping(start, start + 8));
        }
        list
    }

    #[test]
    fn a_part_of_a_mapping_leaves_the_rest() {
        let range = |start, end| Range { start, end };
        let mut list = filled();
        assert_eq!(removed(&mut list, 12, 14), (vec![range(10, 18)], vec![range(10, 12), range(14, 18)]));
        assert_eq!(removed(&mut list, 0, 11), (vec![range(10, 12)], vec![range(11, 12)]));
        assert_eq!(
            removed(&mut list, 16, 34),
            (vec![range(14, 18), range(20, 28), range(30, 38)], vec![range(14, 16), range(34, 38)])
        );
        assert_eq!(removed(&mut list, 50, 60), (vec![], vec![]));
        let rest: Vec<Range> = list.list.iter().map(|mapping| mapping.range).collect();
        assert_eq!(rest, [range(11, 12), range(14, 16), range(34, 38)]);
    }

    #[test]
    fn whole_mappings_leave_nothing() {
        let mut list = filled();
        assert_eq!(removed(&mut list, 0, 100).1, vec![]);
        assert!(list.list.is_empty());
        assert_eq!(Range::pages(4096, 1), Range { start: 4096, end: 8192 });
    }
}
