//! One sweep: every process, the group and the devices are read, and what is new is told.

use std::sync::Arc;

use floodmark_event::{Metric, Subject, SubjectEnd, SubjectId, SubjectKind};

use super::recorder::{Origin, Recorder};
use crate::metrics::cgroup::{Cgroup, Usage};
use crate::metrics::gpu::{Gpus, Reading};
use crate::metrics::told::Told;
use crate::metrics::total::Read;
use crate::observer::{Observer, Sweep};
use crate::outcome::Note;
use crate::output::tell;
use crate::rank::own_rank;
use crate::sys::clock::{process_cpu_ns, thread_cpu_ns};

/// How often the group is read at most.
const CGROUP_NS: u64 = 10_000_000;
/// How often processor times, limits and our own cost are read.
pub(super) const SLOW_NS: u64 = 1_000_000_000;

/// What is read besides processes.
#[derive(Default)]
pub(crate) struct Surroundings {
    cgroup: Option<(Cgroup, SubjectId, Told)>,
    gpus: Option<Arc<Gpus>>,
    /// What was told of devices, and which readings that were.
    devices: Vec<(SubjectId, Told)>,
    gpu_number: u64,
    gpu_list_number: u64,
    usage: Usage,
    cgroup_ns: u64,
    limit_ns: u64,
    slow_ns: u64,
    began_cpu_ns: u64,
}

impl Surroundings {
    pub(crate) fn new(cgroup: Option<Cgroup>, gpus: Option<Arc<Gpus>>, began_cpu_ns: u64) -> Self {
        let cgroup = cgroup.map(|cgroup| (cgroup, SubjectId(0), Told::default()));
        Self { cgroup, gpus, began_cpu_ns, ..Self::default() }
    }
}

