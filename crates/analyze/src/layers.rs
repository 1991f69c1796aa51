//! Layers: how much an allocator holds, beside how much of it is in use.
//!
//! Memory of kind reserved is held in order to be divided; the blocks made of it are events of their own.
//! The difference is *slack*: held, but of no use to other allocations. The two belong together if process and
//! device are the same and the resource of what is held is called like that of the blocks with a word
//! more (`torch segments`, `torch`); else the resource with most bytes there is taken for the blocks.
//!
//! At most 4096 pairs of resources are looked at, which is more than any machine has devices.

use std::collections::BTreeMap;

use floodmark_event::{Kind, Metric, NO_DEVICE, ProcessId, SampleRow, SubjectKind, SubjectRow};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::change::{Block, Space};
use crate::fold::{End, Fold};
use crate::level::Level;

/// Pairs of resources that are looked at.
const PAIRS_MAX: usize = 4096;

/// What an allocator held and what was in use of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Id of the process in the trace.
    pub process: u32,
    /// Device, or none.
    pub device: Option<i32>,
    /// Resource of what is held.
    pub resource: String,
    /// Resource of the blocks made of it.
    pub blocks_resource: String,
    /// The most bytes held.
    pub reserved_peak_bytes: u64,
    /// First instant of that.
    pub reserved_peak_time_ns: Option<i64>,
    /// Bytes in use at that instant.
    pub live_at_reserved_peak_bytes: u64,
    /// The most bytes in use.
    pub live_peak_bytes: u64,
    /// First instant of that.
    pub live_peak_time_ns: Option<i64>,
    /// Bytes held at that instant.
    pub reserved_at_live_peak_bytes: u64,
    /// The most bytes held and not in use.
    pub slack_peak_bytes: u64,
    /// First instant of that.
    pub slack_peak_time_ns: Option<i64>,
    /// Bytes held at the end.
    pub reserved_bytes: u64,
    /// Bytes in use at the end.
    pub live_bytes: u64,
    /// The same in whole blocks, as the allocator rounds, where the source tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole_blocks: Option<WholeBlocks>,
}

/// Bytes in use as an allocator counts them: with what it rounds up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeBlocks {
    /// The most; none if only the end is known.
    pub peak_bytes: Option<u64>,
    /// First instant of that.
    pub peak_time_ns: Option<i64>,
    /// At the end.
    pub live_bytes: u64,
}

/// Finds [`WholeBlocks`] in samples: a device's or host's live bytes, as its allocator counted them.
#[derive(Clone, Debug, Default)]
pub struct WholeBlocksFold {
    of_subject: FxHashMap<u64, (u64, WholeBlocks)>,
}

impl WholeBlocksFold {
    /// Takes in a sample.
    pub fn sample(&mut self, row: &SampleRow) {
        if row.metric != Metric::Live {
            return;
        }
        let (count, whole) = self.of_subject.entry(row.subject).or_default();
        *count += 1;
        whole.live_bytes = row.value;
        if whole.peak_bytes.is_none_or(|peak| row.value > peak) {
            (whole.peak_bytes, whole.peak_time_ns) = (Some(row.value), Some(row.time_ns));
        }
    }

    /// Gives layers what was sampled of their process, device and resource.
    pub fn finish(&self, subjects: &BTreeMap<u64, SubjectRow>, layers: &mut [Layer]) {
        for layer in layers {
            let (kind, number) = match layer.device {
                Some(device) => (SubjectKind::Device, device as u64),
                None => (SubjectKind::Host, 0),
            };
            let is_own = |row: &&SubjectRow| {
                (row.kind, row.number, row.subject >> 32) == (kind, number, u64::from(layer.process))
                    && row.name == layer.blocks_resource
            };
            let subject = subjects.values().find(is_own);
            let Some((count, whole)) = subject.and_then(|row| self.of_subject.get(&row.subject)) else {
                continue;
            };
            // One that stands alone was read at the end and says nothing of the peak.
            let is_series = *count > 1;
            layer.whole_blocks = Some(WholeBlocks {
                peak_bytes: whole.peak_bytes.filter(|_| is_series),
                peak_time_ns: whole.peak_time_ns.filter(|_| is_series),
                ..*whole
            });
        }
    }
}

/// Folds events into [`Layer`]s.
#[derive(Clone, Debug, Default)]
pub struct LayersFold {
    /// By space: blocks, then what is held.
    sides: Vec<[Side; 2]>,
    pairs: Vec<Pair>,
    /// Spaces that hold something.
    held: Vec<u32>,
    /// Process and device of each space.
    places: Vec<(ProcessId, i32)>,
}

#[derive(Clone, Debug, Default)]
struct Side {
    live_bytes: u64,
    peak_bytes: u64,
    peak_time_ns: Option<i64>,
    is_used: bool,
    pairs: Vec<u32>,
}

