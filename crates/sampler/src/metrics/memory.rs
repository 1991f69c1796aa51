//! The memory of one process.
//!
//! `statm` is read at every sweep from a descriptor that stays open, which takes 1 µs instead of the 3 µs of
//! opening it again. A descriptor never refers to another process; once its process is gone, reading fails.
//! `status` costs five times as much and is read when resident memory changed, and ten times a second, see
//! [`StatusPatience`]: it has the kernel's high-water mark (HWM) of resident memory, which no spike between two sweeps escapes.
//! It has everything that `statm` has, so a sweep that is to read it anyway does not read `statm`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use crate::metrics::bounds::Motion;
use crate::outcome::PeakSource;
use crate::procfs::{self, Statm, Status};
use crate::sys::wait::Reaped;
use crate::tree::walk::Path;

/// Number of readings without a change after which a process is read half as often, and then half of that.
const STILL_READINGS: u32 = 8;
/// Longest time that an unchanged process is not read.
const REST_NS: u64 = 100_000_000;

/// A file of a process, kept open while the descriptor budget allows it.
#[derive(Default)]
struct KeptFile {
    file: Option<File>,
}

impl KeptFile {
    fn read<'a>(
        &mut self,
        path: impl FnOnce() -> Path,
        descriptors: &mut DescriptorBudget,
        buffer: &'a mut [u8],
    ) -> io::Result<&'a [u8]> {
        if let Some(file) = &self.file {
            let length = file.read_at(buffer, 0)?;
            return Ok(&buffer[..length]);
        }
        let file = path().open()?;
        let length = file.read_at(buffer, 0)?;
        if descriptors.take() {
            self.file = Some(file);
        }
        Ok(&buffer[..length])
    }
}

/// Number of descriptors that may be kept open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DescriptorBudget {
    left: u64,
    /// Whether a descriptor was refused.
    pub(crate) refused: bool,
}

impl DescriptorBudget {
    pub(crate) fn new(count: u64) -> Self {
        Self { left: count, refused: false }
    }

    fn take(&mut self) -> bool {
        self.refused |= self.left == 0;
        let granted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        granted
    }

    fn give_back(&mut self, count: u64) {
        self.left += count;
    }
}

/// Time after which `status` of a process is read again.
///
/// Reading it takes several times as long as all else that a sweep does with a process, so with many processes it
/// is read less often. No peak gets lost by that: resident memory itself is read at every sweep, and the kernel keeps the
/// high-water mark for as long as the process lives. What may be missed is a mark that rose after the last reading of a
/// process that then ends, where the kernel sends no exit statistics; such a peak is reported as a lower bound. Where it
/// sends them, a mark that is read later is only known later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatusPatience {
    /// If resident memory has changed.
    pub(crate) changed_ns: u64,
    /// If it has not.
    pub(crate) unchanged_ns: u64,
}

impl StatusPatience {
    /// For an unchanged process: 100 ms, but 10 ms per process for all together.
    const UNCHANGED_NS: u64 = 100_000_000;
    const UNCHANGED_NS_EACH: u64 = 10_000_000;
    /// Number of processes up to which a changed one is read at every sweep.
    const FEW: u64 = 16;
    /// Time for each process beyond that, and the most: a changed one is read five times a second at least, and twice where
    /// the mark comes with the end of a process anyway.
    const CHANGED_NS_EACH: u64 = 4_000_000;
    const CHANGED_NS: u64 = 190_000_000;
    const CHANGED_NS_EACH_WITH_EXITS: u64 = 10_000_000;
    const CHANGED_NS_WITH_EXITS: u64 = 490_000_000;

    /// Returns the times for a number of processes.
    pub(crate) fn of_processes(count: usize, marks: FinalMarks) -> Self {
        let count = count as u64;
        let (each_ns, most_ns) = match marks {
            FinalMarks::Lost => (Self::CHANGED_NS_EACH, Self::CHANGED_NS),
            FinalMarks::Sent => (Self::CHANGED_NS_EACH_WITH_EXITS, Self::CHANGED_NS_WITH_EXITS),
        };
        Self {
            changed_ns: (count.saturating_sub(Self::FEW) * each_ns).min(most_ns),
            unchanged_ns: Self::UNCHANGED_NS.max(count * Self::UNCHANGED_NS_EACH),
        }
    }
}

/// Whether the kernel sends the high-water mark of a process that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinalMarks {
    Sent,
    Lost,
}

