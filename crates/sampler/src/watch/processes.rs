//! The processes in a sweep: which of them are read, and their sums.
//!
//! Most of the cost of reading a process that has slept is cache misses, in the kernel and here. A resting
//! process is therefore not touched, not even its entry in the table. Sums are kept from sweep to sweep and
//! updated by the changes of the few processes that were read.
//!
//! Invariant: unless it is stale, the kept state equals the result of a pass over all processes.

use floodmark_event::{Metric, SubjectId};

use super::PeakMode;
use super::job::Sum;
use super::recorder::Recorder;
use super::sweep::SLOW_NS;
use crate::metrics::bounds::Part;
use crate::metrics::memory::{FinalMarks, ProcessMemory, StatusPatience, Stillness};
use crate::metrics::total::Totals;
use crate::observer::ProcessSweep;
use crate::outcome::Note;
use crate::output::with_sink;
use crate::pace::Pace;
use crate::procfs::Status;
use crate::sys::clock::cpu_ns_of;
use crate::tree::{Image, Process, walk};

/// Number of processes up to which a fixed pace reads all at every sweep, asleep or not.
const FEW_PROCESSES: usize = 16;

/// State that is kept from one sweep to the next.
#[derive(Default)]
pub(crate) struct Held {
    /// Whether a full pass is needed: a process was added, removed or called exec.
    pub(crate) is_stale: bool,
    /// Number of full passes.
    pub(crate) passes: u64,
    /// The processes for the observer, in the order of the table.
    pub(crate) sweeps: Vec<ProcessSweep>,
    sum: Sum,
    /// Indexes in `sweeps` of those that changed in the last sweep.
    changed: Vec<usize>,
}

/// Contribution of a process to the sums: of a newborn only what it has added to its parent's memory.
fn counts(process: &Process, part: Part, now_ns: u64) -> (u64, Part) {
    let memory = &process.memory;
    let rss =
        if process.is_newborn(now_ns) { memory.rss.saturating_sub(memory.first_rss) } else { memory.rss };
    (rss, part)
}