/// Something held, and something that may be made of it.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    reserved: u32,
    blocks: u32,
    live_at_reserved_peak: u64,
    reserved_at_live_peak: u64,
    slack_bytes: u64,
    slack_time_ns: Option<i64>,
}

const BLOCKS: usize = 0;
const HELD: usize = 1;

impl LayersFold {
    #[inline]
    fn rise(&mut self, block: &Block, time_ns: i64) {
        let side = usize::from(block.kind == Kind::Reserved);
        if block.space as usize >= self.sides.len() || !self.sides[block.space as usize][side].is_used {
            self.meet(block.space, side);
        }
        let own = &mut self.sides[block.space as usize][side];
        own.live_bytes = own.live_bytes.saturating_add(block.bytes);
        let is_peak = own.live_bytes > own.peak_bytes;
        if is_peak {
            own.peak_bytes = own.live_bytes;
            own.peak_time_ns = Some(time_ns);
        }
        if !own.pairs.is_empty() {
            self.compare(block.space, side, is_peak, time_ns);
        }
    }

    #[inline]
    fn fall(&mut self, block: &Block, time_ns: i64) {
        let side = usize::from(block.kind == Kind::Reserved);
        let own = &mut self.sides[block.space as usize][side];
        own.live_bytes = own.live_bytes.saturating_sub(block.bytes);
        if !own.pairs.is_empty() {
            self.compare(block.space, side, false, time_ns);
        }
    }

    /// Pairs something new with what is on the other side.
    fn meet(&mut self, space: u32, side: usize) {
        let at = space as usize;
        if at >= self.sides.len() {
            self.sides.resize(at + 1, Default::default());
        }
        self.sides[at][side].is_used = true;
        let others: Vec<u32> = if side == HELD {
            self.held.push(space);
            let used = |at: &u32| self.sides[*at as usize][BLOCKS].is_used;
            (0..self.sides.len() as u32).filter(used).collect()
        } else {
            self.held.clone()
        };
        let here = self.places.get(at).copied();
        let others = others.into_iter().filter(|other| self.places.get(*other as usize).copied() == here);
        let others: Vec<u32> = others.collect();
        for other in others {
            if self.pairs.len() == PAIRS_MAX {
                break;
            }
            let (reserved, blocks) = if side == HELD { (space, other) } else { (other, space) };
            let number = self.pairs.len() as u32;
            // What had its peak before the other side came had nothing beside it then.
            self.pairs.push(Pair { reserved, blocks, ..Pair::default() });
            self.sides[reserved as usize][HELD].pairs.push(number);
            self.sides[blocks as usize][BLOCKS].pairs.push(number);
            let held = &self.sides[reserved as usize][HELD];
            if side == BLOCKS && held.live_bytes > 0 {
                let pair = &mut self.pairs[number as usize];
                (pair.slack_bytes, pair.slack_time_ns) = (held.peak_bytes, held.peak_time_ns);
            }
        }
    }

    fn compare(&mut self, space: u32, side: usize, is_peak: bool, time_ns: i64) {
        let Self { sides, pairs, .. } = self;
        for number in &sides[space as usize][side].pairs {
            let pair = &mut pairs[*number as usize];
            let held = sides[pair.reserved as usize][HELD].live_bytes;
            let used = sides[pair.blocks as usize][BLOCKS].live_bytes;
            if is_peak && side == HELD {
                pair.live_at_reserved_peak = used;
            } else if is_peak {
                pair.reserved_at_live_peak = held;
            }
            if held.saturating_sub(used) > pair.slack_bytes {
                pair.slack_bytes = held - used;
                pair.slack_time_ns = Some(time_ns);
            }
        }
    }

    /// The pair of something held that belongs together.
    fn pair_of(&self, reserved: u32, end: &End<'_>) -> Option<&Pair> {
        let space = end.live.space(reserved);
        let name = end.tables.string(space.resource);
        let pairs = self.sides[reserved as usize][HELD].pairs.iter().map(|pair| &self.pairs[*pair as usize]);
        let near = pairs.filter(|pair| {
            let blocks = end.live.space(pair.blocks);
            (blocks.process, blocks.device) == (space.process, space.device)
        });
        near.max_by_key(|pair| {
            let blocks = end.tables.string(end.live.space(pair.blocks).resource);
            let is_own = name.rsplit_once(' ').is_some_and(|(own, _)| own == blocks);
            (is_own, self.sides[pair.blocks as usize][BLOCKS].peak_bytes)
        })
    }
}

impl Fold for LayersFold {
    type Output = Vec<Layer>;

    fn space(&mut self, index: u32, space: Space) {
        let at = index as usize;
        if at >= self.places.len() {
            self.places.resize(at + 1, (ProcessId(0), NO_DEVICE));
        }
        self.places[at] = (space.process, space.device);
    }

