//! From time series to curves: sums, parts, and parts too small to be shown.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use floodmark_analyze::{SeriesSet, UsagePoint};

use super::{Layer, Point, Series, Stack};

/// Most parts that are drawn; smaller ones are added up.
pub(super) const MOST_PARTS: usize = 8;
/// What part of the largest one is too small to be seen, where there are many.
pub(super) const SMALLEST: u64 = 50;

/// Values over time as a curve has them.
pub(super) fn points<'a>(points: impl IntoIterator<Item = &'a UsagePoint>) -> Vec<Point> {
    points.into_iter().map(|point| Point { time_ns: point.time_ns, bytes: point.live_bytes }).collect()
}

/// The sum of all groups.
pub(super) fn total<K>(name: String, series: &SeriesSet<K>, end_ns: i64) -> Series {
    let points = points(series.points.iter().map(|point| &point.total));
    Series { name, points, end_ns, ..Series::default() }
}

/// Values of groups at every point, those of one name added up; `name` gets the number of a group too.
pub(super) fn parts<K, N: Ord>(
    series: &SeriesSet<K>,
    name: impl Fn(usize, &K) -> N,
) -> BTreeMap<N, Vec<u64>> {
    let mut parts: BTreeMap<N, Vec<u64>> = BTreeMap::new();
    for (at, group) in series.groups.iter().enumerate() {
        let sums = parts.entry(name(at, &group.group)).or_insert_with(|| vec![0; series.points.len()]);
        for (sum, point) in sums.iter_mut().zip(&series.points) {
            *sum = sum.saturating_add(point.values.get(at).copied().unwrap_or(0));
        }
    }
    parts
}

/// The parts of a stack, each as a line.
pub(super) fn part_lines(stack: &Stack) -> Vec<Series> {
    let line = |layer: &Layer| {
        let points = stack.times_ns.iter().zip(&layer.values);
        let points = points.map(|(time_ns, bytes)| Point { time_ns: *time_ns, bytes: *bytes }).collect();
        Series { name: layer.name.clone(), points, end_ns: stack.end_ns, ..Series::default() }
    };
    stack.layers.iter().map(line).collect()
}

/// Adds up the smallest of many parts, and those too small to be seen.
pub(super) fn few(mut layers: Vec<Layer>) -> (Vec<Layer>, Option<String>) {
    if layers.len() <= MOST_PARTS {
        return (layers, None);
    }
    let highest = |layer: &Layer| layer.values.iter().copied().max().unwrap_or(0);
    layers.sort_by_key(|layer| Reverse(highest(layer)));
    let least = layers.first().map_or(0, highest) / SMALLEST;
    let kept = layers.iter().take(MOST_PARTS - 1).take_while(|layer| highest(layer) >= least).count();
    let rest = layers.split_off(kept);
    let mut sums = vec![0u64; rest.iter().map(|layer| layer.values.len()).max().unwrap_or(0)];
    for layer in &rest {
        for (sum, value) in sums.iter_mut().zip(&layer.values) {
            *sum = sum.saturating_add(*value);
        }
    }
    let remark = format!("the {} smallest parts are added up", rest.len());
    layers.push(Layer { name: format!("{} others", rest.len()), values: sums });
    (layers, Some(remark))
}
