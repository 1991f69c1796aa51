//! Processes that come: told of by the kernel, or found by looking.

use std::collections::HashSet;

use floodmark_event::{Metric, SubjectId};
use floodmark_tail::clock::monotonic_ns;

use super::recorder::{Origin, Recorder, Stir};
use crate::procfs::Life;
use crate::tree::events::{Event, Happening, Next};
use crate::tree::walk::{self, Found, News};
use crate::tree::{Image, Known, Learned, Process};

/// Time between two looks at everything: with events only to be sure, without to find what looks at
/// new numbers did not.
const WALK_WITH_EVENTS_NS: u64 = 10_000_000_000;
const WALK_WITHOUT_NS: u64 = 1_000_000_000;
/// More new numbers than this are not looked at one by one.
const MOST_NEW: usize = 512;

impl Recorder<'_> {
    /// Takes in what the kernel told since the last time; says whether any of it was about the tree.
    pub(crate) fn drain_events(&mut self) -> Stir {
        let mut stir = Stir::None;
        while let Some(events) = &self.events {
            match events.next() {
                Next::Nothing => break,
                Next::Event(event) => stir = stir.max(self.happened(event)),
                Next::Lost => {
                    self.overruns += 1;
                    self.walk(monotonic_ns());
                }
            }
        }
        stir
    }

    fn happened(&mut self, event: Event) -> Stir {
        let at_ns = event.at_ns;
        match event.what {
            Happening::Fork { parent, child } => {
                if parent == self.own_pid {
                    if child != self.root {
                        self.strangers.insert(child);
                    } else if let Some(root) = self.table.get_mut(child) {
                        root.born_ns = at_ns;
                    }
                    return Stir::None;
                }
                if !self.table.has(parent) {
                    return Stir::None;
                }
                match self.table.get(child) {
                    // A walk was faster.
                    Some(known) if known.born_ns >= at_ns => return Stir::None,
                    Some(_) => self.end(child, at_ns, None, None),
                    None => {}
                }
                self.born(child, parent, at_ns, Image::Inherited);
            }
            Happening::Exec { pid } => {
                if !self.table.has(pid) {
                    return Stir::None;
                }
                self.replaced(pid, at_ns);
            }
            Happening::Exit { pid, status } => match self.table.get(pid) {
                Some(process) if process.born_ns <= at_ns => self.first_thread_ended(pid, at_ns, status),
                _ => return Stir::None,
            },
        }
        Stir::Tree
    }

    fn born(&mut self, pid: i32, parent: i32, born_ns: u64, image: Image) {
        self.unreaped.remove(&pid);
        self.strangers.remove(&pid);
        // A parent is told of before its children.
        if self.table.get(parent).is_some_and(|parent| parent.subject == SubjectId(0)) {
            self.tell_of(parent);
        }
        let mut process = Process::new(pid, born_ns, image);
        if let Some(parent) = self.table.get_mut(parent) {
            parent.children += 1;
            process.parent = parent.subject;
            process.inherited_bytes = parent.memory.seen_peak.max(parent.memory.mark);
            if image == Image::Inherited {
                process.name.clone_from(&parent.name);
                process.command.clone_from(&parent.command);
            }
        }
        self.table.add(process);
        self.held.is_stale = true;
    }

    /// A process replaced its program.
    fn replaced(&mut self, pid: i32, at_ns: u64) {
        let found = walk::look_at(pid);
        self.table.wake(pid);
        let Some(process) = self.table.get_mut(pid) else { return };
        self.totals.moved(process.memory.shared);
        process.memory.new_program(process.is_newborn(at_ns));
        process.image = Image::Own;
        self.held.is_stale = true;
        let Some(found) = found else { return };
        let news = process.learn(&found);
        if news == Learned::News || process.subject == SubjectId(0) {
            self.tell_of(pid);
        }
        self.read_once(pid, at_ns);
    }

    /// Reads a process that may not live until the next sweep.
    fn read_once(&mut self, pid: i32, now_ns: u64) {
        let Some(process) = self.table.get_mut(pid) else { return };
        let memory = &mut process.memory;
        if memory.sweep(pid, self.page_bytes, &mut self.keep).is_some() {
            process.told.set(Metric::Rss, memory.rss);
            if let Some(status) = memory.read_status(pid, now_ns, &mut self.keep) {
                process.told.set_if_known(Metric::Hwm, status.hwm);
            }
            self.totals.moved(memory.shared);
        }
    }

    /// Looks for processes that nobody told us of.
    pub(crate) fn look(&mut self, now_ns: u64) {
        let has_events = self.events.is_some();
        let every_ns = if has_events { WALK_WITH_EVENTS_NS } else { WALK_WITHOUT_NS };
        if now_ns.saturating_sub(self.walked_ns) >= every_ns {
            self.walk(now_ns);
        } else if !has_events {
            match self.walker.news() {
                News::None => {}
                News::Unknown => drop(self.walk(now_ns)),
                News::Given(ranges) => {
                    let count: usize = ranges.iter().map(|range| range.clone().count()).sum();
                    if count > MOST_NEW {
                        let is_new = |found: &&Found| ranges.iter().any(|range| range.contains(&found.pid));
                        let found = self.walk(now_ns).iter().filter(is_new).count();
                        self.vanished += (count - found) as u64;
                        return;
                    }
                    for pid in ranges.into_iter().flatten() {
                        match walk::look_at(pid) {
                            Some(found) => self.consider(&found, now_ns),
                            None => self.vanished += 1,
                        }
                    }
                }
            }
        }
    }

    /// Looks at everything that runs.
    pub(crate) fn walk(&mut self, now_ns: u64) -> Vec<Found> {
        self.walked_ns = now_ns;
        let mut found = walk::all();
        // Parents before children, mostly; what is left over comes with the next round.
        found.sort_by_key(|found| found.start_ticks);
        loop {
            let before = self.table.seen();
            for found in &found {
                self.consider(found, now_ns);
            }
            if self.table.seen() == before {
                break;
            }
        }
        self.forget_reaped(&found);
        found
    }

    /// Forgets processes that their parents have reaped by now.
    fn forget_reaped(&mut self, found: &[Found]) {
        if !self.unreaped.is_empty() {
            let zombies = found.iter().filter(|found| found.life == Life::Zombie).map(|found| found.pid);
            let zombies: HashSet<i32> = zombies.collect();
            self.unreaped.retain(|pid| zombies.contains(pid));
        }
    }

    /// Adds a process that was found, if it belongs to the tree.
    pub(super) fn consider(&mut self, found: &Found, now_ns: u64) {
        let &Found { pid, parent, start_ticks, .. } = found;
        let is_orphan =
            self.origin == Origin::Launched && parent == self.own_pid && !self.strangers.contains(&pid);
        if !is_orphan && !self.table.has(parent) {
            return;
        }
        match self.table.knows(pid, start_ticks) {
            Known::Same => return,
            Known::Other => self.end(pid, now_ns, None, None),
            Known::No => {}
        }
        let is_over = found.life == Life::Zombie && found.threads <= 1;
        if is_over && self.unreaped.contains(&pid) {
            return;
        }
        match walk::is_process(pid) {
            Some(true) => {}
            Some(false) => return,
            None => {
                self.vanished += 1;
                return;
            }
        }
        let (name, command) = walk::describe(pid, &found.name);
        let is_copy = self.table.get(parent).is_some_and(|p| p.name == name && p.command == command);
        let image = if is_copy { Image::Inherited } else { Image::Own };
        self.born(pid, parent, now_ns, image);
        if let Some(process) = self.table.get_mut(pid) {
            (process.start_ticks, process.name, process.command) = (start_ticks, name, command);
        }
        if is_over {
            self.check_gone(pid, now_ns);
        } else if image == Image::Own {
            self.tell_of(pid);
        }
    }

    /// Whether a process that was found by looking has a program of its own by now.
    pub(crate) fn check_program(&mut self, pid: i32, now_ns: u64) {
        let Some(found) = walk::look_at(pid) else { return };
        let (name, command) = walk::describe(pid, &found.name);
        let is_new = self.table.get(pid).is_some_and(|p| p.name != name || p.command != command);
        if is_new && found.life == Life::Alive {
            self.replaced(pid, now_ns);
        }
    }
}
