//! The processes in a sweep: who is read, and what they sum up to.
//!
//! Most of the cost of reading a process that has slept is memory of the kernel, and of ours, that is in
//! no cache any more. So what rests is not touched: not its entry in the table either. Sums are held from
//! sweep to sweep and corrected by what the few that were read changed.
//!
//! Invariant: unless it is stale, what is held is what a pass over all processes would give.

use floodmark_event::{Metric, SubjectId};

use super::PeakMode;
use super::job::Sum;
use super::recorder::Recorder;
use super::sweep::SLOW_NS;
use crate::metrics::memory::{ProcessMemory, Stillness};
use crate::metrics::total::Part;
use crate::observer::ProcessSweep;
use crate::outcome::Note;
use crate::output::tell;
use crate::pace::Pace;
use crate::tree::{Process, walk};

/// How often marks of the kernel are read although nothing seems to have moved: ten times a second,
/// but a hundred times a second for all processes together.
const STATUS_NS: u64 = 100_000_000;
const STATUS_NS_EACH: u64 = 10_000_000;
/// So many processes are read at every sweep of a fixed pace, asleep or not.
const FEW_PROCESSES: usize = 16;

/// What is held from one sweep to the next.
#[derive(Default)]
pub(crate) struct Held {
    /// Everything has to be looked at again: a process came, went or became another.
    pub(crate) is_stale: bool,
    /// How often everything was looked at.
    pub(crate) passes: u64,
    /// What an observer is shown; in the order of the table.
    pub(crate) sweeps: Vec<ProcessSweep>,
    sum: Sum,
    /// Places in it of those that changed in the last sweep.
    changed: Vec<usize>,
}

