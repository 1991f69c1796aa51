//! Which allocations a sample takes.
//!
//! Points are thrown on the bytes that a thread allocates, at distances that are distributed exponentially, and a block is
//! taken if a point falls on it. Whether it is depends on its size alone and on nothing that went before, so sums of sizes
//! that are divided by the probability are right on average, whatever pattern the program has.

use std::cell::Cell;

use crate::thread::Thread;

/// Passes a block if no point falls on it; returns whether it did. If it did not, the block is to be given to [`take`], or
/// the thread has to draw its first point.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(crate) fn passes(thread: &Thread, bytes: usize) -> bool {
    // A block of no bytes can be taken like one of one byte.
    let (bytes, left) = (bytes.max(1) as u64, thread.countdown.get());
    if bytes < left {
        thread.countdown.set(left - bytes);
    }
    bytes < left
}

/// Whether a block is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    No,
    Yes,
}

/// Decides on a block that did not pass, and draws the distance to the next point from its end.
pub(crate) fn take(thread: &Thread, bytes: usize, period: u64) -> Taken {
    if thread.random.get() != 0 {
        thread.countdown.set(distance(&thread.random, period));
        return Taken::Yes;
    }
    // The first allocation of the thread: there was no point yet.
    let seed =
        std::ptr::from_ref(thread).addr() as u64 ^ floodmark_tail::clock::monotonic_ns().rotate_left(32);
    thread.random.set(seed | 1);
    thread.countdown.set(distance(&thread.random, period));
    if passes(thread, bytes) {
        return Taken::No;
    }
    thread.countdown.set(distance(&thread.random, period));
    Taken::Yes
}

/// Draws a distance in bytes, `period` on average.
fn distance(random: &Cell<u64>, period: u64) -> u64 {
    // xorshift64*, whose upper bits are good.
    let mut state = random.get();
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    random.set(state);
    let uniform = ((state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    ((-uniform.ln() * period as f64).ceil() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_have_the_mean_and_the_spread_of_an_exponential_distribution() {
        let random = Cell::new(12345);
        let drawn: Vec<f64> = (0..100_000).map(|_| distance(&random, 1000) as f64).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        assert!((mean - 1000.0).abs() < 15.0, "{mean}");
        assert!((variance.sqrt() - 1000.0).abs() < 25.0, "{variance}");
    }
}
