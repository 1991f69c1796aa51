//! Which addresses were taken over time, small enough to be drawn.
//!
//! Addresses that were ever seen taken are joined to bands, all bands of a process and device are put one
//! after the other and cut into equal cells, and of every cell and instant the taken share is kept.

use std::collections::BTreeMap;

use floodmark_event::NO_DEVICE;

use super::{Cuts, Snapshot};
use crate::change::Block;
use crate::describe::process_text;
use crate::fold::End;
use crate::fragmentation::JOIN_BYTES;
use crate::live::LiveSet;

/// Cells of a map from the first to the last address.
const CELLS: u64 = 160;
/// Most bands of a map.
const MOST_BANDS: usize = 48;
/// Most maps.
const MOST_MAPS: usize = 4;

/// The addresses of one process and device over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSeries {
    /// The process, and the device if there is one.
    pub place: Vec<String>,
    /// Stretches of addresses, in order, that cells cover one after the other.
    pub bands: Vec<AddressBand>,
    /// Bytes of a cell; the last one may have fewer.
    pub cell_bytes: u64,
    /// Cells of an instant.
    pub cells: usize,
    /// Indexes of the instants.
    pub snapshots: Vec<usize>,
    /// How much of each cell was taken, from 0 to 255: all cells of the first instant, then of the next.
    pub taken: Vec<u8>,
}

/// A stretch of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressBand {
    /// The first address.
    pub start: u64,
    /// How many.
    pub bytes: u64,
}

/// A process and a device, in which an address means one thing.
type Place = (u32, i32);
/// From an address to the one behind the last.
type Stretch = (u64, u64);

#[derive(Clone, Debug)]
struct Row {
    snapshot: usize,
    /// By place, in order and joined where they touch.
    taken: BTreeMap<Place, Vec<Stretch>>,
}

/// Takes down addresses.
#[derive(Clone, Debug)]
pub(super) struct MapRows {
    every: usize,
    seen: usize,
    rows: Vec<Row>,
}

impl MapRows {
    pub(super) fn new(cuts: &Cuts) -> Self {
        Self { every: cuts.map_every, seen: 0, rows: Vec::new() }
    }

    pub(super) fn take(&mut self, snapshot: &Snapshot, at: usize, live: &LiveSet, blocks: &[(&Block, u32)]) {
        self.seen += 1;
        if self.every == 0 || !((self.seen - 1).is_multiple_of(self.every) || snapshot.is_peak) {
            return;
        }
        let mut taken: BTreeMap<Place, Vec<Stretch>> = BTreeMap::new();
        for (block, _) in blocks.iter().filter(|(block, _)| block.address != 0 && block.bytes != 0) {
            let space = live.space(block.space);
            let end = block.address.saturating_add(block.bytes);
            taken.entry((space.process.0, space.device)).or_default().push((block.address, end));
        }
        for stretches in taken.values_mut() {
            join(stretches, 0);
        }
        self.rows.push(Row { snapshot: at, taken });
    }

    /// Gives up instants: `below` says how many are kept before each.
    pub(super) fn thin(&mut self, below: &[usize]) {
        self.rows.retain_mut(|row| {
            let is_kept = below[row.snapshot + 1] > below[row.snapshot];
            row.snapshot = below[row.snapshot];
            is_kept
        });
    }

