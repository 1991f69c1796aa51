//! The processor's tick counter as a clock, for recorders of millions of calls or allocations a second.
//!
//! Reading the counter takes half as long as `clock_gettime`: 12 against 24 ns on a virtual machine. Its rate is
//! measured against the monotonic clock in the recording process, and records still carry monotonic
//! nanoseconds, so nothing that reads a trace needs the rate.
//!
//! A [`Line`] turns ticks into times. All threads of a process use the same one, so that their records have the order
//! of the counter, which all processors share: a block that one thread frees and another one is given at once is never
//! allocated before it was freed. After [`MAX_ELAPSED_TICKS`] the clocks are compared again, and the next line begins
//! where the last one ends, with a rate that leads it back to the monotonic clock: time never jumps back.
//!
//! Where the counter may change its rate or stop, a tick is a nanosecond of the monotonic clock.
#![expect(unsafe_code, reason = "reads the counter of the processor")]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use crate::clock::monotonic_ns;
use crate::session::current_pid;

/// Ticks after which the clocks are compared again; 1 to 2 ms on usual processors.
const MAX_ELAPSED_TICKS: u64 = 1 << 22;
/// Ticks that two readings around one of the monotonic clock may be apart, unless the thread was interrupted.
const MAX_PAIR_TICKS: u64 = 4000;
/// How long the rate is measured before the first use.
const CALIBRATION_NS: u64 = 1_000_000;
/// How long it must have been measured to be taken again.
const MIN_BASELINE_NS: u64 = 10_000_000;
/// A line that is further from the monotonic clock is not continued: the process was stopped, or its machine.
const MAX_ERROR_NS: u64 = 20_000;
/// No reading is older than this when it is turned into a time; minutes on usual processors.
const MAX_AGE_TICKS: u64 = 1 << 40;
/// How long a line takes to make up for the error of the last one.
const CATCH_UP_NS: i64 = 8_000_000;
/// A tick that takes one nanosecond.
const NANOSECOND: u64 = 1 << 32;

static USES_COUNTER: AtomicBool = AtomicBool::new(false);
/// Whether the clocks were read for the first time.
static IS_BEGUN: AtomicBool = AtomicBool::new(false);
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
    calibrate_later();
    if !IS_BEGUN.load(Ordering::Acquire) {
        return;
    }
    while !USES_COUNTER.load(Ordering::Acquire) && use_counter_if_known() == Calibration::TooEarly {
        std::hint::spin_loop();
    }
}

/// Begins to measure the rate of the tick counter. It is used from the first comparison on that comes at least a
/// millisecond later.
pub fn calibrate_later() {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if !is_counter_steady() || TAKEN.swap(true, Ordering::Relaxed) {
        return;
    }
    let (ticks, ns) = pair(read_counter);
    FIRST_TICKS.store(ticks, Ordering::Relaxed);
    FIRST_NS.store(ns, Ordering::Relaxed);
    IS_BEGUN.store(true, Ordering::Release);
}

#[derive(PartialEq, Eq)]
enum Calibration {
    TooEarly,
    Done,
}

