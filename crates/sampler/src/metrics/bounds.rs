//! Bounds of the memory of all processes, with shared memory counted once.
//!
//! The sum of proportional set sizes is exact only if all processes are read at one time. Between readings it
//! is bounded, from below and from above:
//!
//! - Anonymous memory belongs to one process, unless it was forked: then parent and child share it until one
//!   of them writes. Readings of forked processes count together only if one round made them; page faults
//!   since then may have made shared pages private.
//! - Memory of files and shared memory that another process maps or unmaps changes the share of this process
//!   by half of that at most.
//! - All processes of the system have no more distinct pages mapped than `/proc/meminfo` says.
//! - Between two sweeps the total grew by no more than what processes were given, and shrank by no more than
//!   what they gave back. So a round bounds later sweeps, and earlier ones too.

use crate::metrics::memory::{ProcessMemory, TotalReading};
use crate::procfs::MappedPages;
use crate::sys::clock::page_bytes;
use crate::tree::{Image, Process};

/// Largest number of earlier sweeps whose upper bounds are kept.
const MOST_SWEEPS: usize = 128;

/// Changes of memory since the watch began, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Motion {
    /// Sum of all changes of memory of files and shared memory.
    pub(crate) shared: u64,
    /// Sum of what forked processes shared with their relatives when they ended.
    pub(crate) copied: u64,
    /// Sum of all memory that was given back.
    pub(crate) dropped: u64,
    /// Sum of all memory that was added, and of writes to memory that was shared with a forked process.
    pub(crate) grown: u64,
    /// Sum of writes to memory that was shared with a forked process, as far as page faults tell.
    pub(crate) written: u64,
    /// The last round that has readings.
    pub(crate) round: u64,
    /// Whether a forked process counts with its parent because it is young.
    pub(crate) has_newborns: bool,
}

impl Motion {
    /// Adds the change of a process between two sweeps.
    pub(crate) fn changed(&mut self, rss: (u64, u64), shared: (u64, u64)) {
        self.shared = self.shared.saturating_add(shared.0.abs_diff(shared.1));
        let anon = (rss.0.saturating_sub(shared.0), rss.1.saturating_sub(shared.1));
        let dropped = shared.0.saturating_sub(shared.1).saturating_add(anon.0.saturating_sub(anon.1));
        self.dropped = self.dropped.saturating_add(dropped);
        let grown = shared.1.saturating_sub(shared.0).saturating_add(anon.1.saturating_sub(anon.0));
        self.grown = self.grown.saturating_add(grown);
    }

    /// Adds the first reading of a forked process, which has the memory of its parent.
    pub(crate) fn copied(&mut self, shared: u64) {
        self.shared = self.shared.saturating_add(shared);
    }

    /// Adds page faults of a process that shares memory with forked ones: each may have made a page its own.
    pub(crate) fn faulted(&mut self, count: u64) {
        let bytes = count.saturating_mul(page_bytes());
        self.written = self.written.saturating_add(bytes);
        self.grown = self.grown.saturating_add(bytes);
    }

    /// Adds the memory of a process that gave back everything, by its end or by exec.
    pub(crate) fn gave_back(&mut self, process: &Process, is_newborn: bool) {
        let memory = &process.memory;
        self.shared = self.shared.saturating_add(memory.shared);
        let copied = memory.total.map_or(0, |read| read.copied());
        self.copied = self.copied.saturating_add(copied);
        let counted = if is_newborn { memory.shared.saturating_add(memory.grown_anon()) } else { memory.rss };
        self.dropped = self.dropped.saturating_add(counted);
    }
}

/// Bounds of the contribution of a process to the total, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) least: u64,
    /// Upper bound of its share of anonymous memory.
    pub(crate) anon: u64,
    /// Upper bound of its share of files and shared memory.
    pub(crate) shared: u64,
}

impl Part {
    /// Difference of the bounds.
    pub(crate) fn gap(&self) -> u64 {
        self.anon.saturating_add(self.shared).saturating_sub(self.least)
    }
}

