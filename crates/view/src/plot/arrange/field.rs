//! The part of a picture in which curves are: bytes and instants to pixels.

use floodmark_event::units::NS_PER_S;

use crate::plot::model::Figure;

/// Where bytes and instants are in the picture.
pub(super) struct Field {
    /// Left, top, width and height.
    pub(super) at: [f64; 4],
    /// Pixels above the highest value.
    pub(super) head: f64,
    /// First instant.
    pub(super) from_ns: i64,
    /// Last instant, later than the first.
    pub(super) to_ns: i64,
    highest_bytes: u64,
}

impl Field {
    pub(super) fn new(figure: &Figure, at: [f64; 4]) -> Self {
        let (from_ns, to_ns) = figure.span_ns().unwrap_or((0, 1));
        let from_ns = from_ns.min(i64::MAX - NS_PER_S);
        // One instant alone gets a second, so that its axis has a unit that people know.
        let to_ns = if to_ns > from_ns { to_ns } else { from_ns + NS_PER_S };
        Self { at, head: 0.0, from_ns, to_ns, highest_bytes: figure.highest_bytes().max(1) }
    }

    /// Pixels from 0 up to the highest value.
    fn rise(&self) -> f64 {
        (self.at[3] - self.head).max(self.at[3] * 0.4)
    }

    /// Bytes at the upper edge.
    pub(super) fn top_bytes(&self) -> u64 {
        (self.highest_bytes as f64 * self.at[3] / self.rise()) as u64
    }

    pub(super) fn span_ns(&self) -> i64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    pub(super) fn x(&self, time_ns: i64) -> f64 {
        let part = (i128::from(time_ns) - i128::from(self.from_ns)) as f64
            / (i128::from(self.to_ns) - i128::from(self.from_ns)) as f64;
        self.at[0] + part.clamp(0.0, 1.0) * self.at[2]
    }

    /// The instant at a place.
    pub(super) fn time_ns(&self, x: f64) -> i64 {
        let part = ((x - self.at[0]) / self.at[2]).clamp(0.0, 1.0);
        let ns = part * (i128::from(self.to_ns) - i128::from(self.from_ns)) as f64;
        (i128::from(self.from_ns) + ns as i128).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    pub(super) fn y(&self, bytes: u64) -> f64 {
        let part = bytes as f64 / self.highest_bytes as f64;
        self.at[1] + self.at[3] - part * self.rise()
    }
}
