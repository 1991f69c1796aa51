//! Which processes a part has rows of.

use std::collections::BTreeSet;

use floodmark_event::ProcessId;
use serde::{Deserialize, Serialize};

/// Most ranges that are kept; the closest ones are joined beyond that.
const RANGES: usize = 16;

/// Processes, as ranges of their ids; both ends are included. Others may be among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProcessRanges(Vec<[u32; 2]>);

impl ProcessRanges {
    /// Covers these ids.
    pub(crate) fn of(ids: &BTreeSet<u32>) -> Self {
        let mut ranges: Vec<[u32; 2]> = Vec::new();
        for id in ids {
            match ranges.last_mut() {
                Some([_, last]) if last.checked_add(1) == Some(*id) => *last = *id,
                _ => ranges.push([*id, *id]),
            }
        }
        while ranges.len() > RANGES {
            let gap = |at: &usize| ranges[at + 1][0] - ranges[*at][1];
            let at = (0..ranges.len() - 1).min_by_key(gap).expect("there are several");
            ranges[at][1] = ranges[at + 1][1];
            ranges.remove(at + 1);
        }
        Self(ranges)
    }

    /// The ids, in order.
    pub fn ids(&self) -> impl Iterator<Item = ProcessId> {
        self.0.iter().flat_map(|[first, last]| (*first..=*last).map(ProcessId))
    }

    /// Whether rows of `process` may be in the part.
    pub fn contains(&self, process: ProcessId) -> bool {
        self.0.iter().any(|[first, last]| (*first..=*last).contains(&process.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_their_ids_and_are_few() {
        let ranges = |ids: &[u32]| ProcessRanges::of(&ids.iter().copied().collect());
        assert_eq!(ranges(&[1, 2, 3, 7, u32::MAX]).0, [[1, 3], [7, 7], [u32::MAX, u32::MAX]]);
        assert!(!ranges(&[1, 3]).contains(ProcessId(2)));
        let many: Vec<u32> = (0..100).map(|number| number * number).collect();
        let found = ranges(&many);
        assert_eq!(found.0.len(), RANGES);
        assert!(many.iter().all(|id| found.contains(ProcessId(*id))));
        // The widest gaps are left.
        assert!(!found.contains(ProcessId(99 * 99 - 1)));
    }
}
