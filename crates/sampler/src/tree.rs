//! The tree of processes below a command.
//!
//! A process is identified by its PID and its start time, because PIDs are reused. It belongs to the tree if
//! its parent did when it was forked, whatever becomes of the parent, of sessions and of process groups.
//! [`events`] and [`walk`] find new processes.
//!
//! Invariant: the table holds processes that are not known to have ended, each once.

pub(crate) mod events;
pub(crate) mod exit_stats;
pub(crate) mod walk;

use std::collections::HashMap;

use floodmark_event::SubjectId;
use floodmark_tail::clock::{Anchor, monotonic_ns};

use crate::metrics::gauges::Gauges;
use crate::metrics::memory::ProcessMemory;
use crate::sys::clock::{boot_ns, ticks_per_second};
use walk::Found;

/// Origin of the program that a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Image {
    /// Inherited by fork: memory is shared with the parent until one of them writes.
    Inherited,
    /// Started by exec.
    Own,
}

/// Whether a name or command line changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learned {
    Nothing,
    News,
}

/// Time within which a forked process is expected to call exec. Until then its memory is counted with its
/// parent's, which it shares.
pub(crate) const NEWBORN_NS: u64 = 50_000_000;

/// A process of the tree.
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Start in clock ticks since boot; 0 until it was read.
    pub(crate) start_ticks: u64,
    /// Time of its fork, or at which it was found, in monotonic nanoseconds.
    pub(crate) born_ns: u64,
    /// Subject of its parent.
    pub(crate) parent: SubjectId,
    /// Its subject; 0 until it was sent to the sink.
    pub(crate) subject: SubjectId,
    pub(crate) name: String,
    pub(crate) command: String,
    /// Name that the kernel keeps, of at most 15 bytes; empty until it was read.
    pub(crate) short_name: String,
    pub(crate) image: Image,
    pub(crate) memory: ProcessMemory,
    pub(crate) gauges: Gauges,
}

impl Process {
    pub(crate) fn new(pid: i32, born_ns: u64, image: Image) -> Self {
        Self {
            pid,
            start_ticks: 0,
            born_ns,
            parent: SubjectId(0),
            subject: SubjectId(0),
            name: String::new(),
            command: String::new(),
            short_name: String::new(),
            image,
            memory: ProcessMemory::default(),
            gauges: Gauges::default(),
        }
    }

    /// Updates it by what `/proc` has; returns whether its name or command line changed.
    pub(crate) fn learn(&mut self, found: &Found) -> Learned {
        self.start_ticks = found.start_ticks;
        self.short_name.clone_from(&found.name);
        let (name, command) = walk::describe(self.pid, &found.name);
        // An ended process has only its short name left, which must not replace a longer one.
        let is_over = command.is_empty();
        if (is_over && self.name.starts_with(&name)) || (self.name == name && self.command == command) {
            return Learned::Nothing;
        }
        self.name = name;
        if !is_over {
            self.command = command;
        }
        Learned::News
    }

    /// Whether it may still be between fork and exec.
    pub(crate) fn is_newborn(&self, now_ns: u64) -> bool {
        self.image == Image::Inherited && now_ns.saturating_sub(self.born_ns) < NEWBORN_NS
    }
}

/// Whether the table knows a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    No,
    /// It is in the table.
    Same,
    /// The table has an earlier process with this PID, which must have ended.
    Other,
}

/// All running processes of the tree.
#[derive(Default)]
pub(crate) struct Table {
    processes: Vec<Process>,
    /// Time until which each need not be read; a separate list, so that skipping a resting process touches
    /// nothing else.
    rests_until_ns: Vec<u64>,
    places: HashMap<i32, usize>,
    seen: u64,
    most: u64,
}

impl Table {
    pub(crate) fn processes(&self) -> &[Process] {
        &self.processes
    }

