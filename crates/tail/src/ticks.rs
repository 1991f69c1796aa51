//! The processor's tick counter as a clock, for tracers that record millions of calls a second.
//!
//! Reading the counter takes half as long as `clock_gettime`: 12 against 24 ns on a virtual machine. Its rate is
//! measured against the monotonic clock in the recording process, and records still carry monotonic
//! nanoseconds, so nothing that reads a trace needs the rate. Each lane compares the two clocks again every
//! [`MAX_ELAPSED_TICKS`], so that an error of the rate of 50 millionths is 100 ns at most.
//!
//! Where the counter may change its rate or stop, a tick is a nanosecond of the monotonic clock.
#![expect(unsafe_code, reason = "reads the counter of the processor")]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock::monotonic_ns;

/// Ticks after which a lane compares the clocks again; 1 to 2 ms on usual processors.
const MAX_ELAPSED_TICKS: u64 = 1 << 22;
/// Ticks that two readings around one of the monotonic clock may be apart, unless the thread was interrupted.
const MAX_PAIR_TICKS: u64 = 4000;
/// How long the rate is measured before the first use.
const CALIBRATION_NS: u64 = 1_000_000;
/// How long it must have been measured to be taken again.
const MIN_BASELINE_NS: u64 = 10_000_000;
/// A tick that takes one nanosecond.
const NANOSECOND: u64 = 1 << 32;

static USES_COUNTER: AtomicBool = AtomicBool::new(false);
/// Where both clocks stood when the rate was first measured.
static FIRST_TICKS: AtomicU64 = AtomicU64::new(0);
static FIRST_NS: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds per tick, times 2^32.
static RATE: AtomicU64 = AtomicU64::new(NANOSECOND);

/// Returns a reading of the tick counter, see [`calibrate`].
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub fn ticks() -> u64 {
    if USES_COUNTER.load(Ordering::Relaxed) { read_counter() } else { monotonic_ns() }
}

/// Returns about how many ticks pass in `ns` nanoseconds.
pub fn ticks_in(ns: u64) -> u64 {
    ((u128::from(ns) << 32) / u128::from(RATE.load(Ordering::Relaxed).max(1))).try_into().unwrap_or(u64::MAX)
}

/// Measures the rate of the tick counter, once per process, which takes a millisecond; until then, and where the
/// counter is not fit to be a clock, [`ticks`] reads the monotonic clock.
pub fn calibrate() {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if !is_counter_steady() || TAKEN.swap(true, Ordering::Relaxed) {
        return;
    }
    let (first_ticks, first_ns) = pair(read_counter);
    let mut now = (first_ticks, first_ns);
    while now.1 - first_ns < CALIBRATION_NS {
        now = pair(read_counter);
    }
    FIRST_TICKS.store(first_ticks, Ordering::Relaxed);
    FIRST_NS.store(first_ns, Ordering::Relaxed);
    let Some(rate) = rate(now.0.wrapping_sub(first_ticks), now.1 - first_ns) else { return };
    RATE.store(rate, Ordering::Relaxed);
    USES_COUNTER.store(true, Ordering::Release);
}

fn rate(ticks: u64, ns: u64) -> Option<u64> {
    let rate = (u128::from(ns) << 32).checked_div(u128::from(ticks))?;
    // Slower than 1 MHz is no clock to trace calls with, and faster than 1 THz none at all.
    u64::try_from(rate).ok().filter(|rate| (1 << 22..1 << 42).contains(rate))
}

/// Reads both clocks at about the same time.
fn pair(counter: impl Fn() -> u64) -> (u64, u64) {
    let mut best = (u64::MAX, (0, 0));
    for _ in 0..4 {
        let before = counter();
        let ns = monotonic_ns();
        let took = counter().wrapping_sub(before);
        if took < best.0 {
            best = (took, (before.wrapping_add(took / 2), ns));
        }
        if took < MAX_PAIR_TICKS {
            break;
        }
    }
    best.1
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
fn read_counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Whether the counter has the same rate whatever the processor does.
#[cfg(target_arch = "x86_64")]
fn is_counter_steady() -> bool {
    use std::arch::x86_64::__cpuid;
    const INVARIANT_TSC: u32 = 1 << 8;
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & INVARIANT_TSC != 0
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
fn read_counter() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register that Linux lets every program read.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
    };
    ticks
}

/// The architecture promises it.
#[cfg(target_arch = "aarch64")]
fn is_counter_steady() -> bool {
    true
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn read_counter() -> u64 {
    monotonic_ns()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn is_counter_steady() -> bool {
    false
}

/// Where both clocks stood when a lane last compared them. All zeros are valid: the next use compares them.
pub(crate) struct TickAnchor {
    ticks: Cell<u64>,
    ns: Cell<u64>,
    rate: Cell<u64>,
}

impl TickAnchor {
    pub(crate) const fn never() -> Self {
        Self { ticks: Cell::new(0), ns: Cell::new(0), rate: Cell::new(0) }
    }

    /// Converts a reading of [`ticks`] to monotonic nanoseconds.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) fn monotonic_ns(&self, ticks: u64) -> u64 {
        let elapsed = ticks.wrapping_sub(self.ticks.get());
        if elapsed < MAX_ELAPSED_TICKS {
            return self.ns.get().wrapping_add(elapsed.wrapping_mul(self.rate.get()) >> 32);
        }
        self.compare(ticks)
    }

    #[cold]
    #[inline(never)]
    fn compare(&self, ticks: u64) -> u64 {
        let (now_ticks, now_ns) = pair(self::ticks);
        let mut rate = RATE.load(Ordering::Relaxed);
        let since_first = now_ns.wrapping_sub(FIRST_NS.load(Ordering::Relaxed));
        if USES_COUNTER.load(Ordering::Acquire) && since_first > MIN_BASELINE_NS {
            // The longer the clocks were watched, the better the rate is known.
            let first_ticks = FIRST_TICKS.load(Ordering::Relaxed);
            if let Some(measured) = self::rate(now_ticks.wrapping_sub(first_ticks), since_first) {
                rate = measured;
            }
        }
        self.ticks.set(now_ticks);
        self.ns.set(now_ns);
        self.rate.set(rate);
        let difference = (i128::from(now_ticks.wrapping_sub(ticks) as i64) * i128::from(rate)) >> 32;
        now_ns.saturating_add_signed((-difference).clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_follow_the_monotonic_clock() {
        calibrate();
        let anchor = TickAnchor::never();
        for _ in 0..100 {
            let before = monotonic_ns();
            let earlier = ticks();
            let after = monotonic_ns();
            let time = anchor.monotonic_ns(earlier);
            // A millionth of the time since the clocks were compared, and the width of the comparison itself.
            let slack = 20_000;
            assert!(
                (before.saturating_sub(slack)..=after + slack).contains(&time),
                "{before} {time} {after}"
            );
        }
    }

    #[test]
    fn earlier_readings_have_earlier_times() {
        calibrate();
        assert!((1_000..1_000_000_000).contains(&ticks_in(100_000)));
        let anchor = TickAnchor::never();
        let first = ticks();
        let deadline = monotonic_ns() + 5_000_000;
        while monotonic_ns() < deadline {}
        let last = anchor.monotonic_ns(ticks());
        let difference = last - anchor.monotonic_ns(first);
        assert!((4_900_000..1_000_000_000).contains(&difference), "{difference}");
    }
}
