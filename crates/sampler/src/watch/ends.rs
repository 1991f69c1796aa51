//! Processes that go: how they ended, and what the kernel had to say of them.

use floodmark_event::{Metric, SubjectEnd, SubjectId};
use floodmark_tail::clock::monotonic_ns;

use super::recorder::{Origin, Recorder};
use crate::outcome::{PeakSource, ProcessPeak};
use crate::output::tell;
use crate::procfs::Life;
use crate::sys::wait::{self, Children, Reap, Reaped};
use crate::tree::Process;
use crate::tree::lastwords::LastWord;
use crate::tree::walk;

impl Recorder<'_> {
    /// Reaps children that are over.
    pub(crate) fn reap(&mut self) {
        loop {
            match wait::children() {
                Children::None | Children::Running => return,
                Children::Over(pid) if self.strangers.contains(&pid) => break,
                Children::Over(pid) => self.reap_one(pid),
            }
        }
        // A child of somebody else's is in the way, and must stay: ask for the others one by one.
        for pid in walk::children_of(self.own_pid) {
            if !self.strangers.contains(&pid) {
                self.reap_one(pid);
            }
        }
    }

    fn reap_one(&mut self, pid: i32) {
        let Reap::Over(reaped) = wait::reap(pid) else { return };
        self.is_over(pid, monotonic_ns(), reaped);
    }

    fn is_over(&mut self, pid: i32, at_ns: u64, reaped: Reaped) {
        if self.table.has(pid) {
            self.end(pid, at_ns, Some(reaped.status), Some(reaped));
        } else if !self.unreaped.remove(&pid) {
            self.missed += 1;
            self.job.process_reached(reaped.peak_rss_bytes);
        }
    }

    /// The kernel told of the end of a process's first thread.
    pub(super) fn first_thread_ended(&mut self, pid: i32, at_ns: u64, status: i32) {
        match wait::reap(pid) {
            Reap::Over(reaped) => self.is_over(pid, at_ns, reaped),
            Reap::Running => self.go_on_without_first_thread(pid),
            Reap::NotOurs => match walk::look_at(pid) {
                Some(found) if found.threads > 1 => self.go_on_without_first_thread(pid),
                _ => self.end(pid, at_ns, Some(status), None),
            },
        }
    }

    fn go_on_without_first_thread(&mut self, pid: i32) {
        let Some(thread) = walk::threads_of(pid).find(|thread| *thread != pid) else { return };
        if let Some(process) = self.table.get_mut(pid) {
            process.memory.read_through(thread, &mut self.keep);
        }
        self.table.wake(pid);
    }

    /// A sweep found no memory in a process: it is over, or ending, or lost its first thread.
    pub(crate) fn check_gone(&mut self, pid: i32, now_ns: u64) {
        let Some(process) = self.table.get(pid) else { return };
        let start = process.start_ticks;
        let found = walk::look_at(pid).filter(|found| start == 0 || found.start_ticks == start);
        match found {
            Some(found) if found.life == Life::Alive => {}
            Some(found) if found.threads > 1 => self.go_on_without_first_thread(pid),
            _ => match wait::reap(pid) {
                Reap::Over(reaped) => self.is_over(pid, now_ns, reaped),
                Reap::Running => {}
                // The kernel will tell how it ended, unless it did and we were not listening.
                Reap::NotOurs => {
                    self.drain_events();
                    if self.table.has(pid) {
                        self.end(pid, now_ns, None, None);
                    }
                }
            },
        }
    }

    /// Hears what the kernel said of threads that ended, and fits it to processes. A word comes after
    /// the news of the birth, which may be unread, and before that of the end.
    pub(crate) fn hear_last_words(&mut self) {
        if self.last_words.is_some() {
            self.listen();
            self.drain_events();
            for index in 0..self.words.len() {
                self.heed(self.words[index]);
            }
            self.words.clear();
        }
    }

    fn listen(&mut self) {
        self.words.extend(self.last_words.iter().flat_map(|words| std::iter::from_fn(|| words.next())));
    }

    fn heed(&mut self, word: LastWord) {
        let Some(process) = self.table.get_mut(word.pid) else { return };
        if word.mark > 0 {
            process.memory.last_word = process.memory.last_word.max(Some(word.mark));
        }
        // A process that was gone before we could look is known by its parent's name so far.
        if word.thread == word.pid && process.start_ticks == 0 {
            process.name = word.name().into_owned();
        }
    }

    /// A process is over: the last things are told of it.
    pub(super) fn end(&mut self, pid: i32, at_ns: u64, status: Option<i32>, reaped: Option<Reaped>) {
        self.listen();
        for index in 0..self.words.len() {
            if self.words[index].pid == pid {
                self.heed(self.words[index]);
            }
        }
        if self.table.get(pid).is_some_and(|process| process.subject == SubjectId(0)) {
            self.tell_of(pid);
        }
        let Some(mut process) = self.table.remove(pid) else { return };
        self.held.is_stale = true;
        if pid == self.root {
            (self.root_status, self.is_root_over) = (status, true);
        }
        match reaped {
            None => {
                self.unreaped.insert(pid);
            }
            Some(reaped) => {
                if reaped.peak_rss_bytes > process.inherited_bytes {
                    self.job.process_reached(reaped.peak_rss_bytes);
                    self.job.reached(reaped.peak_rss_bytes, at_ns);
                }
                if process.children == 0 {
                    process.told.set(Metric::CpuTime, reaped.cpu_ns);
                }
            }
        }
        let memory = &mut process.memory;
        let peak = memory.peak(reaped.as_ref(), process.inherited_bytes, process.children);
        if peak.1 == PeakSource::LastWord {
            let mark = memory.last_word.or(reaped.map(|reaped| reaped.peak_rss_bytes));
            process.told.set_if_known(Metric::Hwm, mark);
        }
        self.unread += u64::from(peak.0 == 0);
        // What was known before was counted when it was read.
        if peak.0 > memory.mark.max(memory.seen_peak) {
            self.job.last_word(peak, memory.rss, at_ns);
        }
        self.totals.moved(memory.shared);
        memory.close(&mut self.keep);
        let peak_rss_bytes = (peak.1 != PeakSource::Seen).then_some(peak.0);
        let batch = process.told.take(at_ns);
        tell(self.sink, |sink| {
            if let Some(batch) = batch {
                sink.samples(at_ns, process.subject, batch.as_slice());
            }
            sink.ended(at_ns, process.subject, SubjectEnd { wait_status: status, peak_rss_bytes });
        });
        self.keep_largest(&process, peak);
    }

    fn keep_largest(&mut self, process: &Process, (rss_bytes, known): (u64, PeakSource)) {
        if rss_bytes > 0 {
            let name = process.name.clone();
            self.job.keep_largest(ProcessPeak { pid: process.pid, name, rss_bytes, known });
        }
    }

    /// Counts processes that are left alone in the outcome.
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

    /// Whether no process of the tree is left. Orphans become our children, so while there are
    /// children there is a tree, known or not.
    pub(crate) fn is_tree_over(&mut self, now_ns: u64) -> bool {
        if !self.table.is_empty() || self.origin == Origin::Attached {
            return self.table.is_empty();
        }
        self.drain_events();
        self.reap();
        let others: Vec<i32> = match wait::children() {
            Children::None => Vec::new(),
            _ => walk::children_of(self.own_pid),
        };
        let others = others.into_iter().filter(|pid| !self.strangers.contains(pid)).collect::<Vec<i32>>();
        for found in others.iter().filter_map(|pid| walk::look_at(*pid)) {
            self.consider(&found, now_ns);
        }
        others.is_empty()
    }
}