/// A reading of proportional set size, and the state at that time; in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TotalReading {
    pub(crate) at_ns: u64,
    pub(crate) pss: u64,
    /// Resident memory that other processes share.
    pub(crate) shared: u64,
    /// Resident memory by the sweep at that time.
    pub(crate) rss: u64,
    pub(crate) file_and_shmem: u64,
    /// Anonymous memory, its share of `pss`, and how much of it only this process has.
    pub(crate) anon: u64,
    pub(crate) pss_anon: u64,
    pub(crate) private_anon: u64,
    /// The last round in which it was read, and its `pss_anon` in that round.
    pub(crate) round: (u64, u64),
    /// [`Totals::motion`](crate::metrics::total::Totals::motion) at that time.
    pub(crate) motion: Motion,
    pub(crate) cost_ns: u64,
}

impl TotalReading {
    /// Anonymous bytes that count for forked copies of the process.
    pub(crate) fn copied(&self) -> u64 {
        self.anon.saturating_sub(self.pss_anon)
    }
}

/// Memory of a process, in bytes.
#[derive(Default)]
pub(crate) struct ProcessMemory {
    statm: KeptFile,
    status: KeptFile,
    /// Thread whose files are read after the first thread has ended.
    through: Option<i32>,
    pub(crate) rss: u64,
    /// Resident memory when its mappings were last read.
    pub(crate) mappings_rss: u64,
    /// Resident memory of files and shared memory.
    pub(crate) shared: u64,
    /// Resident memory at the first reading of this program.
    pub(crate) first_rss: u64,
    pub(crate) first_shared: u64,
    pub(crate) was_read: bool,
    /// Highest resident memory at a sweep.
    pub(crate) seen_peak: u64,
    /// Resident bytes before it gave everything back, and the number of the sweep that counted them.
    pub(crate) last_counted: Option<(u64, u64)>,
    /// Highest high-water mark that was read.
    pub(crate) mark: u64,
    /// High-water mark at exit, from the exit statistics.
    pub(crate) exit_peak: Option<u64>,
    status_at_ns: u64,
    status_rss: u64,
    pub(crate) total: Option<TotalReading>,
    pub(crate) total_denied: bool,
    /// Monotonic nanoseconds at which CPU time and page faults were last read.
    pub(crate) stat_at_ns: u64,
    /// Whether it forked since its program began, and may share memory with its children.
    pub(crate) has_copies: bool,
    /// Number of page faults without I/O, as last read: while it may share memory with forked copies.
    faults: u64,
    /// Number of consecutive readings without a change.
    still: u32,
    cpu_ticks: Option<u64>,
    sleep: Sleep,
}

/// Whether a process used CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sleep {
    #[default]
    Awake,
    /// It was found asleep for the first time.
    Fallen,
    Deep,
}

/// Whether memory changed since the last reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stillness {
    Moved,
    Still,
}

/// Values before a reading.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    pub(crate) rss_before: u64,
    pub(crate) shared_before: u64,
    /// Whether this is the first reading of its program.
    pub(crate) is_first: bool,
}

impl ProcessMemory {
    /// Reads resident and virtual memory, and `status` if its time is given; returns none if the process has no memory any
    /// more.
    pub(crate) fn read(
        &mut self,
        pid: i32,
        status_at_ns: Option<u64>,
        page_bytes: u64,
        descriptors: &mut DescriptorBudget,
    ) -> Option<(Change, u64, Option<Status>)> {
        if let Some(now_ns) = status_at_ns
            && let Some((change, virtual_bytes, status)) = self.sweep_status(pid, now_ns, descriptors)
        {
            return Some((change, virtual_bytes, Some(status)));
        }
        let (change, virtual_bytes) = self.sweep(pid, page_bytes, descriptors)?;
        Some((change, virtual_bytes, None))
    }

    /// Reads resident and virtual memory from `statm`.
    pub(crate) fn sweep(
        &mut self,
        pid: i32,
        page_bytes: u64,
        descriptors: &mut DescriptorBudget,
    ) -> Option<(Change, u64)> {
        let through = self.through;
        let path = || match through {
            None => Path::of(pid, "statm"),
            Some(thread) => Path::of_thread(pid, thread, "statm"),
        };
        let mut buffer = [0; 128];
        let text = self.statm.read(path, descriptors, &mut buffer).ok()?;
        let statm = procfs::statm(text).filter(|statm| *statm != Statm::default())?;
        let [rss, shared, virtual_bytes] = [statm.resident_pages, statm.shared_pages, statm.virtual_pages]
            .map(|pages| pages.saturating_mul(page_bytes));
        Some((self.swept(rss, shared), virtual_bytes))
    }

