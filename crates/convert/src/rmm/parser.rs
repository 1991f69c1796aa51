//! From lines to rows, with what carries over from one line to the next: the columns, the day, and the
//! texts that rows repeat.
//!
//! Two parsers share the work: [`Usual`] takes the rows that nearly all logs consist of, [`Row`] every
//! other. Invariant: a line that cannot be read changes nothing of what carries over.

use floodmark_event::units::{Date, NS_PER_S};

use super::columns::Columns;
use super::days::Days;
use super::lines::LINE_BYTES_MAX;
use super::row::{Row, Time};
use super::rows::TimedRow;
use super::usual::Usual;
use crate::quote::quoted;

/// What was learned from the lines so far.
#[derive(Clone, Debug)]
pub(super) struct Parser {
    pub(super) columns: Columns,
    pub(super) usual: Usual,
    days: Days,
    /// Time of the last row that was not usual; usual rows after it show the same second.
    last_ns: Option<i64>,
    pub(super) back_steps: BackSteps,
    first: Option<FirstRow>,
}

/// The first row, for going on from rows before it that another parser has read.
#[derive(Clone, Copy, Debug)]
struct FirstRow {
    time: Time,
    time_ns: i64,
    /// Whether a row shows a time of another form, so that times cannot be moved together.
    is_mixed: bool,
}

/// A parser behind rows that another one has read.
pub(super) struct Absorbed {
    pub(super) parser: Parser,
    /// What the times of these rows lack.
    pub(super) shift_ns: i64,
}

/// What a line without its end was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParsedLine {
    Row(TimedRow),
    Blank,
    /// Another header, whose columns hold from there on.
    Header,
}

/// Steps of more than a second by which times run backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BackSteps {
    pub(super) count: u64,
    pub(super) most_ns: u64,
}

impl Parser {
    pub(super) fn new(columns: Columns, date: Option<Date>) -> Self {
        Self {
            columns,
            usual: Usual::new(),
            days: Days::from(date),
            last_ns: None,
            back_steps: BackSteps::default(),
            first: None,
        }
    }

    /// Returns this parser as it would be behind the rows that `later` has read since it was new; none if these rows
    /// have to be read again, because the columns are others or a day is too far away.
    pub(super) fn absorbed(&self, later: &Self) -> Option<Absorbed> {
        if self.columns != later.columns {
            return None;
        }
        let mut parser = self.clone();
        // The texts noted are of an earlier row, whose day may have been another.
        parser.usual.forget_time();
        let Some(first) = later.first else { return Some(Absorbed { parser, shift_ns: 0 }) };
        if first.is_mixed {
            return None;
        }
        let mut shift_ns = 0;
        if let Time::Clock { second, fraction_ns } = first.time {
            let own_ns = parser.days.start_ns(second)?;
            let later_ns = first.time_ns - i64::from(second) * NS_PER_S - i64::from(fraction_ns);
            shift_ns = own_ns.checked_sub(later_ns)?;
            parser.days.go_on(&later.days, shift_ns);
        }
        if first.time != Time::Unknown {
            parser.note_time(first.time_ns.checked_add(shift_ns)?);
            parser.last_ns = match later.last_ns {
                Some(last_ns) => Some(last_ns.checked_add(shift_ns)?),
                None => parser.last_ns,
            };
        }
        parser.back_steps.count += later.back_steps.count;
        parser.back_steps.most_ns = parser.back_steps.most_ns.max(later.back_steps.most_ns);
        Some(Absorbed { parser, shift_ns })
    }

    /// Notes when a row was, and whether times run backwards there.
    fn note_time(&mut self, time_ns: i64) {
        let back_ns = self.last_ns.replace(time_ns).map_or(0, |last_ns| last_ns.saturating_sub(time_ns));
        if back_ns > NS_PER_S {
            self.back_steps.count += 1;
            self.back_steps.most_ns = self.back_steps.most_ns.max(back_ns as u64);
        }
    }

    /// Begins a run that was appended to the rows before.
    pub(super) fn begin_run(&mut self) {
        self.days.begin_run();
        self.last_ns = None;
    }

    /// Notes the time of the last row that was read as a usual one: such rows go back by less than a second.
    pub(super) fn note_usual(&mut self, time_ns: Option<i64>) {
        self.last_ns = time_ns.or(self.last_ns);
    }

    /// Reads any line without its end.
    ///
    /// # Errors
    /// What is wrong with it, in a sentence that quotes the field.
    pub(super) fn read_line(&mut self, line: &[u8]) -> Result<ParsedLine, String> {
        if line.len() > LINE_BYTES_MAX {
            return Err(long_line());
        }
        let row = match Row::parse(line, &self.columns) {
            Ok(row) => row,
            Err(_) if line.trim_ascii().is_empty() => return Ok(ParsedLine::Blank),
            Err(reason) => {
                self.columns = Columns::parse(line).map_err(|_| reason)?;
                return Ok(ParsedLine::Header);
            }
        };
        let time_ns = match row.time {
            Time::Unknown => 0,
            Time::Epoch(time_ns) => time_ns,
            Time::Clock { second, fraction_ns } => self
                .days
                .start_ns(second)
                .and_then(|start_ns| start_ns.checked_add(i64::from(second) * NS_PER_S))
                .and_then(|time_ns| time_ns.checked_add(i64::from(fraction_ns)))
                .ok_or_else(|| format!("Time is {}, on a day that is too far away", quoted(row.time_text)))?,
        };
        self.usual.note_time(row.time_text, time_ns);
        if row.time != Time::Unknown {
            self.note_time(time_ns);
        }
        let first = self.first.get_or_insert(FirstRow { time: row.time, time_ns, is_mixed: false });
        first.is_mixed |= std::mem::discriminant(&first.time) != std::mem::discriminant(&row.time);
        let Row { thread, action, address, bytes, stream, .. } = row;
        Ok(ParsedLine::Row(TimedRow { thread, time_ns, action, address, bytes, stream }))
    }
}

/// Says that a line is longer than any row can be.
pub(super) fn long_line() -> String {
    format!("the line is longer than {LINE_BYTES_MAX} bytes")
}
