//! How sizes of allocations are distributed.
//!
//! Programs allocate few sizes often, so a small cache counts most of them. What falls out of it waits
//! in a short queue and is then counted in one go, because many scattered counters wait for memory
//! side by side in a tight loop but one after the other between allocations.
//!
//! Sizes below 1 MiB have a counter each in a table of which only the pages in use cost memory. Larger
//! sizes have one each in a map; beyond [`LARGE_SIZES`] different ones their counts move into buckets
//! of relative width 1/1024. Count, mean, minimum, maximum and classes stay exact even then.
//!
//! Invariant: an allocation is counted in exactly one of cache, queue, table, map and buckets.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::loglinear::{CLASSES, bucket, bucket_count, class, class_range, middle};
use crate::stats::{HistogramBar, SizeSummary};

/// Sizes below this have a counter each.
const SMALL_SIZES: usize = 1 << 20;
/// How many different larger sizes are counted one by one.
const LARGE_SIZES: usize = 1 << 20;
const BITS: u32 = 10;
const CACHE_BITS: u32 = 8;
const QUEUE: usize = 512;

/// Counts sizes.
#[derive(Clone, Debug)]
pub(crate) struct SizeCounts {
    /// Sizes met lately with how often since they came; a count of 0 marks an empty place.
    cache: Box<[(u64, u64); 1 << CACHE_BITS]>,
    queue: Vec<(u64, u64)>,
    /// By size; empty until the first small one is counted here.
    small: Vec<u32>,
    large: Counts,
    large_sizes: usize,
}

#[derive(Clone, Debug)]
enum Counts {
    Exact(FxHashMap<u64, u64>),
    Bucketed(Box<Buckets>),
}

#[derive(Clone, Debug)]
struct Buckets {
    counts: Vec<u64>,
    classes: [(u64, u128); CLASSES],
    min: u64,
    max: u64,
    distinct: u64,
}

impl Default for SizeCounts {
    fn default() -> Self {
        Self {
            cache: Box::new([(0, 0); 1 << CACHE_BITS]),
            queue: Vec::new(),
            small: Vec::new(),
            large: Counts::Exact(FxHashMap::default()),
            large_sizes: LARGE_SIZES,
        }
    }
}

