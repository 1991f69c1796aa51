//! Memory that an allocator adds to what was asked for, where its rules are known.
//!
//! | resource | allocator | rule |
//! |---|---|---|
//! | `malloc` | glibc, 64 bit | 8 bytes of header, rounded up to 16, at least 32; of blocks that it maps, which end on a page, a lower bound |
//! | `pymalloc` | `CPython` | rounded up to 16 up to 512 bytes, no header; larger ones are glibc's |

use floodmark_event::{StringId, Tables};

use super::WasteAtPeak;
use crate::change::Block;
use crate::level::Level;

/// Resources that are told apart; there are hardly ever more than three.
const RESOURCES_MAX: usize = 16;

/// Bytes that glibc's malloc adds to a block, its header included.
pub(super) fn glibc_overhead(bytes: u64) -> u64 {
    let chunk = bytes.saturating_add(8 + 15) & !15;
    chunk.max(32).saturating_sub(bytes)
}

/// Bytes that pymalloc adds to a block.
pub(super) fn pymalloc_overhead(bytes: u64) -> u64 {
    if bytes > 512 { glibc_overhead(bytes) } else { bytes.max(1).next_multiple_of(16) - bytes }
}

/// Overheads under either rule: which one applies is known once resources have names.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overhead {
    glibc: u64,
    pymalloc: u64,
}

impl Overhead {
    pub(super) fn add(&mut self, bytes: u64) {
        self.glibc = self.glibc.saturating_add(glibc_overhead(bytes));
        self.pymalloc = self.pymalloc.saturating_add(pymalloc_overhead(bytes));
    }

    fn subtract(&mut self, bytes: u64) {
        self.glibc = self.glibc.saturating_sub(glibc_overhead(bytes));
        self.pymalloc = self.pymalloc.saturating_sub(pymalloc_overhead(bytes));
    }

    /// The overhead of a resource; none if its rule is not known.
    pub(super) fn of(&self, resource: &str) -> Option<u64> {
        match resource {
            "malloc" => Some(self.glibc),
            "pymalloc" => Some(self.pymalloc),
            _ => None,
        }
    }
}

/// Overheads of live blocks by tally and resource, and as they were at the peak.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveWaste {
    resources: Vec<StringId>,
    tallies: Vec<TallyWaste>,
}

#[derive(Clone, Debug, Default)]
struct TallyWaste {
    now: Vec<Overhead>,
    at_peak: Vec<Overhead>,
    peak_bytes: u64,
}

impl LiveWaste {
    fn entry(&mut self, block: &Block, resource: StringId) -> Option<(&mut TallyWaste, usize)> {
        let at = match self.resources.iter().position(|known| *known == resource) {
            Some(at) => at,
            None if self.resources.len() < RESOURCES_MAX => {
                self.resources.push(resource);
                self.resources.len() - 1
            }
            None => return None,
        };
        let tally = usize::from(block.tally);
        if tally >= self.tallies.len() {
            self.tallies.resize(tally + 1, TallyWaste::default());
        }
        let tally = &mut self.tallies[tally];
        if at >= tally.now.len() {
            tally.now.resize(at + 1, Overhead::default());
        }
        Some((tally, at))
    }

    pub(super) fn begins(&mut self, block: &Block, resource: StringId, level: &Level) {
        if let Some((tally, at)) = self.entry(block, resource) {
            tally.now[at].add(block.bytes);
            if level.live_bytes == level.peak_bytes && level.peak_order == block.order {
                tally.at_peak.clone_from(&tally.now);
                tally.peak_bytes = level.peak_bytes;
            }
        }
    }

    pub(super) fn ends(&mut self, block: &Block, resource: StringId) {
        if let Some((tally, at)) = self.entry(block, resource) {
            tally.now[at].subtract(block.bytes);
        }
    }

    pub(super) fn at_peak(&self, tally: u8, tables: &Tables) -> Option<WasteAtPeak> {
        let tally = self.tallies.get(usize::from(tally))?;
        let mut waste = WasteAtPeak { live_bytes: tally.peak_bytes, ..WasteAtPeak::default() };
        for (resource, overhead) in self.resources.iter().zip(&tally.at_peak) {
            let name = tables.string(*resource);
            if let Some(bytes) = overhead.of(name) {
                waste.waste_bytes = waste.waste_bytes.saturating_add(bytes);
                waste.allocators.push(name.to_owned());
            }
        }
        (!waste.allocators.is_empty()).then_some(waste)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overheads_are_those_of_the_allocators() {
        // malloc_usable_size of glibc 2.36 gives 24, 24, 24, 40, 1000, 1016 for these, and 8 more are the header.
        let chunks = [0, 1, 24, 25, 1000, 1001].map(|bytes| bytes + glibc_overhead(bytes));
        assert_eq!(chunks, [32, 32, 32, 48, 1008, 1024]);
        assert_eq!([0, 1, 16, 17, 512].map(|bytes| bytes + pymalloc_overhead(bytes)), [16, 16, 16, 32, 512]);
        assert_eq!(pymalloc_overhead(513), glibc_overhead(513));
        assert_eq!(glibc_overhead(u64::MAX), 0);
    }
}
