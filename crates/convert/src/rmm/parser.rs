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
#[derive(Debug)]
pub(super) struct Parser {
    pub(super) columns: Columns,
    pub(super) usual: Usual,
    days: Days,
    /// Time of the last row that was not usual; usual rows after it show the same second.
    last_ns: Option<i64>,
    pub(super) back_steps: BackSteps,
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
            let back_ns = self.last_ns.replace(time_ns).map_or(0, |last_ns| last_ns.saturating_sub(time_ns));
            if back_ns > NS_PER_S {
                self.back_steps.count += 1;
                self.back_steps.most_ns = self.back_steps.most_ns.max(back_ns as u64);
            }
        }
        let Row { thread, action, address, bytes, stream, .. } = row;
        Ok(ParsedLine::Row(TimedRow { thread, time_ns, action, address, bytes, stream }))
    }
}

/// Says that a line is longer than any row can be.
pub(super) fn long_line() -> String {
    format!("the line is longer than {LINE_BYTES_MAX} bytes")
}