    pub(super) fn finish(self, end: &End<'_>) -> Vec<AddressSeries> {
        let mut bands: BTreeMap<Place, Vec<Stretch>> = BTreeMap::new();
        for row in &self.rows {
            for (place, taken) in &row.taken {
                let stretches = bands.entry(*place).or_default();
                stretches.extend(taken);
                join(stretches, JOIN_BYTES);
            }
        }
        let mut maps: Vec<(u64, Place, Vec<AddressBand>)> = Vec::new();
        for (place, mut stretches) in bands {
            let mut hole = JOIN_BYTES;
            while stretches.len() > MOST_BANDS {
                hole = hole.saturating_mul(2);
                join(&mut stretches, hole);
            }
            let bands: Vec<AddressBand> = stretches
                .iter()
                .map(|(start, end)| AddressBand { start: *start, bytes: end - start })
                .collect();
            let bytes = bands.iter().fold(0u64, |sum, band| sum.saturating_add(band.bytes));
            maps.push((bytes, place, bands));
        }
        maps.sort_by_key(|(bytes, place, _)| (std::cmp::Reverse(*bytes), *place));
        maps.truncate(MOST_MAPS);
        maps.into_iter().map(|(bytes, place, bands)| self.series(bytes, place, bands, end)).collect()
    }

    fn series(&self, bytes: u64, place: Place, bands: Vec<AddressBand>, end: &End<'_>) -> AddressSeries {
        let cell_bytes = bytes.div_ceil(CELLS).max(1);
        let cells = bytes.div_ceil(cell_bytes) as usize;
        let mut taken = Vec::with_capacity(cells * self.rows.len());
        for row in &self.rows {
            let mut sums = vec![0u64; cells];
            for stretch in row.taken.get(&place).into_iter().flatten() {
                fill(&mut sums, *stretch, &bands, cell_bytes);
            }
            for (cell, sum) in sums.iter().enumerate() {
                let size = cell_bytes.min(bytes - cell as u64 * cell_bytes);
                // What is taken at all is to be seen.
                taken.push((u128::from(*sum) * 255).div_ceil(u128::from(size)).min(255) as u8);
            }
        }
        let process = end.tables.processes.iter().find(|process| process.id.0 == place.0);
        let mut names = vec![process.map_or_else(|| format!("process {}", place.0), process_text)];
        names.extend((place.1 != NO_DEVICE).then(|| format!("device {}", place.1)));
        let snapshots = self.rows.iter().map(|row| row.snapshot).collect();
        AddressSeries { place: names, bands, cell_bytes, cells, snapshots, taken }
    }
}

/// Adds the bytes of a stretch to the cells that it covers.
fn fill(sums: &mut [u64], (start, end): Stretch, bands: &[AddressBand], cell_bytes: u64) {
    let at = bands.partition_point(|band| band.start <= start);
    let Some(band) = at.checked_sub(1).map(|at| bands[at]) else { return };
    let before = bands[..at - 1].iter().fold(0u64, |sum, band| sum.saturating_add(band.bytes));
    let mut from = before.saturating_add(start - band.start);
    let to = from.saturating_add(end - start);
    while from < to {
        let cell = (from / cell_bytes) as usize;
        let Some(sum) = sums.get_mut(cell) else { return };
        let part = (cell_bytes - from % cell_bytes).min(to - from);
        *sum = sum.saturating_add(part);
        from += part;
    }
}

/// Joins stretches that overlap, touch, or have a hole of at most `hole` between them.
fn join(stretches: &mut Vec<Stretch>, hole: u64) {
    stretches.sort_unstable();
    stretches.dedup_by(|later, earlier| {
        let joins = later.0 <= earlier.1.saturating_add(hole);
        if joins {
            earlier.1 = earlier.1.max(later.1);
        }
        joins
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_join_over_small_holes_only() {
        let mut stretches = vec![(40, 50), (0, 10), (10, 20), (22, 30)];
        join(&mut stretches, 2);
        assert_eq!(stretches, [(0, 30), (40, 50)]);
    }

    #[test]
    fn a_stretch_fills_the_cells_it_covers() {
        let bands = [AddressBand { start: 100, bytes: 20 }, AddressBand { start: 1000, bytes: 20 }];
        let mut sums = [0; 4];
        fill(&mut sums, (105, 115), &bands, 10);
        fill(&mut sums, (1010, 1020), &bands, 10);
        assert_eq!(sums, [5, 5, 0, 10]);
    }
}
