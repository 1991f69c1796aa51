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
}

impl Parser {
    pub(super) fn new(columns: Columns, date: Option<Date>) -> Self {
        Self { columns, usual: Usual::new(), days: Days::from(date) }
    }

    /// Reads any line without its end: a row, or `None` for a blank line or another header, whose
    /// columns hold from there on.
    ///
    /// # Errors
    /// What is wrong with it, in a sentence that quotes the field.
    pub(super) fn read_line(&mut self, line: &[u8]) -> Result<Option<TimedRow>, String> {
        if line.len() > LINE_BYTES_MAX {
            return Err(long_line());
        }
        let row = match Row::parse(line, &self.columns) {
            Ok(row) => row,
            Err(_) if line.trim_ascii().is_empty() => return Ok(None),
            Err(reason) => {
                self.columns = Columns::parse(line).map_err(|_| reason)?;
                return Ok(None);
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
        let Row { thread, action, address, bytes, stream, .. } = row;
        Ok(Some(TimedRow { thread, time_ns, action, address, bytes, stream }))
    }
}

/// Says that a line is longer than any row can be.
pub(super) fn long_line() -> String {
    format!("the line is longer than {LINE_BYTES_MAX} bytes")
}
