//! All processes together: sums, peaks, and the list of the largest.

use floodmark_event::{Metric, SubjectId};

use crate::metrics::bounds::{self, Carried, Part, PartSum, PeakBound};
use crate::metrics::gauges::Gauges;
use crate::observer::{Level, Total};
use crate::outcome::{Outcome, Peak, PeakSource, Peaks, ProcessPeak, TotalPeak};
use crate::pace::Motion;
use crate::procfs::MappedPages;

/// A total is not recorded if more than this fraction of it is uncertain: it would only mislead.
const MAX_UNCERTAIN: u64 = 20;
/// Changes of the sum below this are noise.
const LEAST_MOTION_BYTES: u64 = 1 << 20;

/// Sums of a sweep, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) rss: u64,
    /// Bounds of the total, by the processes alone.
    pub(crate) parts: PartSum,
    /// Bounds of the total.
    pub(crate) least: u64,
    pub(crate) total: u64,
    /// Largest excess of the high-water mark of one process over what it has now.
    pub(crate) excess: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, rss: u64, part: Part) {
        self.rss = self.rss.saturating_add(rss);
        self.parts.add(part);
    }

    /// Replaces the contribution of a process.
    pub(crate) fn replace(&mut self, before: (u64, Part), after: (u64, Part)) {
        self.rss = self.rss.saturating_sub(before.0).saturating_add(after.0);
        self.parts.remove(before.1);
        self.parts.add(after.1);
    }

    /// How much less than `total` there may be.
    pub(crate) fn uncertain(&self) -> u64 {
        self.total.saturating_sub(self.least)
    }

    pub(crate) fn total(&self) -> Total {
        Total { bytes: self.total, error_bytes: self.uncertain() }
    }
}

/// State of the whole job.
#[derive(Default)]
pub(crate) struct Job {
    pub(crate) subject: SubjectId,
    pub(crate) gauges: Gauges,
    pub(crate) sum: Sum,
    pub(crate) peaks: Peaks,
    pub(crate) largest: Vec<ProcessPeak>,
    /// Whether any proportional set size was read.
    pub(crate) has_totals: bool,
    carried: Carried,
    /// Upper bound of the highest total.
    peak_bound: PeakBound,
    /// Highest lower bound of the total.
    least_peak: Peak,
}

impl Job {
    /// Narrows the bounds of the total of a sweep by those of earlier ones.
    pub(crate) fn narrow(&mut self, sum: Sum, mapped: Option<MappedPages>, motion: &bounds::Motion) -> Sum {
        let (least, total) = self.carried.swept((sum.parts.least, sum.parts.most(mapped)), motion);
        Sum { least, total, ..sum }
    }

    /// Adds the sums of a sweep; returns how they compare with earlier ones. `dropped` is the memory that was
    /// given back since the watch began.
    pub(crate) fn swept(&mut self, sum: Sum, dropped: u64, at_ns: u64) -> (Level, Motion) {
        let moved = sum.rss.abs_diff(self.sum.rss);
        let motion =
            if moved > LEAST_MOTION_BYTES.max(sum.rss / 200) { Motion::Moved } else { Motion::Still };
        self.sum = sum;
        self.gauges.set(Metric::Rss, sum.rss);
        if self.has_totals && sum.uncertain() <= sum.total / MAX_UNCERTAIN {
            self.gauges.set(Metric::Pss, sum.total);
        }
        let level = if sum.rss > self.peaks.rss_seen.bytes { Level::NewPeak } else { Level::BelowPeak };
        if level == Level::NewPeak {
            self.peaks.rss_seen = Peak { bytes: sum.rss, at_ns };
        }
        self.reached(sum.rss.saturating_add(sum.excess), at_ns);
        self.total_reached(sum, dropped, at_ns);
        (level, motion)
    }

    /// Raises the peak of the sum of resident bytes to at least this.
    pub(crate) fn reached(&mut self, bytes: u64, at_ns: u64) {
        if bytes > self.peaks.rss.bytes {
            self.peaks.rss = Peak { bytes, at_ns };
        }
    }

