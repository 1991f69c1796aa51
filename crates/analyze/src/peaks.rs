//! The exact peak of the sum over processes that were read apart from each other.
//!
//! Events of several processes have one order: by time, then by process, then as their process made them. What is
//! searched for is the first instant in that order at which the sum is highest:
//!
//! 1. Envelopes of all processes add up to bounds ([`Envelope`](crate::envelope::Envelope)).
//! 2. [`PeakSearch::next_ranges`] names the intervals that may hold the peak. Each process gives its changes in them
//!    ([`LookFold`]), [`PeakSearch::take`] merges these, and what was found rules out other intervals. A round or
//!    two is usual, and no round reads more than [`MOST_CHANGES`] changes unless a single interval has more.
//! 3. Blocks at the peak are those of every process at the [`Cut`] that was found ([`HeldFold`]).

use std::cmp::Reverse;

use floodmark_event::{Kind, ProcessId};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::change::{Block, Space};
use crate::envelope::{Envelope, Height};
use crate::fold::{End, Fold};
use crate::level::Level;

const KINDS: usize = Kind::ALL.len();

/// Changes that one round of a search asks for at most, if an interval does not have more by itself.
pub const MOST_CHANGES: u64 = 1 << 21;

/// A process of a job: which input it is of, and its number there.
pub type JobProcess = (String, u32);

/// A position in the events of a whole job, behind a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cut {
    /// Latest time of the process up to the change.
    pub sorts_ns: i64,
    /// The process.
    pub job_process: JobProcess,
    /// Number of the change among those of the process.
    pub number: u64,
}

impl Cut {
    /// The position behind everything up to an instant.
    pub fn at(time_ns: i64) -> Self {
        // No input is named by the highest character there is.
        Self { sorts_ns: time_ns, job_process: (char::MAX.to_string(), u32::MAX), number: u64::MAX }
    }
}

/// The first instant of the highest sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPeak {
    /// Live bytes.
    pub bytes: u64,
    /// Blocks that were live then.
    pub blocks: u64,
    /// When it was.
    pub time_ns: i64,
    /// Position in the events.
    pub cut: Cut,
}

/// Numbers the changes of processes and knows how they sort.
#[derive(Clone, Debug)]
struct Numbering {
    of_space: Vec<usize>,
    processes: Vec<(ProcessId, u64)>,
    latest_ns: i64,
}

impl Default for Numbering {
    fn default() -> Self {
        Self { of_space: Vec::new(), processes: Vec::new(), latest_ns: i64::MIN }
    }
}

impl Numbering {
    fn space(&mut self, index: u32, space: Space) {
        let known = self.processes.iter().position(|(process, _)| *process == space.process);
        let at = known.unwrap_or_else(|| {
            self.processes.push((space.process, 0));
            self.processes.len() - 1
        });
        self.of_space.resize(self.of_space.len().max(index as usize + 1), 0);
        self.of_space[index as usize] = at;
    }

    /// Returns when the next change of a block sorts, its process and its number.
    fn next(&mut self, block: &Block, time_ns: i64) -> (i64, u32, u64) {
        self.latest_ns = self.latest_ns.max(time_ns);
        let (process, number) = &mut self.processes[self.of_space[block.space as usize]];
        *number += 1;
        (self.latest_ns, process.0, *number)
    }
}

/// Intervals of time that a search asks about: `index << shift` nanoseconds since the epoch is the first of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookRanges {
    /// Binary logarithm of the width in nanoseconds.
    pub shift: u32,
    /// Numbers of the intervals, in order.
    pub indexes: Vec<i64>,
}

impl LookRanges {
    /// Whether nothing is asked.
    pub fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    /// The last nanosecond that is asked about.
    pub fn end_ns(&self) -> Option<i64> {
        let after = (i128::from(*self.indexes.last()?) + 1) << self.shift.min(64);
        Some(i64::try_from(after - 1).unwrap_or(i64::MAX))
    }
}

/// What some processes of one input did in intervals of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// Input, as processes name it.
    pub source: String,
    /// One entry for each interval that was asked about.
    pub ranges: Vec<RangeLook>,
}

/// What was live when an interval began, and all that changed in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeLook {
    start: [Height; KINDS],
    changes: Vec<LookChange>,
}