impl SizeCounts {
    /// Counts one size.
    #[inline]
    pub(crate) fn add(&mut self, size: u64) {
        let place = size.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - CACHE_BITS);
        let cached = &mut self.cache[place as usize];
        if cached.0 == size {
            cached.1 += 1;
        } else {
            let evicted = std::mem::replace(cached, (size, 1));
            self.enqueue(evicted);
        }
    }

    #[inline(never)]
    fn enqueue(&mut self, counted: (u64, u64)) {
        self.queue.push(counted);
        if self.queue.len() >= QUEUE {
            self.work_off_queue();
        }
    }

    fn work_off_queue(&mut self) {
        let mut queue = std::mem::take(&mut self.queue);
        if self.small.is_empty() && queue.iter().any(|(size, _)| *size < SMALL_SIZES as u64) {
            self.small = vec![0; SMALL_SIZES];
        }
        for (size, count) in queue.drain(..) {
            let Some(counter) = self.small.get_mut(size as usize) else {
                self.settle_large(size, count);
                continue;
            };
            if let Some(sum) = u32::try_from(count).ok().and_then(|count| counter.checked_add(count)) {
                *counter = sum;
            } else {
                self.settle_large(size, count);
            }
        }
        self.queue = queue;
    }

    /// Counts what does not fit the table of small sizes.
    fn settle_large(&mut self, size: u64, count: u64) {
        if count == 0 {
            return;
        }
        match &mut self.large {
            Counts::Exact(counts) => {
                *counts.entry(size).or_insert(0) += count;
                if counts.len() > self.large_sizes {
                    self.large = Counts::Bucketed(Box::new(Buckets::from_exact(counts)));
                }
            }
            Counts::Bucketed(buckets) => buckets.add(size, count),
        }
    }

    /// What partial results have of the counts.
    pub(crate) fn data(&self) -> SizesData {
        let in_front = self.cache.iter().chain(&self.queue).copied().filter(|(_, count)| *count > 0);
        let mut sizes: Vec<(u64, u64)> = small_counts(&self.small).chain(in_front).collect();
        let mut buckets = None;
        match &self.large {
            Counts::Exact(counts) => sizes.extend(counts.iter().map(|(size, count)| (*size, *count))),
            Counts::Bucketed(own) => {
                let used = own.counts.iter().enumerate().filter(|(_, count)| **count > 0);
                buckets = Some(BucketsData {
                    counts: used.map(|(at, count)| (at as u32, *count)).collect(),
                    classes: own.classes.to_vec(),
                    min: own.min,
                    max: own.max,
                    distinct: own.distinct,
                });
            }
        }
        join_equal(&mut sizes);
        // Differences are small numbers, and those take few bytes.
        let mut before = 0;
        for (size, _) in &mut sizes {
            let step = *size - before;
            before = std::mem::replace(size, step);
        }
        SizesData { steps: sizes, buckets }
    }

    /// Returns the counts that `data` is of.
    pub(crate) fn of(data: SizesData) -> Self {
        let mut counts = Self::default();
        let mut size = 0u64;
        for (step, count) in data.steps {
            size = size.saturating_add(step);
            counts.queue.push((size, count));
        }
        counts.work_off_queue();
        if let Some(data) = data.buckets {
            let mut buckets = Buckets::from_exact(&FxHashMap::default());
            for (at, count) in data.counts {
                if let Some(bucket) = buckets.counts.get_mut(at as usize) {
                    *bucket = count;
                }
            }
            for (own, class) in buckets.classes.iter_mut().zip(data.classes) {
                *own = class;
            }
            (buckets.min, buckets.max, buckets.distinct) = (data.min, data.max, data.distinct);
            let buckets = Counts::Bucketed(Box::new(buckets));
            if let Counts::Exact(exact) = std::mem::replace(&mut counts.large, buckets) {
                for (size, count) in exact {
                    counts.settle_large(size, count);
                }
            }
        }
        counts
    }

    /// Adds all that `other` counted.
    pub(crate) fn merge(&mut self, other: Self) {
        self.queue.extend(other.cache.iter().filter(|(_, count)| *count > 0));
        self.queue.extend(other.queue);
        self.queue.extend(small_counts(&other.small));
        match other.large {
            Counts::Exact(counts) => self.queue.extend(counts),
            Counts::Bucketed(theirs) => {
                if let Counts::Exact(counts) = &self.large {
                    self.large = Counts::Bucketed(Box::new(Buckets::from_exact(counts)));
                }
                if let Counts::Bucketed(ours) = &mut self.large {
                    ours.merge(&theirs);
                }
            }
        }
        if self.queue.len() >= QUEUE {
            self.work_off_queue();
        }
    }

    /// Returns what is known, with the classes of sizes that occur.
    pub(crate) fn summary(&self) -> (SizeSummary, Vec<HistogramBar>) {
        let (exact, buckets) = match &self.large {
            Counts::Exact(counts) => (Some(counts), None),
            Counts::Bucketed(buckets) => (None, Some(buckets)),
        };
        let in_front = self.cache.iter().chain(&self.queue).copied().filter(|(_, count)| *count > 0);
        let mut sizes: Vec<(u64, u64)> = small_counts(&self.small).chain(in_front).collect();
        sizes.extend(exact.into_iter().flatten().map(|(size, count)| (*size, *count)));
        join_equal(&mut sizes);
        let mut classes = buckets.map_or([(0, 0); CLASSES], |buckets| buckets.classes);
        for (size, count) in &sizes {
            add_class(&mut classes, *size, *count);
        }
        let (smallest, largest) = (sizes.first().map(|size| size.0), sizes.last().map(|size| size.0));
        let mut distinct = sizes.len() as u64;
        if let Some(buckets) = buckets {
            distinct = buckets.distinct + small_counts(&self.small).count() as u64;
            sizes.extend(buckets.sizes());
            sizes.sort_unstable();
        }
        let summary = SizeSummary {
            min: smallest.into_iter().chain(buckets.map(|buckets| buckets.min)).min(),
            max: largest.into_iter().chain(buckets.map(|buckets| buckets.max)).max(),
            distinct,
            approximate: buckets.is_some(),
            ..describe(&sizes, &classes)
        };
        (summary, bars(&classes))
    }
}

/// What partial results have of counts of sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SizesData {
    /// Sizes that were counted one by one, each as the difference from the one before, and how often.
    steps: Vec<(u64, u64)>,
    buckets: Option<BucketsData>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct BucketsData {
    counts: Vec<(u32, u64)>,
    classes: Vec<(u64, u128)>,
    min: u64,
    max: u64,
    distinct: u64,
}

