//! Timelines that stay small: collapses changes of one instant, and keeps the extremes of intervals.
//!
//! A [`Reducer`] does not know the range of times in advance. It starts with intervals of one
//! nanosecond and doubles their width whenever more of them hold points than there is room for, so
//! memory depends on the limit alone. Invariants: every point it returns was given to it; of every
//! interval the first maximum, the first minimum and the last point are among them; so the first
//! maximum and the last point of all are too.

use crate::usage::UsagePoint;

/// Holds a point back as long as later ones of the same instant may continue its way up or down.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Collapse {
    /// Live bytes before the point held back.
    before: u64,
    held: Option<UsagePoint>,
}

impl Collapse {
    /// Takes the next point and returns one that is final, if there is.
    #[inline]
    pub(crate) fn push(&mut self, point: UsagePoint) -> Option<UsagePoint> {
        if let Some(held) = self.held
            && held.time_ns == point.time_ns
            && (held.live_bytes > self.before) == (point.live_bytes > held.live_bytes)
        {
            self.held = Some(point);
            return None;
        }
        let done = self.held.replace(point);
        if let Some(done) = done {
            self.before = done.live_bytes;
        }
        done
    }

    /// The point held back.
    pub(crate) fn held(&self) -> Option<UsagePoint> {
        self.held
    }

    /// Gives up the point held back.
    pub(crate) fn take(&mut self) -> Option<UsagePoint> {
        let held = self.held.take();
        if let Some(held) = held {
            self.before = held.live_bytes;
        }
        held
    }
}

/// What can be reduced: something that is a point, or has one.
pub trait Timed: Clone {
    /// When, and how much.
    fn point(&self) -> UsagePoint;
    /// The same at another instant.
    #[must_use]
    fn at(self, time_ns: i64) -> Self;
}

impl Timed for UsagePoint {
    fn point(&self) -> UsagePoint {
        *self
    }
    fn at(self, time_ns: i64) -> Self {
        Self { time_ns, ..self }
    }
}

/// Keeps a bounded number of points.
#[derive(Clone, Debug)]
pub(crate) struct Reducer<P = UsagePoint> {
    limit: usize,
    /// All points, while there are no more than the limit.
    exact: Vec<P>,
    intervals: Vec<Interval<P>>,
    origin_ns: i64,
    shift: u32,
    /// Whether the origin was given, and points are never all kept.
    is_aligned: bool,
    seen: u64,
}

/// What is kept of an interval that has points.
#[derive(Clone, Debug)]
struct Interval<P> {
    index: u64,
    low: Numbered<P>,
    high: Numbered<P>,
    last: Numbered<P>,
}

#[derive(Clone, Debug)]
struct Numbered<P> {
    number: u64,
    point: P,
}

/// Points of an interval that are kept: its minimum, maximum and last one.
const KEPT: usize = 3;

impl<P: Timed> Reducer<P> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(16),
            exact: Vec::new(),
            intervals: Vec::new(),
            origin_ns: 0,
            shift: 0,
            is_aligned: false,
            seen: 0,
        }
    }

    /// Makes intervals begin where those of another reducer do, and be no narrower.
    pub(crate) fn aligned(limit: usize, origin_ns: i64, shift: u32) -> Self {
        Self { origin_ns, shift, is_aligned: true, ..Self::new(limit) }
    }

    /// Start of the first interval.
    pub(crate) fn origin_ns(&self) -> i64 {
        self.origin_ns
    }

    /// Width of the intervals whose extremes are kept; none while every point is.
    pub(crate) fn width_ns(&self) -> Option<u64> {
        (!self.intervals.is_empty()).then(|| 1u64 << self.shift)
    }

    #[inline]
    pub(crate) fn push(&mut self, point: P) {
        if self.intervals.is_empty() && !self.is_aligned {
            self.exact.push(point);
            if self.exact.len() > self.limit {
                self.origin_ns = self.exact[0].point().time_ns;
                for point in std::mem::take(&mut self.exact) {
                    self.keep(point);
                }
            }
        } else {
            self.keep(point);
        }
    }

    fn keep(&mut self, point: P) {
        let time_ns = point.point().time_ns;
        let numbered = Numbered { number: self.seen, point };
        self.seen += 1;
        let index = (time_ns.saturating_sub(self.origin_ns).max(0) as u64) >> self.shift;
        match self.intervals.last_mut() {
            // Points are in order; one whose time goes back belongs where its predecessor is.
            Some(interval) if index <= interval.index => interval.add(numbered),
            _ => {
                let (low, high) = (numbered.clone(), numbered.clone());
                self.intervals.push(Interval { index, low, high, last: numbered });
                while self.intervals.len() > self.limit / KEPT {
                    self.widen();
                }
            }
        }
    }

    fn widen(&mut self) {
        self.shift += 1;
        self.intervals.dedup_by(|later, earlier| {
            let same = later.index >> 1 == earlier.index >> 1;
            if same {
                earlier.absorb(later);
            }
            same
        });
        for interval in &mut self.intervals {
            interval.index >>= 1;
        }
    }

    /// The points kept, in order.
    pub(crate) fn points(&self) -> Vec<P> {
        let mut points = self.exact.clone();
        for interval in &self.intervals {
            let mut kept = [&interval.low, &interval.high, &interval.last];
            kept.sort_unstable_by_key(|numbered| numbered.number);
            for (at, numbered) in kept.iter().enumerate() {
                if at == 0 || kept[at - 1].number != numbered.number {
                    points.push(numbered.point.clone());
                }
            }
        }
        points
    }
}

impl<P: Timed> Interval<P> {
    fn add(&mut self, numbered: Numbered<P>) {
        let bytes = numbered.point.point().live_bytes;
        if bytes < self.low.point.point().live_bytes {
            self.low = numbered.clone();
        }
        if bytes > self.high.point.point().live_bytes {
            self.high = numbered.clone();
        }
        self.last = numbered;
    }

    fn absorb(&mut self, later: &Self) {
        self.add(later.low.clone());
        self.add(later.high.clone());
        self.last = later.last.clone();
    }
}
