//! Figures as people read them.

use floodmark_event::units::{
    NS_PER_DAY, format_bytes, format_count, format_duration_ns, format_elapsed_ns, format_time_ns,
};

/// `3.42 KiB (3,500 bytes)`, or just `756 B` where that is exact already.
pub(crate) fn bytes_exactly(bytes: u64) -> String {
    if bytes < 1024 {
        return format_bytes(bytes);
    }
    format!("{} ({} bytes)", format_bytes(bytes), format_count(bytes))
}

/// `1 block`, `2 blocks`, `no blocks`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    match count {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        _ => format!("{} {noun}s", format_count(count)),
    }
}

/// A part of 1 in percent: `100 %`, `57 %`, `0.4 %`, `<0.1 %`.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        p if p <= 0.0 => "0 %".into(),
        p if p < 0.1 => "<0.1 %".into(),
        p if p < 9.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// A size that may lie between two bytes, such as a mean.
pub(crate) fn mean_bytes(bytes: Option<f64>) -> String {
    bytes.map_or_else(|| "-".into(), |bytes| format_bytes(bytes.round() as u64))
}

/// A duration that may lie between two nanoseconds.
pub(crate) fn mean_duration(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".into(), |ns| format_duration_ns(ns.round() as u64))
}

/// Writes an instant as options such as `--at` take it and, beside it, on the clock: `+1.5s (10:00:01.500000)`.
pub(crate) fn instant_exactly(time_ns: i64, origin_ns: Option<i64>) -> String {
    let clock = format_time_ns(time_ns);
    match origin_ns {
        Some(origin_ns) => format!("{} ({clock})", format_elapsed_ns(time_ns.saturating_sub(origin_ns))),
        None => clock,
    }
}

/// Writes the instants of one report: without the date where all fall on the same day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    shared_day: Option<i64>,
}

impl Clock {
    /// Looks at all instants that will be written.
    pub(crate) fn of(times: impl IntoIterator<Item = i64>) -> Self {
        let mut days = times.into_iter().map(|time_ns| time_ns.div_euclid(NS_PER_DAY));
        let first = days.next();
        Self { shared_day: first.filter(|first| days.all(|day| day == *first)) }
    }

    /// The time of day if the day is clear from elsewhere, else the whole instant.
    pub(crate) fn time(self, time_ns: i64) -> String {
        if self.shared_day == Some(time_ns.div_euclid(NS_PER_DAY)) {
            return format_time_ns(time_ns.rem_euclid(NS_PER_DAY));
        }
        format_time_ns(time_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(bytes_exactly(3500), "3.42 KiB (3,500 bytes)");
        assert_eq!(bytes_exactly(756), "756 B");
        assert_eq!([0, 1, 2000].map(|n| counted(n, "block")), ["no blocks", "1 block", "2,000 blocks"]);
        assert_eq!(
            [0.0, 0.0004, 0.0123, 0.57, 1.0].map(percent),
            ["0 %", "<0.1 %", "1.2 %", "57 %", "100 %"]
        );
    }

    #[test]
    fn a_day_is_written_once() {
        let (morning, noon) = (1_782_887_341_412_806_000, 1_782_900_000_000_000_000);
        assert_eq!(Clock::of([morning, noon]).time(morning), "06:29:01.412806");
        assert_eq!(Clock::of([morning, noon + NS_PER_DAY]).time(morning), "2026-07-01 06:29:01.412806");
        assert_eq!(Clock::of([]).time(0), "00:00:00.000000");
    }
}