impl Recorder<'_> {
    /// Tells of the subjects that are there from the start.
    pub(crate) fn tell_of_surroundings(&mut self, at_ns: u64, name: &str, detail: &str) {
        if self.origin == Origin::Launched {
            self.job.told.set_if_known(Metric::Rank, own_rank().map(u64::from));
        }
        let subject = |kind, name: &str, detail: &str| Subject {
            kind,
            number: 0,
            start_ns: 0,
            parent: SubjectId(0),
            name: name.to_owned(),
            detail: detail.to_owned(),
        };
        tell(self.sink, |sink| {
            self.job.subject = sink.subject(at_ns, &subject(SubjectKind::Job, name, detail));
            if let Some((cgroup, id, _)) = &mut self.surroundings.cgroup {
                let path = cgroup.path();
                let name = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("/");
                *id = sink.subject(at_ns, &subject(SubjectKind::Cgroup, name, path));
            }
        });
    }

    /// Reads everything once.
    pub(crate) fn sweep(&mut self, now_ns: u64, observer: &mut dyn Observer) {
        let cpu_before = thread_cpu_ns();
        self.pacer.begin(now_ns);
        self.look(now_ns);
        self.hear_last_words();
        self.collect_totals(now_ns);
        let sum_before = self.job.sum.rss;
        let sum = self.sweep_processes(now_ns);
        for index in 0..self.gone.len() {
            self.check_gone(self.gone[index], now_ns);
        }
        let (level, motion) = self.job.swept(sum, now_ns);
        let cgroup = self.sweep_cgroup(now_ns);
        self.sweep_gpus();
        self.sweep_slowly(now_ns);
        self.tell_of_job(now_ns);
        self.totals.ask(self.table.processes(), sum.total, self.held.passes, now_ns);
        observer.swept(&Sweep {
            at_ns: now_ns,
            rss_bytes: sum.rss,
            change_bytes: sum.rss.wrapping_sub(sum_before) as i64,
            level,
            total: sum.total(),
            cgroup,
            processes: &self.held.sweeps,
        });
        let cost_ns = thread_cpu_ns().saturating_sub(cpu_before);
        self.pacer.end(floodmark_tail::clock::monotonic_ns(), motion, cost_ns);
    }

    fn collect_totals(&mut self, now_ns: u64) {
        match self.totals.collect(self.table.processes_mut(), now_ns) {
            None => {}
            Some(Read::Done { pid, rollup }) => {
                self.job.has_totals = true;
                self.held.is_stale = true;
                if let Some(process) = self.table.get_mut(pid) {
                    process.told.set(Metric::Pss, rollup.pss);
                    process.told.set(Metric::Uss, rollup.uss);
                }
            }
            Some(Read::Denied { pid, why }) => self.note(Note::TotalsDenied { pid, why: why.to_string() }),
        }
    }

    fn sweep_cgroup(&mut self, now_ns: u64) -> Option<Usage> {
        let Surroundings { cgroup: Some((cgroup, subject, told)), usage, cgroup_ns, limit_ns, .. } =
            &mut self.surroundings
        else {
            return None;
        };
        if now_ns.saturating_sub(*cgroup_ns) < CGROUP_NS {
            return Some(*usage);
        }
        *cgroup_ns = now_ns;
        if now_ns.saturating_sub(*limit_ns) >= SLOW_NS {
            *limit_ns = now_ns;
            usage.limit = cgroup.limit();
        }
        *usage = Usage { limit: usage.limit, ..cgroup.read() };
        told.set_if_known(Metric::CgroupUsage, usage.usage);
        told.set_if_known(Metric::CgroupPeak, usage.peak);
        told.set_if_known(Metric::CgroupLimit, usage.limit);
        if let Some(batch) = told.take(now_ns) {
            tell(self.sink, |sink| sink.samples(now_ns, *subject, batch.as_slice()));
        }
        Some(*usage)
    }

    /// Tells what is new of GPUs. They are read by a thread of their own, with times of their own.
    fn sweep_gpus(&mut self) {
        let Some(gpus) = self.surroundings.gpus.clone() else { return };
        let note = gpus.with(|reading| {
            if reading.number != self.surroundings.gpu_number {
                self.surroundings.gpu_number = reading.number;
                self.tell_of_devices(reading);
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

    fn tell_of_devices(&mut self, reading: &Reading) {
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
            devices.push((tell(self.sink, |sink| sink.subject(at_ns, &subject)), Told::default()));
        }
        for ((subject, told), device) in devices.iter_mut().zip(&reading.devices) {
            let Some(device) = device else { continue };
            told.set(Metric::GpuUsed, device.used);
            told.set(Metric::GpuTotal, device.total);
            told.set_if_known(Metric::GpuBusy, device.busy);
            if let Some(batch) = told.take(at_ns) {
                tell(self.sink, |sink| sink.samples(at_ns, *subject, batch.as_slice()));
            }
        }
    }

    /// Sets what processes of the tree use; those that used some and are not listed use none now.
    fn set_gpu_memory(&mut self, list: &[(i32, u64)]) {
        // Those that rest are to be told of too.
        self.held.is_stale = true;
        for process in self.table.processes_mut() {
            match list.binary_search_by_key(&process.pid, |(pid, _)| *pid) {
                Ok(place) => process.told.set(Metric::GpuUsed, list[place].1),
                Err(_) if process.told.has(Metric::GpuUsed) => process.told.set(Metric::GpuUsed, 0),
                Err(_) => {}
            }
        }
    }

    /// What costs more than it is worth at every sweep.
    fn sweep_slowly(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.surroundings.slow_ns) >= SLOW_NS {
            self.surroundings.slow_ns = now_ns;
            let own = process_cpu_ns().saturating_sub(self.surroundings.began_cpu_ns);
            self.job.told.set(Metric::OwnCpuTime, own);
            if self.keep.refused {
                let limit = crate::sys::limit::Limit::descriptors().count();
                self.note(Note::FewDescriptors { limit });
            }
        }
    }

    fn tell_of_job(&mut self, now_ns: u64) {
        let counts = self.counts();
        let told = &mut self.job.told;
        told.set(Metric::Processes, counts.left);
        told.set(Metric::MissedProcesses, counts.missed + counts.unread);
        told.set(Metric::LateSweeps, self.pacer.late);
        told.set(Metric::Interval, self.pacer.interval_ns());
        if let Some(batch) = told.take(now_ns) {
            tell(self.sink, |sink| sink.samples(now_ns, self.job.subject, batch.as_slice()));
        }
    }

    /// The last things that are told.
    pub(crate) fn finish(&mut self, at_ns: u64, own_cpu_ns: u64) {
        self.job.told.set(Metric::OwnCpuTime, own_cpu_ns);
        if self.table.is_empty() {
            self.job.told.set(Metric::Rss, 0);
        }
        self.tell_of_job(at_ns);
        let end = SubjectEnd { wait_status: self.root_status, peak_rss_bytes: None };
        tell(self.sink, |sink| sink.ended(at_ns, self.job.subject, end));
    }
}
