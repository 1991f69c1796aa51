//! Gaps between live blocks, found in the most obvious way: all of them anew after every event.

use std::collections::BTreeMap;

use floodmark_event::{Action, Event, Kind};

/// What a ground belongs to: process, device, resource and kind; the kind of segments is `reserved`.
pub type Owner = (u32, i32, u32, Kind);

/// How a ground is filled: ground bytes, live bytes, live blocks, free bytes, gaps, largest gap.
pub type Filled = (u64, u64, u64, u64, u64, u64);

/// A run of addresses: the first, and the one after the last.
type Run = (u64, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    /// In the segment that was allocated by this row.
    Segment(usize),
    Inferred,
    /// It is a segment, and counts as one.
    IsSegment,
    Nowhere,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    row: usize,
    event: Event,
    home: Home,
}

impl Live {
    fn run(&self) -> Run {
        (self.event.address, self.event.address + self.event.bytes)
    }
}

/// The grounds of a list of events, which has a single window.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    live: Vec<Live>,
    /// What placed blocks of an inferred ground ever covered.
    covered: BTreeMap<Owner, Vec<Run>>,
    /// Grounds that have ever been.
    owners: Vec<Owner>,
    join_bytes: u64,
    rows: usize,
    /// The most free bytes outside the largest gap that a ground ever had.
    pub most_scattered: BTreeMap<Owner, u64>,
    /// Blocks of no bytes or without an address.
    pub placeless: u64,
    /// Blocks that overlap.
    pub overlapping: u64,
    /// Segments that overlap.
    pub overlapping_segments: u64,
    /// Blocks whose segment went before them.
    pub orphaned: u64,
}

fn overlap(one: Run, other: Run) -> bool {
    one.0 < other.1 && other.0 < one.1
}

fn place(event: &Event) -> (u32, i32) {
    (event.process.0, event.device)
}

fn owner(event: &Event) -> Owner {
    (event.process.0, event.device, event.resource.0, event.kind)
}

impl Gaps {
    /// Starts with nothing.
    pub fn new(join_bytes: u64) -> Self {
        Self { join_bytes, ..Self::default() }
    }

    /// Takes in an event.
    pub fn add(&mut self, event: &Event) {
        let space = |other: &Event| (place(other), other.resource, other.address);
        let same = self.live.iter().rposition(|live| space(&live.event) == space(event));
        match event.action {
            Action::Alloc => {
                if event.address != 0
                    && let Some(at) = same
                {
                    self.end(at);
                }
                let home = self.home(event);
                self.live.push(Live { row: self.rows, event: *event, home });
            }
            Action::Free => {
                if let Some(at) = same {
                    self.end(at);
                }
            }
            Action::Failure => {}
        }
        self.note();
        self.rows += 1;
    }

    fn note(&mut self) {
        for (owner, filled) in self.filled() {
            let most = self.most_scattered.entry(owner).or_default();
            *most = (*most).max(filled.3 - filled.5);
        }
    }

    fn end(&mut self, at: usize) {
        let ended = self.live.remove(at);
        for live in &mut self.live {
            if live.home == Home::Segment(ended.row) {
                live.home = Home::Nowhere;
                self.orphaned += 1;
            }
        }
        // An address that is allocated again was free in between.
        self.note();
    }

    fn home(&mut self, event: &Event) -> Home {
        if event.address == 0 || event.bytes == 0 {
            self.placeless += 1;
            return Home::Nowhere;
        }
        let run = (event.address, event.address + event.bytes);
        let here: Vec<&Live> = self.live.iter().filter(|live| place(&live.event) == place(event)).collect();
        let mut segments = here.iter().filter(|live| live.home == Home::IsSegment);
        if event.kind == Kind::Reserved {
            if segments.any(|segment| overlap(segment.run(), run)) {
                self.overlapping_segments += 1;
                return Home::Nowhere;
            }
            self.begin(owner(event));
            return Home::IsSegment;
        }
        if event.kind == Kind::Static {
            return Home::Nowhere;
        }
        let inside = segments.find(|segment| overlap(segment.run(), (run.0, run.0 + 1)));
        let (home, fits) = match inside {
            Some(segment) => (Home::Segment(segment.row), run.1 <= segment.run().1),
            None => (Home::Inferred, true),
        };
        let together = |live: &&&Live| {
            live.home == home && (home != Home::Inferred || owner(&live.event) == owner(event))
        };
        if !fits || here.iter().filter(together).any(|live| overlap(live.run(), run)) {
            self.overlapping += 1;
            if home == Home::Inferred {
                self.begin(owner(event));
            }
            return Home::Nowhere;
        }
        if home == Home::Inferred {
            self.begin(owner(event));
            self.covered.entry(owner(event)).or_default().push(run);
        }
        home
    }

    fn begin(&mut self, owner: Owner) {
        if !self.owners.contains(&owner) {
            self.owners.push(owner);
        }
    }

    /// Extents of a ground and the blocks in it.
    fn ground(&self, of: Owner) -> (Vec<Run>, Vec<Run>) {
        if of.3 == Kind::Reserved {
            let is_own = |live: &&Live| live.home == Home::IsSegment && owner(&live.event) == of;
            let segments: Vec<&Live> = self.live.iter().filter(is_own).collect();
            let inside = |live: &&Live| segments.iter().any(|one| live.home == Home::Segment(one.row));
            return (
                segments.iter().map(|segment| segment.run()).collect(),
                self.live.iter().filter(inside).map(Live::run).collect(),
            );
        }
        let mut extents: Vec<Run> = Vec::new();
        let mut covered = self.covered.get(&of).cloned().unwrap_or_default();
        covered.sort_unstable();
        for run in covered {
            match extents.last_mut() {
                Some(last) if run.0 <= last.1 + self.join_bytes => last.1 = last.1.max(run.1),
                _ => extents.push(run),
            }
        }
        let is_own = |live: &&Live| live.home == Home::Inferred && owner(&live.event) == of;
        (extents, self.live.iter().filter(is_own).map(Live::run).collect())
    }

    /// Gaps of a ground, by address.
    pub fn gaps(&self, of: Owner) -> Vec<Run> {
        let (mut extents, mut blocks) = self.ground(of);
        extents.sort_unstable();
        blocks.sort_unstable();
        let mut gaps = Vec::new();
        for (start, end) in extents {
            let mut at = start;
            for block in blocks.iter().filter(|block| overlap(**block, (start, end))) {
                gaps.push((at, block.0));
                at = block.1;
            }
            gaps.push((at, end));
        }
        gaps.retain(|(from, to)| from < to);
        gaps
    }

    /// How all grounds are filled now.
    pub fn filled(&self) -> BTreeMap<Owner, Filled> {
        let filled = |of: &Owner| {
            let (extents, blocks) = self.ground(*of);
            let size = |(from, to): &Run| to - from;
            let gaps: Vec<u64> = self.gaps(*of).iter().map(size).collect();
            let filled = (
                extents.iter().map(size).sum(),
                blocks.iter().map(size).sum(),
                blocks.len() as u64,
                gaps.iter().sum(),
                gaps.len() as u64,
                gaps.iter().copied().max().unwrap_or(0),
            );
            (*of, filled)
        };
        self.owners.iter().map(filled).collect()
    }
}
