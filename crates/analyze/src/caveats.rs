//! Counts what makes figures less certain, in the same pass as the analysis they belong to.

use floodmark_event::UNKNOWN_BYTES;
use serde::{Deserialize, Serialize};

use crate::change::{Block, Ending, UnmatchedFree};
use crate::fold::{End, Fold};
use crate::level::Level;

/// Counts of events that make figures less certain than they look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caveats {
    /// Events that were read. A fold sees selected events only, so the reader fills this in.
    pub events_read: u64,
    /// Events that the filter selected.
    pub events_selected: u64,
    /// Frees of blocks whose allocation was not recorded.
    pub unmatched_frees: u64,
    /// Bytes of those blocks, as far as the frees stated them.
    pub unmatched_free_bytes: u64,
    /// Frees that stated another size than their allocation.
    pub size_mismatches: u64,
    /// Blocks whose address was allocated again before they were freed.
    pub replaced_blocks: u64,
    /// Whether a sum of bytes passed 2^64 - 1, where sums stop: totals, peak and live bytes are not exact.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sums_saturated: bool,
}

/// Folds events into [`Caveats`].
#[derive(Clone, Copy, Debug, Default)]
pub struct CaveatsFold {
    caveats: Caveats,
}

impl Fold for CaveatsFold {
    type Output = Caveats;

    #[inline]
    fn free(&mut self, block: &Block, ending: &Ending, _level: &Level) {
        self.caveats.size_mismatches +=
            u64::from(ending.bytes != block.bytes && ending.bytes != UNKNOWN_BYTES);
    }

    fn replaced(&mut self, _block: &Block, _time_ns: i64, _level: &Level) {
        self.caveats.replaced_blocks += 1;
    }

    fn unmatched_free(&mut self, free: &UnmatchedFree) {
        self.caveats.unmatched_frees += 1;
        if free.bytes != UNKNOWN_BYTES {
            self.caveats.unmatched_free_bytes = self.caveats.unmatched_free_bytes.saturating_add(free.bytes);
        }
    }

    fn finish(&self, end: &End<'_>) -> Caveats {
        let sums_saturated = end.live.tallies().is_saturated();
        Caveats { events_selected: end.live.events(), sums_saturated, ..self.caveats }
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::{Action, Event, EventBatch, Filter, Tables};

    use super::*;
    use crate::Pass;

    #[test]
    fn counts_each_doubt_and_round_trips() {
        let alloc = |address, bytes| Event { address, bytes, ..Event::default() };
        let free = |address, bytes| Event { action: Action::Free, ..alloc(address, bytes) };
        let events = [
            alloc(1, 8),
            free(1, 9),
            alloc(2, 8),
            alloc(2, 16),
            free(3, 64),
            free(4, UNKNOWN_BYTES),
            free(2, UNKNOWN_BYTES),
        ];
        let mut batch = EventBatch::new();
        for event in &events {
            batch.push(event);
        }
        let mut pass = Pass::new(&Filter::default(), CaveatsFold::default());
        pass.update(&batch);
        let caveats = pass.finish(&Tables::default());
        let expected = Caveats {
            events_read: 0,
            events_selected: 7,
            unmatched_frees: 2,
            unmatched_free_bytes: 64,
            size_mismatches: 1,
            replaced_blocks: 1,
            sums_saturated: false,
        };
        assert_eq!(caveats, expected);
        let json = serde_json::to_string(&caveats).unwrap();
        assert_eq!(serde_json::from_str::<Caveats>(&json).unwrap(), caveats);
    }

    #[test]
    fn sums_that_reach_the_largest_number_are_not_exact() {
        for (bytes, is_saturated) in [(u64::MAX / 2, false), (u64::MAX / 2 + 2, true)] {
            let mut batch = EventBatch::new();
            for address in [1, 2] {
                batch.push(&Event { address, bytes, ..Event::default() });
                batch.push(&Event { address, bytes, action: Action::Free, ..Event::default() });
            }
            let mut pass = Pass::new(&Filter::default(), CaveatsFold::default());
            pass.update(&batch);
            assert_eq!(pass.finish(&Tables::default()).sums_saturated, is_saturated, "2 blocks of {bytes}");
        }
    }
}