/// Sorts sizes and adds up the counts of equal ones.
fn join_equal(sizes: &mut Vec<(u64, u64)>) {
    sizes.sort_unstable();
    sizes.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        earlier.1 += if same { later.1 } else { 0 };
        same
    });
}

/// The sizes that occur in a table of small ones, with how often.
fn small_counts(small: &[u32]) -> impl Iterator<Item = (u64, u64)> {
    let used = small.iter().enumerate().filter(|(_, count)| **count > 0);
    used.map(|(size, count)| (size as u64, u64::from(*count)))
}

fn add_class(classes: &mut [(u64, u128); CLASSES], size: u64, count: u64) {
    let class = &mut classes[class(size)];
    class.0 += count;
    class.1 += u128::from(size) * u128::from(count);
}

impl Buckets {
    fn from_exact(counts: &FxHashMap<u64, u64>) -> Self {
        let mut buckets = Self {
            counts: vec![0; bucket_count::<BITS>()],
            classes: [(0, 0); CLASSES],
            min: u64::MAX,
            max: 0,
            distinct: counts.len() as u64,
        };
        for (size, count) in counts {
            buckets.add(*size, *count);
        }
        buckets
    }

    fn add(&mut self, size: u64, count: u64) {
        self.counts[bucket::<BITS>(size)] += count;
        self.min = self.min.min(size);
        self.max = self.max.max(size);
        add_class(&mut self.classes, size, count);
    }

    fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *ours += theirs;
        }
        for (ours, theirs) in self.classes.iter_mut().zip(&other.classes) {
            *ours = (ours.0 + theirs.0, ours.1 + theirs.1);
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.distinct = self.distinct.max(other.distinct);
    }

    /// The sizes that stand for the buckets in use, with how often.
    fn sizes(&self) -> impl Iterator<Item = (u64, u64)> {
        let used = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(|(at, count)| (middle::<BITS>(at).clamp(self.min, self.max), *count))
    }
}

/// Describes sorted sizes with their counts; the mean is that of `classes`.
fn describe(sizes: &[(u64, u64)], classes: &[(u64, u128); CLASSES]) -> SizeSummary {
    let count: u64 = sizes.iter().map(|(_, count)| count).sum();
    if count == 0 {
        return SizeSummary::default();
    }
    let sum: u128 = classes.iter().map(|class| class.1).sum();
    let mean = sum as f64 / count as f64;
    let squares: f64 = sizes.iter().map(|(size, count)| (*size as f64 - mean).powi(2) * *count as f64).sum();
    let at = |share| Some(quantile(sizes, count, share));
    SizeSummary {
        count,
        mean: Some(mean),
        std: (count > 1).then(|| (squares / (count - 1) as f64).sqrt()),
        p25: at(0.25),
        p50: at(0.50),
        p75: at(0.75),
        p95: at(0.95),
        p99: at(0.99),
        ..SizeSummary::default()
    }
}

/// The value below which a `share` of all lies, interpolated linearly between neighbours.
fn quantile(sizes: &[(u64, u64)], count: u64, share: f64) -> f64 {
    let position = (count - 1) as f64 * share;
    let below = position.floor();
    let (mut passed, mut lower) = (0, None);
    for (size, count) in sizes {
        passed += count;
        if lower.is_none() && passed as f64 > below {
            lower = Some(*size as f64);
        }
        if let Some(lower) = lower
            && (passed as f64 > below + 1.0 || position <= below)
        {
            return lower + (*size as f64 - lower) * (position - below);
        }
    }
    lower.unwrap_or(0.0)
}

