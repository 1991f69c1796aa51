//! Bytes, durations and times as people write and read them.
//!
//! Parsing is exact where the text is: `1.5GiB` is 1,610,612,736 bytes, not a float near it.

use std::fmt::Write as _;

/// Nanoseconds in a second.
pub const NS_PER_S: i64 = 1_000_000_000;
/// Nanoseconds in a day.
pub const NS_PER_DAY: i64 = 86_400 * NS_PER_S;

const BYTE_UNITS: [(&str, u64); 21] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1000),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1_000_000),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1_000_000_000),
    ("gib", 1 << 30),
    ("t", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("tib", 1 << 40),
    ("p", 1 << 50),
    ("pb", 1_000_000_000_000_000),
    ("pib", 1 << 50),
    ("byte", 1),
    ("bytes", 1),
    ("e", 1 << 60),
    ("eib", 1 << 60),
];

const TIME_UNITS: [(&str, u64); 9] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a size such as `0`, `512`, `1.5GiB`, `20 GB` or `64k` (binary when only a letter).
///
/// # Errors
/// A sentence that says what is wrong and what would be right.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    parse_scaled(text, &BYTE_UNITS)
        .map_err(|why| format!("{why} in '{text}'; write a size such as 512, 64KiB, 1.5GiB or 20GB"))
}

/// Parses a duration such as `10ms`, `1.5s`, `2m` or `3h`; a bare number is seconds.
///
/// # Errors
/// A sentence that says what is wrong and what would be right.
pub fn parse_duration_ns(text: &str) -> Result<u64, String> {
    parse_scaled(text, &TIME_UNITS)
        .map_err(|why| format!("{why} in '{text}'; write a duration such as 10ms, 1.5s, 2m or 3h"))
}

/// Parses `digits[.digits] [unit]` into whole units without going through floating point.
fn parse_scaled(text: &str, units: &[(&str, u64)]) -> Result<u64, &'static str> {
    let text = text.trim();
    let number_len = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(number_len);
    let unit = unit.trim().to_lowercase();
    let Some((_, scale)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err("unknown unit");
    };
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err("no number");
    }
    if fraction.contains('.') || fraction.len() > 18 {
        return Err("bad number");
    }
    let digits =
        |part: &str| if part.is_empty() { Ok(0) } else { part.parse::<u128>().map_err(|_| "bad number") };
    let scale = u128::from(*scale);
    let total = digits(whole)?
        .checked_mul(scale)
        .and_then(|total| Some(total + digits(fraction).ok()? * scale / 10u128.pow(fraction.len() as u32)))
        .ok_or("number too large")?;
    u64::try_from(total).map_err(|_| "number too large")
}

/// Writes a size for people: `0 B`, `756 B`, `3.42 KiB`, `1.25 GiB`.
pub fn format_bytes(bytes: u64) -> String {
    const NAMES: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut power = (63 - bytes.leading_zeros() as usize) / 10;
    let mut value = bytes as f64 / (1u128 << (10 * power)) as f64;
    // 1,048,575 bytes are better called 1.00 MiB than 1024 KiB.
    if value >= 999.95 && power < 6 {
        power += 1;
        value /= 1024.0;
    }
    let digits = if value < 10.0 { 2 } else { 1 };
    format!("{value:.digits$} {}", NAMES[power])
}

/// Writes a signed size for people.
pub fn format_signed_bytes(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", format_bytes(bytes.unsigned_abs()))
}

/// Writes a whole number with thousands separated by commas.
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a duration for people: `850 ns`, `12.3 µs`, `4.56 ms`, `7.89 s`, `3m 20s`, `2h 05m`.
pub fn format_duration_ns(ns: u64) -> String {
    let scaled = |unit_ns: u64, name: &str| {
        let value = ns as f64 / unit_ns as f64;
        let digits = if value < 10.0 { 2 } else { 1 };
        format!("{value:.digits$} {name}")
    };
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => scaled(1_000, "µs"),
        1_000_000..1_000_000_000 => scaled(1_000_000, "ms"),
        1_000_000_000..60_000_000_000 => scaled(1_000_000_000, "s"),
        60_000_000_000..3_600_000_000_000 => {
            let seconds = ns / 1_000_000_000;
            format!("{}m {:02}s", seconds / 60, seconds % 60)
        }
        _ => {
            let minutes = ns / 60_000_000_000;
            format!("{}h {:02}m", minutes / 60, minutes % 60)
        }
    }
}

