//! The resident set over time.

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::tables::Process;
use floodmark_event::{Metric, Row, SampleRow, SubjectKind, SubjectRow, Tables};
use floodmark_store::{Losses, Progress, Result, RowSource};

use super::lines::LogLines;
use crate::OpenProps;
use crate::reopen::StreamInput;

/// Yields the samples of a log.
pub(super) struct LogRows {
    lines: LogLines,
    tables: Tables,
    subject: u64,
    is_done: bool,
}

impl LogRows {
    pub(super) fn open(input: StreamInput, props: &OpenProps) -> Result<Self> {
        let lines = LogLines::open(input, props)?;
        let mut tables = Tables::default();
        let command = lines.header.command.clone();
        let subject = u64::from(props.process.0) << 32 | 1;
        let name = command.split_whitespace().next().unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or_default();
        let row = SubjectRow {
            detail: command.clone(),
            ..SubjectRow::new(
                subject,
                SubjectKind::Process,
                0,
                if name.is_empty() { "heaptrack" } else { name },
            )
        };
        tables.subjects.insert(subject, row);
        tables.processes.push(Process { id: props.process, command, ..Process::default() });
        Ok(Self { lines, tables, subject, is_done: false })
    }

    fn take(&mut self, sort: u8, rows: &mut Vec<Row>) -> std::result::Result<(), String> {
        match sort {
            b'c' => self.lines.take_time(),
            b'R' => {
                let [pages] = self.lines.numbers()?;
                let value = pages.saturating_mul(self.lines.header.page_bytes);
                let (time_ns, subject) = (self.lines.time_ns, self.subject);
                rows.push(Row::Sample(SampleRow { time_ns, subject, metric: Metric::Rss, value }));
                Ok(())
            }
            // A text that goes on in the next line would be taken for lines of other sorts.
            b's' => self.lines.text().map(drop),
            _ => Ok(()),
        }
    }
}

impl RowSource for LogRows {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn next(&mut self, rows: &mut Vec<Row>) -> Result<bool> {
        rows.clear();
        while rows.len() < BATCH_ROWS && !self.is_done {
            match self.lines.next()? {
                None => self.is_done = true,
                Some(sort) => self.take(sort, rows).or_else(|reason| self.lines.complain(reason))?,
            }
        }
        Ok(!rows.is_empty())
    }

    fn losses(&self) -> Losses {
        // Counted as losses of the events.
        Losses::default()
    }

    fn progress(&self) -> Progress {
        self.lines.progress()
    }
}
