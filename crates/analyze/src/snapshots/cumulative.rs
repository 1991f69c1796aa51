//! Cumulative allocations of each group at the instants, as steps.
//!
//! The difference between two instants is exact, whichever instants are kept: blocks that lived between two instants
//! between them is counted too. What went follows from what was held at both.

use super::HolderGroup;
use super::groups::Allocated;

/// Allocations from the beginning up to an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CumulativeAllocations {
    /// Index of the instant.
    pub snapshot: usize,
    /// Allocations.
    pub blocks: u64,
    /// Bytes of those.
    pub bytes: u64,
}

impl HolderGroup {
    /// Whether it allocated after the first instant.
    pub(super) fn came_later(&self) -> bool {
        self.cumulative.last().is_some_and(|last| last.snapshot > 0)
    }
}

/// Counts by group and instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    cumulative: Vec<Vec<CumulativeAllocations>>,
    steps: usize,
    /// There were more than could be kept.
    given_up: bool,
}

impl Arrivals {
    /// Keeps the counts of an instant, unless there are more than `limit`.
    pub(super) fn keep(&mut self, snapshot: usize, allocated: &mut Allocated, limit: usize) {
        for (group, (blocks, bytes)) in allocated.drain_fresh() {
            if self.given_up {
                continue;
            }
            if group >= self.cumulative.len() {
                self.cumulative.resize(group + 1, Vec::new());
            }
            self.steps += set(&mut self.cumulative[group], CumulativeAllocations { snapshot, blocks, bytes });
        }
        if self.steps > limit {
            *self = Self { given_up: true, ..Self::default() };
        }
    }

    /// Gives up instants: `below` says how many are kept before each.
    pub(super) fn thin(&mut self, below: &[usize]) {
        self.steps = 0;
        for cumulative in &mut self.cumulative {
            for step in std::mem::take(cumulative) {
                self.steps +=
                    set(cumulative, CumulativeAllocations { snapshot: below[step.snapshot], ..step });
            }
        }
    }

    /// The counts by group; none if they were given up.
    pub(super) fn finish(mut self) -> Option<Vec<Vec<CumulativeAllocations>>> {
        // Of what came up to the first instant no difference speaks.
        for cumulative in &mut self.cumulative {
            if cumulative.last().is_some_and(|last| last.snapshot == 0) {
                cumulative.clear();
            }
        }
        (!self.given_up).then_some(self.cumulative)
    }
}

/// The counts of several groups as those of one.
pub(super) fn joined(groups: &[HolderGroup]) -> Vec<CumulativeAllocations> {
    let mut more: Vec<CumulativeAllocations> = Vec::new();
    for group in groups {
        let mut before = CumulativeAllocations::default();
        for cumulative in &group.cumulative {
            more.push(CumulativeAllocations {
                blocks: cumulative.blocks - before.blocks,
                bytes: cumulative.bytes - before.bytes,
                ..*cumulative
            });
            before = *cumulative;
        }
    }
    more.sort_by_key(|cumulative| cumulative.snapshot);
    let mut sums = Vec::new();
    let mut sum = CumulativeAllocations::default();
    for step in more {
        let (blocks, bytes) = (sum.blocks + step.blocks, sum.bytes.saturating_add(step.bytes));
        sum = CumulativeAllocations { snapshot: step.snapshot, blocks, bytes };
        set(&mut sums, sum);
    }
    sums
}

/// Sets a count from an instant on; by how many entries that grows.
fn set(cumulative: &mut Vec<CumulativeAllocations>, step: CumulativeAllocations) -> usize {
    match cumulative.last_mut() {
        Some(last) if last.snapshot == step.snapshot => {
            *last = step;
            0
        }
        _ => {
            cumulative.push(step);
            1
        }
    }
}