    #[inline]
    fn begins(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.rise(block, time_ns);
    }

    #[inline]
    fn ends(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.fall(block, time_ns);
    }

    fn finish(&self, end: &End<'_>) -> Vec<Layer> {
        let layer = |reserved: &u32| {
            let pair = self.pair_of(*reserved, end)?;
            let space = end.live.space(*reserved);
            let (held, used) =
                (&self.sides[*reserved as usize][HELD], &self.sides[pair.blocks as usize][BLOCKS]);
            Some(Layer {
                process: space.process.0,
                device: (space.device != NO_DEVICE).then_some(space.device),
                resource: end.tables.string(space.resource).to_owned(),
                blocks_resource: end.tables.string(end.live.space(pair.blocks).resource).to_owned(),
                reserved_peak_bytes: held.peak_bytes,
                reserved_peak_time_ns: held.peak_time_ns,
                live_at_reserved_peak_bytes: pair.live_at_reserved_peak,
                live_peak_bytes: used.peak_bytes,
                live_peak_time_ns: used.peak_time_ns,
                reserved_at_live_peak_bytes: pair.reserved_at_live_peak,
                slack_peak_bytes: pair.slack_bytes,
                slack_peak_time_ns: pair.slack_time_ns,
                reserved_bytes: held.live_bytes,
                live_bytes: used.live_bytes,
                whole_blocks: None,
            })
        };
        let mut layers: Vec<Layer> = self.held.iter().filter_map(layer).collect();
        layers.sort_by(|a, b| (a.process, a.device, &a.resource).cmp(&(b.process, b.device, &b.resource)));
        layers
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::{Action, Event, EventBatch, Tables};

    use super::*;
    use crate::Pass;
    use floodmark_event::Filter;

    #[test]
    fn what_is_held_is_compared_with_blocks_of_its_own_resource_and_device() {
        let mut tables = Tables::default();
        let (torch, segments, other) =
            (tables.intern("torch"), tables.intern("torch segments"), tables.intern("other"));
        let mut batch = EventBatch::new();
        for (time_ns, action, address, bytes, device, kind, resource) in [
            (1, Action::Alloc, 0x1000, 5000, 0, Kind::Device, other),
            (2, Action::Alloc, 0x10_0000, 100, 0, Kind::Reserved, segments),
            (3, Action::Alloc, 0x10_0000, 60, 0, Kind::Device, torch),
            (4, Action::Alloc, 0x20_0000, 50, 0, Kind::Reserved, segments),
            (5, Action::Alloc, 0x20_0000, 50, 0, Kind::Device, torch),
            (6, Action::Alloc, 0x90_0000, 7, 1, Kind::Reserved, segments),
            (7, Action::Alloc, 0x90_0000, 7, 1, Kind::Device, torch),
            (8, Action::Free, 0x10_0000, 60, 0, Kind::Device, torch),
            (9, Action::Free, 0x10_0000, 100, 0, Kind::Reserved, segments),
        ] {
            let event = Event { time_ns, action, address, bytes, device, kind, resource, ..Event::default() };
            batch.push(&event);
        }
        let mut pass = Pass::new(&Filter::default(), LayersFold::default());
        pass.update(&batch);
        let layers = pass.finish(&tables);
        let of = |layer: &Layer| {
            [
                layer.reserved_peak_bytes,
                layer.live_at_reserved_peak_bytes,
                layer.live_peak_bytes,
                layer.reserved_at_live_peak_bytes,
                layer.slack_peak_bytes,
                layer.reserved_bytes,
                layer.live_bytes,
            ]
        };
        assert_eq!(layers.iter().map(|layer| layer.device).collect::<Vec<_>>(), [Some(0), Some(1)]);
        assert_eq!(of(&layers[0]), [150, 60, 110, 150, 100, 50, 50]);
        assert_eq!(of(&layers[1]), [7, 0, 7, 7, 7, 7, 7]);
        assert_eq!((&*layers[0].blocks_resource, layers[0].slack_peak_time_ns), ("torch", Some(2)));
    }

    #[test]
    fn a_hundred_ranks_have_a_hundred_layers() {
        let mut batch = EventBatch::new();
        for process in 1..=100 {
            let event = Event { process: ProcessId(process), bytes: 10, address: 0x1000, ..Event::default() };
            batch.push(&Event { kind: Kind::Reserved, resource: floodmark_event::StringId(1), ..event });
            batch.push(&Event { kind: Kind::Device, bytes: 4, ..event });
        }
        let mut pass = Pass::new(&Filter::default(), LayersFold::default());
        pass.update(&batch);
        let layers = pass.finish(&Tables::default());
        assert_eq!(layers.len(), 100);
        assert!(layers.iter().all(|layer| (layer.reserved_bytes, layer.live_bytes) == (10, 4)));
    }
}
