//! The state of a run at its latest instant, for live views.

use floodmark_event::{Metric, SubjectKind};

use super::RunFold;
use super::process::{ProcessMarks, highest_rss};
use crate::samples::Observed;

/// Memory at the latest instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunNow {
    /// Sum of resident bytes.
    pub rss_bytes: u64,
    /// The total in which shared memory counts once, where it is known.
    pub pss_bytes: Option<u64>,
    /// All processes that were seen, in the order in which they were.
    pub processes: Vec<ProcessNow>,
    /// Devices.
    pub devices: Vec<DeviceNow>,
}

/// Memory of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessNow {
    /// The system's number of the process.
    pub pid: u64,
    /// Process of the trace that sampled it, one on each node of a job.
    pub recorder: u32,
    /// Its rank in an MPI job, if it has one.
    pub rank: Option<u64>,
    /// Name of its last program.
    pub name: String,
    /// Command line of that.
    pub command: String,
    /// Resident bytes; 0 once it has ended.
    pub rss_bytes: u64,
    /// Proportional set size, if it was read when there was about as much as now.
    pub pss_bytes: Option<u64>,
    /// Bytes of devices.
    pub gpu_bytes: Option<u64>,
    /// Most resident bytes so far.
    pub peak_rss_bytes: u64,
    /// When it ended.
    pub end_time_ns: Option<i64>,
}

/// Memory of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNow {
    /// Its number.
    pub device: u64,
    /// Its name.
    pub name: String,
    /// Bytes in use, by whomever.
    pub used_bytes: u64,
    /// Most bytes in use so far.
    pub peak_bytes: u64,
    /// Bytes it has.
    pub total_bytes: Option<u64>,
}

impl RunFold {
    /// Returns what there is at the latest instant.
    pub fn now(&self) -> RunNow {
        let of = |kind| self.samples.observed().iter().filter(move |one| one.kind == kind);
        let all = self.samples.observed().iter().zip(&self.peaks.processes);
        let total = of(SubjectKind::Job).filter_map(|job| job.gauge(Metric::Pss));
        RunNow {
            rss_bytes: self.peaks.sum(&self.samples),
            pss_bytes: total.map(|gauge| gauge.last).reduce(u64::saturating_add),
            processes: all.filter(|(one, _)| one.kind == SubjectKind::Process).map(process).collect(),
            devices: of(SubjectKind::Device).filter_map(device).collect(),
        }
    }
}

fn process((one, marks): (&Observed, &ProcessMarks)) -> ProcessNow {
    let is_over = one.is_over || one.end_ns.is_some();
    let now = |metric| one.gauge(metric).map(|gauge| if is_over { 0 } else { gauge.last });
    ProcessNow {
        pid: one.number,
        recorder: (one.subject >> 32) as u32,
        rank: one.gauge(Metric::Rank).map(|gauge| gauge.last),
        name: one.name.clone(),
        command: one.detail.clone(),
        rss_bytes: now(Metric::Rss).unwrap_or(0),
        pss_bytes: now(Metric::Pss).filter(|_| is_over || has_pss_of_now(one, marks)),
        gpu_bytes: now(Metric::GpuUsed),
        peak_rss_bytes: highest_rss(one),
        end_time_ns: one.end_ns,
    }
}

fn has_pss_of_now(one: &Observed, marks: &ProcessMarks) -> bool {
    let rss = one.last(Metric::Rss);
    marks.rss_at_last_pss.is_none_or(|then| then.abs_diff(rss) <= rss / 20)
}