/// Bounds the contribution of a process.
pub(crate) fn part(process: &Process, motion: &Motion, now_ns: u64) -> Part {
    let memory = &process.memory;
    match (&memory.total, process.image) {
        (Some(read), image) => read_part(memory, read, image, motion),
        (None, Image::Own) => Part { least: memory.anon(), anon: memory.anon(), shared: memory.shared },
        // A young copy is expected to call exec; what it had at first counts with its parent.
        (None, Image::Inherited) => {
            let least = memory.grown_anon();
            let anon = if process.is_newborn(now_ns) { least } else { memory.anon() };
            Part { least, anon, shared: memory.shared }
        }
    }
}

fn read_part(memory: &ProcessMemory, read: &TotalReading, image: Image, motion: &Motion) -> Part {
    let read_anon = read.rss.saturating_sub(read.file_and_shmem);
    let (grew, shrank) = (memory.anon().saturating_sub(read_anon), read_anon.saturating_sub(memory.anon()));
    let copied = read.copied();
    let known = match image {
        Image::Own => read.pss_anon,
        // Readings of relatives at other times may count the same pages.
        Image::Inherited if read.round.0 == motion.round => {
            read.private_anon.max(read.pss_anon.min(read.round.1))
        }
        Image::Inherited => read.private_anon,
    };
    let perhaps_own = if motion.has_newborns { copied } else { made_own(read, motion) };
    let anon = (read.pss_anon + grew + perhaps_own).saturating_sub(shrank.saturating_sub(copied));

    let read_shared = read.pss.saturating_sub(read.pss_anon);
    let others = motion.shared.saturating_sub(read.motion.shared).div_ceil(2);
    let (mapped, unmapped) = (
        memory.shared.saturating_sub(read.file_and_shmem),
        read.file_and_shmem.saturating_sub(memory.shared),
    );
    let room = read.file_and_shmem.saturating_sub(read_shared);
    Part {
        least: (known + grew).saturating_sub(shrank)
            + read_shared.saturating_sub(others).saturating_sub(unmapped),
        anon,
        shared: read_shared + room.min(others) + mapped,
    }
}

/// Bytes that a process shared with forked relatives and that may be its own now: it or a relative wrote to
/// them, or a relative ended.
fn made_own(read: &TotalReading, motion: &Motion) -> u64 {
    let written = motion.written.saturating_sub(read.motion.written);
    let left = motion.copied.saturating_sub(read.motion.copied);
    read.copied().min(written.saturating_add(left))
}

/// Bytes of a process that may count differently than when it was read.
pub(crate) fn drift(memory: &ProcessMemory, read: &TotalReading, motion: &Motion) -> u64 {
    let others = motion.shared.saturating_sub(read.motion.shared).div_ceil(2);
    let own = memory.shared.abs_diff(read.file_and_shmem);
    own.saturating_add(read.file_and_shmem.min(others)).saturating_add(made_own(read, motion))
}

/// Sum of the bounds of all processes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartSum {
    pub(crate) least: u64,
    pub(crate) anon: u64,
    shared: u64,
}

impl PartSum {
    pub(crate) fn add(&mut self, part: Part) {
        self.least = self.least.saturating_add(part.least);
        self.anon = self.anon.saturating_add(part.anon);
        self.shared = self.shared.saturating_add(part.shared);
    }

    pub(crate) fn remove(&mut self, part: Part) {
        self.least = self.least.saturating_sub(part.least);
        self.anon = self.anon.saturating_sub(part.anon);
        self.shared = self.shared.saturating_sub(part.shared);
    }

    /// Upper bound, given the pages of the whole system if they are known.
    pub(crate) fn most(&self, mapped: Option<MappedPages>) -> u64 {
        let (anon, shared) = mapped.map_or((u64::MAX, u64::MAX), |mapped| (mapped.anon, mapped.shared));
        self.anon.min(anon).saturating_add(self.shared.min(shared)).max(self.least)
    }
}

/// Bounds of the total that are carried from sweep to sweep.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    least: u64,
    most: u64,
    grown: u64,
    dropped: u64,
}

