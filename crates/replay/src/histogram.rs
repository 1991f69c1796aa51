//! Durations in buckets whose width grows with their values: each power of two is cut into 32.

/// Parts of a power of two, as a power of two.
const BITS: u32 = 5;
const BUCKETS: usize = (65 - BITS as usize) << BITS;

/// How long something took, again and again.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), count: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    #[inline]
    pub(crate) fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.sum_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    pub(crate) fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The value that this part of 1 of all values do not exceed, to within 3 %; 0 if there are none.
    pub(crate) fn quantile(&self, part: f64) -> u64 {
        let rank = ((self.count as f64 * part).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(at).min(self.max_ns);
            }
        }
        0
    }
}

#[inline]
fn bucket(value: u64) -> usize {
    let power = (value | 1).ilog2();
    if power < BITS {
        return value as usize;
    }
    let shift = power - BITS;
    ((shift as usize) << BITS) + (value >> shift) as usize
}

/// The value that stands for all of a bucket.
fn middle(bucket: usize) -> u64 {
    let parts = 1usize << BITS;
    if bucket < 2 * parts {
        return bucket as u64;
    }
    let shift = (bucket >> BITS) as u32 - 1;
    let low = ((bucket & (parts - 1) | parts) as u64) << shift;
    low + ((1u64 << shift) - 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_three_percent() {
        let mut histogram = Histogram::default();
        (1..=100_000u64).for_each(|ns| histogram.add(ns));
        for (part, exact) in [(0.5, 50_000.0), (0.99, 99_000.0), (0.001, 100.0), (1.0, 100_000.0)] {
            let found = histogram.quantile(part) as f64;
            assert!((found / exact - 1.0).abs() < 0.032, "{part}: {found}");
        }
        assert_eq!((histogram.count(), histogram.max_ns()), (100_000, 100_000));
        assert_eq!(histogram.sum_ns(), 5_000_050_000);
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }

    #[test]
    fn merging_adds_up_and_every_value_has_a_bucket() {
        let (mut one, mut two) = (Histogram::default(), Histogram::default());
        for ns in [0, 1, 31, 32, 63, 64, u64::from(u32::MAX)] {
            one.add(ns);
        }
        two.add(1 << 40);
        one.merge(&two);
        assert_eq!((one.count(), one.quantile(0.0), one.max_ns()), (8, 0, 1 << 40));
        assert!(bucket(u64::MAX) < BUCKETS);
        for value in [0u64, 5, 31, 32, 33, 100, 1000, 1 << 20, (1 << 40) + 12345] {
            assert_eq!(bucket(middle(bucket(value))), bucket(value), "{value}");
        }
    }
}
