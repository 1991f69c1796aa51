//! How much memory there was in all, at each instant of a source.
//!
//! A gauge holds until its next sample, so a total is the sum of the latest values of all subjects of one
//! kind. Samples of one sweep have the same time; the total is told once the sweep is over.

use std::collections::{BTreeMap, HashMap};

use floodmark_event::{Metric, SampleRow, SubjectKind, Tables};

/// Which samples are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Series {
    /// Of subjects of this kind.
    pub kind: SubjectKind,
    /// Their samples of this.
    pub metric: Metric,
}

/// What is shown of a source unless somebody asks for something else: the first of these that it has.
const USUAL: [Series; 6] = [
    Series { kind: SubjectKind::Job, metric: Metric::Rss },
    Series { kind: SubjectKind::Device, metric: Metric::GpuUsed },
    Series { kind: SubjectKind::Process, metric: Metric::GpuUsed },
    Series { kind: SubjectKind::Host, metric: Metric::Rss },
    Series { kind: SubjectKind::Process, metric: Metric::Rss },
    Series { kind: SubjectKind::Cgroup, metric: Metric::CgroupUsage },
];

/// Kinds of subjects, those first that stand for most.
const KINDS: [SubjectKind; 6] = [
    SubjectKind::Job,
    SubjectKind::Device,
    SubjectKind::Host,
    SubjectKind::Process,
    SubjectKind::Cgroup,
    SubjectKind::Pool,
];

impl Series {
    /// Guesses what a source has to show, or has of `metric`, by its first sample and the subjects known
    /// by then.
    pub fn guess(first: &SampleRow, tables: &Tables, metric: Option<Metric>) -> Self {
        let has = |kind| tables.subjects.values().any(|subject| subject.kind == kind);
        if let Some(metric) = metric {
            let kind = KINDS.into_iter().find(|kind| has(*kind)).unwrap_or(SubjectKind::Job);
            return Self { kind, metric };
        }
        let is_likely = |series: &Self| {
            has(series.kind) && (series.kind != SubjectKind::Process || series.metric == first.metric)
        };
        let kind = tables.subjects.get(&first.subject).map_or(SubjectKind::Job, |subject| subject.kind);
        USUAL.into_iter().find(is_likely).unwrap_or(Self { kind, metric: first.metric })
    }

    /// In words, as in `rss of the job`.
    pub fn title(self) -> String {
        let whose = match self.kind {
            SubjectKind::Job => "the job",
            SubjectKind::Device => "all devices",
            SubjectKind::Host => "all hosts",
            SubjectKind::Process => "all processes",
            SubjectKind::Pool => "all pools",
            _ => "all control groups",
        };
        format!("{} of {whose}", self.metric.name())
    }
}

/// The total at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// When.
    pub time_ns: i64,
    /// The sum.
    pub total: u64,
    /// Who reported in this sweep, with their values: hosts of a job, else the subjects added up.
    pub reports: Vec<(u64, u64)>,
}

/// Adds samples up.
#[derive(Clone, Debug)]
pub struct Levels {
    series: Series,
    latest: HashMap<u64, u64>,
    total: u64,
    /// The sweep at hand.
    time_ns: i64,
    seen: Vec<(u64, u64)>,
    hosts: Vec<(u64, u64)>,
}

impl Levels {
    /// Adds up the samples of `series`.
    pub fn new(series: Series) -> Self {
        let (latest, seen, hosts) = (HashMap::new(), Vec::new(), Vec::new());
        Self { series, latest, total: 0, time_ns: i64::MIN, seen, hosts }
    }

    /// Takes a sample; returns the total of the sweep before if that is over now.
    pub fn push(&mut self, row: &SampleRow, tables: &Tables) -> Option<Level> {
        let kind = tables.subjects.get(&row.subject).map(|subject| subject.kind)?;
        let is_ours = Series { kind, metric: row.metric } == self.series;
        let is_host = self.series.kind == SubjectKind::Job
            && kind == SubjectKind::Host
            && row.metric == self.series.metric;
        if !is_ours && !is_host {
            return self.before(row.time_ns);
        }
        let seen = if is_ours { &self.seen } else { &self.hosts };
        let is_again = seen.iter().any(|(subject, _)| *subject == row.subject);
        let level = if is_again { self.finish() } else { self.before(row.time_ns) };
        self.time_ns = row.time_ns;
        if is_host {
            self.hosts.push((row.subject, row.value));
            return level;
        }
        let before = self.latest.insert(row.subject, row.value).unwrap_or(0);
        self.total = self.total.saturating_sub(before).saturating_add(row.value);
        self.seen.push((row.subject, row.value));
        level
    }

    /// Whether the sweep at hand is of `time_ns`.
    pub fn is_open_at(&self, time_ns: i64) -> bool {
        !self.seen.is_empty() && self.time_ns == time_ns
    }

