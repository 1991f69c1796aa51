//! What is known of a run, as views and programs get it.

use floodmark_event::{Metric, SubjectKind};
use serde::{Deserialize, Serialize};

use super::process::highest_rss;
use super::{Peak, PeakStack, RunFold};
use crate::samples::{Gauge, Observed};

/// How much memory a run took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMemory {
    /// Instant that elapsed times count from: the start of the run where it is known, which samples do not state.
    #[serde(default)]
    pub origin_time_ns: Option<i64>,
    /// Time of the first sample.
    pub first_time_ns: Option<i64>,
    /// Time of the last sample.
    pub last_time_ns: Option<i64>,
    /// Highest sum of resident bytes, with what the kernel's marks add to it.
    pub peak_rss_bytes: u64,
    /// When it was reached; none while there was none, and for a bound.
    pub peak_time_ns: Option<i64>,
    /// Whether parts were merged, so that the peak is an upper bound.
    pub peak_is_bound: bool,
    /// Whether the peak is a lower bound: processes ended before they could be read, or with a peak that the
    /// kernel did not report.
    #[serde(default)]
    pub peak_is_lower_bound: bool,
    /// Number of the phase in which it was reached.
    pub peak_phase: Option<usize>,
    /// Highest sum of resident bytes that a sweep found.
    pub peak_seen_bytes: u64,
    /// Highest total in which shared memory counts once, where it is known.
    pub peak_pss_bytes: Option<u64>,
    /// When it was reached.
    pub peak_pss_time_ns: Option<i64>,
    /// Rank in an MPI job that all of it is; none where it is no rank, or more than one.
    pub rank: Option<u64>,
    /// What the process that grew most was doing then, if stacks were taken; samples do not say, so a fold
    /// leaves it to [`PeakStackFold`](super::PeakStackFold).
    pub peak_stack: Option<PeakStack>,
    /// Processes that were seen.
    pub processes: u64,
    /// Most processes at one time, where it is known.
    pub most_processes: Option<u64>,
    /// The processes, highest peak first.
    pub process_list: Vec<ProcessMemory>,
    /// How many more there are.
    pub processes_omitted: u64,
    /// Phases in order; empty if there are no marks.
    pub phases: Vec<PhaseMemory>,
    /// Devices.
    pub devices: Vec<DeviceMemory>,
    /// Control groups.
    pub cgroups: Vec<CgroupMemory>,
    /// CPU time of the sampler.
    pub own_cpu_ns: Option<u64>,
    /// Sweeps that came later than they should have.
    pub late_sweeps: Option<u64>,
    /// Processes that ended before they could be read.
    pub missed_processes: Option<u64>,
    /// How the command ended, as `wait` gives it.
    pub wait_status: Option<i32>,
    /// Samples of subjects that the trace does not describe.
    pub unknown_samples: u64,
}

/// How much memory one process took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// The system's number of the process.
    pub pid: u64,
    /// That of its parent, if it was seen.
    pub parent_pid: Option<u64>,
    /// Its rank in an MPI job.
    pub rank: Option<u64>,
    /// Name of its last program.
    pub name: String,
    /// Command line of that.
    pub command: String,
    /// When it began.
    pub start_time_ns: Option<i64>,
    /// When it ended.
    pub end_time_ns: Option<i64>,
    /// How it ended, as `wait` gives it.
    pub wait_status: Option<i32>,
    /// Most resident bytes.
    pub peak_rss_bytes: u64,
    /// Whether the kernel reported it at the end of the process; otherwise it is a lower bound.
    pub peak_is_exact: bool,
    /// Time of its highest sample.
    pub peak_time_ns: Option<i64>,
    /// Resident bytes when the sum was highest; none where that instant is not known.
    pub rss_at_peak_bytes: Option<u64>,
    /// Highest proportional set size that was read.
    pub peak_pss_bytes: Option<u64>,
    /// Resident bytes when that was read: with much less than the peak, it says little of the peak.
    pub rss_at_peak_pss_bytes: Option<u64>,
    /// Most bytes of devices.
    pub peak_gpu_bytes: Option<u64>,
    /// Most threads.
    pub most_threads: Option<u64>,
    /// Processor time.
    pub cpu_ns: Option<u64>,
}

