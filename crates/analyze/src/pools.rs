//! Pools of stream-ordered allocation: what they reserve beside what is in use.
//!
//! A pool takes memory from the device and keeps it when blocks are freed, so what it reserves can be far more
//! than what is in use. Both are samples that the pool's own events carry.

use std::collections::BTreeMap;

use floodmark_event::{Metric, SampleRow, SubjectKind, SubjectRow};
use serde::{Deserialize, Serialize};

/// A pool at an instant, and the most that it had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolUse {
    /// Name of the pool.
    pub name: String,
    /// Process that it belongs to, such as `pid 7`; empty if unknown.
    pub process: String,
    /// Bytes that it reserved at the instant.
    pub reserved_bytes: u64,
    /// Bytes of those that were in use.
    pub used_bytes: u64,
    /// The most bytes that it reserved up to the end.
    pub peak_reserved_bytes: u64,
    /// The most bytes that were in use up to the end.
    pub peak_used_bytes: u64,
}

/// Finds what pools had at an instant.
#[derive(Clone, Debug)]
pub struct PoolsFold {
    at_ns: i64,
    pools: BTreeMap<u64, PoolUse>,
}

impl PoolsFold {
    /// Looks at the instant `at_ns`.
    pub const fn new(at_ns: i64) -> Self {
        Self { at_ns, pools: BTreeMap::new() }
    }

    /// Takes in a sample; those of a subject come in the order of time.
    pub fn update(&mut self, row: &SampleRow, subjects: &BTreeMap<u64, SubjectRow>) {
        if !matches!(row.metric, Metric::Reserved | Metric::Live) {
            return;
        }
        let Some(subject) = subjects.get(&row.subject).filter(|row| row.kind == SubjectKind::Pool) else {
            return;
        };
        let pool = self.pools.entry(row.subject).or_insert_with(|| PoolUse {
            name: subject.name.clone(),
            process: subject.detail.clone(),
            ..PoolUse::default()
        });
        let (now, peak) = match row.metric {
            Metric::Reserved => (&mut pool.reserved_bytes, &mut pool.peak_reserved_bytes),
            _ => (&mut pool.used_bytes, &mut pool.peak_used_bytes),
        };
        *peak = row.value.max(*peak);
        if row.time_ns <= self.at_ns {
            *now = row.value;
        }
    }

    /// Returns the pools that ever held memory, those first that reserved most at the instant.
    pub fn finish(self) -> Vec<PoolUse> {
        let mut pools: Vec<PoolUse> = self.pools.into_values().collect();
        pools.retain(|pool| pool.peak_reserved_bytes > 0 || pool.peak_used_bytes > 0);
        pools.sort_by_key(|pool| std::cmp::Reverse((pool.reserved_bytes, pool.peak_reserved_bytes)));
        pools
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_at_the_instant_is_the_latest_before_it() {
        let kinds = [(1, SubjectKind::Pool), (2, SubjectKind::Pool), (3, SubjectKind::Device)];
        let subjects: BTreeMap<u64, SubjectRow> =
            kinds.map(|(id, kind)| (id, SubjectRow::new(id, kind, 0, format!("subject {id}")))).into();
        let mut fold = PoolsFold::new(20);
        for (time_ns, subject, metric, value) in [
            (10, 1, Metric::Reserved, 96),
            (10, 1, Metric::Live, 40),
            (10, 2, Metric::Reserved, 32),
            (15, 3, Metric::Reserved, 7),
            (20, 1, Metric::Live, 64),
            (20, 2, Metric::Reserved, 0),
            (30, 1, Metric::Reserved, 128),
            (30, 1, Metric::Live, 8),
        ] {
            fold.update(&SampleRow { time_ns, subject, metric, value }, &subjects);
        }
        let pool = PoolUse {
            name: "subject 1".into(),
            process: String::new(),
            reserved_bytes: 96,
            used_bytes: 64,
            peak_reserved_bytes: 128,
            peak_used_bytes: 64,
        };
        let gone = PoolUse { name: "subject 2".into(), peak_reserved_bytes: 32, ..PoolUse::default() };
        assert_eq!(fold.finish(), [pool, gone]);
    }
}
