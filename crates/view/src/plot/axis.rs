//! Ticks at values people like, written in units people read.

use floodmark_event::units::{Date, NS_PER_DAY, NS_PER_S, format_elapsed_ns};

use crate::plot::font::width;
use crate::plot::model::TimeAxis;

/// A value with its label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick<T> {
    /// Where on the axis.
    pub at: T,
    /// What it says.
    pub label: String,
}

const BYTE_UNITS: [(&str, u64); 6] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("PiB", 1 << 50)];

/// Steps within a decade, in hundredths.
const DECADE: [u64; 4] = [100, 200, 250, 500];

/// Ticks from 0 up to `top` bytes, at most about `most` of them.
pub fn byte_ticks(top: u64, most: usize) -> Vec<Tick<u64>> {
    let (unit, unit_bytes) =
        BYTE_UNITS.into_iter().rev().find(|(_, bytes)| top >= *bytes).unwrap_or(BYTE_UNITS[0]);
    let most = most.max(2) as u128;
    // In thousandths of the unit, so that decimals are exact; bytes are not divided.
    let top_milli = u128::from(top) * 1000 / u128::from(unit_bytes);
    let least = if unit_bytes == 1 { 1000 } else { 10 };
    let steps = (0..18).flat_map(|decade| DECADE.map(|step| u128::from(step) * 10u128.pow(decade) / 10));
    let whole = |step: &u128| *step >= least && (unit_bytes > 1 || step.is_multiple_of(1000));
    let Some(step) = steps.into_iter().filter(whole).find(|step| top_milli / step <= most) else {
        return Vec::new();
    };
    let decimals = decimals_of(step, 1000);
    (0..=top_milli / step)
        .map(|number| {
            let milli = number * step;
            let at = (milli * u128::from(unit_bytes) / 1000) as u64;
            let label = if milli == 0 {
                "0".to_owned()
            } else {
                format!("{} {unit}", decimal(milli, 1000, decimals))
            };
            Tick { at, label }
        })
        .collect()
}

/// Decimals that multiples of `step` parts need, where `whole` parts make one.
fn decimals_of(step: u128, whole: u128) -> usize {
    let (mut decimals, mut scale) = (0, 1);
    while !(step * scale).is_multiple_of(whole) {
        decimals += 1;
        scale *= 10;
    }
    decimals
}

/// Writes parts of a whole with a number of decimals.
fn decimal(parts: u128, whole: u128, decimals: usize) -> String {
    let scale = 10u128.pow(decimals as u32);
    let scaled = parts * scale / whole;
    if decimals == 0 {
        scaled.to_string()
    } else {
        format!("{}.{:0decimals$}", scaled / scale, scaled % scale)
    }
}

/// How instants of a span are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// As a number of a unit.
    Number(&'static str, i64),
    /// As minutes and seconds.
    Minutes,
    /// As hours and minutes.
    Hours,
    /// As time of day.
    Clock,
}

const NUMBERS: [(&str, i64); 4] = [("ns", 1), ("µs", 1_000), ("ms", 1_000_000), ("s", NS_PER_S)];

/// From how many nanoseconds on minutes, and hours, read better than seconds.
const MINUTES_FROM_NS: i64 = 180 * NS_PER_S;
const HOURS_FROM_NS: i64 = 3 * 3600 * NS_PER_S;

fn style(longest_ns: i64, axis: TimeAxis) -> Style {
    match longest_ns {
        _ if axis == TimeAxis::Clock => Style::Clock,
        HOURS_FROM_NS.. => Style::Hours,
        MINUTES_FROM_NS.. => Style::Minutes,
        _ => {
            let fits = |(_, ns): &(&str, i64)| longest_ns >= *ns;
            let (unit, ns) = NUMBERS.into_iter().rev().find(fits).unwrap_or(NUMBERS[0]);
            Style::Number(unit, ns)
        }
    }
}

/// Where the ticks of an axis of time may be.
#[derive(Clone, Copy, Debug)]
pub struct TimeProps {
    /// First instant.
    pub from_ns: i64,
    /// Last instant.
    pub to_ns: i64,
    /// How instants are written.
    pub axis: TimeAxis,
    /// Pixels between the two.
    pub room: f64,
    /// Size of the font.
    pub size: f64,
}

