//! Whether memory grew all the time, which is how caches without a limit and most leaks look.

use crate::usage::UsagePoint;

/// Number of equal parts of the time before the peak that are compared.
const PARTS: usize = 8;
/// Number of steps from part to part that must rise.
const RISING: usize = 6;
/// Least rise of a step, as a share of an even rise to the peak.
const LEAST_RISE: f64 = 0.2;
/// The peak must be in this last share of the time.
const LATE: f64 = 0.5;

/// Tells whether a step function rose all the time until its peak: the lowest value of each part of that time is at
/// least that of the part before, and nearly all parts add their share.
pub fn grew_steadily(points: &[UsagePoint]) -> bool {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return false };
    let Some(peak) =
        points.iter().reduce(|most, point| if point.live_bytes > most.live_bytes { point } else { most })
    else {
        return false;
    };
    let since = |time_ns: i64| time_ns.saturating_sub(first.time_ns).max(0) as f64;
    let until_peak = since(peak.time_ns);
    if until_peak <= 0.0 || until_peak < since(last.time_ns) * (1.0 - LATE) {
        return false;
    }
    let mut lowest = [f64::INFINITY; PARTS];
    let mut value = 0.0;
    let mut reached = 0;
    for point in points {
        let part = (since(point.time_ns) / until_peak * PARTS as f64) as usize;
        // The value before this point holds in all parts up to it.
        for low in &mut lowest[reached..=part.min(PARTS - 1)] {
            *low = low.min(value);
        }
        reached = part.min(PARTS - 1);
        value = point.live_bytes as f64;
        if part >= PARTS {
            break;
        }
    }
    // What the first part begins with is no growth.
    lowest[0] = points[0].live_bytes as f64;
    let even = (peak.live_bytes as f64 - lowest[0]) / PARTS as f64;
    let steps = || lowest.windows(2).map(|pair| pair[1] - pair[0]);
    even > 0.0
        && steps().all(|step| step >= 0.0)
        && steps().filter(|step| *step >= even * LEAST_RISE).count() >= RISING
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: impl IntoIterator<Item = u64>) -> Vec<UsagePoint> {
        values.into_iter().zip(0..).map(|(live_bytes, time_ns)| UsagePoint { time_ns, live_bytes }).collect()
    }

    #[test]
    fn a_steady_rise_is_told_from_a_plateau_and_from_teeth() {
        assert!(grew_steadily(&points(0..100)));
        assert!(grew_steadily(&points((0..100).chain([0]))), "freed at the end");
        assert!(
            grew_steadily(&points((0..400).map(|at| at + if at % 7 < 3 { 5 } else { 0 }))),
            "with short-lived blocks"
        );
        assert!(grew_steadily(&points((0..60).chain([60; 40]))), "kept afterwards");
        assert!(!grew_steadily(&points([100; 50])), "level");
        assert!(!grew_steadily(&points([0, 100, 100, 100, 100, 100, 101])), "one step");
        assert!(!grew_steadily(&points((0..20).chain([20; 80]))), "early");
        assert!(!grew_steadily(&points((0..400).map(|at| at % 50 + at / 40))), "teeth that come down");
        assert!(!grew_steadily(&points((0..100).rev())));
        assert!(!grew_steadily(&[]) && !grew_steadily(&points([7])));
    }
}