fn bars(classes: &[(u64, u128); CLASSES]) -> Vec<HistogramBar> {
    let used = classes.iter().enumerate().filter(|(_, (count, _))| *count > 0);
    used.map(|(class, (count, bytes))| {
        let (from_bytes, to_bytes) = class_range(class);
        HistogramBar { from_bytes, to_bytes, count: *count, bytes: u64::try_from(*bytes).unwrap_or(u64::MAX) }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts_of(sizes: impl IntoIterator<Item = u64>, large_sizes: usize) -> SizeCounts {
        let mut counts = SizeCounts { large_sizes, ..SizeCounts::default() };
        for size in sizes {
            counts.add(size);
        }
        counts
    }

    fn summary_of(sizes: impl IntoIterator<Item = u64>, large_sizes: usize) -> SizeSummary {
        counts_of(sizes, large_sizes).summary().0
    }

    #[test]
    fn sizes_are_described_as_pandas_describes_them() {
        // pandas.Series([1000, 2000, 500, 256, 0]).describe()
        let summary = summary_of([1000, 2000, 500, 256, 0], 100);
        assert_eq!((summary.count, summary.mean), (5, Some(751.2)));
        assert!((summary.std.unwrap() - 789.624_720_990_927_5).abs() < 1e-9);
        assert_eq!((summary.min, summary.max), (Some(0), Some(2000)));
        assert_eq!((summary.p25, summary.p50, summary.p75), (Some(256.0), Some(500.0), Some(1000.0)));
        // pandas.Series([1, 2, 3, 4]).quantile([.25, .5, .75])
        let summary = summary_of([4, 3, 2, 1], 100);
        assert_eq!((summary.p25, summary.p50, summary.p75), (Some(1.75), Some(2.5), Some(3.25)));
        assert_eq!(summary_of([], 100), SizeSummary::default());
        assert_eq!(summary_of([7], 100).std, None);
        assert_eq!(summary_of([7], 100).p75, Some(7.0));
    }

    /// Sizes of which half are larger than those that have a counter each.
    fn mixed() -> impl Iterator<Item = u64> {
        (1..50_000u64).map(|i| (i * i * 7919) % 1_000_003 + 1 + (i % 2) * 40_000_000)
    }

    #[test]
    fn beyond_many_sizes_figures_stay_within_a_thousandth() {
        let (exact, rough) = (summary_of(mixed(), usize::MAX), summary_of(mixed(), 1000));
        assert!(rough.approximate && !exact.approximate);
        assert_eq!(
            (rough.count, rough.mean, rough.min, rough.max),
            (exact.count, exact.mean, exact.min, exact.max)
        );
        let near = |a: Option<f64>, b: Option<f64>| (a.unwrap() / b.unwrap() - 1.0).abs() <= 1.0 / 1024.0;
        assert!(near(rough.std, exact.std) && near(rough.p25, exact.p25) && near(rough.p50, exact.p50));
        assert!(near(rough.p75, exact.p75) && near(rough.p95, exact.p95) && near(rough.p99, exact.p99));
    }

    #[test]
    fn merged_counts_equal_counting_all() {
        let part = |odd: usize, large_sizes| {
            let sizes = mixed().enumerate().filter(move |(at, _)| at % 2 == odd).map(|(_, size)| size);
            counts_of(sizes, large_sizes)
        };
        let (whole, whole_bars) = counts_of(mixed(), usize::MAX).summary();
        for large_sizes in [10, usize::MAX] {
            let mut merged = part(0, large_sizes);
            merged.merge(part(1, large_sizes));
            let (merged, bars) = merged.summary();
            assert_eq!(bars, whole_bars);
            assert_eq!((merged.count, merged.mean), (whole.count, whole.mean));
            assert_eq!((merged.min, merged.max), (whole.min, whole.max));
            assert!(merged == whole || merged.approximate);
        }
    }

    #[test]
    fn a_counter_that_is_full_loses_nothing() {
        let mut counts = counts_of([7, 8], 100);
        counts.small = vec![0; SMALL_SIZES];
        counts.small[7] = u32::MAX;
        counts.queue.push((7, 3));
        counts.work_off_queue();
        let mut doubled = counts.clone();
        doubled.merge(counts.clone());
        doubled.work_off_queue();
        let figures = |counts: &SizeCounts| (counts.summary().0.count, counts.summary().0.distinct);
        assert_eq!(figures(&counts), ((1 << 32) + 4, 2));
        assert_eq!(figures(&doubled), ((1 << 33) + 8, 2));
    }

    #[test]
    fn the_histogram_has_one_bar_per_power_of_two_that_occurs() {
        let counts = counts_of([0, 1, 255, 256, 511, 512], 100);
        let bars: Vec<_> =
            counts.summary().1.iter().map(|b| (b.from_bytes, b.to_bytes, b.count, b.bytes)).collect();
        assert_eq!(
            bars,
            [(0, 1, 1, 0), (1, 2, 1, 1), (128, 256, 1, 255), (256, 512, 2, 767), (512, 1024, 1, 512)]
        );
    }
}
