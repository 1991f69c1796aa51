//! One row of a log in any dialect, field by field.
//!
//! This is the parser that understands everything and says what is wrong; `usual` is the one that is
//! fast. What both accept they read alike.

use floodmark_event::Action;
use floodmark_event::units::NS_PER_S;

use super::columns::{Columns, Fields, Role};
use crate::quote::quoted;

/// When a row happened, as far as its text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// There is no such column.
    Unknown,
    /// Nanoseconds since 1970-01-01 UTC.
    Epoch(i64),
    /// A time of day.
    Clock { second: u32, fraction_ns: u32 },
}

/// A row that was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<'a> {
    pub(super) thread: u64,
    pub(super) time: Time,
    /// The text that `time` was read from.
    pub(super) time_text: &'a [u8],
    pub(super) action: Action,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: u64,
}

impl<'a> Row<'a> {
    /// Parses a line without its end.
    ///
    /// # Errors
    /// What is wrong with it, in a sentence that quotes the field.
    pub(super) fn parse(line: &'a [u8], columns: &Columns) -> Result<Self, String> {
        let mut row = Self {
            thread: 0,
            time: Time::Unknown,
            time_text: b"",
            action: Action::Alloc,
            address: 0,
            bytes: 0,
            stream: 0,
        };
        let mut count = 0;
        for field in Fields::of(line) {
            let role = columns.roles.get(count).copied().flatten();
            count += 1;
            // A line with too few or too many fields is better called that than by its first bad field.
            if let Some(role) = role
                && !row.set(role, field)
                && Fields::of(line).count() == columns.roles.len()
            {
                return Err(complaint(role, field));
            }
        }
        if count != columns.roles.len() {
            return Err(format!(
                "{} has {count} of the header's {} fields",
                quoted(line),
                columns.roles.len()
            ));
        }
        Ok(row)
    }

    fn set(&mut self, role: Role, field: &'a [u8]) -> bool {
        match role {
            Role::Thread => store(&mut self.thread, number(field)),
            Role::Time => {
                self.time_text = field;
                store(&mut self.time, time(field))
            }
            Role::Action => store(&mut self.action, action(field)),
            Role::Pointer => store(&mut self.address, pointer(field)),
            Role::Size => store(&mut self.bytes, digits(field, 10)),
            Role::Stream => store(&mut self.stream, number(field)),
        }
    }
}

fn store<T>(place: &mut T, value: Option<T>) -> bool {
    value.map(|value| *place = value).is_some()
}

fn complaint(role: Role, field: &[u8]) -> String {
    let wanted = match role {
        Role::Thread | Role::Stream => "a whole number, decimal or 0x…, below 2^64",
        Role::Time => "a time such as 06:29:01.412806 or seconds since 1970 such as 1634567890.123456",
        Role::Action => "one of allocate, free, deallocate and allocate failure",
        Role::Pointer => "a hexadecimal address or (nil)",
        Role::Size => "a whole number below 2^64",
    };
    format!("{} is {}, not {wanted}", role.name(), quoted(field))
}

/// Parses what a row did.
pub(super) fn action(field: &[u8]) -> Option<Action> {
    match field {
        b"allocate" => Some(Action::Alloc),
        b"free" | b"deallocate" => Some(Action::Free),
        b"allocate failure" => Some(Action::Failure),
        _ => None,
    }
}

/// Parses an address: hexadecimal with or without `0x`, or `(nil)`.
fn pointer(field: &[u8]) -> Option<u64> {
    if field == b"(nil)" { Some(0) } else { digits(without_0x(field).unwrap_or(field), 16) }
}

/// Parses a thread or stream: decimal, `0x` hexadecimal or, as for addresses, `(nil)`.
fn number(field: &[u8]) -> Option<u64> {
    match without_0x(field) {
        Some(rest) => digits(rest, 16),
        None if field == b"(nil)" => Some(0),
        None => digits(field, 10),
    }
}

fn without_0x(field: &[u8]) -> Option<&[u8]> {
    field.strip_prefix(b"0x").or_else(|| field.strip_prefix(b"0X"))
}

fn digits(text: &[u8], radix: u32) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        let digit = char::from(*byte).to_digit(radix)?;
        value.checked_mul(u64::from(radix))?.checked_add(u64::from(digit))
    })
}