impl Carried {
    /// Adds a sweep with its own bounds; returns the narrowest.
    pub(crate) fn swept(&mut self, (least, most): (u64, u64), motion: &Motion) -> (u64, u64) {
        let grown = motion.grown.saturating_sub(self.grown);
        let dropped = motion.dropped.saturating_sub(self.dropped);
        (self.grown, self.dropped) = (motion.grown, motion.dropped);
        self.least = least.max(self.least.saturating_sub(dropped));
        // Of two bounds that contradict each other the one that was read now counts.
        self.most = most.min(self.most.saturating_add(grown)).max(least);
        self.least = self.least.min(self.most);
        (self.least, self.most)
    }
}

/// Upper bound of the highest total so far, at sweeps and, as far as growth became known later, in between.
#[derive(Debug, Default)]
pub(crate) struct PeakBound {
    /// Bounds of earlier sweeps, each higher than the one before.
    sweeps: Vec<SweepBound>,
}

#[derive(Clone, Copy, Debug)]
struct SweepBound {
    bytes: u64,
    /// [`Motion::dropped`] at that sweep.
    dropped: u64,
    /// Memory that came and went after that sweep and is not in [`Motion::dropped`].
    unseen: u64,
}

impl PeakBound {
    /// Adds a sweep with an upper bound. Earlier totals were not higher than that and what was given back
    /// since.
    pub(crate) fn swept(&mut self, most: u64, dropped: u64) {
        for sweep in &mut self.sweeps {
            let dropped = dropped.saturating_sub(sweep.dropped).saturating_add(sweep.unseen);
            sweep.bytes = sweep.bytes.min(most.saturating_add(dropped));
        }
        self.push(SweepBound { bytes: most, dropped, unseen: 0 });
    }

    /// Adds the time after a sweep with an upper bound: processes grew by `grown` until the next sweep, and by
    /// `unseen` that they gave back before it.
    pub(crate) fn grew(&mut self, most: u64, dropped: u64, (grown, unseen): (u64, u64)) {
        self.push(SweepBound { bytes: most.saturating_add(grown).saturating_add(unseen), dropped, unseen });
    }

    fn push(&mut self, sweep: SweepBound) {
        // A bound that is not higher than an earlier one will never be.
        if sweep.bytes <= self.bytes() {
            return;
        }
        if self.sweeps.len() == MOST_SWEEPS {
            // Stands for both: not lower, and not earlier.
            let first = self.sweeps.remove(0);
            let next = &mut self.sweeps[0];
            next.dropped = first.dropped;
            next.bytes = next.bytes.max(first.bytes);
            next.unseen = next.unseen.max(first.unseen);
        }
        self.sweeps.push(sweep);
    }

