//! Discovery of new processes: by events of the kernel, or by scanning `/proc`.

use std::collections::HashSet;

use floodmark_event::{Metric, SubjectId};
use floodmark_tail::clock::monotonic_ns;

use super::recorder::{Activity, Origin, Recorder};
use crate::procfs::Life;
use crate::tree::events::{Event, EventKind, Next};
use crate::tree::walk::{self, Found, News};
use crate::tree::{Image, Known, Learned, Process};

/// Time between two scans of all processes: with events only as a safeguard, without them to find what the
/// checks of new PIDs missed.
const WALK_WITH_EVENTS_NS: u64 = 10_000_000_000;
const WALK_WITHOUT_NS: u64 = 1_000_000_000;
/// Number of new PIDs above which all processes are scanned instead of the new ones.
const MOST_NEW: usize = 512;

impl Recorder<'_> {
    /// Handles the events that have arrived; returns whether any was about the tree.
    pub(crate) fn drain_events(&mut self) -> Activity {
        let mut activity = Activity::None;
        while let Some(events) = &self.events {
            match events.next() {
                Next::Nothing => break,
                Next::Event(event) => activity = activity.max(self.handle_event(event)),
                Next::Lost => {
                    self.overruns += 1;
                    self.walk(monotonic_ns());
                }
            }
        }
        activity
    }

    fn handle_event(&mut self, event: Event) -> Activity {
        let at_ns = event.at_ns;
        match event.what {
            EventKind::Fork { parent, child } => {
                if parent == self.own_pid {
                    if child != self.root {
                        self.foreign_children.insert(child);
                    } else if let Some(root) = self.table.get_mut(child) {
                        root.born_ns = at_ns;
                    }
                    return Activity::None;
                }
                if !self.table.has(parent) {
                    return Activity::None;
                }
                match self.table.get(child) {
                    // A scan found it first.
                    Some(known) if known.born_ns >= at_ns => return Activity::None,
                    Some(_) => self.end(child, at_ns, None, None),
                    None => {}
                }
                self.born(child, parent, at_ns, Image::Inherited);
            }
            EventKind::Exec { pid } => {
                if !self.table.has(pid) {
                    self.reconsider(pid, at_ns);
                    return if self.table.has(pid) { Activity::Tree } else { Activity::None };
                }
                self.replaced(pid, at_ns);
            }
            EventKind::Exit { pid, status } => match self.table.get(pid) {
                Some(process) if process.born_ns <= at_ns => self.first_thread_ended(pid, at_ns, status),
                _ => return Activity::None,
            },
        }
        Activity::Tree
    }

    fn born(&mut self, pid: i32, parent: i32, born_ns: u64, image: Image) {
        self.unreaped.remove(&pid);
        self.foreign_children.remove(&pid);
        // A parent is sent to the sink before its children.
        if self.table.get(parent).is_some_and(|parent| parent.subject == SubjectId(0)) {
            self.report_process(parent);
        }
        let mut process = Process::new(pid, born_ns, image);
        if let Some(parent) = self.table.get_mut(parent) {
            process.parent = parent.subject;
            if image == Image::Inherited {
                if !std::mem::replace(&mut parent.memory.has_copies, true) {
                    // Its faults before it shared memory do not count.
                    let _ =
                        parent.memory.new_faults(walk::read_process(parent.pid).map(|found| found.faults));
                }
                process.name.clone_from(&parent.name);
                process.command.clone_from(&parent.command);
            }
        }
        self.table.add(process);
        self.held.is_stale = true;
    }

    /// Handles an exec.
    fn replaced(&mut self, pid: i32, at_ns: u64) {
        let found = walk::read_process(pid);
        self.table.wake(pid);
        let Some(process) = self.table.get_mut(pid) else { return };
        self.totals.motion_mut().gave_back(process, process.is_newborn(at_ns));
        let (was_copy, parent, born_ns) =
            (process.image == Image::Inherited, process.parent, process.born_ns);
        process.memory.new_program(process.is_newborn(at_ns));
        process.image = Image::Own;
        if was_copy {
            self.forget_halved_totals(parent, born_ns);
        }
        let Some(process) = self.table.get_mut(pid) else { return };
        self.held.is_stale = true;
        let Some(found) = found else { return };
        let news = process.learn(&found);
        if news == Learned::News || process.subject == SubjectId(0) {
            self.report_process(pid);
        }
        self.read_once(pid, at_ns);
    }

    /// Forgets a reading of a parent that was made while a forked child shared all its memory: the kernel
    /// counted half of it for the child, which has given it back.
    pub(super) fn forget_halved_totals(&mut self, parent: SubjectId, born_ns: u64) {
        let is_parent = |process: &&mut Process| process.subject == parent;
        if let Some(parent) = self.table.processes_mut().iter_mut().find(is_parent)
            && parent.memory.total.is_some_and(|read| read.at_ns >= born_ns)
        {
            parent.memory.total = None;
            self.held.is_stale = true;
        }
    }

    /// Reads a process that may end before the next sweep.
    fn read_once(&mut self, pid: i32, now_ns: u64) {
        let Some(process) = self.table.get_mut(pid) else { return };
        let memory = &mut process.memory;
        if memory.sweep(pid, self.page_bytes, &mut self.descriptors).is_some() {
            process.gauges.set(Metric::Rss, memory.rss);
            if let Some(status) = memory.read_status(pid, now_ns, &mut self.descriptors) {
                process.gauges.set_if_known(Metric::Hwm, status.hwm);
            }
            self.totals.motion_mut().changed((0, memory.rss), (0, memory.shared));
        }
    }

    /// Searches for selected processes that are new where no events report them; returns whether there are any.
    pub(super) fn find_selected(&mut self, now_ns: u64) -> bool {
        let before = self.table.seen();
        if self.events.is_none() {
            self.discover(now_ns);
        }
        self.table.seen() > before
    }

    /// Searches for processes without an event.
    pub(crate) fn discover(&mut self, now_ns: u64) {
        let has_events = self.events.is_some();
        let every_ns = if has_events { WALK_WITH_EVENTS_NS } else { WALK_WITHOUT_NS };
        if now_ns.saturating_sub(self.walked_ns) >= every_ns {
            self.walk(now_ns);
        } else if !has_events {
            self.reconsider_young(now_ns);
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
                        match walk::read_process(pid) {
                            Some(found) => self.consider(&found, now_ns),
                            None => self.vanished += 1,
                        }
                    }
                }
            }
        }
    }

    /// Scans all processes.
    pub(crate) fn walk(&mut self, now_ns: u64) -> Vec<Found> {
        self.walked_ns = now_ns;
        let mut found = walk::all();
        // Parents mostly come before their children; the loop finds the others.
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
        if let Some(selection) = &mut self.selection {
            selection.retain(&found);
        }
        found
    }

    /// Forgets ended processes that their parents have reaped.
    fn forget_reaped(&mut self, found: &[Found]) {
        if !self.unreaped.is_empty() {
            let zombies = found.iter().filter(|found| found.life == Life::Zombie).map(|found| found.pid);
            let zombies: HashSet<i32> = zombies.collect();
            self.unreaped.retain(|pid| zombies.contains(pid));
        }
    }

    /// Adds a process if it belongs to the tree.
    pub(super) fn consider(&mut self, found: &Found, now_ns: u64) {
        let &Found { pid, parent, start_ticks, .. } = found;
        let is_orphan = self.origin == Origin::Launched && parent == self.own_pid && !self.is_foreign(pid);
        if !is_orphan && !self.table.has(parent) && !self.table.has(pid) && !self.selects(found, now_ns) {
            return;
        }
        match self.table.knows(pid, start_ticks) {
            Known::Same => return self.check_selected_program(found, now_ns),
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
        // In the middle of an exec a process has neither arguments nor an environment; it is looked at again.
        let is_in_exec = command.is_empty() && !is_over;
        let is_same = |parent: &Process| parent.name == name && parent.command == command;
        let is_copy = is_in_exec || self.table.get(parent).is_some_and(is_same);
        let image = if is_copy { Image::Inherited } else { Image::Own };
        self.born(pid, parent, now_ns, image);
        self.added(pid, now_ns);
        if let Some(process) = self.table.get_mut(pid) {
            (process.start_ticks, process.name, process.command) = (start_ticks, name, command);
            process.short_name.clone_from(&found.name);
        }
        if is_over {
            self.check_gone(pid, now_ns);
        } else if image == Image::Own {
            self.report_process(pid);
        }
    }

    /// Handles the exec of a selected process, which no event reported: a launcher becomes the program that it starts.
    fn check_selected_program(&mut self, found: &Found, now_ns: u64) {
        let is_renamed = |process: &Process| {
            !process.short_name.is_empty() && process.short_name != found.name && found.life == Life::Alive
        };
        if self.selection.is_some()
            && self.events.is_none()
            && self.table.get(found.pid).is_some_and(is_renamed)
        {
            self.check_program(found.pid, now_ns);
        }
    }

    /// Handles the exec of a process that was found by scanning, if there was one.
    pub(crate) fn check_program(&mut self, pid: i32, now_ns: u64) {
        let Some(found) = walk::read_process(pid) else { return };
        let (name, command) = walk::describe(pid, &found.name);
        let is_new = self.table.get(pid).is_some_and(|p| p.name != name || p.command != command);
        let is_in_exec = command.is_empty();
        if is_new && !is_in_exec && found.life == Life::Alive {
            self.replaced(pid, now_ns);
        }
    }
}
