//! Selected processes in a watch: which candidates were refused, and which have to be asked about again.

use std::collections::HashMap;

use super::recorder::Recorder;
use crate::procfs::Life;
use crate::select::{Candidate, Select};
use crate::tree::walk::{self, Found};

/// Time after which a process that was refused is not asked about again, unless the kernel reports that it called
/// exec: by then a launcher has started its program.
const YOUNG_NS: u64 = 2_000_000_000;
/// Number of processes that are asked about again at every sweep.
const MOST_YOUNG: usize = 256;

/// The processes that a watch may take, and those that it refused.
pub(crate) struct Selection<'a> {
    pub(super) select: Box<dyn Select + 'a>,
    /// Start and time of the first refusal of processes, by PID.
    refused: HashMap<i32, (u64, u64)>,
    /// Processes that were refused and are young.
    young: Vec<i32>,
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
        let known = self.refused.get(&pid).filter(|(start, _)| *start == start_ticks).copied();
        if known.is_some_and(|(_, since_ns)| now_ns.saturating_sub(since_ns) > YOUNG_NS) {
            return false;
        }
        if self.select.selects(&Candidate { pid, parent, start_ticks, name: &found.name }) {
            self.refused.remove(&pid);
            return true;
        }
        if known.is_none() {
            self.refused.insert(pid, (start_ticks, now_ns));
            if self.young.len() < MOST_YOUNG {
                self.young.push(pid);
            }
        }
        false
    }

    /// Forgets processes that are gone.
    pub(super) fn retain(&mut self, found: &[Found]) {
        if self.refused.len() > 2 * found.len() + 64 {
            let pids: std::collections::HashSet<i32> = found.iter().map(|found| found.pid).collect();
            self.refused.retain(|pid, _| pids.contains(pid));
        }
    }
}

impl Recorder<'_> {
    /// Whether a process whose parent is not watched is selected.
    pub(super) fn selects(&mut self, found: &Found, now_ns: u64) -> bool {
        self.selection.as_mut().is_some_and(|selection| selection.selects(found, now_ns))
    }

    /// Asks about a process that called exec.
    pub(super) fn reconsider(&mut self, pid: i32, now_ns: u64) {
        let Some(selection) = &mut self.selection else { return };
        selection.refused.remove(&pid);
        if let Some(found) = walk::read_process(pid) {
            self.consider(&found, now_ns);
        }
    }

    /// Asks again about young processes that were refused: without events of the kernel, their exec goes unnoticed.
    pub(super) fn reconsider_young(&mut self, now_ns: u64) {
        let Some(selection) = &mut self.selection else { return };
        let mut young = std::mem::take(&mut selection.young);
        young.retain(|pid| {
            let since_ns = self.selection.as_ref().and_then(|selection| selection.refused.get(pid));
            let is_young = since_ns.is_some_and(|(_, since_ns)| now_ns.saturating_sub(*since_ns) <= YOUNG_NS);
            let found = if is_young { walk::read_process(*pid) } else { None };
            if let Some(found) = &found {
                self.consider(found, now_ns);
            }
            found.is_some() && !self.table.has(*pid)
        });
        if let Some(selection) = &mut self.selection {
            selection.young.extend(young);
        }
    }
}