/// A change of live bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LookChange {
    sorts_ns: i64,
    process: u32,
    number: u64,
    time_ns: i64,
    tally: u8,
    bytes: u64,
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Way {
    Carried,
    Up,
    Down,
}

/// Folds events into a [`Look`].
#[derive(Clone, Debug)]
pub struct LookFold {
    asked: LookRanges,
    /// The interval that comes next, or is being looked at.
    next: usize,
    found: Vec<RangeLook>,
    now: [Height; KINDS],
    numbering: Numbering,
}

impl LookFold {
    /// Looks at these intervals.
    pub fn new(asked: LookRanges) -> Self {
        let found = vec![RangeLook::default(); asked.indexes.len()];
        Self { asked, next: 0, found, now: Default::default(), numbering: Numbering::default() }
    }

    /// Whether all further changes lie behind what was asked.
    pub fn is_done(&self) -> bool {
        self.next >= self.asked.indexes.len()
    }

    /// Passes intervals that end before `index`; those that nothing changed in begin as they end.
    fn pass(&mut self, index: i64) {
        while self.asked.indexes.get(self.next).is_some_and(|asked| *asked < index) {
            self.next += 1;
            if let Some(range) = self.found.get_mut(self.next) {
                range.start = self.now;
            }
        }
    }

    fn change(&mut self, block: &Block, time_ns: i64, way: Way, level: &Level) {
        let sorts = if way == Way::Carried { time_ns.saturating_sub(1) } else { time_ns };
        let (sorts_ns, process, number) = self.numbering.next(block, sorts);
        let index = sorts_ns >> self.asked.shift.min(63);
        self.pass(index);
        let tally = usize::from(block.tally);
        if self.asked.indexes.get(self.next) == Some(&index) {
            self.found[self.next].changes.push(LookChange {
                sorts_ns,
                process,
                number,
                time_ns,
                tally: block.tally,
                bytes: block.bytes,
                way,
            });
        }
        self.now[tally] = Height { bytes: level.live_bytes, blocks: level.live_blocks };
        // A later interval begins with what holds now, unless more changes before it.
        let after = self.next + usize::from(self.asked.indexes.get(self.next) == Some(&index));
        if let Some(range) = self.found.get_mut(after) {
            range.start = self.now;
        }
    }

    /// Returns what was found in `source`.
    pub fn look(&self, source: &str) -> Look {
        let mut whole = self.clone();
        whole.pass(i64::MAX);
        Look { source: source.to_owned(), ranges: whole.found }
    }
}

impl Fold for LookFold {
    type Output = ();

    fn space(&mut self, index: u32, space: Space) {
        self.numbering.space(index, space);
    }
    fn carried(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.change(block, time_ns, Way::Carried, level);
    }
    fn begins(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.change(block, time_ns, Way::Up, level);
    }
    fn ends(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.change(block, time_ns, Way::Down, level);
    }
    fn finish(&self, _end: &End<'_>) {}
}

/// What has to be found out about a tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    /// Its peak.
    All,
    /// Where its peak is, of which the bytes are known.
    CutOf(u64),
}

/// Searches the highest sums of all tallies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeakSearch {
    shift: u32,
    wanted: Vec<Wanted>,
    asked: LookRanges,
}

/// A highest sum that is searched for.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Wanted {
    tally: u8,
    what: What,
    /// A sum that was reached somewhere.
    floor: u64,
    /// Intervals that were not looked at: their bound, number and changes, the most promising last.
    open: Vec<(u64, Reverse<i64>, u64)>,
    found: Option<JobPeak>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    Bytes,
    Blocks,
}

impl What {
    fn of(self, height: Height) -> u64 {
        match self {
            Self::Bytes => height.bytes,
            Self::Blocks => height.blocks,
        }
    }
}

impl Wanted {
    fn new(tally: u8, what: What, envelope: &Envelope) -> Self {
        let of = |one: &crate::envelope::Interval| (what.of(one.high), Reverse(one.index), one.changes);
        let floor = what.of(envelope.lower());
        let mut open: Vec<_> = envelope.intervals().iter().map(of).collect();
        open.retain(|(high, ..)| *high >= floor.max(1));
        open.sort_unstable();
        Self { tally, what, floor, open, found: None }
    }

