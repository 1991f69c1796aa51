//! All processes together: sums, peaks, and the list of the largest.

use std::collections::VecDeque;

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
/// Largest number of sweeps that are kept for processes that lost their memory and have not ended.
const MOST_PAST_SWEEPS: usize = 256;

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
    /// The last sweeps, the latest last.
    sweeps: VecDeque<PastSweep>,
}

/// A sweep after which processes may have grown that have not ended yet.
struct PastSweep {
    number: u64,
    /// Upper bound of the total.
    total: u64,
    /// What had been added and given back since the watch began.
    grown: u64,
    dropped: u64,
    /// What was added until the next sweep.
    grown_after: u64,
    /// What processes grew after it that no sweep saw, as far as they have ended.
    unseen: u64,
}

impl Job {
    /// Narrows the bounds of the total of a sweep by those of earlier ones.
    pub(crate) fn narrow(&mut self, sum: Sum, mapped: Option<MappedPages>, motion: &bounds::Motion) -> Sum {
        let (least, total) = self.carried.swept((sum.parts.least, sum.parts.most(mapped)), motion);
        Sum { least, total, ..sum }
    }

    /// Adds the sums of a sweep; returns how they compare with earlier ones.
    pub(crate) fn swept(&mut self, sum: Sum, changes: &bounds::Motion, at_ns: u64) -> (Level, Motion) {
        let number = self.sweep_number() + 1;
        if let Some(last) = self.sweeps.back_mut() {
            last.grown_after = changes.grown.saturating_sub(last.grown);
            if last.unseen > 0 {
                self.peak_bound.grew(last.total, last.dropped, (last.grown_after, last.unseen));
            }
        }
        if self.sweeps.len() == MOST_PAST_SWEEPS {
            self.sweeps.pop_front();
        }
        let bounds::Motion { grown, dropped, .. } = *changes;
        let (grown_after, unseen) = (0, 0);
        self.sweeps.push_back(PastSweep { number, total: sum.total, grown, dropped, grown_after, unseen });
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
        self.bound_total();
    }

    fn bound_total(&mut self) {
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

    /// Number of the last sweep, from 1.
    pub(crate) fn sweep_number(&self) -> u64 {
        self.sweeps.back().map_or(0, |sweep| sweep.number)
    }

    /// Raises the upper bound of the total by the growth of a process after the last sweep that counted it. Others
    /// that grew after that sweep may have been as high at the same time.
    pub(crate) fn grew_unseen(&mut self, bytes: u64, after_sweep: u64) {
        // Numbers are consecutive. Of a sweep that is not kept any more nothing is known.
        let first = self.sweeps.front().map_or(0, |sweep| sweep.number);
        let at = after_sweep.checked_sub(first).and_then(|at| usize::try_from(at).ok());
        if let Some(sweep) = at.and_then(|at| self.sweeps.get_mut(at)) {
            sweep.unseen = sweep.unseen.saturating_add(bytes);
            self.peak_bound.grew(sweep.total, sweep.dropped, (sweep.grown_after, sweep.unseen));
            self.bound_total();
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
        let dropped = |mib: u64| bounds::Motion { dropped: mib * MIB, ..bounds::Motion::default() };
        job.swept(sum(555, 43, 555), &dropped(0), 1);
        let peak = Peak { bytes: 555 * MIB, at_ns: 1 };
        assert_eq!(job.peaks.total, Some(TotalPeak { peak, error_bytes: 512 * MIB }));
        job.swept(sum(555, 168, 168), &dropped(0), 2);
        job.swept(sum(555, 100, 160), &dropped(8), 3);
        let expected = TotalPeak { peak: Peak { bytes: 168 * MIB, at_ns: 2 }, error_bytes: 0 };
        assert_eq!(job.peaks.total, Some(expected));
        assert_eq!(job.peaks.rss_seen, Peak { bytes: 555 * MIB, at_ns: 1 });
    }

    #[test]
    fn one_process_that_was_higher_in_between_raises_the_peak() {
        let mut job = Job::default();
        assert_eq!(job.swept(sum(100, 0, 0), &bounds::Motion::default(), 1), (Level::NewPeak, Motion::Moved));
        let spiked = Sum { excess: 30 * MIB, ..sum(100, 0, 0) };
        assert_eq!(job.swept(spiked, &bounds::Motion::default(), 2), (Level::BelowPeak, Motion::Still));
        assert_eq!(job.peaks.rss, Peak { bytes: 130 * MIB, at_ns: 2 });
        job.process_ended((80 * MIB, PeakSource::Exit), 40 * MIB, 3);
        assert_eq!(job.peaks.rss, Peak { bytes: 140 * MIB, at_ns: 3 });
        job.process_ended((800 * MIB, PeakSource::Mark), 40 * MIB, 4);
        assert_eq!(job.peaks.rss.bytes, 140 * MIB, "a mark was counted when it was read");
    }

    #[test]
    fn growth_known_at_the_end_of_processes_widens_the_range_of_the_total() {
        let mut job = Job { has_totals: true, ..Job::default() };
        let stated =
            |job: &Job| job.peaks.total.map(|total| (total.peak.bytes / MIB, total.error_bytes / MIB));
        let mut changes = bounds::Motion::default();
        job.swept(sum(120, 98, 98), &changes, 1);
        assert_eq!(stated(&job), Some((98, 0)));
        job.grew_unseen(2 * MIB, 1);
        job.grew_unseen(MIB, 1);
        assert_eq!(stated(&job), Some((101, 3)), "both may have been at their peaks at once");
        // Another process grew by 4 MiB meanwhile, and those two gave back what the sweep had seen.
        (changes.grown, changes.dropped) = (4 * MIB, 40 * MIB);
        job.swept(sum(70, 62, 62), &changes, 2);
        assert_eq!(stated(&job), Some((105, 7)));
        job.grew_unseen(5 * MIB, job.sweep_number());
        assert_eq!(stated(&job), Some((105, 7)), "62 and 5 MiB are below the peak");
        job.grew_unseen(MIB, 1);
        assert_eq!(stated(&job), Some((106, 8)), "one that had no memory at the second sweep ended later");
        for at_ns in 0..MOST_PAST_SWEEPS as u64 {
            job.swept(sum(70, 62, 62), &changes, at_ns);
        }
        job.grew_unseen(900 * MIB, 1);
        assert_eq!(stated(&job), Some((106, 8)), "the first sweep is not kept any more");
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
