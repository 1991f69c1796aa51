//! Looks on while a script is played: what it takes, how things stand, what goes wrong.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use floodmark_resource::AllocError;
use floodmark_tail::clock::monotonic_ns;

use crate::histogram::Histogram;
use crate::script::{Act, Script};
use crate::stage::Stage;

/// How many failures are kept in full.
const FAILURES_KEPT: usize = 5;
/// How often a resource is asked for its room, at most: that can take as long as a thousand steps.
const SAMPLES_MAX: usize = 2048;

/// Gets every step of a replay.
pub(crate) trait Watch {
    /// Has a call made.
    #[inline]
    fn call<T>(&mut self, _act: Act, call: impl FnOnce() -> T) -> T {
        call()
    }

    /// A block was handed out.
    #[inline]
    fn allocated(&mut self, _step: usize, _bytes: u64) {}

    /// A block was given back.
    #[inline]
    fn freed(&mut self, _step: usize, _bytes: u64) {}

    /// What succeeded when the log was written has failed.
    fn failed(&mut self, step: usize, bytes: u64, error: &AllocError) -> ControlFlow<()>;

    /// What failed when the log was written was asked for once more.
    #[inline]
    fn asked_again(&mut self, _served: Served) {}
}

/// What came of a request that failed when the log was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    Now,
    NotNow,
}

/// Looks for the first failure alone.
#[derive(Debug, Default)]
pub(crate) struct FirstFailure {
    /// What the resource said.
    pub(crate) message: Option<String>,
}

impl Watch for FirstFailure {
    fn failed(&mut self, _: usize, _: u64, error: &AllocError) -> ControlFlow<()> {
        self.message = Some(error.to_string());
        ControlFlow::Break(())
    }
}

/// Takes the time of every call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timing {
    pub(crate) allocate: Histogram,
    pub(crate) free: Histogram,
    pub(crate) failures: u64,
}

impl Timing {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.allocate.merge(&other.allocate);
        self.free.merge(&other.free);
        self.failures += other.failures;
    }
}

impl Watch for Timing {
    #[inline]
    fn call<T>(&mut self, act: Act, call: impl FnOnce() -> T) -> T {
        let histogram = match act {
            Act::Allocate => &mut self.allocate,
            Act::Free => &mut self.free,
            Act::Fail => return call(),
        };
        let begin_ns = monotonic_ns();
        let outcome = call();
        histogram.add(monotonic_ns().saturating_sub(begin_ns));
        outcome
    }

    fn failed(&mut self, _: usize, _: u64, _: &AllocError) -> ControlFlow<()> {
        self.failures += 1;
        ControlFlow::Continue(())
    }
}

/// What reading the clock twice takes, ns: the median of many tries.
pub(crate) fn clock_cost_ns() -> u64 {
    let mut costs: Vec<u64> = (0..1001)
        .map(|_| {
            let begin_ns = monotonic_ns();
            monotonic_ns().saturating_sub(begin_ns)
        })
        .collect();
    costs.sort_unstable();
    costs[costs.len() / 2]
}

/// How things stood at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) step: usize,
    /// As asked for.
    pub(crate) live_bytes: u64,
    pub(crate) reserved_bytes: u64,
    /// What part of the free bytes no single block could use, where the resource knows.
    pub(crate) fragmentation: Option<f64>,
}

/// What one allocation that should not have failed met.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failed {
    pub(crate) step: usize,
    pub(crate) request_bytes: u64,
    pub(crate) live_bytes: u64,
    pub(crate) reserved_bytes: u64,
    pub(crate) largest_free_bytes: Option<u64>,
    pub(crate) cause: &'static str,
    pub(crate) message: String,
}

/// Live bytes of all that take part.
#[derive(Debug)]
pub(crate) struct Gauge<'a> {
    script: &'a Script,
    stage: &'a Stage,
    live_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    every: usize,
}

