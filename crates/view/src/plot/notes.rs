//! Finds room for texts, so that none lies on another.

use crate::plot::font::width;

/// A rectangle that may be turned: its four corners.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frame([(f64, f64); 4]);

impl Frame {
    /// A rectangle from left, top, width and height.
    pub(crate) fn upright(at: [f64; 4]) -> Self {
        let [x, y, w, h] = at;
        Self([(x, y), (x + w, y), (x + w, y + h), (x, y + h)])
    }

    /// Around a text that begins at a place and is turned upwards.
    pub(crate) fn of_text(x: f64, y: f64, text: &str, size: f64, angle: f64) -> Self {
        let (sin, cos) = (-angle).to_radians().sin_cos();
        let (w, up, down) = (width(text, size), -0.85 * size, 0.25 * size);
        let turned = |(dx, dy): (f64, f64)| (x + dx * cos - dy * sin, y + dx * sin + dy * cos);
        Self([(0.0, up), (w, up), (w, down), (0.0, down)].map(turned))
    }

    /// Whether all of it is within left, top, width and height.
    pub(crate) fn is_within(&self, at: [f64; 4]) -> bool {
        let [x, y, w, h] = at;
        self.0.iter().all(|(px, py)| (x..=x + w).contains(px) && (y..=y + h).contains(py))
    }

    /// Whether two share a point: not if a line along an edge of either separates them.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let axes = |frame: &Self| {
            let [a, b, c, _] = frame.0;
            [(b.0 - a.0, b.1 - a.1), (c.0 - b.0, c.1 - b.1)]
        };
        let reach = |frame: &Self, axis: (f64, f64)| {
            let along = frame.0.map(|(x, y)| x * axis.0 + y * axis.1);
            (along.iter().copied().fold(f64::MAX, f64::min), along.iter().copied().fold(f64::MIN, f64::max))
        };
        axes(self).into_iter().chain(axes(other)).all(|axis| {
            let (ours, theirs) = (reach(self, axis), reach(other, axis));
            ours.0 < theirs.1 && theirs.0 < ours.1
        })
    }
}

/// What has been placed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken(Vec<Frame>);

impl Taken {
    pub(crate) fn is_free(&self, frame: &Frame) -> bool {
        !self.0.iter().any(|other| other.meets(frame))
    }

    pub(crate) fn take(&mut self, frame: Frame) {
        self.0.push(frame);
    }

    /// Takes the first of `frames` that is free and within `bounds`.
    pub(crate) fn first_free(
        &mut self,
        frames: impl IntoIterator<Item = ((f64, f64), Frame)>,
        bounds: [f64; 4],
    ) -> Option<(f64, f64)> {
        let (at, frame) =
            frames.into_iter().find(|(_, frame)| frame.is_within(bounds) && self.is_free(frame))?;
        self.take(frame);
        Some(at)
    }
}

/// Moves the middles of labels of one height apart, as little as possible, within `from..=to`.
/// `None` if there is no room for all.
pub(crate) fn apart(middles: &[f64], height: f64, from: f64, to: f64) -> Option<Vec<f64>> {
    if middles.len() as f64 * height > to - from {
        return None;
    }
    let mut order: Vec<usize> = (0..middles.len()).collect();
    order.sort_by(|a, b| middles[*a].total_cmp(&middles[*b]));
    let mut moved = middles.to_vec();
    let mut least = from + height / 2.0;
    for at in &order {
        moved[*at] = moved[*at].max(least);
        least = moved[*at] + height;
    }
    let mut most = to - height / 2.0;
    for at in order.iter().rev() {
        moved[*at] = moved[*at].min(most);
        most = moved[*at] - height;
    }
    Some(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_meet_only_where_they_overlap() {
        let one = Frame::upright([0.0, 0.0, 10.0, 10.0]);
        assert!(one.meets(&Frame::upright([5.0, 5.0, 10.0, 10.0])));
        assert!(!one.meets(&Frame::upright([10.0, 0.0, 10.0, 10.0])));
        // Side by side at an angle: the boxes around them overlap, they do not.
        let text = |x| Frame::of_text(x, 100.0, "some output", 10.0, 45.0);
        assert!(!text(0.0).meets(&text(20.0)));
        assert!(text(0.0).meets(&text(5.0)));
    }

    #[test]
    fn labels_keep_their_distance_and_stay_inside() {
        let moved = apart(&[50.0, 51.0, 99.0, 3.0], 10.0, 0.0, 100.0).expect("room");
        let mut sorted = moved.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 9.99));
        assert!(sorted[0] >= 5.0 && sorted[3] <= 95.0, "{moved:?}");
        assert_eq!(apart(&[1.0; 11], 10.0, 0.0, 100.0), None);
    }
}
