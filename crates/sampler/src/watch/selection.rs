//! Selected processes in a watch: which candidates were refused, and when to ask about them again.
//!
//! The answer about a process holds until it calls exec. Where the kernel reports no events, that shows in
//! `/proc/PID/stat`, which is read several times while a process is young: a launcher starts its program soon. The same
//! goes for processes that were selected, whose name is that of the launcher until then.

use std::collections::{HashMap, HashSet};

use super::recorder::Recorder;
use crate::procfs::Life;
use crate::select::{Candidate, Select};
use crate::tree::walk::{self, Found};

/// Time after which a refused process is read again for the first time; it doubles every time.
const FIRST_CHECK_NS: u64 = 10_000_000;
/// Longest such time. Later only scans of all processes find an exec.
const LAST_CHECK_NS: u64 = 1_280_000_000;
/// Number of processes that are read again.
const MOST_YOUNG: usize = 1024;

/// What is different after an exec.
type Program = (u64, String);

fn program(found: &Found) -> Program {
    (found.stack_start, found.name.clone())
}

/// The processes that a watch may take, and those that it refused.
pub(crate) struct Selection<'a> {
    select: Box<dyn Select + 'a>,
    /// Start and program of refused processes, by PID.
    refused: HashMap<i32, (u64, Program)>,
    young: Vec<Young>,
}

/// A process that was refused and is young.
struct Young {
    pid: i32,
    check_ns: u64,
    wait_ns: u64,
}

impl<'a> Selection<'a> {
    pub(crate) fn new(select: Box<dyn Select + 'a>) -> Self {
        Self { select, refused: HashMap::new(), young: Vec::new() }
    }

    /// Returns whether a process is selected.
    fn selects(&mut self, found: &Found, now_ns: u64) -> bool {
        let &Found { pid, parent, start_ticks, .. } = found;
        if found.life == Life::Zombie {
            return false;
        }
        let known = self.refused.get(&pid).filter(|(start, _)| *start == start_ticks);
        let is_new = known.is_none();
        if known.is_some_and(|(_, (stack, name))| *stack == found.stack_start && *name == found.name) {
            return false;
        }
        if self.select.selects(&Candidate { pid, parent, start_ticks, name: &found.name }) {
            self.refused.remove(&pid);
            return true;
        }
        self.refused.insert(pid, (start_ticks, program(found)));
        if is_new {
            self.watch_young(pid, now_ns);
        }
        false
    }

    /// Has a new process read again soon.
    fn watch_young(&mut self, pid: i32, now_ns: u64) {
        if self.young.len() < MOST_YOUNG && !self.young.iter().any(|young| young.pid == pid) {
            self.young.push(Young { pid, check_ns: now_ns + FIRST_CHECK_NS, wait_ns: FIRST_CHECK_NS });
        }
    }

    /// Forgets processes that are gone.
    pub(super) fn retain(&mut self, found: &[Found]) {
        if self.refused.len() > 2 * found.len() + 64 {
            let pids: HashSet<i32> = found.iter().map(|found| found.pid).collect();
            self.refused.retain(|pid, _| pids.contains(pid));
        }
    }

    /// Returns young processes that are to be read now.
    fn due(&mut self, now_ns: u64) -> Vec<i32> {
        let mut due = Vec::new();
        self.young.retain_mut(|young| {
            if young.check_ns <= now_ns {
                due.push(young.pid);
                young.wait_ns *= 2;
                young.check_ns = now_ns + young.wait_ns;
            }
            young.wait_ns <= LAST_CHECK_NS
        });
        due
    }
}

impl Recorder<'_> {
    /// Whether a process whose parent is not watched is selected.
    pub(super) fn selects(&mut self, found: &Found, now_ns: u64) -> bool {
        let is_selected = self.selection.as_mut().is_some_and(|selection| selection.selects(found, now_ns));
        if is_selected {
            self.add_cgroup_of(found.pid, now_ns);
        }
        is_selected
    }

    /// Has a process of the tree that is new read again soon, where no events report its exec.
    pub(super) fn added(&mut self, pid: i32, now_ns: u64) {
        if let Some(selection) = self.selection.as_mut().filter(|_| self.events.is_none()) {
            selection.watch_young(pid, now_ns);
        }
    }

    /// Asks about a process that called exec.
    pub(super) fn reconsider(&mut self, pid: i32, now_ns: u64) {
        let Some(selection) = &mut self.selection else { return };
        selection.refused.remove(&pid);
        if let Some(found) = walk::read_process(pid) {
            self.consider(&found, now_ns);
        }
    }

    /// Asks again about young processes that have called exec.
    pub(super) fn reconsider_young(&mut self, now_ns: u64) {
        let Some(selection) = &mut self.selection else { return };
        for pid in selection.due(now_ns) {
            if let Some(found) = walk::read_process(pid) {
                self.consider(&found, now_ns);
            }
        }
    }
}
