//! Triggers of stacks: peaks, growth, an interval, a limit that is near, and requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use floodmark_event::StackReason;

use crate::observer::{Level, ProcessSweep, Sweep};

/// Growth in bytes below which stacks are never taken.
const LEAST_GROWTH_BYTES: u64 = 1 << 20;
/// Growth by this share triggers even if the time budget is exceeded.
const MUCH: f64 = 0.5;
/// Share of the total growth above which a process counts as grown.
const SHARE_OF_GROWTH: u64 = 100;

/// Triggers of stacks. Shares are relative to the previous value: 0.05 is 5 % more.
#[derive(Clone, Debug, PartialEq)]
pub struct StackWhen {
    /// Triggers at a new peak that is at least this share above the last one taken.
    pub peak_share: Option<f64>,
    /// Triggers when memory grew by this share since the last time, or since its minimum after that.
    pub growth_share: Option<f64>,
    /// Triggers at this interval in nanoseconds.
    pub interval_ns: Option<u64>,
    /// Triggers when this share of a limit is in use: of the cgroup's, or of [`StackWhen::limit_bytes`].
    /// Triggers again whenever half of the remainder is used.
    pub limit_share: Option<f64>,
    /// Limit in bytes for all processes together, in addition to the cgroup's.
    pub limit_bytes: Option<u64>,
    /// Share of the time that may be spent taking stacks. Above it, only growth by half triggers; requests
    /// and a limit that is near trigger regardless.
    pub most_time: f64,
}

impl Default for StackWhen {
    fn default() -> Self {
        Self {
            peak_share: Some(0.05),
            growth_share: None,
            interval_ns: None,
            limit_share: Some(0.9),
            limit_bytes: None,
            most_time: 0.05,
        }
    }
}

/// Requests stacks, from any thread.
#[derive(Clone, Debug, Default)]
pub struct StackRequest(Arc<AtomicBool>);

impl StackRequest {
    /// Requests stacks at the next sweep.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

/// Decides at each sweep whether stacks are taken.
#[derive(Debug)]
pub(crate) struct Trigger {
    when: StackWhen,
    pub(crate) request: StackRequest,
    /// Highest sum at which stacks were taken.
    peak: u64,
    /// Lowest sum since then.
    lowest: Option<u64>,
    /// Time at which stacks were last taken.
    last_ns: Option<u64>,
    /// Earliest time of the next stacks.
    not_before_ns: u64,
    /// Remainder of the limit below which it triggers again; none while the limit is not near.
    room: Option<u64>,
    /// Resident bytes of each process at the last stacks.
    before: HashMap<(i32, u64), u64>,
}

impl Trigger {
    pub(crate) fn new(when: StackWhen) -> Self {
        Self {
            when,
            request: StackRequest::default(),
            peak: 0,
            lowest: None,
            last_ns: None,
            not_before_ns: 0,
            room: None,
            before: HashMap::new(),
        }
    }

    /// Returns the trigger if stacks are to be taken at this sweep.
    pub(crate) fn look(&mut self, sweep: &Sweep<'_>) -> Option<StackReason> {
        let sum = sweep.rss_bytes;
        let lowest = *self.lowest.insert(self.lowest.unwrap_or(0).min(sum));
        if self.request.take() {
            return Some(StackReason::Request);
        }
        if self.is_limit_near(sweep) {
            return Some(StackReason::Limit);
        }
        let is_early = sweep.at_ns < self.not_before_ns;
        let grew = |base: u64, share: f64| {
            let share = if is_early { share.max(MUCH) } else { share };
            sum >= base.saturating_add(((base as f64 * share) as u64).max(LEAST_GROWTH_BYTES))
        };
        if sweep.level == Level::NewPeak && self.when.peak_share.is_some_and(|share| grew(self.peak, share)) {
            return Some(StackReason::Peak);
        }
        if self.when.growth_share.is_some_and(|share| grew(lowest, share)) {
            return Some(StackReason::Growth);
        }
        let is_due = |interval| {
            !is_early && self.last_ns.is_none_or(|last| sweep.at_ns >= last.saturating_add(interval))
        };
        self.when.interval_ns.is_some_and(is_due).then_some(StackReason::Interval)
    }

