//! Numbers for blocks, without a counter that all threads are at all the time.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many numbers a thread takes at a time.
const BATCH: u64 = 1000;
/// For how many sequences a thread remembers its batch.
const REMEMBERED: usize = 4;

/// A row of numbers from 1.
#[derive(Debug)]
pub(super) struct Sequence {
    id: u64,
    next: AtomicU64,
}

/// What a thread has left of the numbers it took.
#[derive(Clone, Copy)]
struct Batch {
    sequence: u64,
    next: u64,
    end: u64,
}

thread_local! {
    static BATCHES: [Cell<Batch>; REMEMBERED] =
        const { [const { Cell::new(Batch { sequence: 0, next: 0, end: 0 }) }; REMEMBERED] };
}

impl Default for Sequence {
    fn default() -> Self {
        static IDS: AtomicU64 = AtomicU64::new(1);
        Self { id: IDS.fetch_add(1, Ordering::Relaxed), next: AtomicU64::new(1) }
    }
}

impl Sequence {
    #[inline]
    pub(super) fn next(&self) -> u64 {
        BATCHES.with(|batches| {
            let place = &batches[self.id as usize % REMEMBERED];
            let mut batch = place.get();
            if batch.sequence != self.id || batch.next == batch.end {
                batch = self.batch();
            }
            place.set(Batch { next: batch.next + 1, ..batch });
            batch.next
        })
    }

    #[cold]
    fn batch(&self) -> Batch {
        let next = self.next.fetch_add(BATCH, Ordering::Relaxed);
        Batch { sequence: self.id, next, end: next + BATCH }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_count_up_in_a_thread_and_are_never_given_twice() {
        let sequence = Sequence::default();
        let other = Sequence::default();
        let take = || (0..2500).map(|_| (sequence.next(), other.next()).0).collect::<Vec<_>>();
        let mine = take();
        assert_eq!(mine, (1..=2500).collect::<Vec<_>>());
        let lists = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let mut all: HashSet<u64> = mine.into_iter().collect();
        for list in lists {
            assert!(list.is_sorted());
            assert!(list.into_iter().all(|number| all.insert(number)));
        }
    }
}
