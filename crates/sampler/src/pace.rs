//! Times of sweeps: absolute deadlines, with shorter intervals while memory changes.
//!
//! An adaptive pace begins with its usual interval. While resident memory changes, it halves the interval
//! down to the shortest. When nothing changes, it returns to the usual interval, and after some seconds goes
//! on to the longest. It bounds the share of a core that sweeps take. A fixed pace does not change, whatever
//! it costs.

/// Interval between sweeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// An interval that depends on changes of memory.
    Adaptive {
        /// Usual interval in nanoseconds.
        usual_ns: u64,
        /// Shortest interval in nanoseconds, while memory changes.
        shortest_ns: u64,
        /// Longest interval in nanoseconds, when nothing changes.
        longest_ns: u64,
    },
    /// A constant interval.
    Fixed {
        /// Interval in nanoseconds.
        interval_ns: u64,
    },
}

impl Default for Pace {
    fn default() -> Self {
        Self::Adaptive { usual_ns: 10_000_000, shortest_ns: 1_000_000, longest_ns: 100_000_000 }
    }
}

/// Reciprocals of the largest share of a core that sweeps of an adaptive pace take: at its usual interval or
/// a longer one, and at a shorter one.
const USUAL_COST: u64 = 50;
const MOVING_COST: u64 = 10;
/// Time without a change after which an adaptive pace slows down.
const REST_NS: u64 = 3_000_000_000;
/// Number of sweeps without a change after which the interval is doubled, up to the usual one.
const STILL_SWEEPS: u32 = 8;

/// Lower bound of all intervals.
const LEAST_NS: u64 = 100_000;

/// Whether memory changed by more than noise since the last sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Motion {
    Moved,
    Still,
}

/// Computes the time of the next sweep.
#[derive(Debug)]
pub(crate) struct Pacer {
    pace: Pace,
    interval_ns: u64,
    deadline_ns: u64,
    last_ns: u64,
    moved_ns: u64,
    still: u32,
    /// CPU time of a sweep, smoothed.
    cost_ns: u64,
    pub(crate) sweeps: u64,
    pub(crate) late: u64,
    /// Number of sweeps that were skipped because their time had passed.
    pub(crate) left_out: u64,
    pub(crate) longest_gap_ns: u64,
}

