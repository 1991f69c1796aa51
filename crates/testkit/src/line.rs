//! A line through values and how sure its slope is, by the formulas of a textbook.

/// The slope of a line fitted to values at 0, 1, 2 … by least squares, and half of its 95 % interval,
/// with fewer degrees of freedom the more a residual resembles the one before.
pub fn fit(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let places: Vec<f64> = (0..values.len()).map(|place| place as f64).collect();
    let mean = |list: &[f64]| list.iter().sum::<f64>() / n;
    let (x, y) = (mean(&places), mean(values));
    let spread: f64 = places.iter().map(|place| (place - x).powi(2)).sum();
    let slope =
        places.iter().zip(values).map(|(place, value)| (place - x) * (value - y)).sum::<f64>() / spread;
    let residuals: Vec<f64> =
        places.iter().zip(values).map(|(place, value)| value - y - slope * (place - x)).collect();
    let squares: f64 = residuals.iter().map(|residual| residual * residual).sum();
    let products: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if squares < 1e-9 {
        return (slope, 0.0);
    }
    let correlation = (products / squares).max(0.0);
    let freedom = (n * (1.0 - correlation) / (1.0 + correlation)).max(3.0) - 2.0;
    (slope, (squares / freedom / spread).sqrt() * student(freedom))
}

/// Student's t within which 95 % of all lie: the distribution added up in small steps.
pub fn student(freedom: f64) -> f64 {
    const STEPS: u32 = 200_000;
    // With t = sqrt(freedom) * tan(a) the density becomes a power of the cosine of a.
    let width = std::f64::consts::FRAC_PI_2 / f64::from(STEPS);
    let angle = |step: u32| (f64::from(step) + 0.5) * width;
    let density = |step: u32| angle(step).cos().powf(freedom - 1.0);
    let whole: f64 = (0..STEPS).map(density).sum();
    let mut sum = 0.0;
    let at = (0..STEPS).find(|step| {
        sum += density(*step);
        sum >= 0.95 * whole
    });
    freedom.sqrt() * angle(at.unwrap_or(STEPS - 1)).tan()
}
