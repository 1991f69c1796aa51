//! Which samples are added up, and which of them an input is about.

use floodmark_event::{Metric, SampleRow, SubjectKind, Tables};

use super::SampleState;

/// A metric of all subjects of a kind, whose values are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesKey {
    /// Kind of the subjects.
    pub kind: SubjectKind,
    /// Metric that is added up.
    pub metric: Metric,
}

impl SeriesKey {
    /// What an input is about, unless the user asks for something else: the first of these that it has.
    pub const USUAL: [Self; 6] = [
        Self { kind: SubjectKind::Job, metric: Metric::Rss },
        Self { kind: SubjectKind::Device, metric: Metric::GpuUsed },
        Self { kind: SubjectKind::Process, metric: Metric::GpuUsed },
        Self { kind: SubjectKind::Host, metric: Metric::Rss },
        Self { kind: SubjectKind::Process, metric: Metric::Rss },
        Self { kind: SubjectKind::Cgroup, metric: Metric::CgroupUsage },
    ];

    /// Kinds of subjects, those first that stand for most.
    pub const KINDS: [SubjectKind; 6] = [
        SubjectKind::Job,
        SubjectKind::Device,
        SubjectKind::Host,
        SubjectKind::Process,
        SubjectKind::Cgroup,
        SubjectKind::Pool,
    ];

    /// Returns the sum that stands for most among those of `metric`, or among the usual ones.
    pub fn choose(metric: Option<Metric>, has: impl Fn(&Self) -> bool) -> Option<Self> {
        match metric {
            Some(metric) => Self::KINDS.map(|kind| Self { kind, metric }).into_iter().find(has),
            None => Self::USUAL.into_iter().find(has),
        }
    }

    /// Guesses what a growing input is about, or has of `metric`, by its first sample and the subjects known
    /// by then.
    pub fn guess(first: &SampleRow, tables: &Tables, metric: Option<Metric>) -> Self {
        let has = |kind| tables.subjects.values().any(|subject| subject.kind == kind);
        let is_likely = |key: &Self| {
            let is_sampled =
                metric.is_some() || key.kind != SubjectKind::Process || key.metric == first.metric;
            has(key.kind) && is_sampled
        };
        Self::choose(metric, is_likely).unwrap_or_else(|| {
            let kind = tables.subjects.get(&first.subject).map_or(SubjectKind::Job, |subject| subject.kind);
            Self { kind, metric: metric.unwrap_or(first.metric) }
        })
    }
}

impl SampleState {
    /// Returns the sum that an input is about, or that it has of `metric`.
    pub fn main_key(&self, metric: Option<Metric>) -> Option<SeriesKey> {
        SeriesKey::choose(metric, |key| self.of_key.contains_key(key))
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::SubjectRow;

    use super::*;

    #[test]
    fn what_stands_for_most_is_chosen() {
        let mut tables = Tables::default();
        for (id, kind) in (1..).zip([SubjectKind::Process, SubjectKind::Pool, SubjectKind::Job]) {
            tables.subjects.insert(id, SubjectRow::new(id, kind, 0, ""));
        }
        let mut state = SampleState::new(&tables.subjects);
        let row = |subject, metric| SampleRow { time_ns: 1, subject, metric, value: 1 };
        for row in [row(1, Metric::Rss), row(2, Metric::Reserved), row(1, Metric::RssAnon)] {
            state.push(&row, &mut ());
        }
        let key = |kind, metric| Some(SeriesKey { kind, metric });
        assert_eq!(state.main_key(None), key(SubjectKind::Process, Metric::Rss));
        assert_eq!(state.main_key(Some(Metric::Reserved)), key(SubjectKind::Pool, Metric::Reserved));
        assert_eq!(state.main_key(Some(Metric::Swap)), None);
        let guess = SeriesKey::guess(&row(1, Metric::Rss), &tables, None);
        assert_eq!(Some(guess), key(SubjectKind::Job, Metric::Rss), "the job will report");
    }
}
