//! Tracked memory beside what a device says is in use, and what is left over.
//!
//! A device counts all memory of all processes: contexts, code, libraries that allocate on their own. A
//! trace knows what was allocated where it looked. At every sample of the device the two are compared;
//! the *residual* is what is in use and not tracked. Where allocators hold segments, those count as far as
//! they are more than the blocks in them, because the device counts all of a segment.
//!
//! A sample sees what happened up to its instant. Memory grows with the number of samples.

use std::borrow::Cow;
use std::collections::BTreeMap;

use floodmark_event::Kind;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::change::{Block, Space};
use crate::fold::{End, Fold};
use crate::level::Level;

/// A reading of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSample {
    /// When.
    pub time_ns: i64,
    /// Which.
    pub device: i32,
    /// Bytes in use, by whomever.
    pub used_bytes: u64,
}

/// How times of samples and events are brought together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    /// Both are UTC.
    #[default]
    Utc,
    /// The first sample counts as simultaneous with the first event.
    Start,
}

impl Align {
    /// The word for it on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Utc => "utc",
            Self::Start => "start",
        }
    }
}

/// What to compare with.
#[derive(Clone, Debug, Default)]
pub struct OverlayOptions {
    /// The samples, in any order.
    pub samples: Vec<DeviceSample>,
    /// How times are brought together.
    pub align: Align,
}

/// What the residual is called.
pub const RESIDUAL: &str = "context, libraries, other processes";

/// Tracked and used memory of devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overlay {
    /// How times were brought together.
    pub align: Align,
    /// What was added to the times of samples.
    pub shift_ns: i64,
    /// What the residual consists of.
    pub residual: Cow<'static, str>,
    /// Samples outside the time of the events.
    pub samples_outside: u64,
    /// Time of the first and last sample, shifted.
    pub samples_span_ns: Option<(i64, i64)>,
    /// Time of the first and last event.
    pub events_span_ns: Option<(i64, i64)>,
    /// The devices, by number; those with samples while there were events.
    pub devices: Vec<DeviceOverlay>,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceOverlay {
    /// The device.
    pub device: i32,
    /// Tracked live bytes.
    pub tracked: Spread,
    /// Segments that allocators held; none where none were recorded.
    pub held: Option<Spread>,
    /// Bytes that the device said are in use.
    pub used: Spread,
    /// What of those is not tracked.
    pub residual: Spread,
    /// The sample with most tracked bytes.
    pub at_peak: OverlayPoint,
    /// All samples, in order.
    pub points: Vec<OverlayPoint>,
}

/// The least, the middle and the most of some values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// The least.
    pub min: i64,
    /// As many are above as below.
    pub median: i64,
    /// The most.
    pub max: i64,
}

impl Spread {
    fn of(values: impl Iterator<Item = i64>) -> Self {
        let mut values: Vec<i64> = values.collect();
        values.sort_unstable();
        let at = |index: usize| values.get(index).copied().unwrap_or(0);
        let last = values.len().saturating_sub(1);
        Self { min: at(0), median: at(last / 2), max: at(last) }
    }
}

/// A device at the instant of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlayPoint {
    /// When.
    pub time_ns: i64,
    /// Tracked live bytes.
    pub tracked_bytes: u64,
    /// Bytes of segments that allocators held.
    pub held_bytes: u64,
    /// Bytes in use, as the device said.
    pub used_bytes: u64,
    /// Bytes in use that are not tracked. Below zero where more is tracked than the device says, as for
    /// memory that is promised and not there yet.
    pub residual_bytes: i64,
}

/// Live bytes of a device by tally.
type Sums = [u64; Kind::ALL.len()];

/// Folds events into an [`Overlay`].
#[derive(Clone, Debug, Default)]
pub struct OverlayFold {
    samples: Vec<DeviceSample>,
    align: Align,
    shift_ns: i64,
    first_ns: i64,
    devices: Vec<i32>,
    live: FxHashMap<i32, Sums>,
    /// Sums at each of the samples that have passed.
    seen: Vec<Sums>,
}

impl OverlayFold {
    /// Starts a comparison.
    pub fn new(mut options: OverlayOptions) -> Self {
        options.samples.sort_by_key(|sample| (sample.time_ns, sample.device));
        Self { samples: options.samples, align: options.align, ..Self::default() }
    }