    /// The upper bound.
    pub(crate) fn bytes(&self) -> u64 {
        self.sweeps.iter().map(|sweep| sweep.bytes).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn process(image: Image, anon: u64, shared: u64) -> Process {
        let mut process = Process::new(1, 0, image);
        let memory = &mut process.memory;
        (memory.rss, memory.shared, memory.was_read) = (anon + shared, shared, true);
        (memory.first_rss, memory.first_shared) = (memory.rss, shared);
        process
    }

    fn reading(process: &Process, pss_anon: u64, pss_shared: u64) -> TotalReading {
        let memory = &process.memory;
        TotalReading {
            pss: pss_anon + pss_shared,
            rss: memory.rss,
            file_and_shmem: memory.shared,
            anon: memory.anon(),
            pss_anon,
            ..TotalReading::default()
        }
    }

    fn bounds(part: Part) -> (u64, u64) {
        (part.least / MIB, (part.anon + part.shared) / MIB)
    }

    #[test]
    fn memory_that_may_be_shared_is_uncertain_until_it_is_read() {
        let mut motion = Motion::default();
        let mut one = process(Image::Own, 10 * MIB, 128 * MIB);
        assert_eq!(bounds(part(&one, &motion, 0)), (10, 138));
        one.memory.total = Some(reading(&one, 10 * MIB, 32 * MIB));
        assert_eq!(bounds(part(&one, &motion, 0)), (42, 42));
        one.memory.rss += 8 * MIB;
        assert_eq!(bounds(part(&one, &motion, 0)), (50, 50), "its own");
        motion.shared += 6 * MIB;
        assert_eq!(bounds(part(&one, &motion, 0)), (47, 53), "another came or went");
        motion.shared += 600 * MIB;
        assert_eq!(bounds(part(&one, &motion, 0)), (18, 146), "no more than it has");
    }

    #[test]
    fn what_was_forked_counts_with_its_parent_while_it_is_young() {
        let motion = Motion::default();
        let mut child = process(Image::Inherited, 100 * MIB, 10 * MIB);
        assert_eq!(bounds(part(&child, &motion, 0)), (0, 10));
        child.memory.rss += 4 * MIB;
        assert_eq!(bounds(part(&child, &motion, 0)), (4, 14));
        assert_eq!(bounds(part(&child, &motion, crate::tree::NEWBORN_NS)), (4, 114), "perhaps all its own");
    }

    #[test]
    fn readings_of_forked_processes_add_up_only_within_a_round() {
        let mut motion = Motion { round: 7, ..Motion::default() };
        let mut child = process(Image::Inherited, 100 * MIB, 0);
        let read = TotalReading { round: (7, 50 * MIB), ..reading(&child, 50 * MIB, 0) };
        child.memory.total = Some(read);
        assert_eq!(bounds(part(&child, &motion, 0)), (50, 50));
        motion.faulted(5 * MIB / page_bytes());
        assert_eq!(
            bounds(part(&child, &motion, 0)),
            (50, 55),
            "it or a relative may have written to shared pages"
        );
        motion.copied = 90 * MIB;
        assert_eq!(bounds(part(&child, &motion, 0)), (50, 100), "a relative ended");
        motion.round = 8;
        assert_eq!(bounds(part(&child, &motion, 0)), (0, 100), "relatives were read at another time");
    }

    #[test]
    fn a_later_reading_bounds_earlier_sweeps() {
        let mut bound = PeakBound::default();
        bound.swept(4300, 0);
        assert_eq!(bound.bytes(), 4300);
        bound.swept(500, 20);
        assert_eq!(bound.bytes(), 520, "there was no more than what was given back since");
        bound.swept(100, 420);
        assert_eq!(bound.bytes(), 520);
        bound.swept(700, 420);
        bound.swept(600, 430);
        assert_eq!(bound.bytes(), 610);
    }

    #[test]
    fn growth_that_no_sweep_saw_stays_in_the_bound() {
        let mut bound = PeakBound::default();
        bound.swept(500, 0);
        bound.grew(500, 0, (10, 2));
        assert_eq!(bound.bytes(), 512);
        bound.swept(490, 15);
        assert_eq!(bound.bytes(), 507, "a later reading bounds what was there, but not what nothing saw");
    }

    #[test]
    fn the_bound_of_a_peak_holds_with_many_sweeps() {
        let mut bound = PeakBound::default();
        for step in 1..=1000 {
            bound.swept(2 * step, 0);
        }
        assert_eq!((bound.bytes(), bound.sweeps.len()), (2000, MOST_SWEEPS));
        bound.swept(1500, 10);
        assert_eq!(bound.bytes(), 1510);
    }

    #[test]
    fn a_round_bounds_later_sweeps() {
        let mut carried = Carried::default();
        let mut motion = Motion::default();
        motion.changed((0, 4300), (0, 4000));
        assert_eq!(carried.swept((300, 4300), &motion), (300, 4300));
        assert_eq!(carried.swept((500, 500), &motion), (500, 500));
        motion.changed((0, 7), (0, 3));
        motion.changed((9, 0), (2, 0));
        assert_eq!(carried.swept((100, 4000), &motion), (491, 507));
        assert_eq!(carried.swept((505, 505), &motion), (505, 505));
        motion.faulted(1);
        assert_eq!(carried.swept((0, u64::MAX), &motion), (505, 505 + page_bytes()));
    }

    #[test]
    fn the_pages_of_the_system_bound_the_total() {
        let mut sum = PartSum::default();
        for _ in 0..20 {
            sum.add(part(&process(Image::Own, 15 * MIB, 200 * MIB), &Motion::default(), 0));
        }
        assert_eq!((sum.least / MIB, sum.most(None) / MIB), (300, 4300));
        let mapped = MappedPages { anon: 900 * MIB, shared: 250 * MIB };
        assert_eq!(sum.most(Some(mapped)) / MIB, 550);
    }
}