impl Pacer {
    /// Creates a pacer whose first sweep is due now.
    pub(crate) fn new(pace: Pace, now_ns: u64) -> Self {
        let interval_ns = match pace {
            Pace::Adaptive { usual_ns, .. } => usual_ns,
            Pace::Fixed { interval_ns } => interval_ns,
        };
        Self {
            pace,
            interval_ns: interval_ns.max(LEAST_NS),
            deadline_ns: now_ns,
            last_ns: now_ns,
            moved_ns: now_ns,
            still: 0,
            cost_ns: 0,
            sweeps: 0,
            late: 0,
            left_out: 0,
            longest_gap_ns: 0,
        }
    }

    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    pub(crate) fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Notes the start of a sweep.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.sweeps += 1;
        self.late += u64::from(now_ns.saturating_sub(self.deadline_ns) > self.interval_ns / 2);
        if self.sweeps > 1 {
            self.longest_gap_ns = self.longest_gap_ns.max(now_ns.saturating_sub(self.last_ns));
        }
        self.last_ns = now_ns;
    }

    /// Notes the end of a sweep that took `cost_ns` of CPU time.
    pub(crate) fn end(&mut self, now_ns: u64, motion: Motion, cost_ns: u64) {
        self.cost_ns = if self.cost_ns == 0 { cost_ns } else { (7 * self.cost_ns + cost_ns) / 8 };
        self.adapt(now_ns, motion);
        let next = self.deadline_ns + self.interval_ns;
        self.deadline_ns = if next > now_ns {
            next
        } else {
            // Skipped sweeps are counted and not made up for; deadlines stay multiples of the interval.
            self.left_out += 1 + (now_ns - next) / self.interval_ns;
            now_ns + self.interval_ns - (now_ns - next) % self.interval_ns
        };
    }

    fn adapt(&mut self, now_ns: u64, motion: Motion) {
        let Pace::Adaptive { usual_ns, shortest_ns, longest_ns } = self.pace else { return };
        match motion {
            Motion::Moved => {
                self.moved_ns = now_ns;
                self.still = 0;
                self.interval_ns = usual_ns.min(self.interval_ns / 2).max(shortest_ns);
            }
            Motion::Still => {
                self.still += 1;
                if self.interval_ns < usual_ns && self.still >= STILL_SWEEPS {
                    self.still = 0;
                    self.interval_ns = (self.interval_ns * 2).min(usual_ns);
                } else if self.interval_ns >= usual_ns && now_ns.saturating_sub(self.moved_ns) > REST_NS {
                    self.interval_ns =
                        (self.interval_ns + self.interval_ns / 8).min(longest_ns.max(usual_ns));
                }
            }
        }
        let is_moving = motion == Motion::Moved || self.interval_ns < usual_ns;
        let share = if is_moving { MOVING_COST } else { USUAL_COST };
        self.interval_ns = self.interval_ns.max((self.cost_ns * share).min(longest_ns)).max(LEAST_NS);
    }

    /// Shortens a long interval to the usual one, because of an event in the tree.
    pub(crate) fn hurry(&mut self, now_ns: u64) {
        let Pace::Adaptive { usual_ns, .. } = self.pace else { return };
        self.moved_ns = now_ns;
        if self.interval_ns > usual_ns {
            self.interval_ns = usual_ns;
            self.deadline_ns = self.deadline_ns.min(now_ns + usual_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Sweeps on time until `until_ns` and returns the interval at the end.
    fn keep(pacer: &mut Pacer, until_ns: u64, motion: Motion, cost_ns: u64) -> u64 {
        while pacer.deadline_ns() <= until_ns {
            let now_ns = pacer.deadline_ns();
            pacer.begin(now_ns);
            pacer.end(now_ns + cost_ns, motion, cost_ns);
        }
        pacer.interval_ns()
    }

    #[test]
    fn it_hurries_while_memory_moves_and_rests_when_it_does_not() {
        let mut pacer = Pacer::new(Pace::default(), 0);
        assert_eq!(keep(&mut pacer, 500 * MS, Motion::Still, 1000), 10 * MS);
        assert_eq!(keep(&mut pacer, 600 * MS, Motion::Moved, 1000), MS);
        assert_eq!(keep(&mut pacer, 2000 * MS, Motion::Still, 1000), 10 * MS);
        assert_eq!(keep(&mut pacer, 20_000 * MS, Motion::Still, 1000), 100 * MS);
        let now_ns = pacer.deadline_ns() - 90 * MS;
        pacer.hurry(now_ns);
        assert_eq!((pacer.interval_ns(), pacer.deadline_ns()), (10 * MS, now_ns + 10 * MS));
        assert_eq!(pacer.late, 0);
    }

    #[test]
    fn what_costs_much_is_done_less_often() {
        let mut pacer = Pacer::new(Pace::default(), 0);
        assert_eq!(keep(&mut pacer, 1000 * MS, Motion::Still, MS), 50 * MS);
        assert_eq!(keep(&mut pacer, 2000 * MS, Motion::Moved, MS), 10 * MS);
    }

    #[test]
    fn a_fixed_pace_is_kept_and_lateness_counted() {
        let mut pacer = Pacer::new(Pace::Fixed { interval_ns: 2 * MS }, 0);
        assert_eq!(keep(&mut pacer, 10 * MS, Motion::Moved, MS), 2 * MS);
        assert_eq!((pacer.sweeps, pacer.late), (6, 0));
        pacer.begin(19 * MS);
        pacer.end(19 * MS, Motion::Still, MS);
        assert_eq!((pacer.sweeps, pacer.late, pacer.deadline_ns()), (7, 1, 20 * MS), "the rhythm stays");
        assert_eq!(pacer.left_out, 3);
        assert_eq!(pacer.longest_gap_ns, 9 * MS);
    }
}