    fn is_limit_near(&mut self, sweep: &Sweep<'_>) -> bool {
        let Some(share) = self.when.limit_share else { return false };
        let group = sweep.cgroup.and_then(|group| Some((group.usage?, group.limit?)));
        let given = self.when.limit_bytes.map(|limit| (sweep.rss_bytes, limit));
        let rooms = [group, given].into_iter().flatten().map(|(usage, limit)| {
            let room = limit.saturating_sub(usage);
            (room, usage as f64 >= limit as f64 * share)
        });
        let Some((room, is_near)) = rooms.min_by_key(|(room, _)| *room) else { return false };
        if !is_near {
            self.room = None;
            return false;
        }
        let is_news = self.room.is_none_or(|left| room < left);
        if is_news {
            self.room = Some(room / 2);
        }
        is_news
    }

    /// The processes whose stacks are taken: those that grew, or all if growth is not the trigger.
    pub(crate) fn choose(&self, sweep: &Sweep<'_>, reason: StackReason) -> Vec<ProcessSweep> {
        let growth = |process: &ProcessSweep| {
            let before = self.before.get(&(process.pid, process.start_ticks)).copied().unwrap_or(0);
            process.rss_bytes.saturating_sub(before)
        };
        // A newborn has no subject yet; it has one at the next sweep.
        let known = sweep.processes.iter().filter(|process| process.subject.0 != 0);
        if matches!(reason, StackReason::Interval | StackReason::Request) {
            return known.copied().collect();
        }
        let whole: u64 = sweep.processes.iter().map(growth).sum();
        let mut grown: Vec<ProcessSweep> = known
            .clone()
            .copied()
            .filter(|process| growth(process) > 0 && growth(process) >= whole / SHARE_OF_GROWTH)
            .collect();
        grown.sort_by_key(|process| std::cmp::Reverse(growth(process)));
        if grown.is_empty() {
            grown.extend(known.copied().max_by_key(|process| process.rss_bytes));
        }
        grown
    }

    /// Notes the time that it took to take stacks.
    pub(crate) fn took(&mut self, at_ns: u64, took_ns: u64) {
        let share = self.when.most_time.clamp(0.0001, 1.0);
        self.not_before_ns = at_ns.saturating_add((took_ns as f64 / share) as u64);
    }