/// Writes an instant as exact seconds after the origin of an input, as options such as `--at` take it:
/// `+0s`, `+0.217412s`, `+1.306482917s`. Earlier instants have a minus sign.
pub fn format_elapsed_ns(ns: i64) -> String {
    let sign = if ns < 0 { '-' } else { '+' };
    let (seconds, fraction) = (ns.unsigned_abs() / NS_PER_S as u64, ns.unsigned_abs() % NS_PER_S as u64);
    let digits = format!("{fraction:09}");
    match digits.trim_end_matches('0') {
        "" => format!("{sign}{seconds}s"),
        digits => format!("{sign}{seconds}.{digits}s"),
    }
}

/// A day of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// Year.
    pub year: i64,
    /// Month, from 1.
    pub month: u32,
    /// Day of the month, from 1.
    pub day: u32,
}

impl Date {
    /// Returns the date of a number of days since 1970-01-01.
    pub fn from_epoch_days(days: i64) -> Self {
        // Counts from 0000-03-01 so that the leap day ends a year; 146,097 days make 400 years.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
        Self { year: year_of_era + era * 400 + i64::from(month <= 2), month, day }
    }

    /// Returns the number of days since 1970-01-01.
    pub fn epoch_days(self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month_from_march = (i64::from(self.month) + 9) % 12;
        let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(self.day) - 1;
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
    }

    /// Parses `YYYY-MM-DD`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let date = Self {
            year: parts.next().filter(|y| y.len() == 4)?.parse().ok()?,
            month: parts.next()?.parse().ok()?,
            day: parts.next()?.parse().ok()?,
        };
        (parts.next().is_none() && Self::from_epoch_days(date.epoch_days()) == date).then_some(date)
    }
}

/// Writes an instant as `2026-07-01 06:29:01.412806` UTC, with as many decimals as it needs (at
/// least six). Instants of the first days of 1970 come from logs that carry no date and are written
/// as the time of day they show.
pub fn format_time_ns(time_ns: i64) -> String {
    let days = time_ns.div_euclid(NS_PER_DAY);
    let in_day = time_ns.rem_euclid(NS_PER_DAY);
    let mut text = String::new();
    match days {
        0 => {}
        1..=30 => {
            let _ = write!(text, "day {} ", days + 1);
        }
        _ => {
            let date = Date::from_epoch_days(days);
            let _ = write!(text, "{:04}-{:02}-{:02} ", date.year, date.month, date.day);
        }
    }
    let seconds = in_day / NS_PER_S;
    let fraction = in_day % NS_PER_S;
    let _ = write!(text, "{:02}:{:02}:{:02}.", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if fraction % 1000 == 0 {
        let _ = write!(text, "{:06}", fraction / 1000);
    } else {
        let _ = write!(text, "{fraction:09}");
    }
    text
}

/// Parses digits after a decimal point into nanoseconds.
fn parse_fraction_ns(digits: &str) -> Option<i64> {
    if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse::<i64>().ok()? * 10i64.pow(9 - digits.len() as u32))
}

/// Parses `HH:MM[:SS[.fraction]]` into nanoseconds since midnight.
pub fn parse_time_of_day_ns(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = clock.split(':').map(|part| part.parse::<u32>().ok().filter(|_| part.len() <= 2));
    let (hours, minutes) = (parts.next()??, parts.next()??);
    let seconds = parts.next().unwrap_or(Some(0))?;
    if parts.next().is_some() || hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    let whole = i64::from(hours) * 3600 + i64::from(minutes) * 60 + i64::from(seconds);
    Some(whole * NS_PER_S + parse_fraction_ns(fraction)?)
}

/// An instant as given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instant {
    /// Nanoseconds since 1970-01-01 UTC.
    At(i64),
    /// Nanoseconds after the origin of an input: the start of a run, or the first event of a log.
    AfterStart(u64),
}