    /// Bounds the peak of the total. Its time is that of the highest lower bound, which an uncertain total does
    /// not raise.
    fn total_reached(&mut self, sum: Sum, dropped: u64, at_ns: u64) {
        self.peak_bound.swept(sum.total, dropped);
        if sum.least > self.least_peak.bytes {
            self.least_peak = Peak { bytes: sum.least, at_ns };
        }
        if self.has_totals {
            let bytes = self.peak_bound.bytes().max(self.least_peak.bytes);
            let error_bytes = bytes - self.least_peak.bytes;
            let peak = Peak { bytes, at_ns: self.least_peak.at_ns };
            self.peaks.total = (bytes > 0).then_some(TotalPeak { peak, error_bytes });
        }
    }

    /// Adds the peak of a process to the list of the largest.
    pub(crate) fn keep_largest(&mut self, peak: ProcessPeak) {
        self.process_reached(peak.rss_bytes);
        let place = self.largest.partition_point(|other| other.rss_bytes >= peak.rss_bytes);
        if place < Outcome::LARGEST {
            self.largest.truncate(Outcome::LARGEST - 1);
            self.largest.insert(place, peak);
        }
    }

    /// Raises the largest peak of any process to at least this.
    pub(crate) fn process_reached(&mut self, bytes: u64) {
        self.peaks.largest_process_bytes = self.peaks.largest_process_bytes.max(bytes);
    }

    /// Handles the end of a process that counted with `rss` in the last sweep and had more, by its exit
    /// statistics.
    pub(crate) fn process_ended(&mut self, (peak, known): (u64, PeakSource), rss: u64, at_ns: u64) {
        if known == PeakSource::Exit {
            self.reached(self.sum.rss.saturating_sub(rss).saturating_add(peak), at_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Sums of a sweep in MiB: resident, and bounds of the total.
    fn sum(rss: u64, least: u64, most: u64) -> Sum {
        Sum { rss: rss * MIB, least: least * MIB, total: most * MIB, ..Sum::default() }
    }

    #[test]
    fn a_reading_at_rest_bounds_the_peak_of_an_uncertain_total() {
        let mut job = Job { has_totals: true, ..Job::default() };
        job.swept(sum(555, 43, 555), 0, 1);
        let peak = Peak { bytes: 555 * MIB, at_ns: 1 };
        assert_eq!(job.peaks.total, Some(TotalPeak { peak, error_bytes: 512 * MIB }));
        job.swept(sum(555, 168, 168), 0, 2);
        job.swept(sum(555, 100, 160), 8 * MIB, 3);
        let expected = TotalPeak { peak: Peak { bytes: 168 * MIB, at_ns: 2 }, error_bytes: 0 };
        assert_eq!(job.peaks.total, Some(expected));
        assert_eq!(job.peaks.rss_seen, Peak { bytes: 555 * MIB, at_ns: 1 });
    }

    #[test]
    fn one_process_that_was_higher_in_between_raises_the_peak() {
        let mut job = Job::default();
        assert_eq!(job.swept(sum(100, 0, 0), 0, 1), (Level::NewPeak, Motion::Moved));
        let spiked = Sum { excess: 30 * MIB, ..sum(100, 0, 0) };
        assert_eq!(job.swept(spiked, 0, 2), (Level::BelowPeak, Motion::Still));
        assert_eq!(job.peaks.rss, Peak { bytes: 130 * MIB, at_ns: 2 });
        job.process_ended((80 * MIB, PeakSource::Exit), 40 * MIB, 3);
        assert_eq!(job.peaks.rss, Peak { bytes: 140 * MIB, at_ns: 3 });
        job.process_ended((800 * MIB, PeakSource::Mark), 40 * MIB, 4);
        assert_eq!(job.peaks.rss.bytes, 140 * MIB, "a mark was counted when it was read");
    }

    #[test]
    fn the_largest_are_listed_and_no_more() {
        let mut job = Job::default();
        for pid in 0..200i32 {
            let rss_bytes = u64::from((pid * 37 % 200).unsigned_abs());
            job.keep_largest(ProcessPeak { pid, name: String::new(), rss_bytes, known: PeakSource::Seen });
        }
        assert_eq!(job.largest.len(), Outcome::LARGEST);
        assert_eq!((job.largest[0].rss_bytes, job.largest[63].rss_bytes), (199, 136));
        assert_eq!(job.peaks.largest_process_bytes, 199);
    }
}
