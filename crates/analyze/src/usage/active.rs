//! Finds the part of a recording in which something happens.

use super::UsagePoint;

/// Share of all changes that the active part has to contain.
const MOST: f64 = 0.98;
/// A part longer than this share of the whole is no better than the whole.
const LONGEST: f64 = 0.5;

/// Returns the shortest part that contains nearly all changes of live bytes and the peak; none if changes are spread
/// over most of the time. `points` are a step function up to `end_ns`.
pub fn active_part(points: &[UsagePoint], end_ns: i64) -> Option<(i64, i64)> {
    let first_ns = points.first()?.time_ns;
    let whole = end_ns.checked_sub(first_ns).filter(|span| *span > 0)?;
    let mut before = 0;
    // How much changed up to and including each point.
    let mut changed = Vec::with_capacity(points.len());
    let mut sum = 0.0;
    for point in points {
        sum += point.live_bytes.abs_diff(before) as f64;
        before = point.live_bytes;
        changed.push(sum);
    }
    // Of equal values the first.
    let peak = (0..points.len()).rev().max_by_key(|at| points[*at].live_bytes)?;
    let wanted = sum * MOST;
    let mut best: Option<(i64, usize, usize)> = None;
    let mut to = 0;
    for from in 0..=peak {
        let earlier = if from == 0 { 0.0 } else { changed[from - 1] };
        while to < points.len() && (to < peak || changed[to] - earlier < wanted) {
            to += 1;
        }
        if to == points.len() {
            break;
        }
        let span = points[to].time_ns.saturating_sub(points[from].time_ns);
        if best.is_none_or(|(shortest, ..)| span < shortest) {
            best = Some((span, from, to));
        }
    }
    let (span, from, to) = best?;
    if span as f64 > whole as f64 * LONGEST {
        return None;
    }
    // A margin, so that the changes at the ends can be seen.
    let margin = (span / 20).max(whole / 500);
    let (from_ns, to_ns) =
        (points[from].time_ns.saturating_sub(margin), points[to].time_ns.saturating_add(margin));
    Some((from_ns.max(first_ns), to_ns.min(end_ns)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(list: &[(i64, u64)]) -> Vec<UsagePoint> {
        list.iter()
            .map(|(time_ns, live_bytes)| UsagePoint { time_ns: *time_ns, live_bytes: *live_bytes })
            .collect()
    }

    #[test]
    fn a_long_quiet_time_is_left_out() {
        let line = points(&[(0, 1), (9000, 500), (9100, 900), (9200, 100)]);
        let (from, to) = active_part(&line, 10_000).unwrap();
        assert!(from > 8000 && from < 9000, "{from}");
        assert!(to > 9200 && to <= 10_000, "{to}");
    }

    #[test]
    fn even_changes_have_no_active_part() {
        let line: Vec<_> =
            (0..100).map(|at| UsagePoint { time_ns: at * 10, live_bytes: (at % 7) as u64 * 100 }).collect();
        assert_eq!(active_part(&line, 1000), None);
        assert_eq!(active_part(&[], 1000), None);
        assert_eq!(active_part(&points(&[(5, 7)]), 5), None);
    }

    #[test]
    fn the_peak_is_always_inside() {
        // Most changes are early, the peak is a small step late.
        let mut list: Vec<(i64, u64)> = (0..50).map(|at| (at, if at % 2 == 0 { 1000 } else { 0 })).collect();
        list.push((9990, 1001));
        let line = points(&list);
        assert!(active_part(&line, 10_000).is_none_or(|(from, to)| from <= 9990 && to >= 9990));
    }
}