/// Parses an instant: `+1.5s` after the start, `@1634567890.25` epoch seconds,
/// `2026-07-01T06:29:01Z`, `2026-07-01 06:29:01.5`, or the time of day `06:29:01.5` of a log
/// without dates.
///
/// # Errors
/// A sentence that says what is wrong and what would be right.
pub fn parse_instant(text: &str) -> Result<Instant, String> {
    let bad = || {
        format!(
            "'{text}' is no time; write +1.5s (after the start), 10:00:01.5, 2026-07-01T06:29:01Z or @1634567890.25"
        )
    };
    let text = text.trim();
    if let Some(after) = text.strip_prefix('+') {
        return parse_duration_ns(after).map(Instant::AfterStart).map_err(|_| bad());
    }
    if let Some(epoch) = text.strip_prefix('@') {
        let (whole, fraction) = epoch.split_once('.').unwrap_or((epoch, "0"));
        let ns = parse_fraction_ns(fraction).ok_or_else(bad)?;
        let seconds = whole.parse::<i64>().map_err(|_| bad())?;
        return seconds
            .checked_mul(NS_PER_S)
            .and_then(|s| s.checked_add(ns))
            .map(Instant::At)
            .ok_or_else(bad);
    }
    let text_utc = text.strip_suffix('Z').unwrap_or(text);
    if let Some((date, time)) = text_utc.split_once(['T', ' ']) {
        let days = Date::parse(date).ok_or_else(bad)?.epoch_days();
        return Ok(Instant::At(days * NS_PER_DAY + parse_time_of_day_ns(time).ok_or_else(bad)?));
    }
    if let Some(date) = Date::parse(text_utc) {
        return Ok(Instant::At(date.epoch_days() * NS_PER_DAY));
    }
    parse_time_of_day_ns(text_utc).map(Instant::At).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_exactly_and_name_what_is_wrong() {
        assert_eq!(parse_bytes("0"), Ok(0));
        assert_eq!(parse_bytes("1.5GiB"), Ok(1_610_612_736));
        assert_eq!(parse_bytes("20 GB"), Ok(20_000_000_000));
        assert_eq!(parse_bytes("64k"), Ok(65_536));
        assert_eq!(parse_bytes("1_000"), Ok(1000));
        assert_eq!(parse_bytes("16EiB").unwrap_err().split(" in").next(), Some("number too large"));
        assert!(parse_bytes("2 parsecs").unwrap_err().contains("unknown unit"));
        assert!(parse_bytes("GiB").unwrap_err().contains("no number"));
        assert!(parse_bytes("1.2.3").unwrap_err().contains("bad number"));
        assert!(parse_bytes("-1").is_err());
    }

    #[test]
    fn sizes_and_durations_read_well() {
        let sizes = [0, 756, 1023, 1024, 3500, 1_048_575, 1 << 30, 1_342_177_280, 1 << 40, u64::MAX];
        let texts = sizes.map(format_bytes);
        assert_eq!(
            texts,
            [
                "0 B", "756 B", "1023 B", "1.00 KiB", "3.42 KiB", "1.00 MiB", "1.00 GiB", "1.25 GiB",
                "1.00 TiB", "16.0 EiB"
            ]
        );
        assert_eq!(
            [999, 12_345, 4_560_000, 200_000_000_000, 7_500_000_000_000].map(format_duration_ns),
            ["999 ns", "12.3 µs", "4.56 ms", "3m 20s", "2h 05m"]
        );
        let elapsed = [0, 2_000_000_000, 217_412_000, 1_306_482_917, 7_200_000_000_001, 5, -5_000_000];
        assert_eq!(
            elapsed.map(format_elapsed_ns),
            ["+0s", "+2s", "+0.217412s", "+1.306482917s", "+7200.000000001s", "+0.000000005s", "-0.005s"]
        );
        for ns in elapsed.into_iter().filter(|ns| *ns >= 0) {
            assert_eq!(parse_instant(&format_elapsed_ns(ns)), Ok(Instant::AfterStart(ns as u64)));
        }
        assert_eq!([0, 999, 1000, 20_000_000].map(format_count), ["0", "999", "1,000", "20,000,000"]);
        assert_eq!(format_signed_bytes(-2048), "-2.00 KiB");
    }

    #[test]
    fn dates_agree_with_the_calendar() {
        for days in [-719_468, -1, 0, 59, 11_016, 20_635, 2_932_896] {
            assert_eq!(Date::from_epoch_days(days).epoch_days(), days);
        }
        assert_eq!(Date::parse("2024-02-29").map(Date::epoch_days), Some(19_782));
        assert_eq!(Date::parse("2023-02-29"), None);
        assert_eq!(format_time_ns(1_782_887_341_412_806_000), "2026-07-01 06:29:01.412806");
        assert_eq!(format_time_ns(36_000_000_003_000), "10:00:00.000003");
        assert_eq!(format_time_ns(NS_PER_DAY + 1), "day 2 00:00:00.000000001");
    }

    #[test]
    fn instants_parse_in_every_documented_form() {
        assert_eq!(parse_instant("+1.5s"), Ok(Instant::AfterStart(1_500_000_000)));
        assert_eq!(parse_instant("@1634567890.25"), Ok(Instant::At(1_634_567_890_250_000_000)));
        assert_eq!(parse_instant("2026-07-01T06:29:01.412806Z"), Ok(Instant::At(1_782_887_341_412_806_000)));
        assert_eq!(parse_instant("2026-07-01 06:29:01"), Ok(Instant::At(1_782_887_341_000_000_000)));
        assert_eq!(parse_instant("10:00:00.000003"), Ok(Instant::At(36_000_000_003_000)));
        for bad in ["", "noon", "25:00:00", "2026-13-01", "+", "@", "10:00:00.", "1:2:3:4"] {
            assert!(parse_instant(bad).is_err(), "{bad}");
        }
    }
}