/// Memory from one mark to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseMemory {
    /// What the mark says at which it begins; none for what was before the first.
    pub name: Option<String>,
    /// When it began; none for the first.
    pub start_time_ns: Option<i64>,
    /// When it ended; none for the last.
    pub end_time_ns: Option<i64>,
    /// Highest sum of resident bytes in it.
    pub peak_rss_bytes: u64,
    /// When that was.
    pub peak_time_ns: Option<i64>,
    /// Highest total in which shared memory counts once.
    pub peak_pss_bytes: Option<u64>,
    /// Resident bytes when it began.
    pub start_rss_bytes: u64,
    /// Resident bytes when it ended.
    pub end_rss_bytes: u64,
}

impl ProcessMemory {
    /// Whether its highest proportional size was read when it was about as high as it ever was. Else it may
    /// have been higher later, or before.
    pub fn has_pss_of_peak(&self) -> bool {
        self.rss_at_peak_pss_bytes.is_some_and(|rss| rss >= self.peak_rss_bytes - self.peak_rss_bytes / 20)
    }
}

impl PhaseMemory {
    /// How much more there was at its end than when it began.
    pub fn growth_bytes(&self) -> i64 {
        (i128::from(self.end_rss_bytes) - i128::from(self.start_rss_bytes))
            .clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }
}

/// Memory of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// Its number.
    pub device: u64,
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Most bytes in use, by whomever.
    pub peak_bytes: u64,
    /// When that was.
    pub peak_time_ns: Option<i64>,
    /// Bytes it has.
    pub total_bytes: Option<u64>,
}

/// Memory of a control group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupMemory {
    /// Its path.
    pub path: String,
    /// Most bytes in use while it was watched.
    pub peak_usage_bytes: Option<u64>,
    /// Most bytes in use ever, as the kernel says.
    pub peak_bytes: Option<u64>,
    /// Bytes it may use; none for no limit.
    pub limit_bytes: Option<u64>,
}

/// Returns what a complete fold found.
pub(super) fn result(fold: &RunFold, limit: usize) -> RunMemory {
    let of = |kind| fold.samples.observed().iter().filter(move |one| one.kind == kind);
    let jobs = |metric| {
        let values = of(SubjectKind::Job).filter_map(move |job| job.gauge(metric));
        values.map(|gauge| gauge.high).reduce(u64::saturating_add)
    };
    let Peak { seen_bytes, bytes, time_ns, is_bound, total, .. } = fold.peaks.peak;
    let (process_list, processes) = processes(fold, limit);
    let has_phases = !fold.peaks.marks.is_empty();
    RunMemory {
        origin_time_ns: None,
        first_time_ns: fold.samples.span_ns().map(|(first, _)| first),
        last_time_ns: fold.samples.span_ns().map(|(_, last)| last),
        peak_rss_bytes: bytes,
        peak_time_ns: time_ns,
        peak_is_bound: is_bound,
        peak_is_lower_bound: jobs(Metric::MissedProcesses)
            .is_some_and(|missed| missed > 0 || of(SubjectKind::Process).any(has_inexact_peak)),
        peak_phase: time_ns.filter(|_| has_phases).map(|time_ns| fold.peaks.phase_at(time_ns)),
        peak_seen_bytes: seen_bytes,
        peak_pss_bytes: total.map(|(bytes, _)| bytes),
        peak_pss_time_ns: total.and_then(|(_, time_ns)| time_ns),
        rank: rank(of(SubjectKind::Job)),
        peak_stack: None,
        processes,
        most_processes: jobs(Metric::Processes),
        processes_omitted: processes - process_list.len() as u64,
        process_list,
        phases: if has_phases { phases(fold) } else { Vec::new() },
        devices: of(SubjectKind::Device).filter_map(device).collect(),
        cgroups: of(SubjectKind::Cgroup).filter_map(cgroup).collect(),
        own_cpu_ns: jobs(Metric::OwnCpuTime),
        late_sweeps: jobs(Metric::LateSweeps),
        missed_processes: jobs(Metric::MissedProcesses),
        wait_status: of(SubjectKind::Job).find_map(|job| job.wait_status),
        unknown_samples: fold.samples.unknown_samples(),
    }
}

/// Whether a process has ended without a peak from the kernel.
fn has_inexact_peak(one: &Observed) -> bool {
    one.end_ns.is_some() && one.peak_rss_bytes != Some(highest_rss(one))
}