    pub(crate) fn processes_mut(&mut self) -> &mut [Process] {
        &mut self.processes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    pub(crate) fn has(&self, pid: i32) -> bool {
        self.places.contains_key(&pid)
    }

    pub(crate) fn place(&self, pid: i32) -> Option<usize> {
        self.places.get(&pid).copied()
    }

    pub(crate) fn get(&self, pid: i32) -> Option<&Process> {
        self.processes.get(self.place(pid)?)
    }

    pub(crate) fn get_mut(&mut self, pid: i32) -> Option<&mut Process> {
        let place = self.place(pid)?;
        self.processes.get_mut(place)
    }

    /// Whether a process with this PID and start is in the table.
    pub(crate) fn knows(&self, pid: i32, start_ticks: u64) -> Known {
        match self.get(pid) {
            None => Known::No,
            Some(process) if process.start_ticks == 0 || process.start_ticks == start_ticks => Known::Same,
            Some(_) => Known::Other,
        }
    }

    /// Adds a process, whose PID must not be in the table.
    pub(crate) fn add(&mut self, process: Process) {
        debug_assert!(!self.has(process.pid), "{} is in the table", process.pid);
        self.places.insert(process.pid, self.processes.len());
        self.processes.push(process);
        self.rests_until_ns.push(0);
        self.seen += 1;
        self.most = self.most.max(self.processes.len() as u64);
    }

    /// Removes a process that has ended.
    pub(crate) fn remove(&mut self, pid: i32) -> Option<Process> {
        let place = self.places.remove(&pid)?;
        let process = self.processes.swap_remove(place);
        self.rests_until_ns.swap_remove(place);
        if let Some(moved) = self.processes.get(place) {
            self.places.insert(moved.pid, place);
        }
        Some(process)
    }

    /// Whether the process at this index need not be read now.
    pub(crate) fn rests(&self, place: usize, now_ns: u64) -> bool {
        self.rests_until_ns.get(place).is_some_and(|until_ns| now_ns < *until_ns)
    }

    /// Skips the process at this index until a time in monotonic nanoseconds.
    pub(crate) fn rest(&mut self, place: usize, until_ns: u64) {
        if let Some(rests) = self.rests_until_ns.get_mut(place) {
            *rests = until_ns;
        }
    }

    /// Makes the next sweep read a process.
    pub(crate) fn wake(&mut self, pid: i32) {
        if let Some(place) = self.place(pid) {
            self.rest(place, 0);
        }
    }

    /// Number of processes that were ever in the table.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// Largest number of processes at one time.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }
}

/// Converts start times to UTC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Starts {
    anchor: Anchor,
    /// Time since boot at monotonic zero: the time the machine slept.
    slept_ns: u64,
    ns_per_tick: u64,
}

impl Starts {
    pub(crate) fn now() -> Self {
        let slept_ns = boot_ns().saturating_sub(monotonic_ns());
        Self { anchor: Anchor::now(), slept_ns, ns_per_tick: 1_000_000_000 / ticks_per_second() }
    }

    /// Converts clock ticks since boot to UTC nanoseconds.
    pub(crate) fn utc_ns(&self, start_ticks: u64) -> i64 {
        let since_boot = start_ticks.saturating_mul(self.ns_per_tick);
        self.anchor.utc_ns(since_boot.wrapping_sub(self.slept_ns))
    }

    /// Start of a process in UTC nanoseconds, as exactly as it is known.
    pub(crate) fn of(&self, process: &Process) -> i64 {
        match process.start_ticks {
            0 => self.anchor.utc_ns(process.born_ns),
            ticks => self.utc_ns(ticks),
        }
    }

    /// Returns how many clock ticks have passed in so many nanoseconds.
    pub(crate) fn whole_ticks(&self, ns: u64) -> u64 {
        ns / self.ns_per_tick
    }

    /// Converts clock ticks to nanoseconds.
    pub(crate) fn ticks_ns(&self, ticks: u64) -> u64 {
        ticks.saturating_mul(self.ns_per_tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, start_ticks: u64) -> Process {
        Process { start_ticks, ..Process::new(pid, 0, Image::Own) }
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let mut table = Table::default();
        table.add(process(7, 100));
        assert_eq!(table.knows(7, 100), Known::Same);
        assert_eq!(table.knows(7, 101), Known::Other);
        assert_eq!(table.knows(8, 100), Known::No);
        table.remove(7);
        assert_eq!(table.knows(7, 101), Known::No);
        table.add(process(7, 101));
        assert_eq!((table.knows(7, 101), table.seen(), table.most()), (Known::Same, 2, 1));
    }

    #[test]
    fn what_is_taken_out_leaves_the_rest_in_place() {
        let mut table = Table::default();
        (1..=5).for_each(|pid| table.add(process(pid, 1)));
        for pid in [1, 5, 3] {
            assert_eq!(table.remove(pid).map(|process| process.pid), Some(pid));
            assert!(table.remove(pid).is_none());
        }
        for pid in [2, 4] {
            assert_eq!(table.get(pid).map(|process| process.pid), Some(pid));
        }
        assert_eq!((table.processes().len(), table.most()), (2, 5));
    }

    #[test]
    fn rest_belongs_to_a_process_and_not_to_its_place() {
        let mut table = Table::default();
        (1..=3).for_each(|pid| table.add(process(pid, 1)));
        table.rest(2, 100);
        table.remove(1);
        let place = table.place(3).expect("it lives");
        assert_eq!((table.rests(place, 99), table.rests(place, 100)), (true, false));
        assert!(!table.rests(table.place(2).expect("it lives"), 0));
        table.wake(3);
        assert!(!table.rests(place, 0));
    }

    #[test]
    fn our_own_start_is_just_past() {
        let me = walk::read_process(std::process::id() as i32).unwrap();
        let start = Starts::now().utc_ns(me.start_ticks);
        let now = Anchor::now().utc_ns;
        assert!(start <= now + 20_000_000 && now - start < 600_000_000_000, "{start} {now}");
    }
}