/// Ticks of an axis of time, as many as have room, and what the axis should be called.
pub fn time_ticks(props: &TimeProps) -> (Vec<Tick<i64>>, String) {
    let TimeProps { from_ns, to_ns, axis, room, size } = *props;
    let span_ns = to_ns.saturating_sub(from_ns).max(1);
    let style = style(to_ns.saturating_abs().max(from_ns.saturating_abs()), axis);
    let mut ticks = Vec::new();
    for step in steps() {
        if i128::from(span_ns) / i128::from(step) > (room / 20.0) as i128 + 2 {
            continue;
        }
        ticks = at_multiples(from_ns, to_ns, step, style);
        let widest = ticks.iter().map(|tick| width(&tick.label, size)).fold(0.0, f64::max);
        let apart = room * step as f64 / span_ns as f64;
        if widest + 1.6 * size <= apart || ticks.len() < 2 {
            break;
        }
    }
    (ticks, caption(style, axis, from_ns, to_ns))
}

/// Nice durations, from short to long.
fn steps() -> impl Iterator<Item = i64> {
    let below = (0..10).flat_map(|power| [1, 2, 5].map(|digit| digit * 10i64.pow(power)));
    let below = below.take_while(|ns| *ns < 10 * NS_PER_S);
    let minutes = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200];
    let days = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 20_000, 100_000];
    below.chain(minutes.map(|s| s * NS_PER_S)).chain(days.map(|days| days * NS_PER_DAY))
}

fn at_multiples(from_ns: i64, to_ns: i64, step: i64, style: Style) -> Vec<Tick<i64>> {
    let first = from_ns.div_euclid(step) + i64::from(from_ns.rem_euclid(step) != 0);
    let multiples = (first..i64::MAX).map_while(|number| number.checked_mul(step).filter(|at| *at <= to_ns));
    multiples.map(|at| Tick { at, label: label(at, step, style) }).collect()
}

fn label(at: i64, step: i64, style: Style) -> String {
    let sign = if at < 0 { "-" } else { "" };
    let size = at.unsigned_abs();
    let fraction = |ns: u64| {
        let decimals = decimals_of(u128::from(step.unsigned_abs()), NS_PER_S as u128);
        let digits = format!("{ns:09}");
        if decimals == 0 { String::new() } else { format!(".{}", &digits[..decimals.min(9)]) }
    };
    let (seconds, ns) = (size / NS_PER_S as u64, size % NS_PER_S as u64);
    match style {
        Style::Number(_, _) if at == 0 => "0".into(),
        Style::Number(unit, unit_ns) => {
            let decimals = decimals_of(u128::from(step.unsigned_abs()), unit_ns as u128);
            format!("{sign}{} {unit}", decimal(u128::from(size), unit_ns as u128, decimals))
        }
        Style::Minutes => format!("{sign}{}:{:02}{}", seconds / 60, seconds % 60, fraction(ns)),
        Style::Hours => {
            let short = format!("{sign}{}:{:02}", seconds / 3600, seconds / 60 % 60);
            if step % (60 * NS_PER_S) == 0 {
                short
            } else {
                format!("{short}:{:02}{}", seconds % 60, fraction(ns))
            }
        }
        Style::Clock => {
            let in_day = at.rem_euclid(NS_PER_DAY);
            let (seconds, ns) = (in_day / NS_PER_S, (in_day % NS_PER_S) as u64);
            if step >= NS_PER_DAY {
                let date = Date::from_epoch_days(at.div_euclid(NS_PER_DAY));
                return format!("{:02}-{:02}", date.month, date.day);
            }
            let short = format!("{:02}:{:02}", seconds / 3600, seconds / 60 % 60);
            if step % (60 * NS_PER_S) == 0 {
                short
            } else {
                format!("{short}:{:02}{}", seconds % 60, fraction(ns))
            }
        }
    }
}

fn caption(style: Style, axis: TimeAxis, from_ns: i64, to_ns: i64) -> String {
    let zero = if axis == TimeAxis::Marked { "the mark" } else { "the start" };
    match style {
        Style::Number(..) => format!("time since {zero}"),
        Style::Minutes => format!("time since {zero}, minutes:seconds"),
        Style::Hours => format!("time since {zero}, hours:minutes"),
        Style::Clock => {
            let [first, last] = [from_ns, to_ns].map(|ns| ns.div_euclid(NS_PER_DAY));
            // Days of early 1970 come from logs that carry no date.
            if first < 31 {
                return "time of day".into();
            }
            let date = |day| {
                let Date { year, month, day } = Date::from_epoch_days(day);
                format!("{year:04}-{month:02}-{day:02}")
            };
            if first == last {
                format!("time of day, {} UTC", date(first))
            } else {
                format!("time of day, {} to {} UTC", date(first), date(last))
            }
        }
    }
}

