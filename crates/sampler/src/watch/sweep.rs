//! One sweep: reads every process, the cgroup and the GPUs, and sends changed values to the sink.

use std::sync::Arc;

use floodmark_event::{Metric, Subject, SubjectEnd, SubjectId, SubjectKind};

use super::job::Sum;
use super::props::WatchProps;
use super::recorder::{Origin, Recorder};
use crate::metrics::cgroup::{Cgroup, Usage};
use crate::metrics::gauges::Gauges;
use crate::metrics::gpu::{Gpus, Reading as GpuReading};
use crate::metrics::mappings::Reading;
use crate::metrics::total::{self, Read};
use crate::observer::{Observer, Sweep};
use crate::outcome::Note;
use crate::output::{SharedSink, with_sink};
use crate::pace::Pace;
use crate::rank::own_rank;
use crate::sys::clock::{process_cpu_ns, thread_cpu_ns};

/// Shortest time between two readings of the cgroup.
const CGROUP_NS: u64 = 10_000_000;
/// Time between two readings of CPU times, limits and our own cost.
pub(super) const SLOW_NS: u64 = 1_000_000_000;

/// Cgroups that are sampled at most: a node has one for each step of a job.
const MOST_CGROUPS: usize = 16;

/// A cgroup that is sampled.
struct Group {
    cgroup: Cgroup,
    /// Whether the limit of its processes is its own, and not that of another one that is sampled too.
    has_limit: bool,
    subject: SubjectId,
    gauges: Gauges,
    usage: Usage,
}

impl Group {
    /// Returns a cgroup, and the one that limits it, if that is another.
    fn with_limiting(cgroup: Cgroup) -> impl Iterator<Item = Self> {
        let limited = cgroup.limited();
        let group = |cgroup, has_limit| Self {
            cgroup,
            has_limit,
            subject: SubjectId(0),
            gauges: Gauges::default(),
            usage: Usage::default(),
        };
        let inner = group(cgroup, limited.is_none());
        std::iter::once(inner).chain(limited.map(|cgroup| group(cgroup, true)))
    }

    /// Sends it to the sink.
    fn report(&mut self, sink: &dyn SharedSink, at_ns: u64) {
        let path = self.cgroup.path();
        let name = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("/");
        self.subject = with_sink(sink, |sink| sink.subject(at_ns, &subject(SubjectKind::Cgroup, name, path)));
    }
}

/// A subject without a number, a start and a parent.
fn subject(kind: SubjectKind, name: &str, detail: &str) -> Subject {
    let (name, detail) = (name.to_owned(), detail.to_owned());
    Subject { kind, number: 0, start_ns: 0, parent: SubjectId(0), name, detail }
}

/// Sources other than processes.
#[derive(Default)]
pub(crate) struct Surroundings {
    /// The cgroup of the command, or those of selected processes, and the ones that limit them, if these are others.
    cgroups: Vec<Group>,
    gpus: Option<Arc<Gpus>>,
    /// GPUs that are known to the sink.
    devices: Vec<(SubjectId, Gauges)>,
    gpu_number: u64,
    gpu_list_number: u64,
    cgroup_ns: u64,
    limit_ns: u64,
    slow_ns: u64,
    began_cpu_ns: u64,
}

impl Surroundings {
    pub(crate) fn new(cgroup: Option<Cgroup>, gpus: Option<Arc<Gpus>>, began_cpu_ns: u64) -> Self {
        let cgroups = cgroup.into_iter().flat_map(Group::with_limiting).collect();
        Self { cgroups, gpus, began_cpu_ns, ..Self::default() }
    }
}

/// Returns the cgroup of a process.
pub(super) fn cgroup_of(pid: i32, props: &WatchProps) -> Option<Cgroup> {
    match &props.cgroup_root {
        None => Cgroup::of_process(pid),
        Some(folder) => {
            let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
            Cgroup::below(folder, &groups)
        }
    }
}

