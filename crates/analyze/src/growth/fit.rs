//! A line through values that come one after another, from running sums.
//!
//! Values are taken relative to the first, as whole numbers in 128 bits, so sums are exact whatever the
//! level around which values move. Absurd values saturate.

use serde::{Deserialize, Serialize};

/// Running sums over values at 0, 1, 2 …
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sums {
    count: u64,
    first: u64,
    /// Relative to the first, as are all sums.
    last: i128,
    sum: i128,
    /// Of place times value.
    moment: i128,
    squares: i128,
    /// Of each value times the one before.
    products: i128,
}

/// A fitted line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) slope: f64,
    /// Half of the 95 % interval of the slope; none with fewer than three values.
    pub(super) half_width: Option<f64>,
}

impl Sums {
    /// Adds a value `times` times, at least once.
    #[inline]
    pub(super) fn add(&mut self, value: u64, times: u64) {
        if self.count == 0 {
            self.first = value;
        }
        let value = i128::from(value) - i128::from(self.first);
        let (from, times_wide) = (i128::from(self.count), i128::from(times));
        let places = times_wide * from + times_wide * (times_wide - 1) / 2;
        let square = value.saturating_mul(value);
        self.products = self.products.saturating_add(self.last.saturating_mul(value));
        self.products = self.products.saturating_add(square.saturating_mul(times_wide - 1));
        self.sum = self.sum.saturating_add(value.saturating_mul(times_wide));
        self.moment = self.moment.saturating_add(value.saturating_mul(places));
        self.squares = self.squares.saturating_add(square.saturating_mul(times_wide));
        self.last = value;
        self.count += times;
    }

    /// Orders sums by what they are of.
    pub(super) fn key(&self) -> [i128; 6] {
        let Self { count, first, last, sum, moment, squares, products: _ } = *self;
        [i128::from(count), i128::from(first), last, sum, moment, squares]
    }

    /// Whether there is no value but 0.
    pub(super) fn is_zero(&self) -> bool {
        self.first == 0 && self.squares == 0
    }

    /// The first and the last value.
    pub(super) fn ends(&self) -> (u64, u64) {
        let last = i128::from(self.first) + self.last;
        (self.first, u64::try_from(last).unwrap_or(0))
    }

    /// Fits a line.
    pub(super) fn line(&self) -> Line {
        let count = i128::from(self.count);
        if self.count < 2 {
            return Line { slope: 0.0, half_width: None };
        }
        let n = self.count as f64;
        // Sums of places 0 … n - 1 about their mean, times n.
        let spread = n * n * (n * n - 1.0) / 12.0;
        let places = count * (count - 1) / 2;
        let covariance =
            count.saturating_mul(self.moment).saturating_sub(places.saturating_mul(self.sum)) as f64;
        let variance =
            count.saturating_mul(self.squares).saturating_sub(self.sum.saturating_mul(self.sum)) as f64;
        let slope = covariance / spread;
        if self.count < 3 {
            return Line { slope, half_width: None };
        }
        let residual = (variance - slope * covariance) / n;
        // What is left of an exact line is rounding.
        if residual <= 1e-12 * variance / n {
            return Line { slope, half_width: Some(0.0) };
        }
        let effective = self.effective_count(slope, residual);
        let freedom = effective - 2.0;
        let deviation = (residual / freedom / (spread / n)).sqrt();
        Line { slope, half_width: Some(deviation * student(freedom)) }
    }

    /// The number of values that would say as much if they did not resemble each other.
    fn effective_count(&self, slope: f64, residual: f64) -> f64 {
        let n = self.count as f64;
        let (sum, moment, last) = (self.sum as f64, self.moment as f64, self.last as f64);
        let start = sum / n - slope * (n - 1.0) / 2.0;
        // Values d and places i up to the last but one, and the values that follow them.
        let (before, before_moment) = (sum - last, moment - (n - 1.0) * last);
        let (after, after_moment) = (sum, moment - sum);
        // The line at i times the line at i + 1.
        let m = n - 1.0;
        let (first, second) = (m * (m - 1.0) / 2.0, (m - 1.0) * m * (2.0 * m - 1.0) / 6.0);
        let on_line =
            start * start * m + start * slope * (2.0 * first + m) + slope * slope * (second + first);
        let products = self.products as f64
            - ((start + slope) * before + slope * before_moment)
            - (start * after + slope * after_moment)
            + on_line;
        let correlation = (products / residual).clamp(0.0, 0.999_999);
        (n * (1.0 - correlation) / (1.0 + correlation)).clamp(3.0, n)
    }
}

/// Student's t: 95 % of all lie within this many deviations, by degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// The same for many.
const NORMAL: f64 = 1.959_964;

/// Student's t for any degrees of freedom, whose logarithms lie between the tabled ones in proportion to
/// their reciprocals: within 3 % of the truth between 1 and 2, within 0.5 % beyond.
pub(super) fn student(freedom: f64) -> f64 {
    let most = STUDENT.len() as f64;
    let freedom = freedom.max(1.0);
    let between = |(low, at_low): (f64, f64), (high, at_high): (f64, f64)| {
        // `high` may be without bound: its reciprocal is 0.
        let (here, low, high) = (1.0 / freedom, 1.0 / low, if high.is_finite() { 1.0 / high } else { 0.0 });
        at_high * (at_low / at_high).powf((here - high) / (low - high))
    };
    if freedom >= most {
        return between((most, STUDENT[29]), (f64::INFINITY, NORMAL));
    }
    let below = freedom.floor();
    let at = below as usize - 1;
    between((below, STUDENT[at]), (below + 1.0, STUDENT[at + 1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_t_is_that_of_tables() {
        for (freedom, expected) in [(1.0, 12.706), (10.0, 2.228), (40.0, 2.021), (120.0, 1.980), (1e9, 1.960)]
        {
            assert!((student(freedom) - expected).abs() < 0.003, "{freedom}: {}", student(freedom));
        }
        assert!(student(2.5) < 4.303 && student(2.5) > 3.182);
    }

    #[test]
    fn an_exact_line_has_no_doubt_at_any_level() {
        for level in [0, 1 << 50] {
            let mut sums = Sums::default();
            (0..1000).for_each(|place| sums.add(level + place * 1024, 1));
            let line = sums.line();
            assert!((line.slope - 1024.0).abs() < 1e-6, "{line:?}");
            assert!(line.half_width.unwrap() < 1e-3, "{line:?}");
        }
    }

    #[test]
    fn runs_add_up_to_single_values() {
        let (mut runs, mut singles) = (Sums::default(), Sums::default());
        for (value, times) in [(5, 3), (9, 1), (2, 7), (2, 2)] {
            runs.add(value, times);
            (0..times).for_each(|_| singles.add(value, 1));
        }
        assert_eq!(runs.line(), singles.line());
        assert_eq!(runs.ends(), (5, 2));
    }

    #[test]
    fn absurd_values_do_no_harm() {
        let mut sums = Sums::default();
        for place in 0..100 {
            sums.add(if place % 2 == 0 { u64::MAX } else { 0 }, 1 << 40);
        }
        assert!(!sums.line().slope.is_nan());
    }
}
