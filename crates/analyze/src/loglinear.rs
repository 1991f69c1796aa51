//! Buckets whose width grows with their values: each power of two is cut into equal parts.
//!
//! With `BITS` bits a bucket is at most `1 / 2^BITS` as wide as its smallest value, and values below
//! `2^BITS` have buckets of their own. Buckets never cross a power of two.

/// Bucket of `value`.
#[inline]
pub(crate) fn bucket<const BITS: u32>(value: u64) -> usize {
    let power = (value | 1).ilog2();
    if power < BITS {
        return value as usize;
    }
    let shift = power - BITS;
    ((shift as usize) << BITS) + (value >> shift) as usize
}

/// Smallest value of a bucket, and how many values it has.
pub(crate) fn range<const BITS: u32>(bucket: usize) -> (u64, u64) {
    let parts = 1usize << BITS;
    if bucket < 2 * parts {
        return (bucket as u64, 1);
    }
    let shift = (bucket >> BITS) as u32 - 1;
    let low = (bucket & (parts - 1) | parts) as u64;
    (low << shift, 1 << shift)
}

/// The value that stands for all of a bucket.
pub(crate) fn middle<const BITS: u32>(bucket: usize) -> u64 {
    let (low, width) = range::<BITS>(bucket);
    low + (width - 1) / 2
}

/// Number of buckets that cover all values.
pub(crate) const fn bucket_count<const BITS: u32>() -> usize {
    (65 - BITS as usize) << BITS
}

/// Smallest value of the power-of-two class of `value`, and the first beyond it. 0 has its own.
pub(crate) fn class_range(class: usize) -> (u64, u64) {
    match class {
        0 => (0, 1),
        64 => (1 << 63, u64::MAX),
        _ => (1 << (class - 1), 1 << class),
    }
}

/// Power-of-two class of `value`.
#[inline]
pub(crate) fn class(value: u64) -> usize {
    64 - value.leading_zeros() as usize
}

/// Number of classes.
pub(crate) const CLASSES: usize = 65;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_the_range_of_its_bucket_and_buckets_are_narrow() {
        let edges = (0..64).flat_map(|power| {
            let edge = 1u64 << power;
            [edge - 1, edge, edge + 1, edge + edge / 3]
        });
        for value in edges.chain([u64::MAX, u64::MAX - 1]) {
            let at = bucket::<10>(value);
            let (low, width) = range::<10>(at);
            assert!(at < bucket_count::<10>(), "{value}");
            assert!(low <= value && value - low < width, "{value}: {low} + {width}");
            assert!(width == 1 || width <= low / 1024, "{value}: {low} + {width}");
            assert_eq!(bucket::<10>(low), at);
            assert_eq!(bucket::<10>(middle::<10>(at)), at);
            let (from, to) = class_range(class(value));
            assert!(from <= value && (value < to || to == u64::MAX), "{value}");
        }
    }

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        for at in 1..bucket_count::<4>() {
            let (before, width) = range::<4>(at - 1);
            assert_eq!(before.checked_add(width), Some(range::<4>(at).0), "{at}");
        }
    }
}