/// Returns the values of the cgroup that has least left of its limit; of the last one if none has a limit.
fn nearest_to_limit(cgroups: &[Group]) -> Option<Usage> {
    let left = |group: &&Group| {
        let Usage { usage, limit, .. } = group.usage;
        limit.map(|limit| limit.saturating_sub(usage.unwrap_or(0)))
    };
    let limiting = cgroups.iter().filter(|group| group.has_limit && left(group).is_some());
    limiting.min_by_key(left).or(cgroups.last()).map(|group| group.usage)
}

impl Recorder<'_> {
    /// Sends the subjects that exist from the start to the sink.
    pub(crate) fn report_surroundings(&mut self, at_ns: u64, name: &str, detail: &str) {
        if self.origin == Origin::Launched {
            self.job.gauges.set_if_known(Metric::Rank, own_rank().map(u64::from));
        }
        let job = subject(SubjectKind::Job, name, detail);
        self.job.subject = with_sink(self.sink, |sink| sink.subject(at_ns, &job));
        for group in &mut self.surroundings.cgroups {
            group.report(self.sink, at_ns);
        }
    }

    /// Samples the cgroup of a selected process from now on, and the one that limits it.
    pub(super) fn add_cgroup_of(&mut self, pid: i32, now_ns: u64) {
        let Some(cgroup) = cgroup_of(pid, self.props) else { return };
        for mut group in Group::with_limiting(cgroup) {
            let groups = &mut self.surroundings.cgroups;
            let is_known = groups.iter().any(|known| known.cgroup.path() == group.cgroup.path());
            if !is_known && groups.len() < MOST_CGROUPS {
                group.report(self.sink, now_ns);
                // Until limits are read again.
                group.usage.limit = group.has_limit.then(|| group.cgroup.limit()).flatten();
                groups.push(group);
            }
        }
    }

    /// Makes a sweep.
    pub(crate) fn sweep(&mut self, now_ns: u64, observer: &mut dyn Observer) {
        // Only an adaptive pace depends on the cost.
        let cpu_before = matches!(self.props.pace, Pace::Adaptive { .. }).then(thread_cpu_ns);
        self.pacer.begin(now_ns);
        self.discover(now_ns);
        self.apply_exit_stats();
        self.collect_totals(now_ns);
        self.collect_mappings(now_ns);
        let sum_before = self.job.sum.rss;
        let sum = self.sweep_processes(now_ns);
        for index in 0..self.gone.len() {
            self.check_gone(self.gone[index], now_ns);
        }
        let mapped = self.totals.mapped_pages(&sum.parts, now_ns);
        let sum = self.job.narrow(sum, mapped, self.totals.motion());
        let (level, motion) = self.job.swept(sum, self.totals.motion(), now_ns);
        let cgroup = self.sweep_cgroup(now_ns);
        self.sweep_gpus();
        self.sweep_slowly(now_ns);
        self.report_job(now_ns);
        let highest_rss = self.job.peaks.rss_seen.bytes;
        let Sum { rss, total, .. } = sum;
        let level_of_totals = total::Level { rss, highest_rss, total, uncertain: sum.uncertain() };
        self.totals.ask(self.table.processes(), level_of_totals, self.held.passes, now_ns);
        self.mappings.ask(self.table.processes_mut(), now_ns);
        observer.swept(&Sweep {
            at_ns: now_ns,
            rss_bytes: sum.rss,
            change_bytes: sum.rss.wrapping_sub(sum_before) as i64,
            level,
            total: sum.total(),
            cgroup,
            processes: &self.held.sweeps,
        });
        let cost_ns = cpu_before.map_or(0, |before| thread_cpu_ns().saturating_sub(before));
        self.pacer.end(floodmark_tail::clock::monotonic_ns(), motion, cost_ns);
    }

    fn collect_totals(&mut self, now_ns: u64) {
        loop {
            match self.totals.collect(self.table.processes_mut(), now_ns) {
                Read::Nothing => return,
                Read::Gone => {}
                Read::Done { pid, rollup } => {
                    self.job.has_totals = true;
                    self.held.is_stale = true;
                    if let Some(process) = self.table.get_mut(pid) {
                        process.gauges.set(Metric::Pss, rollup.pss);
                        process.gauges.set(Metric::Uss, rollup.uss);
                    }
                }
                Read::Denied { pid, why } => self.note(Note::TotalsDenied { pid, why: why.to_string() }),
            }
        }
    }

    /// Sends what the memory of a process consists of. All of a reading has one time, by which it is known to belong together.
    fn collect_mappings(&mut self, now_ns: u64) {
        let Some(Reading { pid, born_ns, mappings: Some(mappings) }) = self.mappings.collect(now_ns) else {
            return;
        };
        let process = self.table.get_mut(pid).filter(|process| process.born_ns == born_ns);
        let Some(subject) = process.map(|process| process.subject).filter(|subject| *subject != SubjectId(0))
        else {
            return;
        };
        let files = &mut self.files;
        with_sink(self.sink, |sink| {
            let samples = [
                (Metric::RssHeap, mappings.heap),
                (Metric::RssStack, mappings.stack),
                (Metric::RssMapped, mappings.file),
                (Metric::RssOther, mappings.anon),
            ];
            sink.samples(now_ns, subject, &samples);
            for (path, bytes) in mappings.files {
                let file = *files.entry((subject, path)).or_insert_with_key(|(parent, path)| {
                    let (kind, name) = (SubjectKind::Mapping, path.clone());
                    let (number, start_ns, detail) = (0, 0, String::new());
                    sink.subject(now_ns, &Subject { kind, number, start_ns, parent: *parent, name, detail })
                });
                sink.samples(now_ns, file, &[(Metric::Rss, bytes)]);
            }
        });
    }

    /// Samples cgroups; returns the values of the one that limits the command, or of the nearest to its limit.
    fn sweep_cgroup(&mut self, now_ns: u64) -> Option<Usage> {
        let Surroundings { cgroups, cgroup_ns, limit_ns, .. } = &mut self.surroundings;
        if now_ns.saturating_sub(*cgroup_ns) < CGROUP_NS {
            return nearest_to_limit(cgroups);
        }
        *cgroup_ns = now_ns;
        let reads_limits = now_ns.saturating_sub(*limit_ns) >= SLOW_NS;
        if reads_limits {
            *limit_ns = now_ns;
        }
        for group in cgroups.iter_mut() {
            if reads_limits && group.has_limit {
                group.usage.limit = group.cgroup.limit();
            }
            group.usage = Usage { limit: group.usage.limit, ..group.cgroup.read() };
            group.gauges.set_if_known(Metric::CgroupUsage, group.usage.usage);
            group.gauges.set_if_known(Metric::CgroupPeak, group.usage.peak);
            group.gauges.set_if_known(Metric::CgroupLimit, group.usage.limit);
            if let Some(batch) = group.gauges.take(now_ns) {
                with_sink(self.sink, |sink| sink.samples(now_ns, group.subject, batch.as_slice()));
            }
        }
        nearest_to_limit(cgroups)
    }

    /// Sends new readings of GPUs, which a thread of their own makes, to the sink.
    fn sweep_gpus(&mut self) {
        let Some(gpus) = self.surroundings.gpus.clone() else { return };
        let note = gpus.with(|reading| {
            if reading.number != self.surroundings.gpu_number {
                self.surroundings.gpu_number = reading.number;
                self.report_devices(reading);
            }
            if reading.list_number != self.surroundings.gpu_list_number {
                self.surroundings.gpu_list_number = reading.list_number;
                self.set_gpu_memory(&reading.processes);
            }
            match &reading.failed {
                Some(why) => Some(Note::GpuFailed { why: why.clone() }),
                None => reading.has_foreign_processes.then_some(Note::ForeignGpuProcesses),
            }
        });
        if let Some(note) = note.flatten() {
            self.note(note);
        }
    }

    fn report_devices(&mut self, reading: &GpuReading) {
        let at_ns = reading.at_ns;
        let devices = &mut self.surroundings.devices;
        for (index, (name, uuid)) in reading.names.iter().enumerate().skip(devices.len()) {
            let subject = Subject {
                kind: SubjectKind::Device,
                number: index as u64,
                start_ns: 0,
                parent: SubjectId(0),
                name: name.clone(),
                detail: uuid.clone(),
            };
            devices.push((with_sink(self.sink, |sink| sink.subject(at_ns, &subject)), Gauges::default()));
        }
        for ((subject, gauges), device) in devices.iter_mut().zip(&reading.devices) {
            let Some(device) = device else { continue };
            gauges.set(Metric::GpuUsed, device.used);
            gauges.set(Metric::GpuTotal, device.total);
            gauges.set_if_known(Metric::GpuBusy, device.busy);
            if let Some(batch) = gauges.take(at_ns) {
                with_sink(self.sink, |sink| sink.samples(at_ns, *subject, batch.as_slice()));
            }
        }
    }

    /// Sets the GPU memory of processes of the tree; 0 for those that had some and are not listed any more.
    fn set_gpu_memory(&mut self, list: &[(i32, u64)]) {
        // Values of resting processes have to be sent too.
        self.held.is_stale = true;
        for process in self.table.processes_mut() {
            match list.binary_search_by_key(&process.pid, |(pid, _)| *pid) {
                Ok(place) => process.gauges.set(Metric::GpuUsed, list[place].1),
                Err(_) if process.gauges.has(Metric::GpuUsed) => process.gauges.set(Metric::GpuUsed, 0),
                Err(_) => {}
            }
        }
    }

    /// Reads what is not worth its cost at every sweep.
    fn sweep_slowly(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.surroundings.slow_ns) >= SLOW_NS {
            self.surroundings.slow_ns = now_ns;
            let own = process_cpu_ns().saturating_sub(self.surroundings.began_cpu_ns);
            self.job.gauges.set(Metric::OwnCpuTime, own);
            if self.descriptors.refused {
                let limit = crate::sys::limit::Limit::descriptors().count();
                self.note(Note::FewDescriptors { limit });
            }
        }
    }

    fn report_job(&mut self, now_ns: u64) {
        let counts = self.counts();
        let gauges = &mut self.job.gauges;
        gauges.set(Metric::Processes, counts.left);
        gauges.set(Metric::MissedProcesses, counts.missed + counts.unread);
        gauges.set(Metric::LateSweeps, self.pacer.late);
        gauges.set(Metric::Interval, self.pacer.interval_ns());
        if let Some(batch) = gauges.take(now_ns) {
            with_sink(self.sink, |sink| sink.samples(now_ns, self.job.subject, batch.as_slice()));
        }
    }

    /// Sends the last values and the end of the job to the sink.
    pub(crate) fn finish(&mut self, at_ns: u64, own_cpu_ns: u64) {
        self.job.gauges.set(Metric::OwnCpuTime, own_cpu_ns);
        if self.table.is_empty() {
            self.job.gauges.set(Metric::Rss, 0);
        }
        self.report_job(at_ns);
        let largest_bytes = self.job.peaks.largest_process_bytes;
        // A mark of a process that was attached to may be older than the watch.
        let peak_rss_bytes = (self.origin == Origin::Launched && largest_bytes > 0).then_some(largest_bytes);
        if let Some(bytes) = peak_rss_bytes {
            self.job.reached(bytes, at_ns);
        }
        let end = SubjectEnd { wait_status: self.root_status, peak_rss_bytes };
        with_sink(self.sink, |sink| sink.ended(at_ns, self.job.subject, end));
    }
}