impl Recorder<'_> {
    pub(super) fn sweep_processes(&mut self, now_ns: u64) -> Sum {
        self.gone.clear();
        for place in self.held.changed.drain(..) {
            if let Some(sweep) = self.held.sweeps.get_mut(place) {
                sweep.change_bytes = 0;
            }
        }
        let count = self.table.processes().len();
        let marks = if self.exit_stats.is_ok() { FinalMarks::Sent } else { FinalMarks::Lost };
        let patience = StatusPatience::of_processes(count, marks);
        let mut excess = 0;
        if self.held.is_stale {
            self.begin_full_pass(now_ns);
            for place in 0..count {
                excess = excess.max(self.sweep_process(place, now_ns, patience));
                self.report_samples(place, now_ns);
            }
            self.sum_up(now_ns);
            self.held.sweeps.retain(|sweep| !self.gone.contains(&sweep.pid));
        } else {
            let motion = |totals: &Totals| {
                let motion = totals.motion();
                (motion.shared, motion.copied, motion.written)
            };
            let before_all = motion(&self.totals);
            for place in 0..count {
                if self.table.rests(place, now_ns) {
                    continue;
                }
                let before = self.part_of(place, now_ns);
                excess = excess.max(self.sweep_process(place, now_ns, patience));
                let is_gone = self.gone.last() == Some(&self.table.processes()[place].pid);
                let after = if is_gone { Default::default() } else { self.part_of(place, now_ns) };
                self.held.sum.replace(before, after);
                self.report_samples(place, now_ns);
            }
            // Memory that may be shared changed, which makes the totals of all others uncertain.
            let held = self.held.sum;
            let is_moved = motion(&self.totals) != before_all;
            if is_moved || cfg!(debug_assertions) {
                self.sum_up(now_ns);
            }
            let whole = self.held.sum;
            let is_right = is_moved || (held.rss, held.parts) == (whole.rss, whole.parts);
            debug_assert!(is_right, "the kept sums are wrong: {held:?}, {whole:?}");
        }
        // The kept list has no longer the order of the table.
        self.held.is_stale |= !self.gone.is_empty();
        Sum { excess, ..self.held.sum }
    }

    /// Begins a full pass: sends processes that are old enough to the sink, and lists all.
    fn begin_full_pass(&mut self, now_ns: u64) {
        self.held.passes += 1;
        self.held.is_stale = false;
        self.held.sweeps.clear();
        let mut has_newborns = false;
        for place in 0..self.table.processes().len() {
            let process = &self.table.processes()[place];
            let pid = process.pid;
            if process.is_newborn(now_ns) {
                has_newborns = true;
                if self.events.is_none() {
                    self.check_program(pid, now_ns);
                }
            } else if process.subject == SubjectId(0) {
                self.report_process(pid);
            }
            // Neither call adds or removes a process.
            let process = &self.table.processes()[place];
            self.held.sweeps.push(ProcessSweep {
                subject: process.subject,
                pid,
                start_ticks: process.start_ticks,
                rss_bytes: process.memory.rss,
                change_bytes: 0,
            });
        }
        // The contribution of newborns changes with their age.
        self.held.is_stale = has_newborns;
        self.totals.motion_mut().has_newborns = has_newborns;
    }

    fn part_of(&self, place: usize, now_ns: u64) -> (u64, Part) {
        let process = &self.table.processes()[place];
        counts(process, self.totals.part(process, now_ns), now_ns)
    }

    fn sum_up(&mut self, now_ns: u64) {
        let mut sum = Sum::default();
        for process in self.table.processes() {
            // Processes without memory do not count.
            if !self.gone.contains(&process.pid) {
                let (rss, part) = counts(process, self.totals.part(process, now_ns), now_ns);
                sum.add(rss, part);
            }
        }
        self.held.sum = sum;
    }

    /// Reads a process unless it rests; returns the excess of its high-water mark over its resident memory,
    /// if the mark rose since it was last read.
    fn sweep_process(&mut self, place: usize, now_ns: u64, patience: StatusPatience) -> u64 {
        if self.table.rests(place, now_ns) {
            return 0;
        }
        let is_small = self.table.processes().len() <= FEW_PROCESSES;
        let Some(process) = self.table.processes_mut().get_mut(place) else { return 0 };
        let pid = process.pid;
        let memory = &mut process.memory;
        let mark_before = memory.mark;
        let has_status = self.props.peaks == PeakMode::Exact || memory.wants_status(now_ns, patience);
        let read = memory.read(pid, has_status.then_some(now_ns), self.page_bytes, &mut self.descriptors);
        let Some((change, virtual_bytes, status)) = read else {
            self.totals.motion_mut().gave_back(process, process.is_newborn(now_ns));
            process.memory.gave_back(self.job.sweep_number());
            self.gone.push(pid);
            return 0;
        };
        let stillness = memory.stillness(change);
        if stillness == Stillness::Moved {
            let (rss, shared) = ((change.rss_before, memory.rss), (change.shared_before, memory.shared));
            let motion = self.totals.motion_mut();
            match process.image {
                Image::Inherited if change.is_first => motion.copied(memory.shared),
                _ => motion.changed(rss, shared),
            }
            if let Some(sweep) = self.held.sweeps.get_mut(place) {
                sweep.rss_bytes = memory.rss;
                sweep.change_bytes = memory.rss.wrapping_sub(change.rss_before) as i64;
                self.held.changed.push(place);
            }
        }
        process.gauges.set(Metric::Rss, memory.rss);
        process.gauges.set(Metric::Virtual, virtual_bytes);
        if now_ns.saturating_sub(memory.stat_at_ns) >= SLOW_NS {
            memory.stat_at_ns = now_ns;
            if process.image == Image::Inherited || memory.has_copies {
                let new = memory.new_faults(walk::read_process(pid).map(|found| found.faults));
                self.totals.motion_mut().faulted(new);
            }
            let ticks = cpu_ns_of(pid).map(|cpu_ns| self.starts.whole_ticks(cpu_ns));
            memory.note_processor_time(ticks);
            process.gauges.set_if_known(Metric::CpuTime, ticks.map(|ticks| self.starts.ticks_ns(ticks)));
        }
        let interval_ns = self.pacer.interval_ns();
        let rest_ns = match self.props.pace {
            Pace::Adaptive { .. } => memory.rest_ns(interval_ns),
            Pace::Fixed { .. } if is_small => 0,
            Pace::Fixed { .. } => memory.sleep_ns(pid, interval_ns),
        };
        let wants_status = self.props.peaks == PeakMode::Exact || memory.wants_status(now_ns, patience);
        let status = match status {
            None if wants_status => memory.read_status(pid, now_ns, &mut self.descriptors),
            status => status,
        };
        let is_newborn = process.is_newborn(now_ns);
        self.table.rest(place, now_ns + rest_ns);
        let excess = status.map_or(0, |status| self.take_status(place, &status, mark_before));
        if is_newborn { 0 } else { excess }
    }

    fn report_samples(&mut self, place: usize, now_ns: u64) {
        let Some(process) = self.table.processes_mut().get_mut(place) else { return };
        if process.subject != SubjectId(0)
            && let Some(batch) = process.gauges.take(now_ns)
        {
            with_sink(self.sink, |sink| sink.samples(now_ns, process.subject, batch.as_slice()));
        }
    }

    /// Takes in `status` of a process, whose high-water mark was `mark_before`; see [`Self::sweep_process`].
    fn take_status(&mut self, place: usize, status: &Status, mark_before: u64) -> u64 {
        let Some(process) = self.table.processes_mut().get_mut(place) else { return 0 };
        let (pid, memory) = (process.pid, &process.memory);
        let gauges = &mut process.gauges;
        gauges.set_if_known(Metric::Hwm, status.hwm);
        gauges.set_if_known(Metric::RssAnon, status.anon);
        gauges.set_if_known(Metric::RssFile, status.file);
        gauges.set_if_known(Metric::RssShmem, status.shmem);
        gauges.set_if_known(Metric::Swap, status.swap);
        gauges.set_if_known(Metric::Threads, status.threads);
        let excess = status.hwm.unwrap_or(0).saturating_sub(memory.rss);
        let rose = match self.props.peaks {
            PeakMode::Kept => memory.mark > mark_before,
            PeakMode::Exact => {
                // While memory is at its mark there is nothing to reset. Resetting in the middle of a rise
                // could lose its top, because the call may block until the rise is over.
                if status.hwm > status.rss {
                    self.reset_mark(pid);
                }
                true
            }
        };
        // The first mark of a process may be older than the watch.
        if rose && mark_before > 0 { excess } else { 0 }
    }

    fn reset_mark(&mut self, pid: i32) {
        // Any other error means that the process is ending.
        if let Err(error) = ProcessMemory::reset_mark(pid)
            && error.kind() == std::io::ErrorKind::PermissionDenied
        {
            self.note(Note::ResetDenied { pid, why: error.to_string() });
        }
    }
}