/// Uses the counter from now on if its rate was measured long enough.
fn use_counter_if_known() -> Calibration {
    let (ticks, ns) = pair(read_counter);
    let since_first = ns.wrapping_sub(FIRST_NS.load(Ordering::Relaxed));
    if since_first < CALIBRATION_NS {
        return Calibration::TooEarly;
    }
    match rate(ticks.wrapping_sub(FIRST_TICKS.load(Ordering::Relaxed)), since_first) {
        Some(rate) => {
            RATE.store(rate, Ordering::Relaxed);
            USES_COUNTER.store(true, Ordering::Release);
        }
        // No clock.
        None => IS_BEGUN.store(false, Ordering::Relaxed),
    }
    Calibration::Done
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

/// Turns ticks into times.
#[derive(Clone, Copy)]
struct Line {
    /// Where it begins.
    ticks: u64,
    ns: u64,
    /// Nanoseconds per tick, times 2^32; 0 if there is none yet.
    rate: u64,
}

impl Line {
    /// The time of a reading, which may be earlier than the line begins.
    fn at(&self, ticks: u64) -> u64 {
        let elapsed = i128::from(ticks.wrapping_sub(self.ticks) as i64);
        let ns = (elapsed * i128::from(self.rate)) >> 32;
        self.ns.saturating_add_signed(ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// The line that follows this one now.
    fn next(&self) -> Self {
        let (ticks, ns) = pair(read_counter);
        let since_first = ns.wrapping_sub(FIRST_NS.load(Ordering::Relaxed));
        let mut rate = RATE.load(Ordering::Relaxed);
        if since_first > MIN_BASELINE_NS {
            // The longer the clocks were watched, the better the rate is known.
            let first_ticks = FIRST_TICKS.load(Ordering::Relaxed);
            rate = self::rate(ticks.wrapping_sub(first_ticks), since_first).unwrap_or(rate);
        }
        let continued = self.at(ticks);
        let error = ns.wrapping_sub(continued) as i64;
        if self.rate == 0 || error.unsigned_abs() > MAX_ERROR_NS {
            return Self { ticks, ns, rate };
        }
        let correction = i128::from(rate) * i128::from(error) / i128::from(CATCH_UP_NS);
        Self { ticks, ns: continued, rate: rate.saturating_add_signed(correction as i64) }
    }
}

/// The line that all threads use, behind a number that is odd while the line changes.
struct SharedLine {
    version: AtomicU32,
    /// Process of the thread that changes it; 0 for none. That of a parent process was cut off by a fork.
    changer: AtomicU32,
    ticks: AtomicU64,
    ns: AtomicU64,
    rate: AtomicU64,
}

static LINE: SharedLine = SharedLine {
    version: AtomicU32::new(0),
    changer: AtomicU32::new(0),
    ticks: AtomicU64::new(0),
    ns: AtomicU64::new(0),
    rate: AtomicU64::new(0),
};

impl SharedLine {
    /// Reads the line; none while it changes.
    fn read(&self) -> Option<Line> {
        let version = self.version.load(Ordering::Acquire);
        let [ticks, ns, rate] = [&self.ticks, &self.ns, &self.rate].map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        is_whole.then_some(Line { ticks, ns, rate })
    }

    /// The line for a reading of the counter; the next one if the last one is over.
    fn for_reading(&self, ticks: u64) -> Line {
        let line = self.read();
        if let Some(line) = line
            && line.rate != 0
            && (ticks.wrapping_sub(line.ticks) as i64) < MAX_ELAPSED_TICKS as i64
        {
            return line;
        }
        let (pid, changer) = (current_pid(), self.changer.load(Ordering::Relaxed));
        let is_turn = changer != pid
            && self.changer.compare_exchange(changer, pid, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !is_turn {
            // Another thread is at it: the last line still holds, or nearly.
            let none = Line { ticks: 0, ns: 0, rate: 0 };
            return line.filter(|line| line.rate != 0).unwrap_or_else(|| none.next());
        }
        // Another thread may have changed it before this one had its turn.
        let before = self.read().unwrap_or(Line { ticks: 0, ns: 0, rate: 0 });
        let is_over = (ticks.wrapping_sub(before.ticks) as i64) >= MAX_ELAPSED_TICKS as i64;
        let next = if before.rate == 0 || is_over { before.next() } else { before };
        let version = self.version.load(Ordering::Relaxed) | 1;
        self.version.store(version, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in [(&self.ticks, next.ticks), (&self.ns, next.ns), (&self.rate, next.rate)] {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(version.wrapping_add(1), Ordering::Release);
        self.changer.store(0, Ordering::Release);
        next
    }
}

/// The line as a lane last read it. All zeros are valid: the next use reads it.
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
        match self.known_ns(ticks) {
            Some(time_ns) => time_ns,
            None => self.read_line(ticks),
        }
    }

    /// Converts a reading of [`ticks`] if the line that was read last holds for it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(crate) fn known_ns(&self, ticks: u64) -> Option<u64> {
        let elapsed = ticks.wrapping_sub(self.ticks.get());
        (elapsed < MAX_ELAPSED_TICKS)
            .then(|| self.ns.get().wrapping_add(elapsed.wrapping_mul(self.rate.get()) >> 32))
    }

    #[cold]
    #[inline(never)]
    fn read_line(&self, ticks: u64) -> u64 {
        if !USES_COUNTER.load(Ordering::Acquire) {
            // The reading is a time already.
            if IS_BEGUN.load(Ordering::Acquire) {
                use_counter_if_known();
            }
            self.set(&Line { ticks, ns: ticks, rate: NANOSECOND });
            return ticks;
        }
        let line = LINE.for_reading(ticks);
        self.set(&line);
        if (ticks.wrapping_sub(line.ticks) as i64).unsigned_abs() > MAX_AGE_TICKS {
            // Not a reading of the counter: it was taken just before the counter came into use.
            return monotonic_ns();
        }
        line.at(ticks)
    }

    fn set(&self, line: &Line) {
        self.ticks.set(line.ticks);
        self.ns.set(line.ns);
        self.rate.set(line.rate);
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