    /// Does the same with `status`; returns none if that does not have everything, and `statm` has to be read.
    fn sweep_status(
        &mut self,
        pid: i32,
        now_ns: u64,
        descriptors: &mut DescriptorBudget,
    ) -> Option<(Change, u64, Status)> {
        let status = self.status_of(pid, descriptors)?;
        let (rss, shared) = (status.rss?, status.file?.saturating_add(status.shmem?));
        let (virtual_bytes, _) = (status.virtual_bytes?, status.hwm?);
        let change = self.swept(rss, shared);
        self.note_status(&status, now_ns);
        Some((change, virtual_bytes, status))
    }

    /// Takes in a reading; returns the values before.
    fn swept(&mut self, rss: u64, shared: u64) -> Change {
        let change = Change { rss_before: self.rss, shared_before: self.shared, is_first: !self.was_read };
        (self.rss, self.shared) = (rss, shared);
        if !self.was_read {
            self.was_read = true;
            (self.first_rss, self.first_shared) = (rss, shared);
        }
        self.seen_peak = self.seen_peak.max(rss);
        self.last_counted = None;
        change
    }

    /// Resident anonymous memory.
    pub(crate) fn anon(&self) -> u64 {
        self.rss.saturating_sub(self.shared)
    }

    /// Anonymous memory that was added since the first reading of this program.
    pub(crate) fn grown_anon(&self) -> u64 {
        self.anon().saturating_sub(self.first_rss.saturating_sub(self.first_shared))
    }

    /// Compares a reading with the one before.
    pub(crate) fn stillness(&mut self, change: Change) -> Stillness {
        if change.rss_before == self.rss && change.shared_before == self.shared {
            self.still = self.still.saturating_add(1);
            Stillness::Still
        } else {
            self.still = 0;
            self.sleep = Sleep::Awake;
            Stillness::Moved
        }
    }

    /// Time for which an unchanged process is not read, whether it runs or not. A change is seen up to
    /// [`REST_NS`] later; the high-water mark keeps its peak.
    pub(crate) fn rest_ns(&self, interval_ns: u64) -> u64 {
        let sweeps = 1 << (self.still / STILL_READINGS).min(6);
        // Half an interval less, so that a sweep that is a little early reads it too.
        (interval_ns * sweeps).min(REST_NS).saturating_sub(interval_ns / 2)
    }

    /// Time for which a sleeping process is not read: without running it takes no memory.
    pub(crate) fn sleep_ns(&mut self, pid: i32, interval_ns: u64) -> u64 {
        let rest_ns = match self.sleep {
            Sleep::Awake => return 0,
            // Spread over several sweeps.
            Sleep::Fallen => REST_NS / 16 * (1 + u64::from(pid.unsigned_abs()) % 16),
            Sleep::Deep => REST_NS,
        };
        self.sleep = Sleep::Deep;
        rest_ns.saturating_sub(interval_ns / 2)
    }

    /// Takes in the number of page faults, if it is known; returns how many are new.
    pub(crate) fn new_faults(&mut self, faults: Option<u64>) -> u64 {
        let faults = faults.unwrap_or(self.faults);
        faults.saturating_sub(std::mem::replace(&mut self.faults, faults))
    }

    /// Takes in CPU time, about a second after it was last read: a process sleeps if it used none and its
    /// memory did not change.
    pub(crate) fn note_processor_time(&mut self, ticks: Option<u64>) {
        let has_run = ticks.is_none() || ticks != self.cpu_ticks || self.still == 0;
        self.cpu_ticks = ticks;
        self.sleep = match self.sleep {
            _ if has_run => Sleep::Awake,
            Sleep::Awake => Sleep::Fallen,
            asleep => asleep,
        };
    }

    /// Whether `status` should be read: resident memory changed by more than 1 % and 64 KiB, or it was not
    /// read for some time.
    pub(crate) fn wants_status(&self, now_ns: u64, patience: StatusPatience) -> bool {
        let age_ns = now_ns.saturating_sub(self.status_at_ns);
        let moved = self.rss.abs_diff(self.status_rss);
        let has_changed = moved > (self.rss / 100).max(64 << 10);
        age_ns >= if has_changed { patience.changed_ns } else { patience.unchanged_ns }
    }

