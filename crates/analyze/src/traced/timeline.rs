//! Resident memory over time, and the functions that gained in each part of it.
//!
//! The range of times is not known in advance: intervals begin short, and whenever there are too many of them two become
//! one. So memory depends on the number of processes and functions, not on how long it goes on.

use std::cmp::Reverse;

use floodmark_event::{ProcessId, Tables};
use rustc_hash::FxHashMap;

use super::answer::{CallPeriod, FunctionGain, RssPoint};
use super::list::Named;
use super::{Change, Resident};

/// Intervals that are kept at most; at least half as many, unless the time is shorter.
const MOST: usize = 120;
/// Parts of the time that are listed at most.
const PERIODS: usize = 10;
/// Functions that are named in each.
const FUNCTIONS: usize = 3;
/// Length of the first intervals.
const SHORTEST_NS: i64 = 1000;

#[derive(Clone, Copy, Debug)]
struct Level {
    high: u64,
    last: u64,
}

#[derive(Debug, Default)]
struct Interval {
    levels: FxHashMap<ProcessId, Level>,
    change: Change,
    gained: FxHashMap<u32, u64>,
}

impl Interval {
    /// Adds a later one.
    fn join(&mut self, later: Self) {
        for (process, level) in later.levels {
            let joined = |before: &mut Level| {
                *before = Level { high: before.high.max(level.high), last: level.last };
            };
            self.levels.entry(process).and_modify(joined).or_insert(level);
        }
        self.change.join(later.change);
        for (code, bytes) in later.gained {
            *self.gained.entry(code).or_default() += bytes;
        }
    }
}

/// Collects resident memory over time.
#[derive(Debug)]
pub(super) struct Timeline {
    origin_ns: Option<i64>,
    last_ns: i64,
    width_ns: i64,
    intervals: Vec<Interval>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { origin_ns: None, last_ns: i64::MIN, width_ns: SHORTEST_NS, intervals: Vec::new() }
    }
}

impl Timeline {
    /// A process that had `before` has `rss` bytes from now on.
    pub(super) fn resident(&mut self, process: ProcessId, time_ns: i64, before: Option<u64>, rss: u64) {
        let first = Level { high: rss.max(before.unwrap_or(0)), last: rss };
        let next = |level: &mut Level| *level = Level { high: level.high.max(rss), last: rss };
        self.at(time_ns).levels.entry(process).and_modify(next).or_insert(first);
    }

    /// Resident memory changed in a function, if it is known in which.
    pub(super) fn change(&mut self, time_ns: i64, delta: i64, code: Option<u32>) {
        let interval = self.at(time_ns);
        interval.change.add(delta);
        if let (Some(code), Ok(gained @ 1..)) = (code, u64::try_from(delta)) {
            *interval.gained.entry(code).or_default() += gained;
        }
    }

    /// The interval of an instant; instants that go back count as the latest one.
    fn at(&mut self, time_ns: i64) -> &mut Interval {
        let origin_ns = *self.origin_ns.get_or_insert(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
        let elapsed_ns = self.last_ns.saturating_sub(origin_ns);
        while elapsed_ns / self.width_ns >= MOST as i64 {
            let mut joined: Vec<Interval> = Vec::with_capacity(MOST);
            for (at, interval) in std::mem::take(&mut self.intervals).into_iter().enumerate() {
                match joined.last_mut().filter(|_| at % 2 == 1) {
                    Some(before) => before.join(interval),
                    None => joined.push(interval),
                }
            }
            self.intervals = joined;
            self.width_ns = self.width_ns.saturating_mul(2);
        }
        let at = (elapsed_ns / self.width_ns) as usize;
        if self.intervals.len() <= at {
            self.intervals.resize_with(at + 1, Interval::default);
        }
        &mut self.intervals[at]
    }

    /// Returns resident memory over time, and equal parts of the time. A process counts from when it was first seen until
    /// it was last seen; the one that was seen first counts until the end, because it waits for the others.
    pub(super) fn finish(
        mut self,
        processes: &FxHashMap<ProcessId, Resident>,
        last_ns: Option<i64>,
        tables: &Tables,
    ) -> (Vec<RssPoint>, Vec<CallPeriod>) {
        let Some(origin_ns) = self.origin_ns else { return (Vec::new(), Vec::new()) };
        self.at(last_ns.unwrap_or(origin_ns));
        let (width_ns, end_ns) = (self.width_ns, self.last_ns);
        let begin = |at: usize| origin_ns.saturating_add(width_ns.saturating_mul(at as i64));
        let earliest = processes.values().map(|resident| resident.first_ns).min();
        let (mut points, mut levels) = (Vec::new(), FxHashMap::<ProcessId, u64>::default());
        for (at, interval) in self.intervals.iter().enumerate() {
            let (from_ns, to_ns) = (begin(at), begin(at + 1));
            let mut rss_bytes = 0u64;
            for (process, resident) in processes {
                let level = interval.levels.get(process);
                let high = level.map(|level| level.high).or_else(|| levels.get(process).copied());
                let lasts = resident.last_ns >= from_ns || Some(resident.first_ns) == earliest;
                if resident.first_ns < to_ns && lasts {
                    rss_bytes = rss_bytes.saturating_add(high.unwrap_or(0));
                }
                levels.extend(level.map(|level| (*process, level.last)));
            }
            points.push(RssPoint { time_ns: from_ns, rss_bytes });
        }
        let (chunk, mut periods) = (self.intervals.len().div_ceil(PERIODS), Vec::new());
        let mut intervals = self.intervals.into_iter();
        for (number, part) in points.chunks(chunk).enumerate() {
            let mut all = Interval::default();
            intervals.by_ref().take(part.len()).for_each(|interval| all.join(interval));
            let mut gained: Vec<(u32, u64)> = all.gained.into_iter().collect();
            gained.sort_unstable_by_key(|(code, bytes)| (Reverse(*bytes), *code));
            let function = |(code, bytes): &(u32, u64)| FunctionGain {
                function: Named::of(*code, tables).function,
                gained_bytes: *bytes,
            };
            periods.push(CallPeriod {
                from_ns: part[0].time_ns,
                to_ns: begin(number * chunk + part.len()).min(end_ns),
                peak_rss_bytes: part.iter().map(|point| point.rss_bytes).max().unwrap_or(0),
                gained_bytes: all.change.gained,
                released_bytes: all.change.released,
                functions: gained.iter().take(FUNCTIONS).map(function).collect(),
            });
        }
        (points, periods)
    }
}