    /// Returns the total of the sweep at hand if it was over before `time_ns`.
    pub fn before(&mut self, time_ns: i64) -> Option<Level> {
        (time_ns != self.time_ns).then(|| self.finish()).flatten()
    }

    /// Returns the total of the sweep at hand, if it has one.
    pub fn finish(&mut self) -> Option<Level> {
        let (seen, hosts) = (std::mem::take(&mut self.seen), std::mem::take(&mut self.hosts));
        let reports = if hosts.is_empty() { seen.clone() } else { hosts };
        (!seen.is_empty()).then_some(Level { time_ns: self.time_ns, total: self.total, reports })
    }
}

/// What a source has to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Which samples are added up.
    pub series: Series,
    /// The highest total.
    pub highest: u64,
    /// How many subjects report: hosts of a job, else those added up.
    pub reporters: usize,
}

/// Looks through a source before it is shown.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    series: BTreeMap<Series, (Levels, u64)>,
}

impl Survey {
    /// Takes a sample.
    pub fn add(&mut self, row: &SampleRow, tables: &Tables) {
        let Some(subject) = tables.subjects.get(&row.subject) else { return };
        let series = Series { kind: subject.kind, metric: row.metric };
        let (levels, highest) = self.series.entry(series).or_insert_with(|| (Levels::new(series), 0));
        let level = levels.push(row, tables);
        *highest = (*highest).max(level.map_or(0, |level| level.total));
    }

    /// Returns what there is to show of `metric`, or of what is usual; none if there is nothing.
    pub fn finish(mut self, metric: Option<Metric>) -> Option<Extent> {
        for (levels, highest) in self.series.values_mut() {
            *highest = (*highest).max(levels.finish().map_or(0, |level| level.total));
        }
        let usual = USUAL.into_iter().find(|series| self.series.contains_key(series));
        let series = match metric {
            None => usual.or_else(|| self.series.keys().next().copied()),
            Some(metric) => {
                let series = KINDS.map(|kind| Series { kind, metric });
                series.into_iter().find(|series| self.series.contains_key(series))
            }
        }?;
        let (levels, highest) = &self.series[&series];
        let hosts = Series { kind: SubjectKind::Host, metric: series.metric };
        let hosts = self.series.get(&hosts).filter(|_| series.kind == SubjectKind::Job);
        let reporters = hosts.map_or(levels.latest.len(), |(levels, _)| levels.latest.len());
        Some(Extent { series, highest: *highest, reporters })
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::SubjectRow;

    use super::*;

    fn tables(kinds: &[SubjectKind]) -> Tables {
        let mut tables = Tables::default();
        for (subject, kind) in (1..).zip(kinds) {
            let row = SubjectRow::new(subject, *kind, 0, "");
            tables.subjects.insert(subject, row);
        }
        tables
    }

    fn levels(rows: &[(i64, u64, u64)], metric: Metric, tables: &Tables) -> (Extent, Vec<(i64, u64, usize)>) {
        let row = |&(time_ns, subject, value)| SampleRow { time_ns, subject, metric, value };
        let mut survey = Survey::default();
        for each in rows {
            survey.add(&row(each), tables);
        }
        let extent = survey.finish(None).expect("samples");
        let mut levels = Levels::new(extent.series);
        let mut all: Vec<_> = rows.iter().filter_map(|each| levels.push(&row(each), tables)).collect();
        all.extend(levels.finish());
        (extent, all.into_iter().map(|level| (level.time_ns, level.total, level.reports.len())).collect())
    }

    #[test]
    fn a_sweep_over_devices_is_one_total() {
        let tables = tables(&[SubjectKind::Device; 2]);
        let rows = [(1, 1, 10), (1, 2, 20), (2, 1, 40), (2, 2, 5), (3, 2, 6)];
        let (extent, all) = levels(&rows, Metric::GpuUsed, &tables);
        assert_eq!(all, [(1, 30, 2), (2, 45, 2), (3, 46, 1)]);
        assert_eq!((extent.highest, extent.reporters), (46, 2), "sums within a sweep do not count");
    }

    #[test]
    fn hosts_of_a_job_report_and_the_job_is_the_total() {
        use SubjectKind::{Host, Job};
        let tables = tables(&[Job, Host, Host]);
        // The second and third row of the log have the same time.
        let rows = [(1, 1, 10), (1, 2, 10), (2, 1, 30), (2, 3, 20), (2, 1, 35), (2, 2, 15)];
        let (extent, all) = levels(&rows, Metric::Rss, &tables);
        assert_eq!(all, [(1, 10, 1), (2, 30, 1), (2, 35, 1)]);
        assert_eq!((extent.series.kind, extent.highest, extent.reporters), (Job, 35, 2));
    }
}
