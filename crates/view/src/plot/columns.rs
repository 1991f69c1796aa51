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

/// From `x` on, a curve lies between `low` and `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Where it begins; it ends where the next one begins.
    pub x: f64,
    /// Lowest value.
    pub low: u64,
    /// Highest value.
    pub high: u64,
}

/// Returns where a curve of steps lies: between the extremes in a column that has points, and at the last value
/// from the end of that column on.
pub(crate) fn spans(columns: &[Column], end: f64) -> Vec<Span> {
    let mut spans = Vec::with_capacity(columns.len());
    let next = columns.iter().skip(1).map(|column| column.x).chain([end]);
    for (column, next) in columns.iter().zip(next) {
        spans.push(Span { x: column.x, low: column.low, high: column.high });
        let held_from = column.x.floor() + 1.0;
        if next > held_from && (column.low, column.high) != (column.last, column.last) {
            spans.push(Span { x: held_from, low: column.last, high: column.last });
        }
    }
    spans
}

/// Returns the upper or lower edge of spans as the way of a pen.
pub(crate) fn edge(spans: &[Span], end: f64, value: fn(&Span) -> u64) -> Vec<(f64, u64)> {
    let mut path: Vec<(f64, u64)> = Vec::new();
    for span in spans {
        if let Some((_, before)) = path.last().copied() {
            path.push((span.x, before));
        }
        path.push((span.x, value(span)));
    }
    if let Some((x, last)) = path.last().copied()
        && end > x
    {
        path.push((end, last));
    }
    without_straights(path)
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
    use proptest::prelude::*;

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
    fn a_burst_ends_with_its_column() {
        let burst = [(0, 3), (1, 900), (2, 0), (50, 7)];
        let columns = columns(&points(&burst), |ns| ns as f64 / 10.0);
        let spans = spans(&columns, 8.0);
        let span = |x, low, high| Span { x, low, high };
        assert_eq!(spans, [span(0.0, 0, 900), span(1.0, 0, 0), span(5.0, 7, 7)]);
        assert_eq!(
            edge(&spans, 8.0, |span| span.high),
            [(0.0, 900), (1.0, 900), (1.0, 0), (5.0, 0), (5.0, 7), (8.0, 7)]
        );
    }

    proptest! {
        #[test]
        fn the_exact_value_is_drawn_at_every_instant(
            steps in proptest::collection::vec((prop_oneof![20 => 0i64..4, 1 => 50i64..900], 0u64..1000), 1..400),
            instants in proptest::collection::vec(0i64..20_000, 40),
            scale in 1i64..60,
        ) {
            let mut time_ns = 0;
            let values: Vec<(i64, u64)> = steps
                .into_iter()
                .map(|(pause, value)| {
                    time_ns += pause;
                    (time_ns, value)
                })
                .collect();
            let x = |ns: i64| ns as f64 / scale as f64;
            let end_ns = time_ns + 500;
            let spans = spans(&columns(&points(&values), x), x(end_ns));
            prop_assert!(spans.is_sorted_by(|one, next| one.x < next.x));
            for at in instants.into_iter().map(|at| at % (end_ns + 1)).filter(|at| *at >= values[0].0) {
                // The last of several values at one instant counts.
                let exact = values.iter().rev().find(|(time_ns, _)| *time_ns <= at).unwrap().1;
                let drawn = spans.iter().rev().find(|span| span.x <= x(at)).unwrap();
                prop_assert!((drawn.low..=drawn.high).contains(&exact), "{exact} at {at}: {drawn:?}");
                // No more is drawn than what there is within the pixel.
                let pixel = x(at).floor();
                let within = values.iter().filter(|(time_ns, _)| is_same(x(*time_ns).floor(), pixel));
                let within: Vec<u64> = within.map(|(_, value)| *value).chain([exact]).collect();
                prop_assert!(within.contains(&drawn.low) && within.contains(&drawn.high), "{drawn:?} at {at}");
            }
        }
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
