//! The resident set over time.

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::tables::Process;
use floodmark_event::{Metric, Row, SampleRow, SubjectKind, SubjectRow, Tables};
use floodmark_store::{Losses, Progress, Result, RowSource};

use super::records::{Record, Records};
use crate::OpenProps;
use crate::reopen::StreamInput;

/// Yields the samples of a file.
pub(super) struct FileRows {
    records: Records,
    tables: Tables,
    subject: u64,
    is_done: bool,
    /// Found behind rows that had to be handed out first.
    error: Option<floodmark_store::Error>,
}

impl FileRows {
    pub(super) fn open(input: StreamInput, props: &OpenProps) -> Result<Self> {
        let records = Records::open(input, props)?;
        let header = &records.header;
        let mut tables = Tables::default();
        let (pid, command) = (header.pid, header.command.clone());
        let subject = u64::from(props.process.0) << 32 | 1;
        let row = SubjectRow {
            start_ns: Some(header.start_ns),
            detail: command.clone(),
            ..SubjectRow::new(subject, SubjectKind::Process, u64::from(pid), "python")
        };
        tables.subjects.insert(subject, row);
        tables.processes.push(Process { id: props.process, pid, command, ..Process::default() });
        Ok(Self { records, tables, subject, is_done: false, error: None })
    }
}

impl RowSource for FileRows {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn next(&mut self, rows: &mut Vec<Row>) -> Result<bool> {
        rows.clear();
        if let Some(error) = self.error.take() {
            self.is_done = true;
            return Err(error);
        }
        while rows.len() < BATCH_ROWS && !self.is_done {
            match self.records.next() {
                Ok(Some(Record::Memory { rss_bytes: value })) => {
                    let (time_ns, subject) = (self.records.time_ns, self.subject);
                    rows.push(Row::Sample(SampleRow { time_ns, subject, metric: Metric::Rss, value }));
                }
                Ok(Some(_)) => {}
                Ok(None) => self.is_done = true,
                Err(error) if rows.is_empty() => return Err(error),
                Err(error) => {
                    self.error = Some(error);
                    break;
                }
            }
        }
        Ok(!rows.is_empty())
    }

    fn losses(&self) -> Losses {
        Losses::default()
    }

    fn progress(&self) -> Progress {
        self.records.progress()
    }
}