/// Writes an instant as precisely as a picture of `span_ns` shows it.
pub fn instant(at_ns: i64, span_ns: i64, axis: TimeAxis) -> String {
    let precision = span_ns.max(1) / 1000;
    let step = steps().take_while(|step| *step <= precision.max(1)).last().unwrap_or(1).min(NS_PER_S);
    let at = at_ns.saturating_sub(at_ns.rem_euclid(step));
    let style = style(at_ns.saturating_abs().max(span_ns), axis);
    match style {
        Style::Number(..) | Style::Minutes | Style::Clock => label(at, step, style),
        Style::Hours => label(at, NS_PER_S, style),
    }
}

/// Writes the instant of a peak: exactly, as options such as `--at` take it, where times count from the start.
pub fn peak_instant(at_ns: i64, span_ns: i64, axis: TimeAxis) -> String {
    match axis {
        TimeAxis::Elapsed => format_elapsed_ns(at_ns),
        TimeAxis::Marked | TimeAxis::Clock => instant(at_ns, span_ns, axis),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(top: u64, most: usize) -> Vec<String> {
        byte_ticks(top, most).into_iter().map(|tick| tick.label).collect()
    }

    fn times(from_ns: i64, to_ns: i64, axis: TimeAxis, room: f64) -> (Vec<String>, String) {
        let (ticks, caption) = time_ticks(&TimeProps { from_ns, to_ns, axis, room, size: 10.0 });
        (ticks.into_iter().map(|tick| tick.label).collect(), caption)
    }

    #[test]
    fn bytes_are_counted_in_steps_people_like() {
        assert_eq!(bytes(200 << 20, 5), ["0", "50 MiB", "100 MiB", "150 MiB", "200 MiB"]);
        assert_eq!(bytes(3 << 29, 3), ["0", "0.5 GiB", "1.0 GiB", "1.5 GiB"]);
        assert_eq!(bytes(1100, 5), ["0", "0.2 KiB", "0.4 KiB", "0.6 KiB", "0.8 KiB", "1.0 KiB"]);
        assert_eq!(bytes(7, 4), ["0", "2 B", "4 B", "6 B"]);
        assert_eq!(bytes(0, 4), ["0"]);
        assert!(bytes(u64::MAX, 5).len() > 1);
    }

    #[test]
    fn times_have_the_unit_of_their_span_and_as_many_ticks_as_fit() {
        let s = NS_PER_S;
        assert_eq!(
            times(0, 10 * s, TimeAxis::Elapsed, 400.0).0,
            ["0", "1 s", "2 s", "3 s", "4 s", "5 s", "6 s", "7 s", "8 s", "9 s", "10 s"]
        );
        assert_eq!(times(0, 10 * s, TimeAxis::Elapsed, 120.0).0, ["0", "5 s", "10 s"]);
        assert_eq!(
            times(0, 450_000, TimeAxis::Elapsed, 300.0).0,
            ["0", "100 µs", "200 µs", "300 µs", "400 µs"]
        );
        assert_eq!(
            times(0, 600 * s, TimeAxis::Elapsed, 250.0).0,
            ["0:00", "2:00", "4:00", "6:00", "8:00", "10:00"]
        );
        assert_eq!(times(0, 1, TimeAxis::Elapsed, 250.0).0, ["0", "1 ns"]);
    }

    #[test]
    fn clocks_tell_the_day_once() {
        let start = 1_782_887_341 * NS_PER_S;
        let (labels, caption) = times(start, start + 90 * NS_PER_S, TimeAxis::Clock, 300.0);
        assert_eq!((labels[0].as_str(), caption.as_str()), ("06:29:30", "time of day, 2026-07-01 UTC"));
        let (labels, caption) = times(36_000 * NS_PER_S, 36_001 * NS_PER_S, TimeAxis::Clock, 300.0);
        assert_eq!((labels[1].as_str(), caption.as_str()), ("10:00:00.5", "time of day"));
    }

    #[test]
    fn ticks_never_run_away() {
        for (from, to) in [(i64::MIN, i64::MAX), (0, 0), (-5, 5), (i64::MAX - 1, i64::MAX)] {
            for axis in [TimeAxis::Elapsed, TimeAxis::Clock] {
                assert!(times(from, to, axis, 2000.0).0.len() < 200, "{from} {to}");
            }
        }
    }

    #[test]
    fn instants_are_as_precise_as_the_picture() {
        let s = NS_PER_S;
        assert_eq!(instant(3_217_654_321, 10 * s, TimeAxis::Elapsed), "3.21 s");
        assert_eq!(instant(217_654_321, 400_000_000, TimeAxis::Elapsed), "217.6 ms");
        assert_eq!(instant(500 * s + 1, 600 * s, TimeAxis::Elapsed), "8:20.0");
    }
}