fn device(one: &Observed) -> Option<DeviceNow> {
    let used = one.gauge(Metric::GpuUsed)?;
    Some(DeviceNow {
        device: one.number,
        name: one.name.clone(),
        used_bytes: used.last,
        peak_bytes: used.high,
        total_bytes: one.gauge(Metric::GpuTotal).map(|gauge| gauge.last),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use floodmark_event::{SampleRow, SubjectRow};

    use super::*;
    use crate::run::Mark;

    fn subject(subject: u64, kind: SubjectKind, end_ns: Option<i64>) -> (u64, SubjectRow) {
        let row = SubjectRow {
            start_ns: Some(1),
            end_ns,
            ..SubjectRow::new(subject, kind, subject % 10, format!("program {subject}"))
        };
        (subject, row)
    }

    fn row(time_ns: i64, subject: u64, value: u64) -> SampleRow {
        SampleRow { time_ns, subject, metric: Metric::Rss, value }
    }

    /// Process 3 becomes another program, 13, at 30 and ends at 50; process 4 ends at 35.
    fn all() -> (BTreeMap<u64, SubjectRow>, Vec<SampleRow>) {
        use SubjectKind::Process;
        let subjects =
            [subject(3, Process, Some(30)), subject(4, Process, Some(35)), subject(13, Process, Some(50))];
        let rows = [(10, 3, 5), (20, 3, 7), (20, 4, 9), (30, 3, 6), (40, 13, 20), (45, 13, 8), (60, 3, 0)];
        (subjects.into(), rows.map(|(time_ns, subject, value)| row(time_ns, subject, value)).to_vec())
    }

    #[test]
    fn what_is_learned_bit_by_bit_is_what_was_known_at_once() {
        let (subjects, rows) = all();
        let marks = [(15, "one"), (32, "two"), (47, "three")];
        let mark = |(time_ns, name): (i64, &str)| Mark { time_ns, name: name.to_owned() };
        let mut whole = RunFold::new(&subjects, marks.map(mark).to_vec());
        whole.update(&rows);
        let mut growing = RunFold::new(&BTreeMap::new(), Vec::new());
        for row in &rows {
            // The end of a subject is recorded when it is past, the subject when it is first sampled.
            let seen = subjects
                .iter()
                .filter(|(id, _)| rows.iter().any(|r| r.subject == **id && r.time_ns <= row.time_ns));
            let now: BTreeMap<u64, SubjectRow> = seen
                .map(|(id, subject)| {
                    let end_ns = subject.end_ns.filter(|end_ns| *end_ns < row.time_ns);
                    (*id, SubjectRow { end_ns, ..subject.clone() })
                })
                .collect();
            growing.learn(&now);
            for one in marks.into_iter().filter(|one| one.0 <= row.time_ns).skip(growing.peaks.marks.len()) {
                growing.mark(mark(one));
            }
            growing.update(&[*row]);
        }
        assert_eq!(growing.finish(None), whole.finish(None));
        assert_eq!(growing.now(), whole.now());
    }

    #[test]
    fn a_proportional_size_of_other_times_is_not_told() {
        let subjects = [subject(3, SubjectKind::Process, None)].into();
        let mut fold = RunFold::new(&subjects, Vec::new());
        let pss = |time_ns, value| SampleRow { time_ns, subject: 3, metric: Metric::Pss, value };
        fold.update(&[row(10, 3, 1000), pss(10, 700)]);
        assert_eq!(fold.now().processes[0].pss_bytes, Some(700));
        fold.update(&[row(20, 3, 1040)]);
        assert_eq!(fold.now().processes[0].pss_bytes, Some(700));
        fold.update(&[row(30, 3, 9000)]);
        assert_eq!(fold.now().processes[0].pss_bytes, None);
    }

    #[test]
    fn now_is_what_the_living_have() {
        let (mut subjects, rows) = all();
        for one in subjects.values_mut() {
            one.end_ns = one.end_ns.filter(|end_ns| *end_ns < 40);
        }
        let mut fold = RunFold::new(&subjects, Vec::new());
        fold.update(&rows[..6]);
        let now = fold.now();
        let seen: Vec<_> =
            now.processes.iter().map(|one| (one.pid, one.rss_bytes, one.peak_rss_bytes)).collect();
        assert_eq!((now.rss_bytes, seen), (8, vec![(3, 8, 20), (4, 0, 9)]));
        assert_eq!(now.processes[0].name, "program 13");
    }
}
