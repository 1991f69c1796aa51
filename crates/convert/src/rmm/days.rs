//! Days for times of day: a log that shows only the clock passes midnight unseen.
//!
//! The rule: a step backwards of more than 12 hours is a new day; a smaller one is two threads out of
//! order, or a clock that was set back. Rows that straddle midnight out of order are recognized by both
//! lying within a minute of it: the one before midnight belongs to the previous day. A run that was
//! appended is later than the run before it, so that a step backwards of more than a minute is a new day
//! there. Only whole seconds are looked at, and a pause of a day or more cannot be seen.

use floodmark_event::units::{Date, NS_PER_DAY};

const MINUTE: u32 = 60;
const HALF_DAY: u32 = 43_200;
const DAY: u32 = 86_400;

/// The day that the rows have come to.
#[derive(Clone, Debug)]
pub(crate) struct Days {
    day: i64,
    /// Second of the day of the row before; `None` before the first.
    before: Option<u32>,
    /// How far back the next row may be on the same day.
    most_back: u32,
}

impl Days {
    /// Begins on `date`, or on 1970-01-01 if the date is not known.
    pub(crate) fn from(date: Option<Date>) -> Self {
        Self { day: date.map_or(0, Date::epoch_days), before: None, most_back: HALF_DAY }
    }

    /// Begins a run that was appended to the rows before.
    pub(crate) fn begin_run(&mut self) {
        self.most_back = MINUTE;
    }

    /// Goes on behind rows whose days another counted; its days are to be moved by `shift_ns`, whole days.
    pub(crate) fn go_on(&mut self, later: &Self, shift_ns: i64) {
        *self = Self { day: later.day + shift_ns / NS_PER_DAY, ..later.clone() };
    }

    /// Returns when the day of the next row began, given the second of the day that the row shows;
    /// `None` past the years that nanoseconds can count.
    pub(crate) fn start_ns(&mut self, second: u32) -> Option<i64> {
        let before = self.before.replace(second).unwrap_or(second);
        let most_back = std::mem::replace(&mut self.most_back, HALF_DAY);
        if before > second.saturating_add(most_back) {
            self.day += 1;
        } else if second >= DAY - MINUTE && before <= MINUTE {
            self.day -= 1;
        }
        self.day.checked_mul(NS_PER_DAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(seconds: &[u32]) -> Vec<i64> {
        let mut days = Days::from(None);
        seconds.iter().map(|second| days.start_ns(*second).expect("near 1970") / NS_PER_DAY).collect()
    }

    #[test]
    fn a_step_back_of_more_than_12_hours_is_a_new_day() {
        assert_eq!(days(&[3600, 3541, 0, 3700]), [0, 0, 0, 0]);
        assert_eq!(days(&[50_000, 6800, 6799]), [0, 0, 0]);
        assert_eq!(days(&[50_000, 6799, 6700]), [0, 1, 1]);
        assert_eq!(days(&[86_399, 0, 86_399, 1, 50_000, 49_000]), [0, 1, 0, 1, 1, 1]);
    }

    #[test]
    fn an_appended_run_is_later_than_the_run_before() {
        let mut days = Days::from(None);
        let mut day = |second, is_new_run| {
            if is_new_run {
                days.begin_run();
            }
            days.start_ns(second).expect("near 1970") / NS_PER_DAY
        };
        assert_eq!([day(3600, false), day(3500, true), day(3400, false)], [0, 1, 1]);
        assert_eq!([day(3400, true), day(3390, true), day(80_000, true)], [1, 1, 1]);
    }

    #[test]
    fn rows_out_of_order_around_midnight_keep_their_days() {
        assert_eq!(days(&[86_390, 5, 86_395, 86_399, 6, 7]), [0, 1, 0, 0, 1, 1]);
        assert_eq!(days(&[30, 86_339, 30, 86_340]), [0, 0, 1, 0]);
    }

    #[test]
    fn a_date_given_is_the_day_of_the_first_row() {
        let mut days = Days::from(Date::parse("2026-07-01"));
        assert_eq!(days.start_ns(7), Some(20_635 * NS_PER_DAY));
        let mut days = Days::from(Some(Date { year: 100_000, month: 1, day: 1 }));
        assert_eq!(days.start_ns(7), None);
    }
}