    fn best(&self) -> u64 {
        self.found.as_ref().map_or(0, |found| self.what.of(found.height()))
    }

    /// Whether an interval may still change the result.
    fn may_hold(&self, high: u64, index: i64, shift: u32) -> bool {
        let best = self.best();
        let is_earlier =
            || self.found.as_ref().is_some_and(|found| index < found.cut.sorts_ns >> shift.min(63));
        // Where the highest number of blocks was is of no interest.
        high >= self.floor && (high > best || (high == best && self.what == What::Bytes && is_earlier()))
    }
}

impl JobPeak {
    fn height(&self) -> Height {
        Height { bytes: self.bytes, blocks: self.blocks }
    }
}

impl PeakSearch {
    /// Starts with the sums of envelopes; `main` is the tally whose highest number of blocks is wanted.
    pub(crate) fn new(
        envelopes: &[Envelope; KINDS],
        main: u8,
        needed: impl Fn(u8) -> Option<Needed>,
    ) -> Self {
        let shift = envelopes.iter().map(Envelope::shift).max().unwrap_or(0);
        let mut wanted = Vec::new();
        for (tally, envelope) in (0u8..).zip(envelopes) {
            let Some(needed) = needed(tally) else { continue };
            let mut envelope = envelope.clone();
            envelope.widen(shift);
            let mut bytes = Wanted::new(tally, What::Bytes, &envelope);
            if let Needed::CutOf(peak_bytes) = needed {
                bytes.floor = peak_bytes;
            }
            wanted.push(bytes);
            if tally == main && needed == Needed::All {
                wanted.push(Wanted::new(tally, What::Blocks, &envelope));
            }
        }
        Self { shift, wanted, asked: LookRanges::default() }
    }

    /// Whether anything is wanted.
    pub(crate) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Returns the intervals to look at next; none if all is known.
    pub fn next_ranges(&mut self) -> LookRanges {
        let (mut indexes, mut changes) = (Vec::new(), 0);
        for wanted in &mut self.wanted {
            while let Some((high, Reverse(index), count)) = wanted.open.last().copied() {
                if !wanted.may_hold(high, index, self.shift) {
                    wanted.open.pop();
                    continue;
                }
                if !indexes.is_empty() && changes + count > MOST_CHANGES {
                    break;
                }
                wanted.open.pop();
                changes += count;
                indexes.push(index);
            }
        }
        indexes.sort_unstable();
        indexes.dedup();
        self.asked = LookRanges { shift: self.shift, indexes };
        self.asked.clone()
    }

    /// Takes in what all processes did in the intervals that were asked about.
    ///
    /// # Errors
    /// If a look is about other intervals.
    pub fn take(&mut self, looks: &[Look]) -> Result<(), PeaksError> {
        if looks.iter().any(|look| look.ranges.len() != self.asked.indexes.len()) {
            return Err(PeaksError);
        }
        for range in 0..self.asked.indexes.len() {
            self.take_range(looks, range);
        }
        Ok(())
    }

    fn take_range(&mut self, looks: &[Look], range: usize) {
        let mut now = [Height::default(); KINDS];
        let mut changes: Vec<(&str, &LookChange)> = Vec::new();
        for look in looks {
            let RangeLook { start, changes: theirs } = &look.ranges[range];
            for (sum, height) in now.iter_mut().zip(start) {
                sum.bytes = sum.bytes.saturating_add(height.bytes);
                sum.blocks += height.blocks;
            }
            changes.extend(theirs.iter().map(|change| (look.source.as_str(), change)));
        }
        changes.sort_unstable_by_key(|(source, change)| {
            (change.sorts_ns, *source, change.process, change.number)
        });
        for (at, (source, change)) in changes.iter().enumerate() {
            let Some(height) = now.get_mut(usize::from(change.tally)) else { continue };
            if change.way == Way::Down {
                height.bytes = height.bytes.saturating_sub(change.bytes);
                height.blocks = height.blocks.saturating_sub(1);
                continue;
            }
            height.bytes = height.bytes.saturating_add(change.bytes);
            height.blocks += 1;
            // Blocks that are carried into the window were all there when it opened.
            let is_last = |next: &(&str, &LookChange)| next.1.way != Way::Carried;
            if change.way == Way::Carried && !changes.get(at + 1).is_none_or(is_last) {
                continue;
            }
            self.reach(source, change, &now);
        }
    }