/// The rank that all jobs have.
fn rank<'a>(jobs: impl Iterator<Item = &'a Observed>) -> Option<u64> {
    let mut ranks = jobs.map(Observed::rank);
    let first = ranks.next()?;
    ranks.all(|rank| rank == first).then_some(first)?
}

/// The highest processes, and how many there are in all.
fn processes(fold: &RunFold, limit: usize) -> (Vec<ProcessMemory>, u64) {
    let observed = fold.samples.observed().iter().enumerate();
    let mut order: Vec<(u64, usize)> = observed
        .filter(|(_, one)| one.kind == SubjectKind::Process)
        .map(|(at, one)| (highest_rss(one), at))
        .collect();
    let count = order.len() as u64;
    // Of equal ones the first that was seen comes first.
    order.sort_by_key(|(peak, at)| (std::cmp::Reverse(*peak), *at));
    order.truncate(limit);
    let knows_instant = fold.peaks.peak.seen_bytes > 0 && !fold.peaks.peak.is_bound;
    let list = order.into_iter().map(|(peak_rss_bytes, at)| {
        let one = &fold.samples.observed()[at];
        let high = |metric| one.gauge(metric).map(|gauge| gauge.high);
        let holders = &fold.peaks.peak.holders;
        let rss_at_peak = || holders.binary_search_by_key(&at, |(at, _)| *at).map_or(0, |at| holders[at].1);
        let parent = fold.samples.of_subject(one.parent);
        ProcessMemory {
            pid: one.number,
            parent_pid: parent.map(|parent| parent.number),
            rank: one.rank(),
            name: one.name.clone(),
            command: one.detail.clone(),
            start_time_ns: one.start_ns,
            end_time_ns: one.end_ns,
            wait_status: one.wait_status,
            peak_rss_bytes,
            peak_is_exact: one.peak_rss_bytes == Some(peak_rss_bytes),
            peak_time_ns: one.gauge(Metric::Rss).map(|gauge| gauge.high_ns),
            rss_at_peak_bytes: knows_instant.then(rss_at_peak),
            peak_pss_bytes: high(Metric::Pss),
            rss_at_peak_pss_bytes: fold.peaks.processes[at].rss_at_pss,
            peak_gpu_bytes: high(Metric::GpuUsed),
            most_threads: high(Metric::Threads),
            cpu_ns: high(Metric::CpuTime),
        }
    });
    (list.collect(), count)
}

fn phases(fold: &RunFold) -> Vec<PhaseMemory> {
    let phases = fold.peaks.phases.iter().enumerate();
    let phase = |(at, phase): (usize, &super::Phase)| {
        let mark = at.checked_sub(1).and_then(|before| fold.peaks.marks.get(before));
        PhaseMemory {
            name: mark.map(|mark| mark.name.clone()),
            start_time_ns: mark.map(|mark| mark.time_ns),
            end_time_ns: fold.peaks.marks.get(at).map(|mark| mark.time_ns),
            peak_rss_bytes: phase.peak_bytes,
            peak_time_ns: phase.peak_time_ns,
            peak_pss_bytes: phase.total_bytes,
            start_rss_bytes: phase.start_bytes,
            end_rss_bytes: phase.end_bytes,
        }
    };
    phases.map(phase).collect()
}

fn device(one: &Observed) -> Option<DeviceMemory> {
    let used: &Gauge = one.gauge(Metric::GpuUsed)?;
    Some(DeviceMemory {
        device: one.number,
        name: one.name.clone(),
        uuid: one.detail.clone(),
        peak_bytes: used.high,
        peak_time_ns: (used.high > 0).then_some(used.high_ns),
        total_bytes: one.gauge(Metric::GpuTotal).map(|gauge| gauge.last),
    })
}

fn cgroup(one: &Observed) -> Option<CgroupMemory> {
    let gauge = |metric| one.gauge(metric);
    let group = CgroupMemory {
        path: one.detail.clone(),
        peak_usage_bytes: gauge(Metric::CgroupUsage).map(|gauge| gauge.high),
        peak_bytes: gauge(Metric::CgroupPeak).map(|gauge| gauge.high),
        limit_bytes: gauge(Metric::CgroupLimit).map(|gauge| gauge.last),
    };
    group.peak_usage_bytes.or(group.peak_bytes).map(|_| group)
}