/// What a process counts for in sums: a newborn's memory is its parent's, but for what it has added.
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
        let status_ns = STATUS_NS.max(count as u64 * STATUS_NS_EACH);
        let mut excess = 0;
        if self.held.is_stale {
            self.look_at_all(now_ns);
            for place in 0..count {
                excess = excess.max(self.sweep_process(place, now_ns, status_ns));
                self.tell_samples(place, now_ns);
            }
            self.sum_up(now_ns);
            self.held.sweeps.retain(|sweep| !self.gone.contains(&sweep.pid));
        } else {
            let motion = self.totals.motion();
            for place in 0..count {
                if self.table.rests(place, now_ns) {
                    continue;
                }
                let before = self.part_of(place, now_ns);
                excess = excess.max(self.sweep_process(place, now_ns, status_ns));
                let is_gone = self.gone.last() == Some(&self.table.processes()[place].pid);
                let after = if is_gone { Default::default() } else { self.part_of(place, now_ns) };
                self.held.sum.replace(before, after);
                self.tell_samples(place, now_ns);
            }
            // What may be shared came or went: that changes the doubt about all others.
            let held = self.held.sum;
            if self.totals.motion() != motion || cfg!(debug_assertions) {
                self.sum_up(now_ns);
            }
            let whole = self.held.sum;
            debug_assert_eq!((held.rss, held.total), (whole.rss, whole.total), "what is held went astray");
        }
        // What is left of them is not what is in the table.
        self.held.is_stale |= !self.gone.is_empty();
        Sum { excess, ..self.held.sum }
    }

    /// Prepares a pass over everything: tells of those that are old enough, and lists all.
    fn look_at_all(&mut self, now_ns: u64) {
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
                self.tell_of(pid);
            }
            // Neither of these adds or removes a process.
            let process = &self.table.processes()[place];
            self.held.sweeps.push(ProcessSweep {
                subject: process.subject,
                pid,
                start_ticks: process.start_ticks,
                rss_bytes: process.memory.rss,
                change_bytes: 0,
            });
        }
        // What they count for changes with their age.
        self.held.is_stale = has_newborns;
    }

    fn part_of(&self, place: usize, now_ns: u64) -> (u64, Part) {
        let process = &self.table.processes()[place];
        counts(process, self.totals.part(process), now_ns)
    }

    fn sum_up(&mut self, now_ns: u64) {
        let mut sum = Sum::default();
        for process in self.table.processes() {
            // Those that have no memory any more count for nothing.
            if !self.gone.contains(&process.pid) {
                let (rss, part) = counts(process, self.totals.part(process), now_ns);
                sum.add(rss, part);
            }
        }
        self.held.sum = sum;
    }

    /// Reads a process, if it does not rest; gives by how much its mark exceeds what it has, if the mark
    /// rose since it was last read.
    fn sweep_process(&mut self, place: usize, now_ns: u64, status_ns: u64) -> u64 {
        if self.table.rests(place, now_ns) {
            return 0;
        }
        let is_small = self.table.processes().len() <= FEW_PROCESSES;
        let Some(process) = self.table.processes_mut().get_mut(place) else { return 0 };
        let pid = process.pid;
        let memory = &mut process.memory;
        let Some((change, virtual_bytes)) = memory.sweep(pid, self.page_bytes, &mut self.keep) else {
            self.gone.push(pid);
            return 0;
        };
        let stillness = memory.stillness(change);
        if stillness == Stillness::Moved {
            self.totals.moved(memory.shared.abs_diff(change.shared_before));
            if let Some(sweep) = self.held.sweeps.get_mut(place) {
                sweep.rss_bytes = memory.rss;
                sweep.change_bytes = memory.rss.wrapping_sub(change.rss_before) as i64;
                self.held.changed.push(place);
            }
        }
        process.told.set(Metric::Rss, memory.rss);
        process.told.set(Metric::Virtual, virtual_bytes);
        if now_ns.saturating_sub(memory.stat_at_ns) >= SLOW_NS {
            memory.stat_at_ns = now_ns;
            let ticks = walk::look_at(pid).map(|found| found.cpu_ticks);
            memory.note_processor_time(ticks);
            process.told.set_if_known(Metric::CpuTime, ticks.map(|ticks| self.starts.ticks_ns(ticks)));
        }
        let interval_ns = self.pacer.interval_ns();
        let rest_ns = match self.props.pace {
            Pace::Adaptive { .. } => memory.rest_ns(interval_ns),
            Pace::Fixed { .. } if is_small => 0,
            Pace::Fixed { .. } => memory.sleep_ns(pid, interval_ns),
        };
        let is_newborn = process.is_newborn(now_ns);
        let wants_status =
            self.props.peaks == PeakMode::Exact || process.memory.wants_status(now_ns, status_ns);
        self.table.rest(place, now_ns + rest_ns);
        let excess = if wants_status { self.read_status(place, now_ns) } else { 0 };
        if is_newborn { 0 } else { excess }
    }

    fn tell_samples(&mut self, place: usize, now_ns: u64) {
        let Some(process) = self.table.processes_mut().get_mut(place) else { return };
        if process.subject != SubjectId(0)
            && let Some(batch) = process.told.take(now_ns)
        {
            tell(self.sink, |sink| sink.samples(now_ns, process.subject, batch.as_slice()));
        }
    }

    /// Reads `status` of a process; see [`Self::sweep_process`].
    fn read_status(&mut self, place: usize, now_ns: u64) -> u64 {
        let Some(process) = self.table.processes_mut().get_mut(place) else { return 0 };
        let pid = process.pid;
        let memory = &mut process.memory;
        let mark_before = memory.mark;
        let Some(status) = memory.read_status(pid, now_ns, &mut self.keep) else { return 0 };
        let told = &mut process.told;
        told.set_if_known(Metric::Hwm, status.hwm);
        told.set_if_known(Metric::RssAnon, status.anon);
        told.set_if_known(Metric::RssFile, status.file);
        told.set_if_known(Metric::RssShmem, status.shmem);
        told.set_if_known(Metric::Swap, status.swap);
        told.set_if_known(Metric::Threads, status.threads);
        let excess = status.hwm.unwrap_or(0).saturating_sub(memory.rss);
        let rose = match self.props.peaks {
            PeakMode::Kept => memory.mark > mark_before,
            PeakMode::Exact => {
                // While memory is at its mark there is nothing to reset: what comes next raises the
                // mark. To reset in the middle of a rise could lose its top, should the system let us
                // wait until it is over.
                if status.hwm > status.rss {
                    self.reset_mark(pid);
                }
                true
            }
        };
        // The first mark of a process may be older than our watching.
        if rose && mark_before > 0 { excess } else { 0 }
    }

    fn reset_mark(&mut self, pid: i32) {
        // Any other error than this says that the process is ending.
        if let Err(error) = ProcessMemory::reset_mark(pid)
            && error.kind() == std::io::ErrorKind::PermissionDenied
        {
            self.note(Note::ResetDenied { pid, why: error.to_string() });
        }
    }
}