    /// Reads `status`, which has the high-water mark.
    pub(crate) fn read_status(
        &mut self,
        pid: i32,
        now_ns: u64,
        descriptors: &mut DescriptorBudget,
    ) -> Option<Status> {
        let status = self.status_of(pid, descriptors).filter(|status| status.hwm.is_some())?;
        self.note_status(&status, now_ns);
        Some(status)
    }

    fn status_of(&mut self, pid: i32, descriptors: &mut DescriptorBudget) -> Option<Status> {
        let through = self.through;
        let path = || match through {
            None => Path::of(pid, "status"),
            Some(thread) => Path::of_thread(pid, thread, "status"),
        };
        let mut buffer = [0; 2048];
        self.status.read(path, descriptors, &mut buffer).ok().map(procfs::status)
    }

    /// Takes in a reading of `status`.
    fn note_status(&mut self, status: &Status, now_ns: u64) {
        self.mark = self.mark.max(status.hwm.unwrap_or(0));
        self.status_at_ns = now_ns;
        self.status_rss = self.rss;
    }

    /// Resets the high-water mark to the current resident memory.
    pub(crate) fn reset_mark(pid: i32) -> io::Result<()> {
        let path = Path::of(pid, "clear_refs");
        OpenOptions::new().write(true).open(path.as_str())?.write_all(b"5")
    }

    /// Takes in that the process has given back all its memory, though it is not known to have ended.
    /// `sweep` is the last one that counted it.
    pub(crate) fn gave_back(&mut self, sweep: u64) {
        self.last_counted = self.last_counted.or(Some((self.rss, sweep)));
        (self.rss, self.shared, self.total) = (0, 0, None);
    }

    /// Reads the files of another thread from now on, because the first thread has ended and others run.
    pub(crate) fn read_through(&mut self, thread: i32, descriptors: &mut DescriptorBudget) {
        self.close(descriptors);
        self.through = Some(thread);
    }

    /// Forgets the values of the program before an exec. The memory of a newborn was its parent's.
    pub(crate) fn new_program(&mut self, was_newborn: bool) {
        self.was_read = false;
        self.total = None;
        self.has_copies = false;
        (self.status_at_ns, self.still, self.sleep) = (0, 0, Sleep::Awake);
        if was_newborn {
            self.seen_peak = 0;
            self.mark = 0;
        }
    }

    /// Peak of resident bytes, and its source. `inherited_bytes` is the most that it can have had before its
    /// first exec, `error_bytes` the largest difference of two readings of the same peak.
    ///
    /// The peak in the resource usage that a parent reaps covers the process, also between fork and exec, and
    /// the children it waited for. It is the process's own only if it waited for none, and if it is above
    /// what the process can have inherited, or if it equals the mark of the process.
    pub(crate) fn peak(
        &self,
        reaped: Option<&Reaped>,
        inherited_bytes: u64,
        error_bytes: u64,
    ) -> (u64, PeakSource) {
        let source = if self.mark > 0 { PeakSource::Mark } else { PeakSource::Seen };
        // A sweep may have seen more after the mark was last read.
        let known = (self.mark.max(self.seen_peak), source);
        if let Some(exit_peak) = self.exit_peak {
            return (exit_peak.max(known.0), PeakSource::Exit);
        }
        match reaped {
            Some(&Reaped { peak_rss_bytes, child_faults, .. }) => {
                let is_own = child_faults == Some(0) && peak_rss_bytes > inherited_bytes;
                // After a reset of the mark it may be less than an earlier mark.
                if is_own || peak_rss_bytes.abs_diff(known.0) <= error_bytes {
                    (peak_rss_bytes.max(known.0), PeakSource::Exit)
                } else {
                    known
                }
            }
            None => known,
        }
    }