impl<'a> Gauge<'a> {
    pub(crate) fn new(script: &'a Script, stage: &'a Stage) -> Self {
        let (live_bytes, peak_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let every = (script.played().len() / SAMPLES_MAX).max(1);
        Self { script, stage, live_bytes, peak_bytes, every }
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    fn sample(&self, step: usize) -> Sample {
        let room = self.stage.resource().room();
        Sample {
            step,
            live_bytes: self.live_bytes.load(Ordering::Relaxed),
            reserved_bytes: self.stage.reserved_bytes(&room),
            fragmentation: room.largest_free_bytes.map(|_| room.fragmentation()),
        }
    }
}

/// Verifies what happens and looks at the room now and then; takes no times.
#[derive(Clone, Debug)]
pub(crate) struct Measure<'a> {
    gauge: &'a Gauge<'a>,
    passed: usize,
    pub(crate) failures: u64,
    pub(crate) first_failures: Vec<Failed>,
    pub(crate) served_now: u64,
    pub(crate) failed_again: u64,
    pub(crate) peak_reserved_bytes: u64,
    /// The sample with the most live bytes.
    pub(crate) at_peak: Option<Sample>,
    /// The sample with the worst fragmentation.
    pub(crate) worst: Option<Sample>,
}

impl<'a> Measure<'a> {
    pub(crate) fn new(gauge: &'a Gauge<'a>) -> Self {
        Self {
            gauge,
            passed: 0,
            failures: 0,
            first_failures: Vec::new(),
            served_now: 0,
            failed_again: 0,
            peak_reserved_bytes: 0,
            at_peak: None,
            worst: None,
        }
    }

    /// Looks at the room after `step`.
    pub(crate) fn sample(&mut self, step: usize) {
        let sample = self.gauge.sample(step);
        self.take_in(sample);
    }

    fn take_in(&mut self, sample: Sample) {
        self.peak_reserved_bytes = self.peak_reserved_bytes.max(sample.reserved_bytes);
        if self.at_peak.is_none_or(|peak| sample.live_bytes > peak.live_bytes) {
            self.at_peak = Some(sample);
        }
        if sample.fragmentation > self.worst.and_then(|worst| worst.fragmentation) {
            self.worst = Some(sample);
        }
    }

    fn passes(&mut self, step: usize) {
        self.passed += 1;
        if self.passed.is_multiple_of(self.gauge.every) || step == self.gauge.script.peak_step {
            self.sample(step);
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.failures += other.failures;
        self.served_now += other.served_now;
        self.failed_again += other.failed_again;
        self.first_failures.extend(other.first_failures);
        self.first_failures.sort_by_key(|failed| failed.step);
        self.first_failures.truncate(FAILURES_KEPT);
        other.at_peak.into_iter().chain(other.worst).for_each(|sample| self.take_in(sample));
        self.peak_reserved_bytes = self.peak_reserved_bytes.max(other.peak_reserved_bytes);
    }
}

impl Watch for Measure<'_> {
    fn allocated(&mut self, step: usize, bytes: u64) {
        let live = self.gauge.live_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        self.gauge.peak_bytes.fetch_max(live, Ordering::Relaxed);
        self.passes(step);
    }

    fn freed(&mut self, step: usize, bytes: u64) {
        self.gauge.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.passes(step);
    }

    fn failed(&mut self, step: usize, bytes: u64, error: &AllocError) -> ControlFlow<()> {
        self.failures += 1;
        if self.first_failures.len() < FAILURES_KEPT {
            let room = self.gauge.stage.resource().room();
            let details = error.out_of_memory();
            self.first_failures.push(Failed {
                step,
                request_bytes: bytes,
                live_bytes: self.gauge.live_bytes.load(Ordering::Relaxed),
                reserved_bytes: self.gauge.stage.reserved_bytes(&room),
                largest_free_bytes: details
                    .and_then(|details| details.largest_free_bytes)
                    .or(room.largest_free_bytes),
                cause: details.map_or_else(|| other_cause(error), |details| details.cause.name()),
                message: error.to_string(),
            });
        }
        self.passes(step);
        ControlFlow::Continue(())
    }

    fn asked_again(&mut self, served: Served) {
        match served {
            Served::Now => self.served_now += 1,
            Served::NotNow => self.failed_again += 1,
        }
    }
}

/// The word for an error that is no lack of memory.
fn other_cause(error: &AllocError) -> &'static str {
    match error {
        AllocError::Invalid { .. } => "invalid",
        AllocError::Refused { .. } => "refused",
        _ => "device",
    }
}
