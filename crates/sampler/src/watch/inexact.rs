//! Peaks of processes that others reaped, where the kernel sends no exit statistics.
//!
//! Of such a process the last high-water mark is known, a lower bound. When the root of the tree is reaped,
//! the kernel reports the highest peak of the root and of all descendants that were waited for: an upper
//! bound. Where both agree, the peak is exact.

use floodmark_event::SubjectId;

/// A process that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) pid: i32,
    pub(super) subject: SubjectId,
    pub(super) at_ns: u64,
    pub(super) status: Option<i32>,
    /// Lower bound of its peak.
    pub(super) bytes: u64,
}

/// Ended processes whose peaks are lower bounds; keeps only those that may have the highest peak.
#[derive(Debug)]
pub(super) struct Inexact {
    count: u64,
    highest: Vec<Ended>,
    highest_bytes: u64,
    /// Largest difference of two readings of the same peak, because the kernel counts pages in batches.
    error_bytes: u64,
}

impl Inexact {
    pub(super) fn new(error_bytes: u64) -> Self {
        Self { count: 0, highest: Vec::new(), highest_bytes: 0, error_bytes }
    }

    /// Number of processes whose peaks are lower bounds.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn add(&mut self, ended: Ended) {
        self.count += 1;
        if ended.bytes > self.highest_bytes {
            self.highest_bytes = ended.bytes;
            let least = ended.bytes.saturating_sub(self.error_bytes);
            self.highest.retain(|other| other.bytes >= least);
        }
        if ended.bytes.saturating_add(self.error_bytes) >= self.highest_bytes {
            self.highest.push(ended);
        }
    }

    /// Removes and returns the processes whose peak is this upper bound of all peaks.
    pub(super) fn settle(&mut self, most_bytes: u64) -> Vec<Ended> {
        let error_bytes = self.error_bytes;
        let is_exact = |ended: &mut Ended| ended.bytes.abs_diff(most_bytes) <= error_bytes;
        let exact: Vec<Ended> = self.highest.extract_if(.., is_exact).collect();
        self.count -= exact.len() as u64;
        exact
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(pid: i32, bytes: u64) -> Ended {
        Ended { pid, subject: SubjectId(pid as u32), at_ns: 0, status: None, bytes }
    }

    #[test]
    fn a_mark_that_equals_the_upper_bound_is_exact() {
        let mut inexact = Inexact::new(2);
        for (pid, bytes) in [(1, 50), (2, 99), (3, 100), (4, 97), (5, 10)] {
            inexact.add(ended(pid, bytes));
        }
        assert_eq!(inexact.count(), 5);
        let exact: Vec<i32> = inexact.settle(101).iter().map(|ended| ended.pid).collect();
        assert_eq!((exact, inexact.count()), (vec![2, 3], 3));
        assert!(inexact.settle(200).is_empty(), "a peak that no mark has shown");
    }
}