/// Parses a clock time, `HH:MM:SS` and a fraction after `.` or, of six digits, after `:`; or seconds
/// since 1970 with up to nine decimals.
fn time(field: &[u8]) -> Option<Time> {
    if let [h1, h2, b':', m1, m2, b':', s1, s2, fraction @ ..] = field {
        let [hour, minute, second] =
            [[*h1, *h2], [*m1, *m2], [*s1, *s2]].map(|pair| digits(&pair, 10).map(|value| value as u32));
        let (hour, minute, second) = (hour?, minute?, second?);
        let fraction_ns = match fraction {
            [] => 0,
            [b'.', decimals @ ..] => decimals_ns(decimals)?,
            [b':', decimals @ ..] if decimals.len() == 6 => decimals_ns(decimals)?,
            _ => return None,
        };
        // The clock shows 60 in a leap second.
        let exists = hour < 24 && minute < 60 && second <= 60;
        let second = hour * 3600 + minute * 60 + second;
        return exists.then_some(Time::Clock { second, fraction_ns: fraction_ns as u32 });
    }
    let (sign, unsigned) = field.strip_prefix(b"-").map_or((1, field), |rest| (-1, rest));
    let (seconds, fraction_ns) = match unsigned.iter().position(|byte| *byte == b'.') {
        Some(dot) => (&unsigned[..dot], decimals_ns(&unsigned[dot + 1..])?),
        None => (unsigned, 0),
    };
    let ns = i64::try_from(digits(seconds, 10)?).ok()?.checked_mul(NS_PER_S)?.checked_add(fraction_ns)?;
    Some(Time::Epoch(sign * ns))
}

/// Parses one to nine decimals of a second.
fn decimals_ns(decimals: &[u8]) -> Option<i64> {
    let missing = 9usize.checked_sub(decimals.len())?;
    Some(digits(decimals, 10)? as i64 * 10i64.pow(missing as u32))
}

#[cfg(test)]
mod tests {
    use super::super::columns::HEADER;
    use super::*;

    fn error(line: &str) -> String {
        let columns = Columns::parse(HEADER.as_bytes()).expect("RMM's own header");
        Row::parse(line.as_bytes(), &columns).expect_err("a bad row")
    }

    #[test]
    fn times_parse_in_every_dialect() {
        let clock = |second, fraction_ns| Some(Time::Clock { second, fraction_ns });
        assert_eq!(time(b"06:29:01.412806"), clock(23_341, 412_806_000));
        assert_eq!(time(b"22:37:25:738700"), clock(81_445, 738_700_000));
        assert_eq!(time(b"23:59:59.9"), clock(86_399, 900_000_000));
        assert_eq!(time(b"00:00:00"), clock(0, 0));
        assert_eq!(time(b"1634567890.123456"), Some(Time::Epoch(1_634_567_890_123_456_000)));
        assert_eq!(time(b"1634567890.123456789"), Some(Time::Epoch(1_634_567_890_123_456_789)));
        assert_eq!(time(b"1634567890"), Some(Time::Epoch(1_634_567_890_000_000_000)));
        assert_eq!(time(b"-1.5"), Some(Time::Epoch(-1_500_000_000)));
        for bad in [
            "",
            ".",
            "1.",
            ".5",
            "-",
            "--1",
            "1.1234567890",
            "9999999999999",
            "24:00:00",
            "00:60:00",
            "00:00:61",
            "00:00:00.",
            "00:00:00:1",
            "00:00:00,5",
            "0:00:00",
            "00:00:-1",
            "1e9",
            "+1",
            "１.5",
        ] {
            assert_eq!(time(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn numbers_parse_in_every_dialect() {
        assert_eq!(
            ["0", "0x0", "(nil)", "0X7F", "7fa5", "0xffffffffffffffff"].map(|text| pointer(text.as_bytes())),
            [Some(0), Some(0), Some(0), Some(0x7f), Some(0x7fa5), Some(u64::MAX)]
        );
        assert_eq!(
            ["0", "7", "0x55d0c0", "(nil)"].map(|text| number(text.as_bytes())),
            [Some(0), Some(7), Some(0x55_d0c0), Some(0)]
        );
        for bad in ["", "0x", "0xg", "nil", "0x10000000000000000", "-1", "0x-1"] {
            assert_eq!(pointer(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(digits(b"18446744073709551615", 10), Some(u64::MAX));
        assert_eq!(digits(b"18446744073709551616", 10), None);
    }

    #[test]
    fn a_bad_row_says_which_field_is_wrong_and_quotes_it() {
        assert_eq!(
            error("1,06:29:01.5,allocate,0x7f,99999999999999999999,0"),
            "Size is '99999999999999999999', not a whole number below 2^64"
        );
        assert_eq!(
            error("1,06:29:01.5,grab\0,0x7f,1,0"),
            r"Action is 'grab\x00', not one of allocate, free, deallocate and allocate failure"
        );
        assert_eq!(error("1,06:29:0"), "'1,06:29:0' has 2 of the header's 6 fields");
        assert!(error("1,06:29:01.5,allocate,0x7f,1,").starts_with("Stream is ''"));
        assert!(error("1,06:29:01.5,free,0x7f,1,0,0").contains("7 of the header's 6"));
    }
}