    /// Notes that stacks were taken at a sweep, and the time it took.
    pub(crate) fn taken(&mut self, sweep: &Sweep<'_>, took_ns: u64) {
        self.peak = self.peak.max(sweep.rss_bytes);
        self.lowest = Some(sweep.rss_bytes);
        self.last_ns = Some(sweep.at_ns);
        self.took(sweep.at_ns, took_ns);
        let sizes = sweep.processes.iter().map(|one| ((one.pid, one.start_ticks), one.rss_bytes));
        self.before = sizes.collect();
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::SubjectId;

    use super::*;
    use crate::metrics::cgroup::Usage;
    use crate::observer::Total;

    const MIB: u64 = 1 << 20;

    struct Scene {
        trigger: Trigger,
        peak: u64,
        at_ns: u64,
        cgroup: Option<Usage>,
        took_ns: u64,
    }

    impl Scene {
        fn new(when: StackWhen) -> Self {
            Self { trigger: Trigger::new(when), peak: 0, at_ns: 0, cgroup: None, took_ns: 0 }
        }

        /// Sweeps 10 ms later; takes stacks if there is a trigger.
        fn sweep(&mut self, sizes: &[u64]) -> Option<(StackReason, Vec<i32>)> {
            let of = |(pid, rss_bytes): (usize, &u64)| ProcessSweep {
                subject: SubjectId(pid as u32 + 1),
                pid: pid as i32,
                start_ticks: 1,
                rss_bytes: rss_bytes * MIB,
                change_bytes: 0,
            };
            let processes: Vec<ProcessSweep> = sizes.iter().enumerate().map(of).collect();
            let rss_bytes = processes.iter().map(|one| one.rss_bytes).sum();
            let level = if rss_bytes > self.peak { Level::NewPeak } else { Level::BelowPeak };
            self.peak = self.peak.max(rss_bytes);
            self.at_ns += 10_000_000;
            let sweep = Sweep {
                at_ns: self.at_ns,
                rss_bytes,
                change_bytes: 0,
                level,
                total: Total::default(),
                cgroup: self.cgroup,
                processes: &processes,
            };
            let reason = self.trigger.look(&sweep)?;
            let chosen = self.trigger.choose(&sweep, reason).iter().map(|one| one.pid).collect();
            self.trigger.taken(&sweep, self.took_ns);
            Some((reason, chosen))
        }

        fn reasons(&mut self, sizes: &[u64]) -> Vec<Option<StackReason>> {
            sizes.iter().map(|size| Some(self.sweep(&[*size])?.0)).collect()
        }
    }

    fn nothing() -> StackWhen {
        StackWhen { peak_share: None, limit_share: None, ..StackWhen::default() }
    }

    const PEAK: Option<StackReason> = Some(StackReason::Peak);
    const GROWTH: Option<StackReason> = Some(StackReason::Growth);
    const LIMIT: Option<StackReason> = Some(StackReason::Limit);

    #[test]
    fn a_peak_counts_if_it_is_a_share_higher_than_the_last_one_taken() {
        let mut scene = Scene::new(StackWhen::default());
        assert_eq!(
            scene.reasons(&[100, 104, 105, 50, 105, 110, 111]),
            [PEAK, None, PEAK, None, None, None, PEAK]
        );
    }

    #[test]
    fn growth_is_counted_from_the_lowest_since_the_last_time() {
        let mut scene = Scene::new(StackWhen { growth_share: Some(0.5), ..nothing() });
        let sizes = [10, 14, 15, 22, 23, 8, 11, 12, 12];
        let reasons = [GROWTH, None, GROWTH, None, GROWTH, None, None, GROWTH, None];
        assert_eq!(scene.reasons(&sizes), reasons);
    }

    #[test]
    fn near_a_limit_stacks_are_taken_whenever_half_of_the_room_is_gone() {
        let when = StackWhen { limit_share: Some(0.9), limit_bytes: Some(1000 * MIB), ..nothing() };
        let mut scene = Scene::new(when);
        let sizes = [899, 900, 940, 951, 960, 976, 500, 901];
        assert_eq!(scene.reasons(&sizes), [None, LIMIT, None, LIMIT, None, LIMIT, None, LIMIT]);
        let mut scene = Scene::new(StackWhen { limit_share: Some(0.9), ..nothing() });
        scene.cgroup = Some(Usage { usage: Some(95), limit: Some(100), peak: None });
        assert_eq!(scene.reasons(&[1, 2]), [LIMIT, None]);
    }

    #[test]
    fn what_grew_is_looked_at_and_what_did_not_is_left_alone() {
        let mut scene = Scene::new(StackWhen::default());
        assert_eq!(scene.sweep(&[10, 10, 10]), Some((StackReason::Peak, vec![0, 1, 2])));
        assert_eq!(scene.sweep(&[10, 1000, 300]), Some((StackReason::Peak, vec![1, 2])));
        scene.trigger.request.ask();
        assert_eq!(scene.sweep(&[10, 10, 10]), Some((StackReason::Request, vec![0, 1, 2])));
        assert_eq!(scene.sweep(&[10, 10, 10]), None);
    }

    #[test]
    fn what_takes_long_is_done_rarely() {
        let mut scene = Scene::new(StackWhen { interval_ns: Some(1), ..nothing() });
        scene.took_ns = 5_000_000;
        let taken = (0..100).filter(|_| scene.sweep(&[1]).is_some()).count();
        assert_eq!(taken, 10, "five milliseconds in a hundred");
        let mut scene = Scene::new(StackWhen::default());
        scene.took_ns = 1_000_000_000;
        assert_eq!(scene.reasons(&[100, 110, 149, 150, 200]), [PEAK, None, None, PEAK, None]);
    }
}
