//! What is kept of an address space over time, in little memory.

use crate::fragmentation::address_space::Fill;
use crate::fragmentation::result::{Occupancy, RequestAnswer, Spell, fragmentation};

/// Spells that are listed.
const SPELLS: usize = 20;

/// Points of a timeline, at most twice as many.
const POINTS: usize = 250;

/// An address space from its first instant on.
#[derive(Clone, Debug)]
pub(super) struct History {
    first_ns: i64,
    last_ns: i64,
    fill: Fill,
    peak: Occupancy,
    worst: Occupancy,
    /// Time in which something was free, and fragmentation summed over it.
    free_ns: f64,
    weighted: f64,
    request: Option<Request>,
    timeline: Timeline,
}

impl History {
    pub(super) fn new(time_ns: i64, request_bytes: Option<u64>) -> Self {
        Self {
            first_ns: time_ns,
            last_ns: time_ns,
            fill: Fill::default(),
            peak: Occupancy { time_ns, ..Occupancy::default() },
            worst: Occupancy { time_ns, ..Occupancy::default() },
            free_ns: 0.0,
            weighted: 0.0,
            request: request_bytes.map(|bytes| Request { bytes, ..Request::default() }),
            timeline: Timeline::new(time_ns),
        }
    }

    /// Takes in how the address space is filled from `time_ns` on.
    #[inline]
    pub(super) fn change(&mut self, time_ns: i64, change: u64, fill: Fill) {
        self.pass(time_ns);
        self.fill = fill;
        if fill.live_bytes > self.peak.live_bytes {
            self.peak = Occupancy::new(time_ns, change, fill);
        }
        if fill.scattered_bytes() > self.worst.scattered_bytes() || self.worst.change == 0 {
            self.worst = Occupancy::new(time_ns, change, fill);
        }
        if let Some(request) = &mut self.request {
            request.change(self.last_ns, fill);
        }
        self.timeline.change(self.last_ns, change, fill);
    }

    /// Lets time go by.
    fn pass(&mut self, time_ns: i64) {
        if time_ns <= self.last_ns {
            return;
        }
        let passed_ns = time_ns.abs_diff(self.last_ns) as f64;
        if self.fill.free_bytes > 0 {
            self.free_ns += passed_ns;
            self.weighted += passed_ns * fragmentation(self.fill);
        }
        self.last_ns = time_ns;
    }

    pub(super) fn finish(&self, end_ns: i64, change: u64) -> Told {
        let mut whole = self.clone();
        whole.pass(end_ns);
        let mean =
            if whole.free_ns > 0.0 { whole.weighted / whole.free_ns } else { fragmentation(self.fill) };
        Told {
            first_ns: self.first_ns,
            end_ns: whole.last_ns,
            peak: self.peak,
            worst: self.worst,
            end: Occupancy::new(whole.last_ns, change, self.fill),
            mean_fragmentation: mean,
            request: whole.request.map(|request| request.finish(self.first_ns, whole.last_ns, &self.peak)),
            timeline: whole.timeline.points.into_iter().map(|(_, point)| point).collect(),
        }
    }
}

/// What a history tells in the end.
pub(super) struct Told {
    pub(super) first_ns: i64,
    pub(super) end_ns: i64,
    pub(super) peak: Occupancy,
    pub(super) worst: Occupancy,
    pub(super) end: Occupancy,
    pub(super) mean_fragmentation: f64,
    pub(super) request: Option<RequestAnswer>,
    pub(super) timeline: Vec<Occupancy>,
}

/// Whether a request fits, over time.
#[derive(Clone, Debug, Default)]
struct Request {
    bytes: u64,
    first_fit_ns: Option<i64>,
    first_misfit_ns: Option<i64>,
    misfit_since_ns: Option<i64>,
    misfit_ns: u64,
    misfits: u64,
    longest: Vec<Spell>,
}

impl Request {
    #[inline]
    fn change(&mut self, time_ns: i64, fill: Fill) {
        if fill.largest_bytes >= self.bytes {
            self.first_fit_ns.get_or_insert(time_ns);
            self.end_spell(time_ns);
        } else if self.misfit_since_ns.is_none() {
            self.misfit_since_ns = Some(time_ns);
            self.first_misfit_ns.get_or_insert(time_ns);
        }
    }

