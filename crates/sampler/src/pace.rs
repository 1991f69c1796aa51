//! When to look: absolute deadlines, closer together while memory moves.
//!
//! An adaptive pace begins at its usual interval. While resident memory moves it halves the interval
//! down to the shortest; when nothing moves it goes back, and after some seconds of rest on to the
//! longest. It never sweeps so often that sweeping costs more than its share of a core. A fixed pace
//! stays as it is, whatever it costs.

/// How often to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As often as memory moves.
    Adaptive {
        /// Usual time between two sweeps.
        usual_ns: u64,
        /// Shortest, while memory moves.
        shortest_ns: u64,
        /// Longest, after long rest.
        longest_ns: u64,
    },
    /// Exactly this often.
    Fixed {
        /// Time between two sweeps.
        interval_ns: u64,
    },
}

impl Default for Pace {
    fn default() -> Self {
        Self::Adaptive { usual_ns: 10_000_000, shortest_ns: 1_000_000, longest_ns: 100_000_000 }
    }
}

/// What sweeps may cost while an adaptive pace is at its usual interval or slower, and while it is
/// faster because memory moves: the reciprocals of shares of a core.
const USUAL_COST: u64 = 50;
const MOVING_COST: u64 = 10;
/// Rest after which an adaptive pace slows down.
const REST_NS: u64 = 3_000_000_000;
/// Sweeps without motion after which it goes back to the usual interval, one step each.
const STILL_SWEEPS: u32 = 8;

/// Shortest interval there is: below it the system spends its time on us.
const LEAST_NS: u64 = 100_000;

/// Whether memory changed since the last sweep by more than noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Motion {
    Moved,
    Still,
}

/// Says when the next sweep is due.
#[derive(Debug)]
pub(crate) struct Pacer {
    pace: Pace,
    interval_ns: u64,
    deadline_ns: u64,
    last_ns: u64,
    moved_ns: u64,
    still: u32,
    /// What a sweep costs, smoothed.
    cost_ns: u64,
    pub(crate) sweeps: u64,
    pub(crate) late: u64,
    /// Sweeps whose time passed before they could be made.
    pub(crate) left_out: u64,
    pub(crate) longest_gap_ns: u64,
}

impl Pacer {
    /// The first sweep is due at once.
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

    /// A sweep begins.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.sweeps += 1;
        self.late += u64::from(now_ns.saturating_sub(self.deadline_ns) > self.interval_ns / 2);
        if self.sweeps > 1 {
            self.longest_gap_ns = self.longest_gap_ns.max(now_ns.saturating_sub(self.last_ns));
        }
        self.last_ns = now_ns;
    }

    /// A sweep is done; `cost_ns` is what it took of a core.
    pub(crate) fn end(&mut self, now_ns: u64, motion: Motion, cost_ns: u64) {
        self.cost_ns = if self.cost_ns == 0 { cost_ns } else { (7 * self.cost_ns + cost_ns) / 8 };
        self.adapt(now_ns, motion);
        let next = self.deadline_ns + self.interval_ns;
        self.deadline_ns = if next > now_ns {
            next
        } else {
            // Sweeps that could not be made are counted and not made up for; the rhythm stays.
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

    /// Something happened in the tree, so that the next sweep should not be far.
    pub(crate) fn stir(&mut self, now_ns: u64) {
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
        pacer.stir(now_ns);
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