    /// Closes the files that are kept open.
    pub(crate) fn close(&mut self, descriptors: &mut DescriptorBudget) {
        let closed = [self.statm.file.take(), self.status.file.take()];
        descriptors.give_back(closed.iter().flatten().count() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_and_mark_are_read() {
        let me = std::process::id() as i32;
        let mut memory = ProcessMemory::default();
        let mut descriptors = DescriptorBudget::new(1);
        let (change, virtual_bytes) = memory.sweep(me, 4096, &mut descriptors).expect("we live");
        assert_eq!(change.rss_before, 0);
        assert!(memory.rss > 0 && virtual_bytes >= memory.rss);
        let status = memory.read_status(me, 1, &mut descriptors).expect("we live");
        assert!(status.hwm >= status.rss);
        assert!(memory.status.file.is_none(), "there was one descriptor to keep");
        assert!(descriptors.refused);
        let (change, virtual_after, status) = memory.sweep_status(me, 2, &mut descriptors).expect("we live");
        assert!(!change.is_first && change.rss_before > 0 && virtual_after >= memory.rss);
        assert_eq!(Some(memory.rss), status.rss);
        memory.close(&mut descriptors);
        assert_eq!(descriptors.left, 1);
    }

    #[test]
    fn the_mark_of_many_changing_processes_is_read_less_often_and_some_times_a_second() {
        let of = |rss| ProcessMemory { rss, status_rss: 5 << 20, ..ProcessMemory::default() };
        let (still, moved) = (of(5 << 20), of(6 << 20));
        let wants_with = |memory: &ProcessMemory, count: usize, age_ms: u64, marks: FinalMarks| {
            memory.wants_status(age_ms * 1_000_000, StatusPatience::of_processes(count, marks))
        };
        let wants = |memory: &ProcessMemory, count: usize, age_ms: u64| {
            wants_with(memory, count, age_ms, FinalMarks::Lost)
        };
        assert!(wants(&moved, 16, 0) && !wants(&still, 16, 99) && wants(&still, 10, 100));
        assert!(!wants(&moved, 26, 39) && wants(&moved, 26, 40), "4 ms for each of ten");
        assert!(wants(&moved, 4096, 190) && !wants(&still, 64, 639) && wants(&still, 64, 640));
        let wants = |count, age_ms| wants_with(&moved, count, age_ms, FinalMarks::Sent);
        assert!(wants(16, 0) && !wants(26, 99) && wants(26, 100), "10 ms for each of ten");
        assert!(!wants(64, 479) && wants(64, 480) && wants(4096, 490));
    }

    #[test]
    fn a_process_sleeps_after_a_second_in_which_it_did_nothing() {
        let mut memory = ProcessMemory { rss: 5, shared: 1, ..ProcessMemory::default() };
        let same = Change { rss_before: 5, shared_before: 1, is_first: false };
        let interval_ns = 10_000_000;
        memory.note_processor_time(Some(7));
        assert_eq!(memory.stillness(same), Stillness::Still);
        assert_eq!(memory.sleep_ns(3, interval_ns), 0, "nothing is known of the second before");
        memory.note_processor_time(Some(7));
        assert_eq!(memory.sleep_ns(3, interval_ns), REST_NS / 4 - interval_ns / 2, "not with all others");
        assert_eq!(memory.sleep_ns(3, interval_ns), REST_NS - interval_ns / 2);
        memory.note_processor_time(Some(7));
        assert_eq!(memory.sleep_ns(3, interval_ns), REST_NS - interval_ns / 2);
        memory.note_processor_time(Some(8));
        assert_eq!(memory.sleep_ns(3, interval_ns), 0, "it ran");
        memory.note_processor_time(Some(8));
        assert_eq!(memory.stillness(Change { rss_before: 4, ..same }), Stillness::Moved);
        assert_eq!(memory.sleep_ns(3, interval_ns), 0, "it changed");
    }

    #[test]
    fn the_peak_at_exit_counts_if_it_can_only_be_of_this_process() {
        let memory = ProcessMemory { mark: 50, seen_peak: 40, ..ProcessMemory::default() };
        let reaped = Reaped { status: 0, peak_rss_bytes: 90, cpu_ns: 0, child_faults: Some(0) };
        let parent = Reaped { child_faults: Some(20), ..reaped };
        assert_eq!(memory.peak(Some(&reaped), 30, 0), (90, PeakSource::Exit));
        assert_eq!(memory.peak(Some(&reaped), 90, 0), (50, PeakSource::Mark), "its parent's");
        assert_eq!(memory.peak(Some(&parent), 30, 0), (50, PeakSource::Mark), "perhaps its child's");
        assert_eq!(memory.peak(Some(&parent), 30, 40), (90, PeakSource::Exit), "as high as its mark");
        let unknown = Reaped { child_faults: None, ..reaped };
        assert_eq!(memory.peak(Some(&unknown), 30, 0), (50, PeakSource::Mark));
        assert_eq!(memory.peak(None, 0, 0), (50, PeakSource::Mark));
        let reported = ProcessMemory { exit_peak: Some(60), mark: 50, ..ProcessMemory::default() };
        assert_eq!(reported.peak(Some(&parent), 30, 0), (60, PeakSource::Exit));
        let reset = Reaped { peak_rss_bytes: 45, ..reaped };
        assert_eq!(memory.peak(Some(&reset), 30, 0), (50, PeakSource::Exit));
    }
}