    /// Takes down what is tracked at all samples before `time_ns`.
    #[inline]
    fn pass(&mut self, time_ns: i64) {
        while let Some(sample) = self.samples.get(self.seen.len())
            && sample.time_ns < time_ns
        {
            self.seen.push(self.live.get(&sample.device).copied().unwrap_or_default());
        }
    }

    fn change(&mut self, block: &Block, time_ns: i64, by: impl Fn(u64) -> u64) {
        self.pass(time_ns);
        let device = self.devices[block.space as usize];
        let sums = self.live.entry(device).or_default();
        // Static variables are tracked, though they are no blocks of an allocator.
        let sum = &mut sums[usize::from(block.tally)];
        *sum = by(*sum);
    }
}

/// Sums up the samples of a device.
fn device_overlay(device: i32, points: Vec<OverlayPoint>, has_segments: bool) -> DeviceOverlay {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let spread = |value: fn(&OverlayPoint) -> u64| Spread::of(points.iter().map(|p| signed(value(p))));
    // The first of equals.
    let at_peak = points.iter().rev().max_by_key(|point| point.tracked_bytes).copied().unwrap_or_default();
    DeviceOverlay {
        device,
        tracked: spread(|point| point.tracked_bytes),
        held: has_segments.then(|| spread(|point| point.held_bytes)),
        used: spread(|point| point.used_bytes),
        residual: Spread::of(points.iter().map(|point| point.residual_bytes)),
        at_peak,
        points,
    }
}

impl Fold for OverlayFold {
    type Output = Overlay;

    fn start(&mut self, first_ns: i64, _origin_ns: i64) {
        self.first_ns = first_ns;
        if self.align == Align::Start
            && let Some(first) = self.samples.first()
        {
            self.shift_ns = first_ns.saturating_sub(first.time_ns);
            for sample in &mut self.samples {
                sample.time_ns = sample.time_ns.saturating_add(self.shift_ns);
            }
        }
    }

    fn space(&mut self, _index: u32, space: Space) {
        self.devices.push(space.device);
    }

    #[inline]
    fn begins(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.change(block, time_ns, |live| live.saturating_add(block.bytes));
    }

    #[inline]
    fn ends(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.change(block, time_ns, |live| live.saturating_sub(block.bytes));
    }

    fn finish(&self, end: &End<'_>) -> Overlay {
        let tallies = end.live.tallies();
        let main = usize::from(tallies.main());
        let held_at = Kind::Reserved as usize;
        // Where kinds were chosen there is one sum of them all.
        let has_segments =
            tallies.kind(0).is_some() && main != held_at && tallies.level(held_at as u8).is_used();
        let end_ns = end.live.end_ns().unwrap_or(self.first_ns);
        let first_ns = end.live.counters().first_time_ns.unwrap_or(self.first_ns);
        let inside = |sample: &DeviceSample| (first_ns..=end_ns).contains(&sample.time_ns);
        let mut points: BTreeMap<i32, Vec<OverlayPoint>> = BTreeMap::new();
        for (at, sample) in self.samples.iter().enumerate().filter(|(_, sample)| inside(sample)) {
            let now = || self.live.get(&sample.device).copied().unwrap_or_default();
            let sums = self.seen.get(at).copied().unwrap_or_else(now);
            let held_bytes = if has_segments { sums[held_at] } else { 0 };
            let known = i128::from(sums[main].max(held_bytes));
            let residual = i128::from(sample.used_bytes) - known;
            points.entry(sample.device).or_default().push(OverlayPoint {
                time_ns: sample.time_ns,
                tracked_bytes: sums[main],
                held_bytes,
                used_bytes: sample.used_bytes,
                residual_bytes: i64::try_from(residual).unwrap_or(i64::MIN),
            });
        }
        let outside = self.samples.iter().filter(|sample| !inside(sample)).count() as u64;
        let span = |first: Option<&DeviceSample>| first.map(|sample| sample.time_ns);
        Overlay {
            align: self.align,
            shift_ns: self.shift_ns,
            residual: RESIDUAL.into(),
            samples_outside: outside,
            samples_span_ns: span(self.samples.first()).zip(span(self.samples.last())),
            events_span_ns: end.live.first_ns().map(|first_ns| (first_ns, end_ns)),
            devices: points
                .into_iter()
                .map(|(device, points)| device_overlay(device, points, has_segments))
                .collect(),
        }
    }
}