    fn reach(&mut self, source: &str, change: &LookChange, now: &[Height; KINDS]) {
        let is_carried = change.way == Way::Carried;
        for wanted in &mut self.wanted {
            if wanted.tally != change.tally && !is_carried {
                continue;
            }
            let height = now[usize::from(wanted.tally)];
            let value = wanted.what.of(height);
            let is_earlier = wanted.found.as_ref().is_some_and(|found| change.sorts_ns < found.cut.sorts_ns);
            if value > 0 && (value > wanted.best() || (value == wanted.best() && is_earlier)) {
                let cut = if is_carried {
                    Cut::at(change.sorts_ns)
                } else {
                    let job_process = (source.to_owned(), change.process);
                    Cut { sorts_ns: change.sorts_ns, job_process, number: change.number }
                };
                let Height { bytes, blocks } = height;
                wanted.found = Some(JobPeak { bytes, blocks, time_ns: change.time_ns, cut });
            }
        }
    }

    /// Returns the peaks that were found, by tally, and the highest number of blocks of the main one.
    pub fn finish(self) -> JobPeaks {
        let mut peaks = JobPeaks::default();
        for wanted in self.wanted {
            match wanted.what {
                What::Bytes => peaks.bytes.extend(wanted.found.map(|found| (wanted.tally, found))),
                What::Blocks => {
                    peaks.most_blocks = Some((wanted.tally, wanted.found.map_or(0, |found| found.blocks)));
                }
            }
        }
        peaks
    }
}

/// What a search has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPeaks {
    /// Highest live bytes by tally.
    pub bytes: Vec<(u8, JobPeak)>,
    /// The tally that figures cover, and its highest number of blocks.
    pub most_blocks: Option<(u8, u64)>,
}

/// Looks do not answer what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeaksError;

/// Folds events into the blocks that are live at a [`Cut`].
#[derive(Clone, Debug)]
pub struct HeldFold {
    cut: Cut,
    source: String,
    numbering: Numbering,
    /// Blocks that began behind the cut.
    late: FxHashSet<u64>,
    /// Blocks that were live at the cut and have ended since.
    ended: FxHashMap<u64, Block>,
    is_done: bool,
}

impl HeldFold {
    /// Keeps the blocks of `source`.
    pub fn new(cut: Cut, source: &str) -> Self {
        Self {
            cut,
            source: source.to_owned(),
            numbering: Numbering::default(),
            late: FxHashSet::default(),
            ended: FxHashMap::default(),
            is_done: false,
        }
    }

    /// Whether all further changes lie behind the cut.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    fn is_behind(&mut self, block: &Block, time_ns: i64) -> bool {
        let (sorts_ns, process, number) = self.numbering.next(block, time_ns);
        self.is_done |= sorts_ns > self.cut.sorts_ns;
        let own = (self.source.as_str(), process);
        let cut = (self.cut.job_process.0.as_str(), self.cut.job_process.1);
        (sorts_ns, own, number) > (self.cut.sorts_ns, cut, self.cut.number)
    }

    /// The blocks of all tallies at the cut.
    pub(crate) fn blocks<'a>(&'a self, end: &'a End<'_>) -> impl Iterator<Item = &'a Block> {
        let live = end.live.blocks().filter(|block| !self.late.contains(&block.order));
        live.chain(self.ended.values())
    }
}

impl Fold for HeldFold {
    type Output = ();

    fn space(&mut self, index: u32, space: Space) {
        self.numbering.space(index, space);
    }
    fn carried(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.begins(block, time_ns.saturating_sub(1), level);
    }
    fn begins(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        if self.is_behind(block, time_ns) {
            self.late.insert(block.order);
        }
    }
    fn ends(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        if self.is_behind(block, time_ns) && !self.late.remove(&block.order) {
            self.ended.insert(block.order, *block);
        }
    }
    fn finish(&self, _end: &End<'_>) {}
}