    fn end_spell(&mut self, to_ns: i64) {
        let Some(from_ns) = self.misfit_since_ns.take() else { return };
        let length = |spell: &Spell| spell.to_ns.abs_diff(spell.from_ns);
        let spell = Spell { from_ns, to_ns };
        self.misfits += 1;
        self.misfit_ns += length(&spell);
        let at = self.longest.partition_point(|other| length(other) >= length(&spell));
        if at < SPELLS {
            self.longest.insert(at, spell);
            self.longest.truncate(SPELLS);
        }
    }

    fn finish(mut self, first_ns: i64, end_ns: i64, peak: &Occupancy) -> RequestAnswer {
        let fits_now = self.misfit_since_ns.is_none();
        self.end_spell(end_ns);
        let whole_ns = end_ns.abs_diff(first_ns);
        let fitted_share = match whole_ns {
            0 => f64::from(u8::from(fits_now)),
            _ => 1.0 - self.misfit_ns as f64 / whole_ns as f64,
        };
        self.longest.sort_unstable_by_key(|spell| spell.from_ns);
        RequestAnswer {
            bytes: self.bytes,
            fitted_share,
            first_fit_ns: self.first_fit_ns,
            first_misfit_ns: self.first_misfit_ns,
            fits_at_peak: peak.largest_gap_bytes >= self.bytes,
            misfits: self.misfits,
            longest_misfits: self.longest,
        }
    }
}

/// Of each interval the instant with most scattered bytes. Intervals double as time goes on.
#[derive(Clone, Debug)]
struct Timeline {
    first_ns: i64,
    width_ns: u64,
    /// Number of the interval, and the instant.
    points: Vec<(u64, Occupancy)>,
}

impl Timeline {
    fn new(first_ns: i64) -> Self {
        Self { first_ns, width_ns: 1, points: Vec::new() }
    }

    #[inline]
    fn change(&mut self, time_ns: i64, change: u64, fill: Fill) {
        let interval = time_ns.abs_diff(self.first_ns) / self.width_ns;
        if let Some((last, point)) = self.points.last_mut()
            && *last == interval
        {
            if fill.scattered_bytes() >= point.scattered_bytes() {
                *point = Occupancy::new(time_ns, change, fill);
            }
            return;
        }
        self.points.push((interval, Occupancy::new(time_ns, change, fill)));
        while self.points.len() > 2 * POINTS {
            self.halve();
        }
    }

    /// Makes intervals twice as wide.
    fn halve(&mut self) {
        self.width_ns = self.width_ns.saturating_mul(2);
        for (interval, _) in &mut self.points {
            *interval /= 2;
        }
        self.points.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same && next.1.scattered_bytes() >= kept.1.scattered_bytes() {
                kept.1 = next.1;
            }
            same
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(free_bytes: u64, largest_bytes: u64) -> Fill {
        Fill { free_bytes, largest_bytes, gaps: 2, ..Fill::default() }
    }

    #[test]
    fn a_timeline_stays_short_and_keeps_the_worst() {
        let mut history = History::new(0, None);
        for at in 0..100_000 {
            let free = if at == 77_777 { 1000 } else { 100 + at as u64 % 7 };
            history.change(at * 10, at as u64 + 1, fill(free, 50));
        }
        let told = history.finish(1_000_000, 100_000);
        assert!(told.timeline.len() <= 2 * POINTS && told.timeline.len() > POINTS / 2);
        assert!(told.timeline.is_sorted_by(|a, b| a.time_ns < b.time_ns));
        assert_eq!(told.worst.time_ns, 777_770);
        assert!(told.timeline.contains(&told.worst));
    }

    #[test]
    fn spells_of_a_request_add_up() {
        let mut history = History::new(0, Some(100));
        for (time_ns, largest) in [(0, 50), (10, 100), (40, 99), (70, 200)] {
            history.change(time_ns, 1, fill(500, largest));
        }
        let answer = history.finish(100, 4).request.unwrap();
        assert_eq!((answer.first_misfit_ns, answer.first_fit_ns, answer.misfits), (Some(0), Some(10), 2));
        assert!((answer.fitted_share - 0.6).abs() < 1e-12);
        assert_eq!(answer.longest_misfits[1], Spell { from_ns: 40, to_ns: 70 });
    }
}
