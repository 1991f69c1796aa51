//! What the clock on the wall shows.
#![expect(unsafe_code, reason = "localtime_r is a C function")]

use std::mem;
use std::time::{SystemTime, UNIX_EPOCH};

/// A second in the time zone of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalTime {
    pub(crate) year: i64,
    pub(crate) month: u32,
    pub(crate) day: u32,
    pub(crate) hour: u32,
    pub(crate) minute: u32,
    pub(crate) second: u32,
}

impl LocalTime {
    /// The second that began `seconds` after 1970 in UTC.
    pub(crate) fn of(seconds: i64) -> Self {
        // SAFETY: plain numbers and a pointer to a name, for which zeros are valid.
        let mut time: libc::tm = unsafe { mem::zeroed() };
        // SAFETY: both point to values of ours. Where it cannot convert, the zeros stay.
        unsafe { libc::localtime_r(&raw const seconds, &raw mut time) };
        Self {
            year: i64::from(time.tm_year) + 1900,
            month: time.tm_mon as u32 + 1,
            day: time.tm_mday as u32,
            hour: time.tm_hour as u32,
            minute: time.tm_min as u32,
            second: time.tm_sec as u32,
        }
    }
}

/// Seconds since 1970 in UTC, and nanoseconds in the second that runs.
pub(crate) fn now() -> (i64, u32) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs() as i64, since.subsec_nanos())
}
