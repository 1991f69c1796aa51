//! Ends of processes: exit statuses, and what the kernel accounts at exit.

use floodmark_event::{Metric, SubjectEnd, SubjectId};
use floodmark_tail::clock::monotonic_ns;

use super::PeakMode;
use super::inexact::Ended;
use super::recorder::{Origin, Recorder};
use crate::metrics::total;
use crate::outcome::{PeakSource, ProcessPeak};
use crate::output::with_sink;
use crate::procfs::Life;
use crate::sys::wait::{self, Children, Reap, Reaped};
use crate::tree::exit_stats::ThreadExit;
use crate::tree::walk;
use crate::tree::{Image, Process};
use crate::unwatched::is_unwatched;

/// Reaps a child if it has ended, and finds out whether it waited for children of its own.
fn try_reap(pid: i32) -> Reap {
    wait::reap(pid, || walk::read_process(pid).map(|found| found.child_faults))
}

impl Recorder<'_> {
    /// Whether a child of this process does not belong to the command.
    pub(super) fn is_foreign(&self, pid: i32) -> bool {
        self.foreign_children.contains(&pid) || is_unwatched(pid)
    }

    /// Reaps children that have ended.
    pub(crate) fn reap(&mut self) {
        loop {
            match wait::children() {
                Children::None | Children::Running => return,
                Children::Over(pid) if self.is_foreign(pid) => break,
                Children::Over(pid) => self.reap_one(pid),
            }
        }
        // A child that does not belong to the command is first in line and must not be reaped here: try the
        // others one by one.
        for pid in walk::children_of(self.own_pid) {
            if !self.is_foreign(pid) {
                self.reap_one(pid);
            }
        }
    }

    fn reap_one(&mut self, pid: i32) {
        let Reap::Over(reaped) = try_reap(pid) else { return };
        self.reaped(pid, monotonic_ns(), reaped);
    }

    fn reaped(&mut self, pid: i32, at_ns: u64, reaped: Reaped) {
        if self.table.has(pid) {
            self.end(pid, at_ns, Some(reaped.status), Some(reaped));
        } else if !self.unreaped.remove(&pid) {
            self.missed += 1;
            self.job.process_reached(reaped.peak_rss_bytes);
        }
    }

    /// Handles the event that the first thread of a process ended.
    pub(super) fn first_thread_ended(&mut self, pid: i32, at_ns: u64, status: i32) {
        match try_reap(pid) {
            Reap::Over(reaped) => self.reaped(pid, at_ns, reaped),
            Reap::Running => self.go_on_without_first_thread(pid),
            Reap::NotOurs => match walk::read_process(pid) {
                Some(found) if found.threads > 1 => self.go_on_without_first_thread(pid),
                _ => self.end(pid, at_ns, Some(status), None),
            },
        }
    }

    fn go_on_without_first_thread(&mut self, pid: i32) {
        let Some(thread) = walk::threads_of(pid).find(|thread| *thread != pid) else { return };
        if let Some(process) = self.table.get_mut(pid) {
            process.memory.read_through(thread, &mut self.descriptors);
        }
        self.table.wake(pid);
    }

    /// Handles a process in which a sweep found no memory: it has ended, is ending, or lost its first thread.
    pub(crate) fn check_gone(&mut self, pid: i32, now_ns: u64) {
        let Some(process) = self.table.get(pid) else { return };
        let start = process.start_ticks;
        let found = walk::read_process(pid).filter(|found| start == 0 || found.start_ticks == start);
        match found {
            Some(found) if found.life == Life::Alive => {}
            Some(found) if found.threads > 1 => self.go_on_without_first_thread(pid),
            _ => match try_reap(pid) {
                Reap::Over(reaped) => self.reaped(pid, now_ns, reaped),
                Reap::Running => {}
                // The exit status comes with an event, unless the event was lost.
                Reap::NotOurs => {
                    self.drain_events();
                    if self.table.has(pid) {
                        self.end(pid, now_ns, None, None);
                    }
                }
            },
        }
    }

    /// Applies the exit statistics of threads to their processes. They arrive after the event of the fork,
    /// which may be unread, and before that of the exit.
    pub(crate) fn apply_exit_stats(&mut self) {
        if self.exit_stats.is_ok() {
            self.read_exit_stats();
            self.drain_events();
            for index in 0..self.thread_exits.len() {
                self.apply_exit(self.thread_exits[index]);
            }
            self.thread_exits.clear();
        }
    }

    fn read_exit_stats(&mut self) {
        let exits = self.exit_stats.iter().flat_map(|stats| std::iter::from_fn(|| stats.next()));
        self.thread_exits.extend(exits);
    }

    fn apply_exit(&mut self, exit: ThreadExit) {
        let Some(process) = self.table.get_mut(exit.pid) else { return };
        if exit.peak_rss_bytes > 0 {
            process.memory.exit_peak = process.memory.exit_peak.max(Some(exit.peak_rss_bytes));
        }
        // A process that ended before it was read still has the name of its parent.
        if exit.thread == exit.pid && process.start_ticks == 0 {
            process.name = exit.name().into_owned();
        }
    }

    /// Handles the end of a process: sends its last samples and its exit status.
    pub(super) fn end(&mut self, pid: i32, at_ns: u64, status: Option<i32>, reaped: Option<Reaped>) {
        self.read_exit_stats();
        for index in 0..self.thread_exits.len() {
            if self.thread_exits[index].pid == pid {
                self.apply_exit(self.thread_exits[index]);
            }
        }
        if self.table.get(pid).is_some_and(|process| process.subject == SubjectId(0)) {
            self.report_process(pid);
        }
        let Some(mut process) = self.table.remove(pid) else { return };
        self.held.is_stale = true;
        if process.image == Image::Inherited {
            self.forget_halved_totals(process.parent, process.born_ns);
        }
        if pid == self.root {
            (self.root_status, self.is_root_over) = (status, true);
        }
        match reaped {
            None => {
                self.unreaped.insert(pid);
            }
            Some(reaped) => {
                // Any process but the root inherited memory of the tree only.
                if pid != self.root || reaped.peak_rss_bytes > self.own_mark {
                    self.job.process_reached(reaped.peak_rss_bytes);
                    self.job.reached(reaped.peak_rss_bytes, at_ns);
                }
                if reaped.child_faults == Some(0) {
                    process.gauges.set(Metric::CpuTime, reaped.cpu_ns);
                }
                if pid == self.root && reaped.peak_rss_bytes > self.own_mark {
                    self.end_others(at_ns);
                    self.settle_inexact(reaped.peak_rss_bytes);
                }
            }
        }
        let inherited_bytes = match process.image {
            _ if pid == self.root => self.own_mark,
            // What it had from its parent is its own until it calls exec.
            Image::Inherited => 0,
            Image::Own => u64::MAX,
        };
        // Marks that are reset say nothing about the whole life of a process.
        let error_bytes = match self.props.peaks {
            PeakMode::Kept => total::counter_error_bytes(),
            PeakMode::Exact => 0,
        };
        let memory = &mut process.memory;
        let peak = memory.peak(reaped.as_ref(), inherited_bytes, error_bytes);
        if peak.1 == PeakSource::Exit {
            let peak = memory.exit_peak.or(reaped.map(|reaped| reaped.peak_rss_bytes));
            process.gauges.set_if_known(Metric::Hwm, peak);
        }
        self.unread += u64::from(peak.0 == 0);
        // Earlier marks were counted when they were read.
        if peak.0 > memory.mark.max(memory.seen_peak) {
            self.job.process_ended(peak, memory.rss, at_ns);
            // A process that no sweep found is counted as missed.
            if peak.1 == PeakSource::Exit && memory.was_read {
                let last = memory.last_counted.unwrap_or((memory.rss, self.job.sweep_number()));
                self.job.grew_unseen(peak.0.saturating_sub(last.0), last.1);
            }
        }
        memory.close(&mut self.descriptors);
        self.totals.motion_mut().gave_back(&process, process.is_newborn(at_ns));
        let peak_rss_bytes = (peak.1 == PeakSource::Exit).then_some(peak.0);
        if peak_rss_bytes.is_none() && peak.0 > 0 {
            self.inexact.add(Ended { pid, subject: process.subject, at_ns, status, bytes: peak.0 });
        }
        let batch = process.gauges.take(at_ns);
        with_sink(self.sink, |sink| {
            if let Some(batch) = batch {
                sink.samples(at_ns, process.subject, batch.as_slice());
            }
            sink.ended(at_ns, process.subject, SubjectEnd { wait_status: status, peak_rss_bytes });
        });
        self.keep_largest(&process, peak);
    }

    /// Handles the ends of processes that ended before the root. Without events they would be noticed by the next sweep, too
    /// late to be compared with the highest peak of the tree.
    fn end_others(&mut self, at_ns: u64) {
        if self.exit_stats.is_err() {
            let pids: Vec<i32> = self.table.processes().iter().map(|process| process.pid).collect();
            for pid in pids {
                self.check_gone(pid, at_ns);
            }
        }
    }

    /// Makes peaks exact that equal the highest of the whole tree, which the kernel reported with the root.
    fn settle_inexact(&mut self, most_bytes: u64) {
        if self.props.peaks == PeakMode::Exact {
            return;
        }
        for Ended { pid, subject, at_ns, status, bytes } in self.inexact.settle(most_bytes) {
            let bytes = bytes.max(most_bytes);
            let end = SubjectEnd { wait_status: status, peak_rss_bytes: Some(bytes) };
            with_sink(self.sink, |sink| sink.ended(at_ns, subject, end));
            for peak in self.job.largest.iter_mut().filter(|peak| peak.pid == pid) {
                (peak.rss_bytes, peak.known) = (bytes, PeakSource::Exit);
            }
        }
    }

    fn keep_largest(&mut self, process: &Process, (rss_bytes, known): (u64, PeakSource)) {
        if rss_bytes > 0 {
            let name = process.name.clone();
            self.job.keep_largest(ProcessPeak { pid: process.pid, name, rss_bytes, known });
        }
    }

    /// Adds processes that are still running to the largest ones of the outcome.
    pub(crate) fn keep_largest_of_the_living(&mut self) {
        let peaks: Vec<ProcessPeak> = self
            .table
            .processes()
            .iter()
            .map(|process| {
                let (rss_bytes, known) = process.memory.peak(None, 0, 0);
                ProcessPeak { pid: process.pid, name: process.name.clone(), rss_bytes, known }
            })
            .collect();
        peaks.into_iter().filter(|peak| peak.rss_bytes > 0).for_each(|peak| self.job.keep_largest(peak));
    }

    /// Whether no process of the tree is left. Orphans become children of this process, so while there are
    /// children the tree has processes, known or not.
    pub(crate) fn is_tree_over(&mut self, now_ns: u64) -> bool {
        if self.origin == Origin::Selected {
            // More may come: the end is an order.
            return false;
        }
        if !self.table.is_empty() || self.origin == Origin::Attached {
            return self.table.is_empty();
        }
        self.drain_events();
        self.reap();
        let others: Vec<i32> = match wait::children() {
            Children::None => Vec::new(),
            _ => walk::children_of(self.own_pid),
        };
        let others = others.into_iter().filter(|pid| !self.is_foreign(*pid)).collect::<Vec<i32>>();
        for found in others.iter().filter_map(|pid| walk::read_process(*pid)) {
            self.consider(&found, now_ns);
        }
        others.is_empty()
    }
}
