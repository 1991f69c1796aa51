//! Curves with no more points than pixels can show.
//!
//! Of each column of pixels the first, lowest, highest and last value stay, so every peak is drawn as high
//! as it is, however short.

use crate::plot::model::{Point, Shape, Stack};

/// What is left of the points in one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) x: f64,
    pub(crate) first: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) last: u64,
    /// How many points there were.
    pub(crate) count: usize,
    /// Whether the lowest came after the highest.
    pub(crate) falls: bool,
}

/// Reduces points, in order of time, to columns of one pixel.
pub(crate) fn columns(points: &[Point], x: impl Fn(i64) -> f64) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for point in points {
        let (at, value) = (x(point.time_ns), point.bytes);
        match columns.last_mut().filter(|column| column.x.floor() >= at.floor()) {
            Some(column) => {
                if value < column.low {
                    (column.low, column.falls) = (value, true);
                }
                if value > column.high {
                    (column.high, column.falls) = (value, false);
                }
                column.last = value;
                column.count += 1;
            }
            None => columns.push(Column {
                x: at,
                first: value,
                low: value,
                high: value,
                last: value,
                count: 1,
                falls: false,
            }),
        }
    }
    columns
}

/// The way of a pen along columns: (x, value).
pub(crate) fn outline(columns: &[Column], shape: Shape, end: f64) -> Vec<(f64, u64)> {
    let mut path: Vec<(f64, u64)> = Vec::new();
    for column in columns {
        if shape == Shape::Steps
            && let Some((_, before)) = path.last().copied()
        {
            path.push((column.x, before));
        }
        let extremes = if column.falls { [column.high, column.low] } else { [column.low, column.high] };
        for value in [column.first, extremes[0], extremes[1], column.last] {
            if path.last() != Some(&(column.x, value)) {
                path.push((column.x, value));
            }
        }
    }
    if let Some((x, last)) = path.last().copied()
        && end > x
    {
        path.push((end, last));
    }
    without_straights(path)
}

fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() < 0.01
}

fn is_between(value: u64, one: u64, other: u64) -> bool {
    (one.min(other)..=one.max(other)).contains(&value)
}

/// Leaves out points in the middle of straight lines.
fn without_straights(path: Vec<(f64, u64)>) -> Vec<(f64, u64)> {
    let mut kept: Vec<(f64, u64)> = Vec::with_capacity(path.len());
    for point in path {
        while let [.., (x0, y0), (x1, y1)] = kept[..]
            && (y0 == y1 && y1 == point.1
                || is_same(x0, x1) && is_same(x1, point.0) && is_between(y1, y0, point.1))
        {
            kept.pop();
        }
        kept.push(point);
    }
    kept
}

/// Instants of a stack that are drawn: of each column that of the highest sum, and the last.
pub(crate) fn instants(stack: &Stack, x: impl Fn(i64) -> f64) -> Vec<usize> {
    let total = stack.total().points;
    let mut kept: Vec<usize> = Vec::new();
    let mut at = 0;
    while at < total.len() {
        let column = x(total[at].time_ns).floor();
        let end = at + total[at..].partition_point(|point| x(point.time_ns).floor() <= column);
        let highest = (at..end).rev().max_by_key(|index| total[*index].bytes).unwrap_or(at);
        kept.push(highest);
        if highest != end - 1 {
            kept.push(end - 1);
        }
        at = end;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[(i64, u64)]) -> Vec<Point> {
        values.iter().map(|(time_ns, bytes)| Point { time_ns: *time_ns, bytes: *bytes }).collect()
    }

    #[test]
    fn every_peak_is_on_the_outline_and_points_are_few() {
        let many: Vec<(i64, u64)> =
            (0..100_000).map(|at| (at, if at == 61_300 { 1000 } else { (at % 7) as u64 })).collect();
        let columns = columns(&points(&many), |ns| ns as f64 / 1000.0);
        assert_eq!(columns.len(), 100);
        let path = outline(&columns, Shape::Steps, 100.0);
        assert!(path.len() <= 500 && path.iter().any(|(_, value)| *value == 1000));
    }

    #[test]
    fn steps_hold_and_lines_do_not() {
        let columns = columns(&points(&[(0, 1), (10, 5), (20, 5)]), |ns| ns as f64);
        assert_eq!(outline(&columns, Shape::Steps, 30.0), [(0.0, 1), (10.0, 1), (10.0, 5), (30.0, 5)]);
        assert_eq!(outline(&columns, Shape::Lines, 20.0), [(0.0, 1), (10.0, 5), (20.0, 5)]);
    }

    #[test]
    fn a_stack_keeps_the_instant_of_the_highest_sum() {
        use crate::plot::model::Layer;
        let values = vec![vec![1, 5, 2, 1], vec![1, 1, 6, 0]];
        let layers = values.into_iter().map(|values| Layer { name: String::new(), values }).collect();
        let stack = Stack { times_ns: vec![0, 1, 2, 30], layers, end_ns: 40 };
        assert_eq!(instants(&stack, |ns| ns as f64 / 10.0), [2, 3]);
        assert_eq!(instants(&stack, |ns| ns as f64 / 100.0), [2, 3]);
    }
}
